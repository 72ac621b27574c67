"""What the reference scripts share: random checkpoints, building blocks of decoders, and writing a fixture.

The scripts beside this file compute model families that transformers does not implement. They are written from the
papers and from the facts of the authors' own code, in the plainest way: whole sequences, no cache, one loop over
experts. They need numpy only. Every block works in the type of its inputs; scripts run in float32 and in float64.
"""
import argparse
import json
import math
import os
import struct

import numpy as np

NEW_TOKENS = 16
PROMPT_LENGTHS = (26, 37)
MIN_SELECTION_GAP = 1e-3
MIN_ARGMAX_MARGIN = 5e-3
EOS = 2


# ---- Checkpoints -----------------------------------------------------------------------------------------------


class Weights:
    """Random float32 tensors by name. RandomState, because its stream is the same in every version of numpy."""

    def __init__(self, seed):
        self.random = np.random.RandomState(seed)
        self.tensors = {}
        self.skipped = []

    def add(self, name, values):
        self.tensors[name] = np.ascontiguousarray(values, dtype=np.float32)

    def matrix(self, name, *shape, gain=1.0):
        """Rows by columns (or a stack of such): outputs are about `gain` times as large as the inputs."""
        self.add(name + ".weight", self.random.standard_normal(shape) * (gain / math.sqrt(shape[-1])))

    def norm(self, name, size, scale=1.0):
        self.add(name + ".weight", self.random.uniform(0.5, 1.5, size) * scale)

    def vector(self, name, size, scale):
        self.add(name, self.random.standard_normal(size) * scale)

    def skip(self, name, *shape):
        """A tensor of a part that a text server does not use."""
        self.add(name, self.random.standard_normal(shape))
        self.skipped.append(name)


def write_safetensors(path, tensors):
    types = {"float32": "F32", "int32": "I32"}
    header = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in sorted(tensors):
        value = tensors[name]
        header[name] = {"dtype": types[str(value.dtype)], "shape": list(value.shape),
                        "data_offsets": [offset, offset + value.nbytes]}
        offset += value.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            f.write(tensors[name].tobytes())


# ---- Blocks ----------------------------------------------------------------------------------------------------


def linear(w, name, x):
    y = x @ w[name + ".weight"].T
    return y + w[name + ".bias"] if name + ".bias" in w else y


def rms_norm(x, weight, eps, groups=1):
    """Zhang and Sennrich 2019: x / sqrt(mean(x²) + eps) * weight; over each of `groups` slices of x."""
    parts = x.reshape(*x.shape[:-1], groups, -1)
    parts = parts / np.sqrt(np.mean(parts * parts, axis=-1, keepdims=True) + eps)
    return parts.reshape(x.shape) * weight


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def gelu(x):
    """Hendrycks and Gimpel 2016, the exact form with erf."""
    return (0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))).astype(x.dtype)


def soft_cap(x, cap):
    return cap * np.tanh(x / cap)


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def gated_mlp(w, x, gate, up, down, act=silu):
    """Shazeer 2020 (GLU variants): down(act(gate(x)) * up(x))."""
    return linear(w, down, act(linear(w, gate, x)) * linear(w, up, x))


def rope_frequencies(dim, theta):
    """Su et al. 2021: theta^(-2i/dim)."""
    return [theta ** (-2 * i / dim) for i in range(dim // 2)]


def yarn_mscale(factor, mscale):
    return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0


def yarn_frequencies(dim, theta, factor, original, beta_fast, beta_slow):
    """Peng et al. 2023: interpolated below `beta_slow` turns over the original length, kept above `beta_fast`."""

    def dimension(turns):
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(dimension(beta_fast)), 0)
    high = min(math.ceil(dimension(beta_slow)), dim - 1)
    if low == high:
        high += 0.001
    ramp = [min(max((i - low) / (high - low), 0.0), 1.0) for i in range(dim // 2)]
    return [f / factor * r + f * (1 - r) for f, r in zip(rope_frequencies(dim, theta), ramp)]


def rope(x, frequencies, interleaved=False, scale=1.0):
    """Rotates the first 2 * len(frequencies) dims of x [T, heads, dim]: pairs (i, i + d/2), or (2i, 2i + 1)."""
    angles = np.outer(np.arange(x.shape[0]), np.array(frequencies)).astype(x.dtype)[:, None, :]
    cos, sin = np.cos(angles) * scale, np.sin(angles) * scale
    d = 2 * len(frequencies)
    first, second = (slice(0, d, 2), slice(1, d, 2)) if interleaved else (slice(0, d // 2), slice(d // 2, d))
    y = x.copy()
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., second] * cos + x[..., first] * sin
    return y


def attention(q, k, v, scale, window=None, cap=None, temperature=None, sinks=None):
    """Causal softmax attention of q [T, heads, d] over k [T, kv heads, d], v [T, kv heads, dv] → [T, heads * dv].

    window: a query sees so many keys, its own included. cap: soft cap of the scaled scores; temperature [T] multiplies
    them after that. sinks [heads]: a score without a value, in the denominator only.
    """
    tokens, heads, _ = q.shape
    per_kv = heads // k.shape[1]
    distance = np.arange(tokens)[:, None] - np.arange(tokens)[None, :]
    visible = (distance >= 0) & (distance < (window or tokens))
    out = np.empty((tokens, heads, v.shape[2]), q.dtype)
    for h in range(heads):
        scores = q[:, h] @ k[:, h // per_kv].T * scale
        if cap is not None:
            scores = soft_cap(scores, cap)
        if temperature is not None:
            scores = scores * temperature[:, None]
        scores = np.where(visible, scores, -np.inf)
        if sinks is not None:
            scores = np.concatenate([scores, np.full((tokens, 1), sinks[h], q.dtype)], axis=1)
        out[:, h] = softmax(scores)[:, :tokens] @ v[:, h // per_kv]
    return out.reshape(tokens, -1)


def latent_attention(w, prefix, x, config, frequencies, eps, scale, rope_scale=1.0, out="o_proj"):
    """DeepSeek-V2 (2024), section 2.1: keys and values from a normed latent, one rotated key part for all heads."""
    heads, nope = config["num_attention_heads"], config["qk_nope_head_dim"]
    rank, rotary, v_dim = config["kv_lora_rank"], config["qk_rope_head_dim"], config["v_head_dim"]
    tokens = x.shape[0]
    if config["q_lora_rank"] is None:
        q = linear(w, prefix + "q_proj", x)
    else:
        latent = rms_norm(linear(w, prefix + "q_a_proj", x), w[prefix + "q_a_layernorm.weight"], eps)
        q = linear(w, prefix + "q_b_proj", latent)
    q = q.reshape(tokens, heads, nope + rotary)
    compressed = linear(w, prefix + "kv_a_proj_with_mqa", x)
    latent = rms_norm(compressed[:, :rank], w[prefix + "kv_a_layernorm.weight"], eps)
    kv = linear(w, prefix + "kv_b_proj", latent).reshape(tokens, heads, nope + v_dim)
    k_rot = rope(compressed[:, None, rank:], frequencies, interleaved=True, scale=rope_scale)
    q_rot = rope(q[..., nope:], frequencies, interleaved=True, scale=rope_scale)
    q = np.concatenate([q[..., :nope], q_rot], axis=-1)
    k = np.concatenate([kv[..., :nope], np.repeat(k_rot, heads, axis=1)], axis=-1)
    return linear(w, prefix + out, attention(q, k, kv[..., nope:], scale))


def lightning_attention(q, k, v, slopes):
    """Qin et al. 2024 (Lightning Attention-2), as a recurrence: M = exp(-slope) M + k vᵀ; o = q M."""
    tokens, heads, d = q.shape
    out = np.empty_like(v)
    decay = np.exp(-np.array(slopes)).astype(q.dtype)[:, None, None]
    state = np.zeros((heads, d, v.shape[2]), q.dtype)
    for t in range(tokens):
        state = state * decay + k[t][:, :, None] * v[t][:, None, :]
        out[t] = np.einsum("hd,hde->he", q[t], state)
    return out


def alibi_slopes(heads):
    """Press et al. 2022: 2^(-8 (h + 1) / heads); between powers of two, the missing ones from the next power."""

    def of_power(n):
        return [2.0 ** (-8 * (h + 1) / n) for h in range(n)]

    below = 2 ** math.floor(math.log2(heads))
    return of_power(below) + of_power(2 * below)[0::2][:heads - below]


# ---- Routing ---------------------------------------------------------------------------------------------------


class Route:
    """Chosen experts of every token, ascending, their weights, and how far the choices are from being others."""

    def __init__(self, ids, weights, gap, without_bias=None):
        order = np.argsort(ids, axis=-1)
        self.ids = np.take_along_axis(ids, order, -1)
        self.weights = np.take_along_axis(weights, order, -1)
        self.gap = gap
        self.changed = None if without_bias is None else np.any(self.ids != np.sort(without_bias, -1), axis=-1)


def best(scores, k):
    """The k best of each row, and the smallest distance to the next one."""
    order = np.argsort(-scores, axis=-1, kind="stable")
    in_order = np.take_along_axis(scores, order, -1)
    gap = np.min(in_order[:, k - 1] - in_order[:, k]) if k < scores.shape[1] else math.inf
    return order[:, :k], float(gap)


def route_softmax(logits, k, renormalise):
    p = softmax(logits)
    ids, gap = best(p, k)
    weights = np.take_along_axis(p, ids, -1)
    return Route(ids, weights / np.sum(weights, -1, keepdims=True) if renormalise else weights, gap)


def best_in_groups(scores, k, groups, keep):
    """DeepSeek-V3 (2024), section 2.1.2: only experts of the `keep` groups whose two best scores sum highest."""
    if groups == 1:
        return best(scores, k)
    grouped = scores.reshape(len(scores), groups, -1)
    kept, group_gap = best(np.sum(np.sort(grouped, axis=-1)[..., -2:], axis=-1), keep)
    masked = np.full_like(grouped, -np.inf)
    for row, chosen in enumerate(kept):
        masked[row, chosen] = grouped[row, chosen]
    ids, gap = best(masked.reshape(scores.shape), k)
    return ids, min(gap, group_gap)


def route_sigmoid(logits, bias, k, groups=1, keep=1, scale=1.0):
    """Sigmoid scores; the bias moves the choice only; weights are the chosen scores over their sum, times `scale`."""
    scores = sigmoid(logits)
    ids, gap = best_in_groups(scores + bias, k, groups, keep)
    weights = np.take_along_axis(scores, ids, -1)
    weights = weights / (np.sum(weights, -1, keepdims=True) + 1e-20) * scale
    return Route(ids, weights, gap, best_in_groups(scores, k, groups, keep)[0])


def mixture(x, route, expert):
    """Sum over the chosen experts of weight times expert(e, rows)."""
    y = np.zeros_like(x)
    for e in np.unique(route.ids):
        rows, columns = np.nonzero(route.ids == e)
        y[rows] += route.weights[rows, columns][:, None] * expert(e, x[rows])
    return y


# ---- Fixtures --------------------------------------------------------------------------------------------------


class Rejected(Exception):
    """This seed's checkpoint is nearly tied somewhere or leaves something unused."""


def cast(tensors, dtype):
    return {name: value.astype(dtype) for name, value in tensors.items()}


def run(forward, config, w, prompt):
    """Greedy continuation; then everything again in one pass over the prompt and all tokens that were fed back."""
    ids = list(prompt)
    for _ in range(NEW_TOKENS):
        logits, routes = forward(config, w, np.array(ids))
        check_gaps(routes)
        ids.append(int(np.argmax(logits[-1])))
    continuation = ids[len(prompt):]
    logits, routes = forward(config, w, np.array(ids[:-1]))
    check_gaps(routes)
    decode = logits[len(prompt) - 1:]
    two = np.sort(decode, axis=-1)[:, -2:]
    margin = float(np.min(two[:, 1] - two[:, 0]))
    if margin < MIN_ARGMAX_MARGIN or EOS in continuation or list(np.argmax(decode, -1)) != continuation:
        raise Rejected(f"margin {margin}, continuation {continuation}")
    return {"continuation": continuation, "margin": margin, "logits": logits[:len(prompt)], "decode": decode,
            "routes": routes}


def check_gaps(routes):
    gap = min(route.gap for route in routes.values())
    if gap < MIN_SELECTION_GAP:
        raise Rejected(f"selection gap {gap}")


def fixture(seed, config, make_weights, forward, experts):
    made = make_weights(config, seed)
    singles, doubles = cast(made.tensors, np.float32), cast(made.tensors, np.float64)
    random = np.random.RandomState(seed + 1000000)
    prompts = [[int(i) for i in random.randint(3, config_vocabulary(config), n)] for n in PROMPT_LENGTHS]
    for prompt in prompts:  # the cheap reasons first
        logits, routes = forward(config, singles, np.array(prompt))
        check_gaps(routes)
        if not 1.8 < np.std(logits) < 2.2:
            raise Rejected(f"standard deviation of the logits {np.std(logits)}")
    runs, difference = [], 0.0
    for prompt in prompts:
        single, double = run(forward, config, singles, prompt), run(forward, config, doubles, prompt)
        assert single["logits"].dtype == np.float32 and double["logits"].dtype == np.float64
        if single["continuation"] != double["continuation"]:
            raise Rejected("float32 and float64 continue differently")
        for layer, route in single["routes"].items():
            assert route.weights.dtype == np.float32
            if np.any(route.ids != double["routes"][layer].ids):
                raise Rejected("float32 and float64 choose differently")
        for key in ("logits", "decode"):
            difference = max(difference, float(np.max(np.abs(single[key] - double[key]))))
        runs.append(single)

    layers = list(runs[0]["routes"])
    seen = {f"layer{layer}": len(np.unique([e for r in runs for e in r["routes"][layer].ids])) for layer in layers}
    if any(n != experts for n in seen.values()):
        raise Rejected(f"unused experts: {seen}")
    logits_std = float(np.std(np.concatenate([r["logits"] for r in runs])))
    sequences = [np.array(p + r["continuation"][:-1]) for p, r in zip(prompts, runs)]
    plain = [forward(config, doubles, ids)[0] for ids in sequences]
    for name in made.tensors:
        moved = {**doubles, name: np.roll(doubles[name], 1, axis=-1)}
        effect = max(np.max(np.abs(forward(config, moved, ids)[0] - p)) for ids, p in zip(sequences, plain))
        if (effect > 1e-6) == (name in made.skipped):
            raise AssertionError(f"{name}: effect {effect}")

    arrays = {}
    for i, r in enumerate(runs):
        arrays[f"prompt{i}.logits"] = r["logits"]
        arrays[f"prompt{i}.decode_logits"] = r["decode"]
        for layer, route in r["routes"].items():
            arrays[f"prompt{i}.layer{layer}.expert_ids"] = route.ids.astype(np.int32)
            arrays[f"prompt{i}.layer{layer}.expert_weights"] = route.weights.astype(np.float32)
    changed = [r["routes"][layer].changed for r in runs for layer in layers]
    golden = {
        "seed": seed,
        "weights_stored_as": "float32",
        "computed_in": "float32",
        "prompts": [{"prompt": p, "continuation": r["continuation"], "min_argmax_margin": round(r["margin"], 6)}
                    for p, r in zip(prompts, runs)],
        "moe_layers": [f"layer{layer}" for layer in layers],
        "experts_seen": seen,
        "logits_std": round(logits_std, 4),
        "min_selection_gap": min(route.gap for r in runs for route in r["routes"].values()),
        "tokens_whose_selection_the_correction_bias_changes":
            None if changed[0] is None else int(sum(np.sum(c) for c in changed)),
        "cache_vs_no_cache_max_abs_diff": 0,
        "float32_vs_float64_max_abs_diff": difference,
        "inert_tensors": made.skipped,
    }
    return golden, made.tensors, {name: np.ascontiguousarray(a) for name, a in arrays.items()}


def config_vocabulary(config):
    return config.get("text_config", config)["vocab_size"]


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def main(script, config, make_weights, forward, experts, seed, features, note=None):
    """The command line of every script: OUTPUT [--search FIRST]."""
    name = os.path.splitext(os.path.basename(script))[0]
    parser = argparse.ArgumentParser(description=f"Writes the fixture {name} into the directory OUTPUT.")
    parser.add_argument("output")
    parser.add_argument("--search", type=int, help="try seeds from here on and take the first that has no near ties")
    options = parser.parse_args()
    first = seed if options.search is None else options.search
    for tried in range(first, first + (1 if options.search is None else 100000)):
        try:
            golden, tensors, arrays = fixture(tried, config, make_weights, forward, experts)
            break
        except Rejected as why:
            if options.search is None:
                raise
            if tried % 100 == 0:
                print(f"seed {tried}: {why}")
    else:
        raise SystemExit("no seed")
    head = {"fixture": name, "architecture": config["architectures"][0],
            "reference": f"tests/reference/{name}.py, independent of transformers", "features": features}
    if note:
        head["note"] = note
    os.makedirs(options.output, exist_ok=True)
    write_json(os.path.join(options.output, "config.json"), config)
    write_json(os.path.join(options.output, "generation_config.json"),
               {"bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": 0})
    write_json(os.path.join(options.output, "golden.json"), {**head, **golden})
    write_safetensors(os.path.join(options.output, "model.safetensors"), tensors)
    write_safetensors(os.path.join(options.output, "golden.safetensors"), arrays)
    print(f"{name}: seed {golden['seed']}, smallest gap {golden['min_selection_gap']:.2g}, float32 against float64 "
          f"{golden['float32_vs_float64_max_abs_diff']:.2g}, standard deviation {golden['logits_std']}")
