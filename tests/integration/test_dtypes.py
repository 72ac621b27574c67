"""The same model stored in float32, bfloat16 and float16, and what --dtype makes of it."""
import json
import shutil
import struct

import pytest

from conftest import Server, demo_dir, golden, pb, request

NAME = "shakespeare-qwen3moe"


def read_safetensors(path):
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + size]), data[8 + size:]


def as_floats(entry, data):
    begin, end = entry["data_offsets"]
    raw = data[begin:end]
    assert entry["dtype"] == "BF16"
    words = struct.unpack(f"<{len(raw) // 2}H", raw)
    return struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}I", *(w << 16 for w in words)))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Directories with the demo's weights in each dtype; float16 holds nearly all bfloat16 values of a trained model
    exactly, and whatever it rounds it rounds before both runs that are compared."""
    header, data = read_safetensors(demo_dir(NAME) / "model.safetensors")
    out = {"bfloat16": demo_dir(NAME)}
    for dtype, code, letter in (("float32", "F32", "f"), ("float16", "F16", "e")):
        directory = tmp_path_factory.mktemp(dtype)
        shutil.copytree(demo_dir(NAME), directory, dirs_exist_ok=True)
        new, blob = {}, b""
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            values = as_floats(entry, data)
            raw = struct.pack(f"<{len(values)}{letter}", *values)
            new[name] = {"dtype": code, "shape": entry["shape"], "data_offsets": [len(blob), len(blob) + len(raw)]}
            blob += raw
        text = json.dumps(new).encode()
        text += b" " * (-len(text) % 8)
        (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + blob)
        out[dtype] = directory
    return out


def answer(server):
    choice = server.stub().Generate(request(ids=golden(NAME)["prompts"][1]["prompt_ids"], temperature=0,
                                            max_new_tokens=24, ignore_eos=True, logprobs=5)).choices[0]
    return list(choice.token_ids), [p.logprob for p in choice.logprobs]


def run(directory, *flags):
    with Server(*flags, model=directory) as server:
        dtype = server.stub().GetModel(pb.GetModelRequest()).weight_dtype
        return answer(server), dtype, server.log()


def test_float32_checkpoints_are_computed_in_float32(stored):
    got, dtype, _ = run(stored["float32"])
    expected, _, _ = run(stored["bfloat16"], "--dtype", "float32")
    assert dtype == "float32"
    assert got == expected, "the same values in the same arithmetic: the same bits"
    assert got[0] == golden(NAME)["prompts"][1]["greedy_ids"][:24]


def test_float16_stays_float16_and_is_widened_exactly(stored):
    got, dtype, log = run(stored["float16"])
    exact, _, _ = run(stored["float16"], "--dtype", "float32")
    assert dtype == "float16" and "float16 weights stay 16 bits wide" in log
    assert got[0] == exact[0]
    assert max(abs(a - b) for a, b in zip(got[1], exact[1])) < 1e-5
    rounded, dtype, log = run(stored["float16"], "--dtype", "bfloat16")
    assert dtype == "bfloat16" and "ROUNDED to bfloat16" in log, "only when asked for, and said"
    assert max(abs(a - b) for a, b in zip(rounded[1], exact[1])) > 1e-4


def test_mixed_files_follow_the_experts(stored, tmp_path):
    """Experts in bfloat16, everything else in float32: the experts decide."""
    directory = tmp_path / "mixed"
    shutil.copytree(demo_dir(NAME), directory)
    header, data = read_safetensors(demo_dir(NAME) / "model.safetensors")
    new, blob = {}, b""
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        raw = data[slice(*entry["data_offsets"])]
        if ".experts." not in name:
            values = as_floats(entry, data)
            raw = struct.pack(f"<{len(values)}f", *values)
            entry = {**entry, "dtype": "F32"}
        new[name] = {**entry, "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps(new).encode()
    text += b" " * (-len(text) % 8)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + blob)
    got, dtype, _ = run(directory)
    expected, _, _ = run(stored["bfloat16"])
    assert dtype == "bfloat16" and got == expected
