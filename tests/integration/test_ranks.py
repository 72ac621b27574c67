"""Ranks as processes: the same bits for any number of them, and through their deaths, stops and partitions."""
import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid

import pytest

import chaos
from conftest import BINARY, PATIENCE, Server, demo_dir, free_port, pb, request, status_of, wait_until
from partitions import broken_connections, front_waiting_for, joined, link_downs

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


@pytest.mark.parametrize("model", MODELS)
def test_a_rank_behind_a_broken_connection(model):
    broken_connections(model, times=2)


def test_a_rank_behind_a_link_that_goes_down():
    link_downs(MODELS[0], times=2)


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


def test_requests_wait_for_ranks_to_come_back():
    with Server() as alone:
        ask = request(text="O Romeo, ", max_new_tokens=40, seed=7, ignore_eos=True)
        expected = chaos.answer(alone.stub(), ask)
    with Server("--expert-parallel-size", "2", "--rank-restart-delay", "4", admin=True) as server:
        stub = server.stub()
        assert chaos.answer(stub, ask) == expected
        for _ in range(2):  # the second start comes after the delay
            victims = chaos.children(server)
            for pid in victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in victims), 10)
            wait_until(lambda: len(chaos.children(server)) == 2, 1)
        assert wait_until(lambda: server.http("/readyz")[0] == 503, 3), server.log()[-2000:]
        assert chaos.answer(stub, ask) == expected  # neither refused nor cut short
        assert wait_until(lambda: server.http("/readyz")[0] == 200, 10)
