"""Every model family through the real server against what transformers computed from a tiny checkpoint of it:
log-probabilities of all prompt and decode positions, greedy tokens, chosen experts."""
import array
import json
import math
import os
import pathlib
import struct

import pytest

from conftest import ROOT, Server, pb, request

FIXTURES = pathlib.Path(os.environ.get("MOE_FIXTURES", ROOT / "tests/data/families"))
FAMILIES = sorted(path.parent.name for path in FIXTURES.glob("*/golden.safetensors"))
NEW_TOKENS = 16


def read_safetensors(path):
    """name → rows of numbers, for the float32 and int32 matrices of the golden files."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    tensors = {}
    for name, info in header.items():
        if name == "__metadata__":
            continue
        begin, end = info["data_offsets"]
        values = array.array({"F32": "f", "I32": "i"}[info["dtype"]], data[8 + size + begin:8 + size + end])
        columns = info["shape"][-1]
        tensors[name] = [values[i:i + columns] for i in range(0, len(values), columns)]
    return tensors


def log_softmax(logits):
    top = max(logits)
    total = math.log(sum(math.exp(v - top) for v in logits))
    return [v - top - total for v in logits]


def worst_difference(info, logits):
    expected = log_softmax(logits)
    assert len(info.top) == len(expected)
    return max(abs(p.logprob - expected[p.token_id]) for p in info.top)


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_numbers_are_those_of_transformers(family):
    golden = json.loads((FIXTURES / family / "golden.json").read_text())
    tensors = read_safetensors(FIXTURES / family / "golden.safetensors")
    # The fixture's own float32 runs (cached or not, against float64) differ by this floor.
    floor = max(float(golden["cache_vs_no_cache_max_abs_diff"]), float(golden["float32_vs_float64_max_abs_diff"]))
    tolerance = max(10 * floor, 2e-4)
    with Server("--dtype", "float32", model=FIXTURES / family) as server:
        for i, prompt in enumerate(golden["prompts"]):
            answer = server.stub().Generate(request(
                ids=prompt["prompt"], temperature=0, max_new_tokens=NEW_TOKENS, ignore_eos=True, logprobs=-1,
                prompt_logprobs=-1, routed_experts=True, skip_text=True))
            choice = answer.choices[0]
            assert list(choice.token_ids) == prompt["continuation"]
            logits = tensors[f"prompt{i}.logits"]
            for position in range(1, len(prompt["prompt"])):
                worst = worst_difference(answer.prompt_logprobs[position], logits[position - 1])
                assert worst <= tolerance, f"prompt {i}, position {position - 1}"
            for step in range(NEW_TOKENS):
                worst = worst_difference(choice.logprobs[step], tensors[f"prompt{i}.decode_logits"][step])
                assert worst <= tolerance, f"prompt {i}, token {step}"
            check_experts(golden, tensors, i, choice.routed_experts)


def check_experts(golden, tensors, prompt, routed):
    # JetMoe's attention chooses among experts too; reported are those of the MoE blocks.
    layers = [layer for layer in golden["moe_layers"] if "attention" not in layer]
    assert routed.moe_layers == len(layers)
    for ordinal, layer in enumerate(layers):
        want = tensors.get(f"prompt{prompt}.{layer}.expert_ids")
        for row, expected in enumerate(want or []):
            begin = (row * routed.moe_layers + ordinal) * routed.experts_per_token
            got = sorted(e for e in routed.expert_ids[begin:begin + routed.experts_per_token])[-len(expected):]
            assert got == list(expected), f"prompt {prompt}, {layer}, row {row}"


def test_fixtures_are_there():
    assert FAMILIES, f"no fixtures in {FIXTURES}"
    assert pb is not None
