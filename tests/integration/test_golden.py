"""Both demo models through the real server against what transformers computed."""
import math

import pytest

from conftest import Server, demo_dir, golden, pb, request

MODELS = ["shakespeare-nemotronh", "shakespeare-qwen3moe"]


def log_softmax(logits):
    top = max(logits)
    total = math.log(sum(math.exp(v - top) for v in logits))
    return [v - top - total for v in logits]


@pytest.fixture(scope="module", params=MODELS)
def float32(request):
    with Server("--dtype", "float32", model=demo_dir(request.param)) as server:
        yield server, golden(request.param)


@pytest.fixture(scope="module", params=MODELS)
def bfloat16(request):
    with Server(model=demo_dir(request.param)) as server:
        yield server, golden(request.param)


def test_float32_greedy_tokens_and_logprobs(float32):
    server, gold = float32
    for prompt in gold["prompts"]:
        answer = server.stub().Generate(request(
            ids=prompt["prompt_ids"], temperature=0, max_new_tokens=64, ignore_eos=True, logprobs=-1,
            keep_special_tokens=True))
        choice = answer.choices[0]
        assert list(choice.token_ids) == prompt["greedy_ids"], f"{prompt['name']}, gap {prompt['greedy_min_gap']}"
        assert choice.text == prompt["greedy_text"]
        expected = log_softmax(prompt["last_logits"])
        assert len(choice.logprobs[0].top) == gold["vocab_size"]
        worst = max(abs(p.logprob - expected[p.token_id]) for p in choice.logprobs[0].top)
        assert worst < 2e-3, prompt["name"]
        assert choice.logprobs[0].rank == 1
        assert answer.usage.prompt_tokens == len(prompt["prompt_ids"])
        assert answer.usage.generated_tokens == 64
        assert choice.finish_reason == pb.FINISH_REASON_LENGTH


def test_prompts_are_encoded_as_the_reference_does(float32):
    server, gold = float32
    for prompt in gold["prompts"]:
        assert list(server.stub().Tokenize(pb.TokenizeRequest(text=prompt["prompt"])).ids) == prompt["prompt_ids"]


def window_losses(server, gold, windows):
    validation = gold["validation"]
    size = validation["window"]
    losses = []
    for w in range(windows):
        ids = validation["ids"][w * size:(w + 1) * size]
        answer = server.stub().Generate(request(ids=ids, max_new_tokens=1, prompt_logprobs=0))
        assert len(answer.prompt_logprobs) == size
        assert answer.prompt_logprobs[0].token_id == 0 and not answer.prompt_logprobs[0].top
        assert [p.token_id for p in answer.prompt_logprobs[1:]] == ids[1:]
        losses.append(-sum(p.logprob for p in answer.prompt_logprobs[1:]) / (size - 1))
    return losses


def test_float32_validation_loss(float32):
    server, gold = float32
    losses = window_losses(server, gold, gold["validation"]["windows"])
    for got, expected in zip(losses, gold["validation"]["window_losses"]):
        assert abs(got - expected) < 1e-4
    assert abs(sum(losses) / len(losses) - gold["validation"]["loss"]) < 1e-5


def test_bfloat16_validation_loss_within_one_percent(bfloat16):
    server, gold = bfloat16
    losses = window_losses(server, gold, gold["validation"]["windows"])
    assert abs(sum(losses) / len(losses) / gold["validation"]["loss"] - 1) < 0.01


def test_bfloat16_text_is_sensible(bfloat16):
    """Words of the plays, in their layout: what a broken model does not write."""
    server, gold = bfloat16
    with open(demo_dir("../../tests/data/demo/validation.txt"), encoding="utf-8") as f:
        known = set(f.read().split())
    with open(demo_dir("../../tests/data/demo/calibration.txt"), encoding="utf-8") as f:
        known |= set(f.read().split())
    words = []
    for seed in range(4):
        answer = server.stub().Generate(request(text="ROMEO:\n", seed=seed, max_new_tokens=150))
        words += answer.choices[0].text.split()
    assert len(words) > 100
    share = sum(word in known for word in words) / len(words)
    assert share > 0.75, f"{share:.2f} of the words are in the plays: {' '.join(words)}"


@pytest.mark.parametrize("name", MODELS)
def test_reference_device_agrees(name):
    gold = golden(name)["prompts"][0]
    with Server("--dtype", "float32", "--device", "reference", model=demo_dir(name)) as server:
        answer = server.stub().Generate(request(ids=gold["prompt_ids"], temperature=0, max_new_tokens=16,
                                                ignore_eos=True))
        assert list(answer.choices[0].token_ids) == gold["greedy_ids"][:16]
