"""Start, health, cancel, overload, drain, stop, metrics: the life of the server and of requests in it."""
import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from conftest import BINARY, PATIENCE, Server, collect, demo_dir, free_port, pb, request, status_of, wait_until

LONG = {"ids": [5, 6, 7], "max_new_tokens": 1000, "ignore_eos": True}


def health(server, service=""):
    return health_pb2_grpc.HealthStub(server.channel()).Check(
        health_pb2.HealthCheckRequest(service=service)).status


def test_up_in_under_a_second_from_any_directory():
    start = time.time()
    with Server(wait=False) as server:
        server.wait_ready()
        stub = server.stub()
        stub.Generate(request(text="x", max_new_tokens=1))
        assert time.time() - start < 1.0 * PATIENCE
        assert "shakespeare-nemotronh" in server.log()


def test_health_names(nemotron):
    serving = health_pb2.HealthCheckResponse.SERVING
    for name in ("", "moe.v1.Inference", "moe.v1.Operations"):
        assert health(nemotron, name) == serving
    assert status_of(lambda: health(nemotron, "other"))[0] == grpc.StatusCode.NOT_FOUND
    watch = health_pb2_grpc.HealthStub(nemotron.channel()).Watch(health_pb2.HealthCheckRequest(service="other"))
    assert next(iter(watch)).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()


def test_reflection_lists_the_services(nemotron):
    stub = reflection_pb2_grpc.ServerReflectionStub(nemotron.channel())
    answer = next(stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")])))
    names = {s.name for s in answer.list_services_response.service}
    assert {"moe.v1.Inference", "moe.v1.Operations", "grpc.health.v1.Health"} <= names


def test_moe_health_is_a_container_health_check(nemotron):
    ask = lambda *flags: subprocess.run([BINARY, "health", *flags], capture_output=True, timeout=20)  # noqa: E731
    assert ask("--target", nemotron.address).returncode == 0
    assert ask("--target", nemotron.address, "--service", "other").returncode == 1
    assert ask("--target", f"127.0.0.1:{free_port()}", "--timeout", "1").returncode == 1


def test_a_client_that_cancels_frees_everything(nemotron):
    stub = nemotron.stub()
    for unary in (False, True):
        if unary:
            calls = [stub.Generate.future(request(**LONG)) for _ in range(20)]
            assert wait_until(lambda: nemotron.load()[0] > 0)
        else:
            calls = [stub.GenerateStream(request(**LONG)) for _ in range(20)]
            for call in calls:
                next(call)
        for call in calls:
            call.cancel()
        assert wait_until(lambda: nemotron.load() == (0, 0, 0), 1)


def test_a_client_that_vanishes_frees_everything():
    """The process dies with the socket, no gRPC cancel is sent."""
    with Server(admin=True) as server:
        script = ("import sys; sys.path[:0] = [%r]; import conftest, os, threading\n"
                  "c = conftest.grpc.insecure_channel(sys.argv[1])\n"
                  "s = conftest.pb_grpc.InferenceStub(c)\n"
                  "streams = [s.GenerateStream(conftest.request(ids=[5], max_new_tokens=1000, ignore_eos=True,"
                  " n=1)) for _ in range(20)]\n"
                  "[next(x) for x in streams]\n"
                  "os._exit(0)\n" % str(pathlib.Path(__file__).parent))
        subprocess.run([os.sys.executable, "-c", script, server.address], check=True, timeout=60)
        assert wait_until(lambda: server.load() == (0, 0, 0), 1)
        done = server.metric("moe_requests_total", method="GenerateStream")
        assert done == 20
        tokens = server.metric("moe_generated_tokens_total")
        time.sleep(0.2)
        assert server.metric("moe_generated_tokens_total") == tokens, "nothing goes on"


def test_deadlines(nemotron):
    stub = nemotron.stub()
    for call in (lambda: stub.Generate(request(**LONG, n=16), timeout=0.03),
                 lambda: list(stub.GenerateStream(request(**LONG, n=16), timeout=0.03))):
        assert status_of(call)[0] == grpc.StatusCode.DEADLINE_EXCEEDED
    assert nemotron.wait_idle(1)


def test_cancel_while_queued():
    """The cancelled ones never start, the others run in order."""
    with Server("--max-num-seqs", "1", admin=True) as server:
        stub = server.stub()
        first = stub.GenerateStream(request(**LONG))
        next(first)
        queued = [stub.Generate.future(request(ids=[9] * (10 + i), max_new_tokens=2, ignore_eos=True))
                  for i in range(5)]
        assert wait_until(lambda: server.load()[1] == 5)
        for call in queued[1:4]:
            call.cancel()
        assert wait_until(lambda: server.load()[1] == 2, 0.5)
        first.cancel()
        for call in (queued[0], queued[4]):
            assert len(call.result(timeout=20).choices[0].token_ids) == 2
        assert server.wait_idle()
        assert server.metric("moe_prompt_tokens_total", source="computed") == 3 + 10 + 14


def test_full_queue_is_refused_at_once():
    with Server("--max-num-seqs", "1", "--max-queue", "2", admin=True) as server:
        stub = server.stub()
        running = stub.GenerateStream(request(**LONG))
        next(running)
        queued = [stub.Generate.future(request(**LONG)) for _ in range(2)]
        assert wait_until(lambda: server.load()[1] == 2)
        start = time.time()
        code, message = status_of(lambda: stub.Generate(request(text="x")))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED and "queue" in message
        assert time.time() - start < 0.5 * PATIENCE
        assert server.metric("moe_requests_rejected_total", reason="queue_full") == 1
        for call in (running, *queued):
            call.cancel()
        assert server.wait_idle()
        assert stub.Generate(request(text="x", max_new_tokens=1)).choices


def test_a_small_request_between_two_prompts_of_maximal_length():
    """All three end; the long prompts are computed in chunks."""
    with Server("--max-model-len", "256", "--max-num-batched-tokens", "64", model=demo_dir("shakespeare-qwen3moe")) as s:
        stub = s.stub()
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            big = [pool.submit(stub.Generate, request(ids=[i + 3] * 255, ignore_eos=True)) for i in range(2)]
            small = pool.submit(stub.Generate, request(ids=[1, 2, 3, 4], max_new_tokens=16, ignore_eos=True))
            assert small.result(30).usage.generated_tokens == 16
            assert all(b.result(30).usage.generated_tokens == 1 for b in big)


def test_load_twice_the_pool_always_moves():
    """40 requests on four places, ten of them cancelled: none waits for ever."""
    with Server("--max-num-seqs", "4") as server:
        stub = server.stub()
        calls = [stub.Generate.future(request(ids=[i + 3], max_new_tokens=60, ignore_eos=True)) for i in range(40)]
        for call in calls[::4]:
            call.cancel()
        stalled = 0
        end = time.time() + 30 * PATIENCE
        while time.time() < end and not all(c.done() for c in calls):
            running, waiting, _ = server.load()
            stalled = stalled + 1 if waiting and not running else 0
            assert stalled < 100
            time.sleep(0.01)
        assert all(c.done() for c in calls)
        assert sum(not c.cancelled() and c.exception() is None for c in calls) >= 30
        assert server.wait_idle()


def test_abort_ends_with_what_was_generated(nemotron):
    stub = nemotron.stub()
    call = stub.GenerateStream(request(**LONG, request_id="to-abort"))
    chunks = [next(call) for _ in range(2)]
    assert nemotron.operations().Abort(pb.AbortRequest(request_ids=["to-abort", "unknown"])).aborted == 1
    chunks += list(call)
    _, ids, finish = collect(chunks)[0]
    assert finish == pb.FINISH_REASON_CANCELLED and 0 < len(ids) < 1000
    assert call.code() == grpc.StatusCode.OK


def test_drain():
    with Server() as server:
        stub = server.stub()
        call = stub.GenerateStream(request(ids=[5], max_new_tokens=300, ignore_eos=True))
        next(call)
        drain = server.operations().Drain.future(pb.DrainRequest())
        assert wait_until(lambda: health(server) == health_pb2.HealthCheckResponse.NOT_SERVING, 1)
        code, _ = status_of(lambda: stub.Generate(request(text="x")))
        assert code == grpc.StatusCode.UNAVAILABLE
        assert len(collect(call)[0][1]) > 200, "what ran goes on"
        answer = drain.result(30)
        assert (answer.finished, answer.cancelled) == (1, 0)
        assert server.process.poll() is None, "the process stays up"


def test_drain_deadline_cuts():
    with Server() as server:
        call = server.stub().GenerateStream(request(ids=[5], max_new_tokens=1000, ignore_eos=True, n=8))
        next(call)
        answer = server.operations().Drain(pb.DrainRequest(deadline_seconds=0.01))
        assert answer.cancelled == 1
        finishes = {f for _, _, f in collect(call).values()}
        assert pb.FINISH_REASON_CANCELLED in finishes and call.code() == grpc.StatusCode.OK


def test_sigterm_drains_and_exits_with_zero():
    with Server() as server:
        call = server.stub().GenerateStream(request(ids=[5], max_new_tokens=500, ignore_eos=True))
        first = next(call)
        server.process.send_signal(signal.SIGTERM)
        assert len(first.delta.token_ids) + len(collect(call)[0][1]) == 500
        assert server.process.wait(10 * PATIENCE) == 0


def test_sigterm_when_idle_is_quick():
    with Server() as server:
        start = time.time()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 0
        assert time.time() - start < 1.0 * PATIENCE


@pytest.mark.skipif(PATIENCE > 1, reason="sanitizers start before everything else")
def test_sigterm_before_the_libraries_are_ready(tmp_path):
    """A library's constructor, long before main, is where the signal comes."""
    source = tmp_path / "early.c"
    source.write_text("#include <signal.h>\n"
                      "__attribute__((constructor)) static void early(void) { raise(SIGTERM); }\n", encoding="utf-8")
    library = tmp_path / "early.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    with Server(wait=False, env={"LD_PRELOAD": str(library)}) as server:
        assert server.process.wait(20) == 0
        assert "stopped while loading" in server.log()


def test_second_signal_ends_at_once():
    with Server("--max-num-seqs", "1") as server:
        calls = [server.stub().GenerateStream(request(**LONG, n=64)) for _ in range(2)]
        next(calls[0])
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
        start = time.time()
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(5 * PATIENCE)
        assert time.time() - start < 1.0 * PATIENCE


@pytest.mark.parametrize("flags,code,words", [
    (["--port", "abc"], 2, ["port"]),
    (["--dtype", "int3"], 2, ["dtype"]),
    (["--cpu-isa", "neon"], 2, ["cpu-isa"]),
    (["--no-such-flag"], 2, ["no-such-flag"]),
    (["--host", "999.1.1.1"], 2, ["--host", "999.1.1.1"]),
    (["--kv-cache-memory-gib", "nan"], 2, ["nan"]),
    (["--max-model-len", "1"], 3, ["max-model-len"]),
    (["--model", "/nonexistent"], 3, ["/nonexistent"]),
    (["--device", "cuda"], 2, ["cuda", "cpu"]),
    (["--max-model-len", "5000"], 3, ["max-model-len", "5000", "1024"]),
])
def test_start_errors_are_clear_and_have_codes(flags, code, words):
    with Server(*flags, wait=False) as server:
        assert server.process.wait(10 * PATIENCE) == code
        for word in words:
            assert word in server.log(), server.log()


@pytest.mark.skipif(PATIENCE > 1, reason="sanitizers need terabytes of address space")
@pytest.mark.parametrize("mebibytes", [100, 150, 200, 300])
@pytest.mark.parametrize("command", [["serve", "--port", "0", "--admin-port", "0"], ["run", "x"]])
def test_too_little_memory_is_an_error_with_a_code(command, mebibytes):
    out = subprocess.run(f"ulimit -v {mebibytes * 1024} && exec {BINARY} {' '.join(command)}", shell=True,
                         capture_output=True, timeout=20 * PATIENCE)
    if command[0] == "run" and out.returncode == 0:
        pytest.skip("that is enough here")
    assert out.returncode == 3, (out.returncode, out.stderr)
    assert b"ERROR" in out.stderr or b"moe run: " in out.stderr, out.stderr
    assert b"terminate called" not in out.stderr


@pytest.mark.parametrize("flags,words", [
    (["--seed=-1"], "seed"), (["--seed", str(2**64)], "18446744073709551615"), (["--seed", "0x10"], "seed"),
    (["--stop", ""], "stop"), (["--top-k=-1"], "top-k")])
@pytest.mark.parametrize("command", [["run"], ["generate", "--target", "127.0.0.1:1"]])
def test_bad_options_of_clients(command, flags, words):
    out = subprocess.run([BINARY, *command, *flags, "x"], capture_output=True, timeout=20 * PATIENCE)
    assert out.returncode == 2 and words in (out.stdout + out.stderr).decode(), out


def test_seeds_are_64_bits_without_sign(nemotron):
    def text(*flags):
        return subprocess.run([BINARY, "run", "--quiet", "-m", "8", *flags, "x"], capture_output=True, timeout=20,
                              check=True).stdout.decode().strip()
    largest = nemotron.stub().Generate(request(text="x", seed=2**64 - 1, max_new_tokens=8)).choices[0].text
    assert text("-s", str(2**64 - 1)) == largest.strip()
    assert text("-s", "010") == text("-s", "10") != text("-s", "8")


def test_taken_ports_are_named():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        with Server("--port", str(port), wait=False) as server:
            assert server.process.wait(10 * PATIENCE) == 4
            assert str(port) in server.log()
        admin = subprocess.run([BINARY, "serve", "--port", "0", "--admin-port", str(port)], capture_output=True,
                               timeout=20)
        assert admin.returncode == 4 and str(port) in admin.stderr.decode()


def test_broken_checkpoint_never_serves(tmp_path):
    """The index names a shard that is not there."""
    model = tmp_path / "model"
    shutil.copytree(demo_dir("shakespeare-qwen3moe"), model)
    os.rename(model / "model.safetensors", model / "model-00001-of-00002.safetensors")
    (model / "model.safetensors.index.json").write_text(
        '{"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}')
    with Server(model=model, wait=False) as server:
        assert server.process.wait(10 * PATIENCE) == 3
        assert "CORRUPT" in server.log() and "model-00002-of-00002.safetensors" in server.log()


def test_environment_variables_and_command_line_win_in_order():
    env = {"MOE_MAX_MODEL_LEN": "128", "MOE_SERVED_MODEL_NAME": "from-env"}
    with Server(env=env) as server:
        info = server.stub().GetModel(pb.GetModelRequest())
        assert (info.name, info.max_context_tokens) == ("from-env", 128)
    with Server("--max-model-len", "64", env=env) as server:
        assert server.stub().GetModel(pb.GetModelRequest()).max_context_tokens == 64


def test_model_as_positional_argument():
    with Server(str(demo_dir("shakespeare-qwen3moe"))) as server:
        assert server.stub().GetModel(pb.GetModelRequest()).architecture == "Qwen3MoeForCausalLM"


def test_moe_generate_streams_to_the_terminal(nemotron):
    out = subprocess.run([BINARY, "generate", "--target", nemotron.address, "--seed", "7", "--max-new-tokens", "40",
                          "JULIET:\n"], capture_output=True, timeout=20)
    answer = nemotron.stub().Generate(request(text="JULIET:\n", seed=7, max_new_tokens=40))
    assert out.returncode == 0 and answer.choices[0].text.strip() in out.stdout.decode()
    failed = subprocess.run([BINARY, "generate", "--target", f"127.0.0.1:{free_port()}", "x"], capture_output=True,
                            timeout=20)
    assert failed.returncode != 0 and failed.stderr
    local = subprocess.run([BINARY, "run", "--seed", "7", "--max-new-tokens", "40", "--quiet", "JULIET:\n"],
                           capture_output=True, timeout=20)
    assert local.stdout.decode().strip() == answer.choices[0].text.strip(), "the same engine, the same text"


def test_metrics_are_clean_and_count(nemotron):
    if shutil.which("promtool"):
        lint = subprocess.run(["promtool", "check", "metrics"], input=nemotron.http("/metrics")[1].encode(),
                              capture_output=True, timeout=20)
        assert lint.returncode == 0, lint.stdout + lint.stderr
    before = nemotron.metrics()
    nemotron.stub().Generate(request(ids=[5] * 50, max_new_tokens=7, ignore_eos=True))
    assert wait_until(lambda: nemotron.metric("moe_generated_tokens_total")
                      == sum(v for k, v in before.items() if k.startswith("moe_generated_tokens_total")) + 7)
    after = nemotron.metrics()
    gained = lambda prefix: (sum(v for k, v in after.items() if k.startswith(prefix))  # noqa: E731
                             - sum(v for k, v in before.items() if k.startswith(prefix)))
    assert gained("moe_prompt_tokens_total") == 50
    assert gained("moe_time_to_first_token_seconds_count") == 1
    assert gained("moe_inter_token_latency_seconds_count") == 6
    # 56 rows went through four MoE layers with four experts each.
    assert gained("moe_expert_tokens_total") == 56 * 4 * 4
    assert any(k.startswith("moe_experts_unused{") for k in after)
    assert nemotron.http("/healthz")[0] == 200 and nemotron.http("/readyz")[0] == 200
    assert nemotron.http("/nothing")[0] == 404


def test_gauges_after_a_mass_cancel(nemotron):
    """What runs, waits and is used is zero again, not what it was at the cancel."""
    calls = [nemotron.stub().GenerateStream(request(**LONG)) for _ in range(32)]
    for call in calls:
        next(call)
    for call in calls:
        call.cancel()
    names = ("moe_requests_running", "moe_requests_waiting", "moe_kv_cache_usage_ratio")
    assert wait_until(lambda: all(nemotron.metric(n) == 0 for n in names), 1)


def test_counters_never_go_down():
    """Through preemption, eviction and cancels."""
    with Server("--kv-cache-memory-gib", "0.001", model=demo_dir("shakespeare-qwen3moe"), admin=True) as server:
        stub = server.stub()
        last = {}
        stop = threading.Event()
        wrong = []

        def scrape():
            while not stop.is_set():
                now = server.metrics()
                wrong.extend(k for k, v in last.items()
                             if ("_total" in k or "_count" in k or "_bucket" in k) and now.get(k, v) < v)
                last.update(now)

        scraper = threading.Thread(target=scrape)
        scraper.start()
        for round_ in range(4):
            calls = [stub.GenerateStream(request(ids=[i + 3] * (20 + 9 * i), max_new_tokens=60, ignore_eos=True))
                     for i in range(24)]
            for call in calls[::3]:
                call.cancel()
            for i, call in enumerate(calls):
                if i % 3:
                    assert len(collect(call)[0][1]) == 60
        stop.set()
        scraper.join()
        assert not wrong
        assert server.wait_idle()


def test_slow_readers_cost_little_and_disturb_nobody(nemotron):
    """Fifty clients that open this model's longest streams and do not read: memory stays bounded."""
    channel = nemotron.channel(options=[("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0),
                                        ("grpc.http2.write_buffer_size", 1024)])
    from conftest import pb_grpc
    stalled = [pb_grpc.InferenceStub(channel).GenerateStream(request(**LONG, logprobs=20)) for _ in range(50)]
    for _ in range(3):
        start = time.time()
        assert nemotron.stub().Generate(request(ids=[5], max_new_tokens=20, ignore_eos=True)).choices
        assert time.time() - start < 5 * PATIENCE
    resident = nemotron.metric("process_resident_memory_bytes")
    assert resident == 0 or resident < 400e6
    for call in stalled:
        call.cancel()
    assert nemotron.wait_idle(2)


def test_logs_hold_nothing_of_prompts_and_outputs():
    """A canary through every path."""
    canary = "ZEBRA-7391-QUARTZ"
    with Server("--log-level", "debug", admin=True) as server:
        stub = server.stub()
        stub.Generate(request(text=canary, max_new_tokens=3, stop=[canary + "x"]))
        list(stub.GenerateStream(request(text=canary, max_new_tokens=3), metadata=[("x-note", canary)]))
        status_of(lambda: stub.Generate(request(text=canary, temperature=-1.0)))
        status_of(lambda: stub.Generate(request(text=canary * 400)))
        chat = pb.Chat(messages=[pb.ChatMessage(role="user", content=canary, extra_json='{"x": "%s"}' % canary)])
        stub.Generate(pb.GenerateRequest(chat=chat, stopping=pb.Stopping(max_new_tokens=2)))
        status_of(lambda: stub.Generate(pb.GenerateRequest(chat=pb.Chat(
            messages=[pb.ChatMessage(role="user", content=canary, extra_json=canary)]))))
        call = stub.GenerateStream(request(text=canary, max_new_tokens=900, ignore_eos=True))
        next(call)
        call.cancel()
        server.wait_idle()
        assert canary not in server.http("/metrics")[1]
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(10 * PATIENCE)
        assert canary not in server.log()


def test_half_open_admin_connections_do_not_block_probes(nemotron):
    host, port = nemotron.admin.split(":")
    sockets = [socket.create_connection((host, int(port))) for _ in range(8)]
    for s in sockets:
        s.send(b"GET /metrics HTTP/1.1\r\nX:")
    start = time.time()
    assert nemotron.http("/healthz")[0] == 200
    assert time.time() - start < 1 * PATIENCE
    for s in sockets:
        s.close()


def test_moe_generate_stops_when_nobody_reads(nemotron):
    out = subprocess.run(f"{BINARY} generate --target {nemotron.address} --max-new-tokens 20 hi > /dev/full", shell=True,
                         capture_output=True, timeout=20)
    assert out.returncode == 1 and b"cannot write" in out.stderr


def test_truncating_the_checkpoint_does_not_hurt_a_running_server(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(demo_dir("shakespeare-qwen3moe"), model)
    with Server(model=model) as server:
        before = server.stub().Generate(request(ids=list(range(100, 900)), temperature=0, max_new_tokens=8))
        server.operations().FlushPrefixCache(pb.FlushPrefixCacheRequest())
        os.truncate(model / "model.safetensors", 1000)
        after = server.stub().Generate(request(ids=list(range(100, 900)), temperature=0, max_new_tokens=8))
        assert before.choices[0].token_ids == after.choices[0].token_ids


def test_many_choices_with_whole_vocabulary_are_not_taken_for_a_slow_reader(nemotron):
    chunks = nemotron.stub().GenerateStream(request(text="JULIET:", n=64, logprobs=-1, max_new_tokens=4, seed=1,
                                                    ignore_eos=True))
    assert all(len(ids) == 4 for _, ids, _ in collect(chunks).values())


def test_pings(nemotron):
    """A client that pings each ten seconds stays; one that floods is sent away; others notice nothing."""
    polite = nemotron.channel(options=[("grpc.keepalive_time_ms", 10000), ("grpc.keepalive_permit_without_calls", 1),
                                       ("grpc.http2.max_pings_without_data", 0)])
    from conftest import pb_grpc
    stub = pb_grpc.InferenceStub(polite)
    stub.Generate(request(text="x", max_new_tokens=1))
    # Raw HTTP/2: preface, empty SETTINGS, then pings every 2 ms until the server closes.
    with socket.create_connection(nemotron.address.split(":")) as s:
        s.settimeout(5 * PATIENCE)
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        received = b""
        try:
            for _ in range(2000):
                s.sendall(b"\0\0\x08\6\0\0\0\0\0" + b"12345678")
                time.sleep(0.002)
                s.setblocking(False)
                try:
                    received += s.recv(65536)
                except BlockingIOError:
                    pass
                s.setblocking(True)
                if b"too_many_pings" in received:
                    break
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert b"too_many_pings" in received
    assert stub.Generate(request(text="x", max_new_tokens=1)).choices


def test_help_is_worth_reading():
    for command in ([], ["serve"], ["generate"], ["run"], ["inspect"], ["health"]):
        out = subprocess.run([BINARY, *command, "--help"], capture_output=True, timeout=20)
        assert out.returncode == 0 and len(out.stdout) > 200
        assert " ".join(["Usage: moe", *command, "[OPTIONS]"]) in out.stdout.decode()
    alone = subprocess.run([BINARY], capture_output=True, timeout=20)
    assert alone.returncode == 2 and b"Usage: moe [OPTIONS] SUBCOMMAND" in alone.stdout
    run = subprocess.run([BINARY, "run", "--help"], capture_output=True, timeout=20).stdout.decode()
    assert 'Usage: moe run [OPTIONS] [MODEL] "text"' in run and "Exit codes" in run
    text = subprocess.run([BINARY, "serve", "--help"], capture_output=True, timeout=20).stdout.decode()
    for flag in ("model", "served-model-name", "host", "port", "admin-port", "dtype", "device", "cpu-isa", "threads",
                 "max-model-len", "max-num-seqs", "max-num-batched-tokens", "kv-cache-memory-gib"):
        assert f"--{flag}" in text and f"MOE_{flag.upper().replace('-', '_')}" in text


def inspect(*arguments):
    out = subprocess.run([BINARY, "inspect", *map(str, arguments)], capture_output=True, timeout=20)
    return out.returncode, out.stdout.decode()


def test_inspect_plans_what_is_not_downloaded(tmp_path):
    configs = pathlib.Path(__file__).resolve().parents[1] / "data/configs"
    # config.json alone, of a model of a trillion parameters.
    shutil.copy(configs / "moonshotai--Kimi-K2-Instruct.json", tmp_path / "config.json")
    code, text = inspect("--json", tmp_path)
    found = json.loads(text)
    assert code == 0 and found["weights_found"] is False and found["experts"] == 384
    assert found["parameters"] == 1026408232448
    assert found["memory"]["weight_bytes"] > 2e12 and found["memory"]["kv_bytes_per_token"] > 0
    code, text = inspect(tmp_path)
    assert code == 0 and "no weights in this directory" in text

    # Its tensors: a line for each pattern, and as JSON.
    code, text = inspect("--tensors", tmp_path)
    assert code == 0 and len(text.splitlines()) < 50
    assert "model.layers.{l}.mlp.experts.{e}.gate_proj.weight" in text and "layers 1-60, experts 0-383" in text
    code, text = inspect("--tensors", "--json", tmp_path)
    plan = json.loads(text)
    assert code == 0 and plan["tensors"] == sum(p["count"] for p in plan["patterns"])

    # With an index the names are checked, without the files.
    names = set()
    for pattern in plan["patterns"]:
        for layer in pattern["layers"] or [None]:
            for expert in range(pattern["experts"]) or [None]:
                names.add(pattern["name"].replace("{l}", str(layer)).replace("{e}", str(expert)))
    index = {"metadata": {"total_size": 2 * found["parameters"]}, "weight_map": {n: "a.safetensors" for n in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    code, text = inspect(tmp_path)
    assert code == 0 and "all that are needed are there" in text and "none of them here" in text
    del index["weight_map"]["model.norm.weight"]
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    code, text = inspect("--json", tmp_path)
    assert code != 0 and json.loads(text)["index"]["missing"] == {"count": 1, "first": ["model.norm.weight"]}


def test_inspect_loads_nothing():
    out = subprocess.run([BINARY, "inspect", "--json", str(demo_dir("shakespeare-qwen3moe"))], capture_output=True,
                         timeout=20)
    found = json.loads(out.stdout)
    assert found["architecture"] == "Qwen3MoeForCausalLM" and found["experts"] == 16
    assert found["moe_layers"] == [0, 1, 2, 3] and found["expert_dtype"] == "bfloat16"
    assert "softmax, top 4 of 16" in found["router"]
