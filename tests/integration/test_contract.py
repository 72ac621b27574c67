"""The numerics contract through the server: the same bits alone, among others, chunked, preempted, on other ranks."""
import concurrent.futures
import struct

import pytest

from conftest import Server, collect, demo_dir, golden, pb, request

MODELS = ["shakespeare-nemotronh", "shakespeare-qwen3moe"]


def requests():
    """32 different requests: lengths, greedy and sampled, penalties, log-probabilities, routing."""
    ids = golden(MODELS[1])["validation"]["ids"]
    out = []
    begin = 0
    for i in range(32):
        length = 1 + (i * 37) % 190
        out.append(request(ids=ids[begin:begin + length], temperature=0 if i % 3 == 0 else 0.9, top_p=0.95,
                           top_k=50 if i % 2 else 0, seed=1000 + i, max_new_tokens=120 if i % 4 == 3 else 8 + i % 17, ignore_eos=True,
                           repetition_penalty=1.1 if i % 5 == 0 else 1.0, logprobs=3,
                           **({"prompt_logprobs": 1} if i % 7 == 0 else {}), routed_experts=i % 6 == 0))
        begin += length
    return out


def bits(answer):
    """Everything but times, as comparable values with exact floats."""
    def floats(logprob):
        return (logprob.token_id, struct.pack("f", logprob.logprob), logprob.rank,
                [(p.token_id, struct.pack("f", p.logprob)) for p in logprob.top])
    choice = answer.choices[0]
    return (list(choice.token_ids), choice.text, [floats(p) for p in choice.logprobs],
            [floats(p) for p in answer.prompt_logprobs], list(choice.routed_experts.expert_ids))


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return request.param


@pytest.fixture(scope="module")
def alone(model):
    with Server("--threads", "1", model=demo_dir(model)) as server:
        stub = server.stub()
        return [bits(stub.Generate(r)) for r in requests()]


def run_together(server):
    stub = server.stub()
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        return [bits(a) for a in pool.map(stub.Generate, requests())]


@pytest.mark.parametrize("flags", [
    [], ["--threads", "2"], ["--max-num-batched-tokens", "48"], ["--max-num-seqs", "5"],
    ["--expert-parallel-size", "2"], ["--speculative", "ngram", "--speculative-ngram-min", "1"],
    ["--kv-cache-memory-gib"],  # some 13 to 30 blocks of 32 tokens: preemption
], ids=lambda f: " ".join(f) or "default")
def test_32_concurrent_requests_equal_themselves_alone(model, alone, flags):
    if "--kv-cache-memory-gib" in flags:
        flags = [*flags, "0.0004" if "qwen" in model else "0.0007", "--max-model-len", "320"]
    with Server(*flags, model=demo_dir(model), admin=True) as server:
        for _ in range(2):  # the second time prefixes are cached
            for i, (got, expected) in enumerate(zip(run_together(server), alone)):
                assert got == expected, f"request {i}"
        assert server.wait_idle()
        preempted = server.metric("moe_preemptions_total")
        assert (preempted > 0) == ("--kv-cache-memory-gib" in flags), "what the case is about did happen"


def test_guesses_change_nothing(model):
    """Text that repeats itself, cut by stop strings, end tokens and lengths in the middle of accepted guesses."""
    ids = golden(model)["validation"]["ids"][:40] * 3
    plain = {"ids": ids, "ignore_eos": True, "logprobs": 3, "seed": 3}
    wanted = [request(temperature=0, max_new_tokens=300, **plain), request(temperature=0, max_new_tokens=301, **plain),
              request(temperature=0.5, max_new_tokens=250, repetition_penalty=0.8, routed_experts=True, **plain),
              request(temperature=0.3, max_new_tokens=250, frequency_penalty=-0.5, **plain)]
    with Server(model=demo_dir(model)) as server:
        stub = server.stub()
        whole = stub.Generate(wanted[0]).choices[0]
        # What ends in the last third, where the text repeats itself if it ever does.
        for at in (len(whole.text) * 2 // 3, len(whole.text) * 3 // 4, len(whole.text) - 20):
            wanted.append(request(temperature=0, max_new_tokens=300, stop=[whole.text[at:at + 12]], **plain))
        wanted.append(request(temperature=0, max_new_tokens=300, min_new_tokens=200,
                              stop_token_ids=[whole.token_ids[270]], routed_experts=True, **plain))
        alone = [stub.Generate(r) for r in wanted]
    for flags in [], ["--max-num-batched-tokens", "16"], ["--threads", "2", "--speculative-tokens", "11"]:
        with Server("--speculative", "ngram", *flags, model=demo_dir(model), admin=True) as server:
            stub = server.stub()
            one_by_one = [stub.Generate(r) for r in wanted]
            with concurrent.futures.ThreadPoolExecutor(len(wanted)) as pool:
                together = list(pool.map(stub.Generate, wanted))
            for i, (expected, *others) in enumerate(zip(alone, one_by_one, together)):
                for got in others:
                    assert bits(got) == bits(expected), f"request {i}"
                    assert got.choices[0].finish_reason == expected.choices[0].finish_reason
                    assert got.usage.generated_tokens == expected.usage.generated_tokens == \
                        len(got.choices[0].token_ids)
            assert server.wait_idle()
            assert server.metric("moe_speculative_accepted_tokens_total") > 100
            assert (server.metric("moe_speculative_proposed_tokens_total")
                    > server.metric("moe_speculative_accepted_tokens_total"))


def test_streams_carry_the_same_bits(model, alone):
    with Server(model=demo_dir(model)) as server:
        stub = server.stub()
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            streams = list(pool.map(lambda r: collect(stub.GenerateStream(r)), requests()))
        for got, expected in zip(streams, alone):
            assert got[0][1] == expected[0] and got[0][0] == expected[1]


def test_seed_is_independent_of_neighbours(model):
    """The same tokens alone, between unseeded and between seeded neighbours."""
    wanted = request(text="JULIET:\n", seed=1234, temperature=0.7, max_new_tokens=24, ignore_eos=True)
    with Server(model=demo_dir(model)) as server:
        stub = server.stub()
        expected = list(stub.Generate(wanted).choices[0].token_ids)
        for seeded in (False, True):
            neighbours = [request(text="ROMEO:\n", temperature=1, max_new_tokens=30, ignore_eos=True,
                                  **({"seed": i} if seeded else {})) for i in range(7)]
            for position in (0, 3, 7):
                order = neighbours[:position] + [wanted] + neighbours[position:]
                with concurrent.futures.ThreadPoolExecutor(8) as pool:
                    answers = list(pool.map(stub.Generate, order))
                assert list(answers[position].choices[0].token_ids) == expected


def test_choices_of_one_request(model):
    with Server(model=demo_dir(model)) as server:
        stub = server.stub()
        many = stub.Generate(request(text="KING:\n", seed=5, temperature=1, n=4, max_new_tokens=12, ignore_eos=True))
        assert [c.index for c in many.choices] == [0, 1, 2, 3]
        assert len({tuple(c.token_ids) for c in many.choices}) > 1
        one = stub.Generate(request(text="KING:\n", seed=5, temperature=1, max_new_tokens=12, ignore_eos=True))
        assert list(one.choices[0].token_ids) == list(many.choices[0].token_ids)
        streamed = collect(stub.GenerateStream(request(text="KING:\n", seed=5, temperature=1, n=4, max_new_tokens=12,
                                                       ignore_eos=True)))
        for choice in many.choices:
            assert streamed[choice.index] == (choice.text, list(choice.token_ids), pb.FINISH_REASON_LENGTH)
