"""Ranks as processes: the same bits for any number of them, and through their deaths, stops and partitions."""
import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid

import pytest

import chaos
from conftest import BINARY, PATIENCE, Server, demo_dir, free_port, pb, request, status_of, wait_until

MODELS = ["shakespeare-nemotronh", "shakespeare-qwen3moe"]


@pytest.mark.parametrize("model", MODELS)
def test_same_bits_for_any_number_of_ranks(model):
    asks = chaos.asks()[:8]
    expected = None
    for flags in ([], ["--expert-parallel-size", "2"], ["--expert-parallel-size", "3"],
                  ["--expert-parallel-size", "4", "--ranks-in-process"], ["--expert-parallel-size", "8"]):
        with Server(*flags, model=demo_dir(model)) as server:
            stub = server.stub()
            answers = [chaos.answer(stub, ask) for ask in asks]
            expected = expected or answers
            assert answers == expected, flags


@pytest.mark.parametrize("model", MODELS)
def test_no_token_is_lost_when_ranks_die(model):
    figures = chaos.run(model, streams=16, kills=3, stops=1, drains=1, rebalances=2)
    assert figures["streams"]["completed"] >= 16


def test_ranks_end_with_the_front():
    with Server("--expert-parallel-size", "2") as server:
        ranks = chaos.children(server)
        assert len(ranks) == 2
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30 * PATIENCE) == 0
        assert wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in ranks))
    with Server("--expert-parallel-size", "2") as server:
        ranks = chaos.children(server)
        server.process.kill()
        assert wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in ranks))


def test_placement_and_rebalancing_over_grpc():
    with Server("--expert-parallel-size", "4", admin=True) as server:
        stub, operations = server.stub(), server.operations()
        for i in range(4):
            stub.Generate(request(text="O Romeo, ", max_new_tokens=40, seed=i, ignore_eos=True))
        before = operations.GetExpertPlacement(pb.GetExpertPlacementRequest())
        after = operations.RebalanceExperts(pb.RebalanceExpertsRequest(redundant_experts=8), timeout=30)
        for old, new in zip(before.layers, after.layers):
            assert new.imbalance <= old.imbalance + 1e-9
            assert new.imbalance <= 1.1, new.imbalance
            assert all(e.ranks for e in new.experts)
            assert sum(len(e.ranks) for e in new.experts) <= 32 + 8
        assert server.metric("moe_expert_rebalances_total") == 1
        code, message = status_of(lambda: operations.RebalanceExperts(pb.RebalanceExpertsRequest(redundant_experts=97)))
        assert code.name == "INVALID_ARGUMENT" and "[0, 96]" in message
    with Server() as server:
        code, _ = status_of(lambda: server.operations().RebalanceExperts(pb.RebalanceExpertsRequest()))
        assert code.name == "UNIMPLEMENTED"


@contextlib.contextmanager
def joined(front, *flags, model=None, secret=None, prefix=(), host="127.0.0.1"):
    """A rank process of our own."""
    command = [*prefix, BINARY, "serve", "--join", front, "--rank-host", host, *flags]
    if model:
        command += ["--model", str(model)]
    log = tempfile.NamedTemporaryFile("w+b", suffix=".log")
    environment = {**os.environ, **({"MOE_RANK_SECRET": secret} if secret else {})}
    process = subprocess.Popen(command, stderr=log, stdout=subprocess.DEVNULL, env=environment, cwd="/")
    process.log = lambda: open(log.name, "rb").read().decode("utf-8", "replace")
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        log.close()


def front_waiting_for(local, *flags, model=None, port, secret):
    return Server("--expert-parallel-size", "2", "--local-ranks", str(local), "--rank-port", str(port), *flags,
                  model=model, env={"MOE_RANK_SECRET": secret}, wait=False, admin=True)


def test_a_rank_joins_and_strangers_do_not():
    port, secret = free_port(), uuid.uuid4().hex
    model = demo_dir(MODELS[0])
    with front_waiting_for(1, model=model, port=port, secret=secret) as server:
        assert wait_until(lambda: "waiting for 1 of 2 ranks" in server.log(), 20), server.log()
        for flags, its_secret, its_model, code, words in (
                ([], "a guess of 16 or more".replace(" ", "-"), model, 1, "secret"),
                ([], None, model, 1, "secret"),
                ([], secret, demo_dir(MODELS[1]), 1, "the others have"),
                (["--cpu-isa", "avx2"], secret, model, 1, "the others run")):
            with joined(f"127.0.0.1:{port}", *flags, "--join-timeout", "5", model=its_model, secret=its_secret) as rank:
                assert rank.wait(30 * PATIENCE) == code, rank.log()
                assert words in rank.log(), (words, rank.log())
        with joined(f"127.0.0.1:{port}", model=model, secret=secret):
            server.wait_ready()
            with Server(model=model) as alone:
                for ask in chaos.asks()[:4]:
                    assert chaos.answer(server.stub(), ask) == chaos.answer(alone.stub(), ask)


@pytest.mark.parametrize("flags, words", [
    (["--expert-parallel-size", "2", "--rank-host", "0.0.0.0"], "--rank-"),
    (["--expert-parallel-size", "2", "--rank-host", "192.0.2.1", "--trusted-rank-network"], "--rank-secret-file"),
    (["--expert-parallel-size", "2", "--ranks-in-process", "--local-ranks", "1"], "--local-ranks"),
    (["--join", "127.0.0.1:1", "--expert-parallel-size", "2"], "--expert-parallel-size"),
    (["--join", "192.0.2.1:5", "--rank-host", "127.0.0.1"], "--join"),
])
def test_flags_that_do_not_fit_are_refused(flags, words):
    result = subprocess.run([BINARY, "serve", "--port", "0", "--admin-port", "0", *flags], capture_output=True, text=True,
                            timeout=60 * PATIENCE, check=False)
    assert result.returncode == 2, result.stderr
    assert words in result.stderr


class Proxy:
    """A TCP proxy whose connections can be made to hang, as a broken network does."""

    def __init__(self, to_port):
        self.to_port = to_port
        self.hangs = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.to_port))
            except OSError:
                return
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(a, b), daemon=True).start()

    def _copy(self, source, target):
        try:
            while data := source.recv(65536):
                while self.hangs.is_set():
                    time.sleep(0.01)
                target.sendall(data)
        except OSError:
            pass
        for s in (source, target):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()


def expect_partition(server, model, cut, mend):
    """Streams go on while a rank is unreachable, and it comes back as part of a later generation."""
    requests = chaos.asks()
    with Server(model=model) as alone:
        expected = [chaos.answer(alone.stub(), ask) for ask in requests]
    load = chaos.Load(server, 8, requests, expected)
    try:
        assert wait_until(lambda: len(load.running()) > 4, 30)
        for _ in range(2):
            generation = server.metric("moe_rank_generation")
            running, when = load.running(), time.monotonic()
            before = server.log().count(" is lost: ")
            cut()
            known = chaos.await_lost(server, before, 10 * PATIENCE)
            assert known is not None, server.log()[-2000:]
            assert known - when <= 2 * PATIENCE, known - when
            assert load.gap_after(when, running, 20 * PATIENCE) is not None
            time.sleep(0.5)
            mend()
            assert wait_until(lambda: server.metric("moe_ranks_alive") == 2, 60), server.log()[-3000:]
            assert server.metric("moe_rank_generation") > generation
            assert not load.wrong, load.wrong[:2]
    finally:
        load.stop()
    assert not load.wrong, load.wrong[:2]


@pytest.mark.parametrize("model", MODELS)
def test_a_rank_behind_a_broken_connection(model):
    port, secret = free_port(), uuid.uuid4().hex
    proxy = Proxy(port)
    with front_waiting_for(1, model=demo_dir(model), port=port, secret=secret) as server:
        assert wait_until(lambda: "waiting for 1 of 2 ranks" in server.log(), 20), server.log()
        with joined(f"127.0.0.1:{proxy.port}", "--rejoin", model=demo_dir(model), secret=secret):
            server.wait_ready()
            expect_partition(server, demo_dir(model), proxy.hangs.set, proxy.hangs.clear)
    proxy.close()


class Namespace:
    """A network namespace that is connected to ours by a pair of virtual interfaces."""

    def __init__(self):
        tag = uuid.uuid4().hex[:6]
        self.name, self.here, there = f"moe{tag}", f"mh{tag}", f"mt{tag}"
        net = f"10.{int(tag[:2], 16)}.{int(tag[2:4], 16)}"
        self.here_address, self.there_address = f"{net}.1", f"{net}.2"
        self._ip("netns", "add", self.name)
        try:
            self._ip("link", "add", self.here, "type", "veth", "peer", "name", there, "netns", self.name)
            self._ip("addr", "add", f"{self.here_address}/24", "dev", self.here)
            self._ip("link", "set", self.here, "up")
            self._ip("-n", self.name, "addr", "add", f"{self.there_address}/24", "dev", there)
            self._ip("-n", self.name, "link", "set", there, "up")
            self._ip("-n", self.name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError:
            self.close()
            raise

    @staticmethod
    def _ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    def cut(self):
        self._ip("link", "set", self.here, "down")

    def mend(self):
        self._ip("link", "set", self.here, "up")

    def close(self):
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)


def test_a_rank_behind_a_link_that_goes_down():
    try:
        namespace = Namespace()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', error)}")
    port, secret = free_port(), uuid.uuid4().hex
    model = demo_dir(MODELS[0])
    try:
        with front_waiting_for(1, "--rank-host", namespace.here_address, "--trusted-rank-network", model=model, port=port,
                               secret=secret) as server:
            assert wait_until(lambda: "waiting for 1 of 2 ranks" in server.log(), 20), server.log()
            with joined(f"{namespace.here_address}:{port}", "--rejoin", "--trusted-rank-network", model=model,
                        secret=secret, prefix=("ip", "netns", "exec", namespace.name), host=namespace.there_address):
                server.wait_ready()
                expect_partition(server, model, namespace.cut, namespace.mend)
    finally:
        namespace.close()


def test_health_says_when_too_few_ranks_are_left():
    with Server("--expert-parallel-size", "2", "--rank-recovery-timeout", "1", admin=True) as server:
        assert server.http("/readyz")[0] == 200
        stopper = threading.Event()

        def kill_all():
            while not stopper.is_set():
                for pid in chaos.children(server):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.01)
        thread = threading.Thread(target=kill_all)
        thread.start()
        try:
            assert wait_until(lambda: server.http("/readyz")[0] == 503, 3)
            code, message = status_of(lambda: server.stub().Generate(request(text="a", max_new_tokens=4), timeout=20))
            assert code.name == "UNAVAILABLE", message
        finally:
            stopper.set()
            thread.join()
        # The launcher waits longer after each quick death.
        assert wait_until(lambda: server.http("/readyz")[0] == 200, 60), server.log()[-2000:]
        assert server.stub().Generate(request(text="O Romeo, ", max_new_tokens=4)).choices[0].text
