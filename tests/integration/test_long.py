"""What takes minutes: on demand (tests/run.sh long)."""
import os
import random
import time

import grpc
import pytest

import chaos
from conftest import Server, pb_grpc, request, wait_until
from partitions import link_downs


def process_facts(server):
    """(resident bytes, threads, open files)."""
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as f:
        status = dict(line.split(":", 1) for line in f)
    return (int(status["VmRSS"].split()[0]) * 1024, int(status["Threads"]),
            len(os.listdir(f"/proc/{server.process.pid}/fd")))


def test_memory_over_many_requests():
    """20,000 requests of mixed length, a tenth cancelled, a new channel every hundred."""
    draw = random.Random(1)
    with Server() as server:
        early = None
        for round_ in range(200):
            with grpc.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                stub = pb_grpc.InferenceStub(channel)
                calls = [stub.Generate.future(request(ids=[draw.randrange(3, 2000)] * draw.randrange(1, 60),
                                                      max_new_tokens=draw.randrange(1, 12))) for _ in range(100)]
                for call in calls[::10]:
                    call.cancel()
                for call in calls:
                    try:
                        call.result(timeout=60)
                    except (grpc.RpcError, grpc.FutureCancelledError):
                        pass
            if round_ == 19:
                assert wait_until(lambda: server.load() == (0, 0, 0))
                early = process_facts(server)
        assert wait_until(lambda: server.load() == (0, 0, 0))
        time.sleep(1)
        late = process_facts(server)
        print(f"\nafter 2,000 requests: {early}; after 20,000: {late}")
        assert late[0] - early[0] < max(4 << 20, early[0] // 100)
        assert late[1] <= early[1] + 2 and late[2] <= early[2] + 2


def test_a_client_that_pings_every_ten_seconds_stays(nemotron):
    """A whole minute without calls: such a client is none of those that flood."""
    channel = nemotron.channel(options=[("grpc.keepalive_time_ms", 10000), ("grpc.keepalive_permit_without_calls", 1),
                                        ("grpc.http2.max_pings_without_data", 0)])
    states = []
    channel.subscribe(states.append, try_to_connect=True)
    stub = pb_grpc.InferenceStub(channel)
    stub.Generate(request(text="x", max_new_tokens=1))
    time.sleep(60)
    assert stub.Generate(request(text="x", max_new_tokens=1)).choices
    assert grpc.ChannelConnectivity.TRANSIENT_FAILURE not in states and states.count(
        grpc.ChannelConnectivity.READY) == 1, states


@pytest.mark.parametrize("model", ["shakespeare-nemotronh", "shakespeare-qwen3moe"])
def test_chaos(model):
    """Ranks that are killed, stopped, sent away and rebalanced, 200, 50, 100 and 100 times, under 32 streams."""
    figures = chaos.run(model, streams=32, kills=200, stops=50, drains=100, rebalances=100)
    assert figures["kill"]["known p99"] <= 0.5
    assert figures["kill"]["next token p99"] <= 3
    assert figures["stop"]["known p99"] <= 2


def test_fifty_link_downs():
    known, gaps = link_downs("shakespeare-nemotronh", times=50)
    print(f"known after {chaos.percentile(known, 0.99):.3f} s, all streams went on after {chaos.percentile(gaps, 0.99):.3f} s (p99)")
    assert chaos.percentile(known, 0.99) <= 2
