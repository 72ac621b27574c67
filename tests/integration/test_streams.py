"""Many streams at once."""
import asyncio

import grpc

from conftest import PATIENCE, Server, demo_dir, pb_grpc, request

STREAMS = 1000


def prompt(i):
    return [3 + (i * 37 + j * 11) % 200 for j in range(5 + i % 40)]


def ask(i):
    return request(ids=prompt(i), max_new_tokens=8 + i % 9, temperature=0, ignore_eos=True, skip_text=True)


async def all_at_once(address):
    async with grpc.aio.insecure_channel(address) as channel:
        stub = pb_grpc.InferenceStub(channel)

        async def one(i):
            ids = []
            async for chunk in stub.GenerateStream(ask(i), timeout=300 * PATIENCE):
                ids += chunk.delta.token_ids
            return ids
        return await asyncio.gather(*(one(i) for i in range(STREAMS)))


def test_a_thousand_concurrent_streams():
    """Every one of a thousand concurrent streams is whole, and equal to the request alone."""
    with Server("--max-queue", "2000", model=demo_dir("shakespeare-qwen3moe")) as server:
        answers = asyncio.run(all_at_once(server.address))
        assert [len(ids) for ids in answers] == [8 + i % 9 for i in range(STREAMS)]
        stub = server.stub()
        for i in range(0, STREAMS, 50):
            assert list(stub.Generate(ask(i)).choices[0].token_ids) == answers[i], i
        assert server.wait_idle()
