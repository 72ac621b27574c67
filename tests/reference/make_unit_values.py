#!/usr/bin/env python3
"""Writes tests/data/units/*.json: what transformers' own modules give for small inputs.

    python3 tests/reference/make_unit_values.py tests/data/units

Needs torch and transformers 5.24. Routers run as their float32 modules; activations, norms and rotations in float64,
so that the tests' bounds are about our rounding alone.
"""
import json
import math
import sys
import types

import torch
import torch.nn.functional as F
import transformers
from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


def module(family, name):
    package = __import__(f"transformers.models.{family}.modeling_{family}", fromlist=[name])
    return getattr(package, name)


def config(**fields):
    return types.SimpleNamespace(**fields)


def numbers(tensor):
    """Nine significant digits: enough to read the same float32 again."""
    return json.loads(json.dumps(tensor.tolist()), parse_float=lambda text: float(f"{float(text):.9g}"))


# ---- Routers ---------------------------------------------------------------------------------------------------


def wave(rows, cols, seed, scale=1.0):
    """Logits without near ties, the same in every version of every library."""
    values = [[math.sin(seed + 1.3 * r + 2.7 * c + 0.31 * c * c) for c in range(cols)] for r in range(rows)]
    return (torch.tensor(values, dtype=torch.float64) * scale).to(torch.float32)


def rows_of(weights, ids):
    """By expert id: torch.topk does not promise an order."""
    ids, order = torch.sort(ids, dim=-1)
    return {"ids": ids.tolist(), "weights": numbers(torch.gather(weights.double(), -1, order))}


def router(family, name, logits, k, bias=None, extra=None, call=None, **fields):
    """Runs a router over `logits`: its input are the logits themselves, its weight is the identity."""
    experts = logits.shape[-1]
    made = module(family, name)(config(
        num_experts_per_tok=k, num_experts=experts, num_local_experts=experts, n_routed_experts=experts,
        hidden_size=experts, **fields)).eval()
    with torch.no_grad():
        weights = [parameter for key, parameter in made.named_parameters() if key.endswith("weight")]
        weights[0].copy_(torch.eye(experts))
        if bias is not None and call is None:
            targets = [made.e_score_correction_bias if hasattr(made, "e_score_correction_bias") else
                       made.moe_statics.e_score_correction_bias if hasattr(made, "moe_statics") else made.bias]
            targets[0].copy_(torch.tensor(bias).reshape(targets[0].shape))
        out = made(logits) if call is None else call(made, logits, torch.tensor(bias) if bias is not None else None)
    return out[1], out[2]


def route_case(name, spec, logits, out, k, bias=None):
    case = {"name": name, "spec": spec, "top_k": k, "logits": numbers(logits)}
    if bias is not None:
        case["bias"] = bias
    return {**case, **rows_of(*out)}


def negative_bias(experts):
    """Far below every score, different enough to change choices."""
    return [round(-3.0 + 0.4 * math.sin(1.0 + 2.1 * e), 4) for e in range(experts)]


def small_bias(experts):
    return [round(0.3 * math.sin(0.5 + 1.9 * e), 4) for e in range(experts)]


def make_routers():
    cases = []
    eight, sixteen = wave(4, 8, 0.3, 2.0), wave(4, 16, 0.7, 2.0)
    softmax = {"score": "softmax"}
    sigmoid = {"score": "sigmoid"}
    summed = {"normalize": "sum"}
    for normalize in (False, True):
        cases.append(route_case(
            "SM, renormalised" if normalize else "SM", {**softmax, **(summed if normalize else {})}, eight,
            router("olmoe", "OlmoeTopKRouter", eight, 3, norm_topk_prob=normalize), 3))
    cases.append(route_case("SM, one expert a token", {**softmax, **summed}, eight,
                            router("qwen3_moe", "Qwen3MoeTopKRouter", eight, 1, norm_topk_prob=True), 1))
    chosen = {**softmax, "normalize": "softmax_over_chosen"}
    logit_bias = small_bias(8)
    cases.append(route_case("TK with a bias of the logits", {**chosen, "logit_bias": True}, eight,
                            router("gpt_oss", "GptOssTopKRouter", eight, 2, logit_bias), 2, logit_bias))
    cases.append(route_case("TK", chosen, 40 * eight, router("granitemoe", "GraniteMoeTopKRouter", 40 * eight, 3), 3))
    bias = small_bias(8)
    cases.append(route_case(
        "SMB, renormalised", {**softmax, **summed, "select_bias": True, "normalize_min": 1e-12}, eight,
        router("ernie4_5_moe", "Ernie4_5_MoeTopKRouter", eight, 3, bias, moe_norm_min=1e-12), 3, bias))
    tiny = eight.clone()
    tiny[:, 0] += 60.0
    away = [-2.0] + [0.0] * 7  # the only expert with a probability worth the name is not chosen
    cases.append(route_case(
        "SMB, sum below its minimum", {**softmax, **summed, "select_bias": True, "normalize_min": 1e-12}, tiny,
        router("ernie4_5_moe", "Ernie4_5_MoeTopKRouter", tiny, 2, away, moe_norm_min=1e-12), 2, away))
    cases.append(route_case(
        "SMB, scaled", {**softmax, "select_bias": True, "scale": 6.0}, eight,
        router("longcat_flash", "LongcatFlashTopkRouter", eight, 3, bias, zero_expert_num=0, routed_scaling_factor=6.0,
               expert_ffn_hidden_size=1), 3, bias))
    for normalize in (False, True):
        cases.append(route_case(
            "SG, renormalised" if normalize else "SG", {**sigmoid, **(summed if normalize else {})}, eight,
            router("flint", "FlintTopKRouter", eight, 3, norm_topk_prob=normalize), 3))
    cases.append(route_case(
        "SG with a selection bias", {**sigmoid, **summed, "select_bias": True}, eight,
        router("minimax_m2", "MiniMaxM2TopKRouter", eight, 3, bias, call=lambda m, x, b: m(x, b)), 3, bias))
    epsilon = {**sigmoid, **summed, "select_bias": True, "normalize_eps": 1e-6}
    vanishing = eight - 14.0
    cases.append(route_case(
        "SG, an epsilon that shows", epsilon, vanishing,
        router("lfm2_moe", "Lfm2MoeTopKRouter", vanishing, 2, bias, call=lambda m, x, b: m(x, b), norm_topk_prob=True,
               routed_scaling_factor=1.0, use_expert_bias=True), 2, bias))
    group = {**sigmoid, **summed, "select_bias": True, "normalize_eps": 1e-20, "groups": 4, "top_groups": 2,
             "scale": 2.5}
    for name, values in (("small", small_bias(16)), ("negative", negative_bias(16))):
        cases.append(route_case(
            f"GSG, {name} biases", group, sixteen,
            router("deepseek_v3", "DeepseekV3TopkRouter", sixteen, 4, values, n_group=4, topk_group=2,
                   norm_topk_prob=True, routed_scaling_factor=2.5), 4, values))
    cases.append(route_case(
        "GSG, not renormalised, one group", {**sigmoid, "select_bias": True}, sixteen,
        router("deepseek_v3", "DeepseekV3TopkRouter", sixteen, 4, small_bias(16), n_group=1, topk_group=1,
               norm_topk_prob=False, routed_scaling_factor=1.0), 4, small_bias(16)))
    # Two experts of each group end above 0 and two below: all dropped ones are chosen before the latter.
    mixed = [0.5, 0.5, -2.0, -2.0] * 4
    cases.append(route_case(
        "GSG where dropped experts score 0", {**group, "others_score_zero": True}, sixteen,
        router("axk2", "AXK2TopkRouter", sixteen, 12, mixed, n_group=4, topk_group=2, norm_topk_prob=True,
               routed_scaling_factor=2.5), 12, mixed))
    cases.append(route_case(
        "GSM", {**softmax, "groups": 4, "top_groups": 2, "group_score": "max", "scale": 16.0}, sixteen,
        router("deepseek_v2", "DeepseekV2TopkRouter", sixteen, 5, n_group=4, topk_group=2,
               topk_method="group_limited_greedy", routed_scaling_factor=16.0), 5))
    for k in (1, 2):
        made = router_llama4(eight, k)
        cases.append(route_case(f"L4, {k} of 8", {**sigmoid, "select_by_logit": True}, eight, made, k))
    by_logit = {**sigmoid, "select_by_logit": True, "select_bias": True}
    for normalize in (False, True):
        cases.append(route_case(
            "Kolibri, renormalised" if normalize else "Kolibri", {**by_logit, **(summed if normalize else {})}, eight,
            router("kolibri1", "Kolibri1TopKRouter", eight, 3, negative_bias(8), norm_topk_prob=normalize), 3,
            negative_bias(8)))
    for name, fn in (("softmax", chosen), ("sigmoid", {**sigmoid, **summed, "select_by_logit": True})):
        cases.append(route_case(
            f"Cohere, {name}", fn, eight,
            router("cohere2_moe", "Cohere2MoeTopKRouter", eight, 3, expert_selection_fn=name, norm_topk_prob=True), 3))
    cases.append(route_case(
        "soft-capped logits", {**sigmoid, **summed, "select_bias": True, "logit_cap": 1.5}, eight,
        router("laguna", "LagunaTopKRouter", eight, 3, bias, moe_router_logit_softcapping=1.5), 3, bias))
    cases.append(route_case(
        "square root of softplus",
        {"score": "sqrt_softplus", **summed, "select_bias": True, "normalize_eps": 1e-20, "scale": 1.5}, 8 * eight,
        router("deepseek_v4", "DeepseekV4TopKRouter", 8 * eight, 3, bias, scoring_func="sqrtsoftplus",
               routed_scaling_factor=1.5), 3, bias))
    cases += sparse_mixers()
    return {"routes": cases, "gemma4": gemma4(), "inkling": inkling(), "hash": hash_router()}


def router_llama4(logits, k):
    experts = logits.shape[-1]
    made = module("llama4", "Llama4Router")(config(hidden_size=experts, num_local_experts=experts,
                                                  num_experts_per_tok=k)).eval()
    with torch.no_grad():
        made.weight.copy_(torch.eye(experts))
        scores = made(logits)[0]
    weights, ids = torch.topk(scores, k)
    return weights, ids


def sparse_mixers():
    """Rows that decide: all negative, two equal best, 0 as the best, values on either side of the threshold."""
    jitter = 0.01
    edge = 2.0 * (1 - 2 * jitter)
    rows = torch.tensor([
        [0.9, 0.895, 0.5, -0.2, 0.884, 0.1],
        [-1.0, -1.01, -3.0, -1.02, -1.03, -2.0],
        [1.5, -0.5, 1.5, 0.25, 1.49, 0.0],
        [0.0, -0.001, -4.0, -0.02, -1.0, -2.0],
        [2.0, edge + 1e-5, edge - 1e-5, 1.0, 0.0, -2.0],
        [-0.5, -0.5, -0.505, -0.515, -0.7, -0.9],
        [3.0, 0.5, -0.1, -3.0, -30.0, 0.495],
    ])
    cases = []
    for name, value in (("0.01", jitter), ("0.2", 0.2), ("0", 0.0)):
        made = module("phimoe", "PhimoeTopKRouter")(config(
            hidden_size=6, num_local_experts=6, num_experts_per_tok=2, router_jitter_noise=value,
            input_jitter_noise=0.0)).eval()
        with torch.no_grad():
            made.weight.copy_(torch.eye(6))
            out = made(rows)
        cases.append(route_case(f"SMX, jitter {name}", {"score": "sparse_mixer", "jitter": value}, rows,
                                (out[1], out[2]), 2))
    return cases


def gemma4():
    """G4: norm, scale vector, H^-1/2, softmax, renormalised, scaled by expert."""
    hidden, experts, k = 6, 5, 2
    made = module("gemma4", "Gemma4TextRouter")(config(
        hidden_size=hidden, num_experts=experts, top_k_experts=k, rms_norm_eps=1e-6)).eval()
    x = wave(4, hidden, 1.1, 3.0)
    weight = wave(experts, hidden, 2.2, 2.0)
    scale = wave(1, hidden, 3.3)[0] + 1.5
    expert_scale = wave(1, experts, 4.4)[0] + 1.2
    with torch.no_grad():
        made.proj.weight.copy_(weight)
        made.scale.copy_(scale)
        made.per_expert_scale.copy_(expert_scale)
        _, weights, ids = made(x)
    return {"top_k": k, "eps": 1e-6, "x": numbers(x), "weight": numbers(weight), "scale": numbers(scale),
            "expert_scale": numbers(expert_scale), **rows_of(weights, ids)}


def inkling():
    """Sinks: logits that choose nobody but share in the sum."""
    experts, sinks, k = 6, 2, 3
    width = experts + sinks
    made = module("inkling", "InklingTopkRouter")(config(
        hidden_size=width, n_routed_experts=experts, num_local_experts=experts, num_experts=experts,
        n_shared_experts=sinks, num_experts_per_tok=k, route_scale=2.5)).eval()
    logits = wave(4, width, 0.9, 2.0)
    logits[3] -= 200.0
    bias = small_bias(experts)
    with torch.no_grad():
        made.weight.copy_(torch.eye(width))
        made.global_scale.fill_(0.8)
        made.e_score_correction_bias.copy_(torch.tensor(bias))
        _, weights, ids, shared = made(logits)
    # Where every sigmoid is 0 in float32, the bias alone chooses, and PyTorch's order of equals does not matter.
    return {"top_k": k, "sinks": sinks, "scale": 2.5 * 0.8, "logits": numbers(logits), "bias": bias,
            "sink_weights": numbers(shared), **rows_of(weights, ids)}


def hash_router():
    """Experts by token id, weighted by their scores."""
    experts, k, vocab = 6, 2, 5
    made = module("deepseek_v4", "DeepseekV4HashRouter")(config(
        hidden_size=experts, num_local_experts=experts, num_experts_per_tok=k, vocab_size=vocab,
        scoring_func="sqrtsoftplus", routed_scaling_factor=1.5)).eval()
    logits = wave(4, experts, 0.2, 3.0)
    table = torch.tensor([[(t + 3 * s) % experts for s in range(k)] for t in range(vocab)])
    tokens = torch.tensor([4, 0, 2, 2])
    with torch.no_grad():
        made.weight.copy_(torch.eye(experts))
        made.tid2eid.copy_(table)
        _, weights, ids = made(logits, tokens)
    return {"top_k": k, "scale": 1.5, "logits": numbers(logits), "given": table[tokens].tolist(),
            **rows_of(weights, ids)}


# ---- Activations -----------------------------------------------------------------------------------------------


def grid():
    gates = [-90.0, -20.0, -7.5, -7.0, -3.0, -1.0, -0.25, -1e-3, -1e-30, 0.0, 1e-30, 1e-3, 0.25, 0.7, 1.0, 3.0, 6.5,
             7.0, 7.5, 20.0, 90.0]
    ups = [-50.0, -7.5, -7.0, -1.0, -1e-3, 0.0, 0.5, 1.0, 6.9, 7.0, 7.5, 50.0]
    pairs = torch.tensor([[g, u] for g in gates for u in ups], dtype=torch.float64)
    return pairs[:, 0].float().double(), pairs[:, 1].float().double()


class WithGate:
    """Calls a class's _apply_gate without building its experts."""

    def __init__(self, family, name, **fields):
        self.fn = module(family, name)._apply_gate
        self.fields = config(**fields)

    def __call__(self, fused):
        return self.fn(self.fields, fused)


def make_activations():
    g, u = grid()
    fused = torch.cat([g[:, None], u[:, None]], dim=1)
    cases = [{"activation": "silu", "out": numbers(F.silu(g) * u)},
             {"activation": "gelu_tanh", "out": numbers(ACT2FN["gelu_pytorch_tanh"](g) * u)},
             {"activation": "gelu_erf", "out": numbers(ACT2FN["gelu"](g) * u)}]
    silu = ACT2FN["silu"]
    for limit in (7.0, 0.7):
        gate = WithGate("deepseek_v4", "DeepseekV4Experts", limit=limit, act_fn=silu)
        cases.append({"activation": "silu", "limit": limit, "out": numbers(gate(fused)[:, 0])})
        gate = WithGate("gpt_oss", "GptOssExperts", limit=limit, alpha=1.702)
        cases.append({"activation": "swiglu_oai", "limit": limit, "alpha": 1.702, "out": numbers(gate(fused)[:, 0])})
        gate = WithGate("step3p7", "Step3p7Experts", limit=limit, act_fn=silu)
        cases.append({"activation": "swiglu_step", "limit": limit, "out": numbers(gate(fused)[:, 0])})
    gate = WithGate("minimax_m3_vl", "MiniMaxM3VLExperts", swiglu_limit=7.0, swiglu_alpha=1.3)
    cases.append({"activation": "swiglu_oai", "limit": 7.0, "alpha": 1.3, "out": numbers(gate(fused)[:, 0])})
    plain = [{"activation": "relu2", "out": numbers(ACT2FN["relu2"](g))}]
    return {"gate": numbers(g), "up": numbers(u), "gated": cases, "plain": plain}


# ---- Norms -----------------------------------------------------------------------------------------------------


def make_norms():
    dim, eps = 12, 1e-5
    x = wave(4, dim, 0.4, 3.0).double()
    x[1] = 1e-4 * x[1]  # eps counts
    x[2] = x[2] + 1000.0  # a mean far above the deviation
    x[3] = 0.0
    weight = (wave(1, dim, 1.7)[0] + 0.2).double()
    bias = wave(1, dim, 2.9)[0].double()
    cases = []

    def add(name, spec, made, **state):
        made = made.double().eval()
        with torch.no_grad():
            for key, value in state.items():
                getattr(made, key).copy_(value)
            cases.append({"name": name, **spec, "eps": spec.get("eps", eps), "out": numbers(made(x))})

    add("RMS", {"kind": "rms", "weight": True}, module("mixtral", "MixtralRMSNorm")(dim, eps=eps), weight=weight)
    add("RMS, 1 + w", {"kind": "rms_offset", "weight": True}, module("qwen3_next", "Qwen3NextRMSNorm")(dim, eps=eps),
        weight=weight)
    add("RMS, 1 + w (Step-3.5)", {"kind": "rms_offset", "weight": True},
        module("step3p7", "Step3p7RMSNorm")(dim, eps=eps), weight=weight)
    add("RMS without weight", {"kind": "rms", "weight": False},
        module("gemma4", "Gemma4RMSNorm")(dim, eps=eps, with_scale=False))
    add("L2", {"kind": "rms", "weight": False}, module("llama4", "Llama4TextL2Norm")(eps))
    add("layer norm", {"kind": "layer", "weight": True, "bias": True}, torch.nn.LayerNorm(dim, eps=eps), weight=weight,
        bias=bias)
    add("layer norm without bias", {"kind": "layer", "weight": True}, torch.nn.LayerNorm(dim, eps=eps, bias=False),
        weight=weight)
    add("layer norm of Cohere", {"kind": "layer", "weight": True},
        module("cohere2_moe", "Cohere2MoeLayerNorm")(hidden_size=dim, eps=eps), weight=weight)
    add("RMS of 3 groups", {"kind": "rms", "weight": True, "groups": 3},
        module("nemotron_h", "NemotronHRMSNormGated")(dim, group_size=dim // 3, eps=eps), weight=weight)
    return {"dim": dim, "x": numbers(x), "weight": numbers(weight), "bias": numbers(bias), "cases": cases}


# ---- Rotations -------------------------------------------------------------------------------------------------

POSITIONS = [0, 1, 17, 4095, 100000]


def make_ropes():
    """cos and sin at some positions as transformers' float32 gives them, from its own frequencies."""
    head = 16
    plain = {"rope_type": "default", "rope_theta": 10000.0}
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 64,
            "beta_fast": 8.0, "beta_slow": 1.0}
    longrope = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 256,
                "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5, 3.1, 3.8],
                "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]}
    cases = [("default", plain), ("partial", {**plain, "partial_rotary_factor": 0.5}),
             ("linear", {**plain, "rope_type": "linear", "factor": 4.0}),
             ("llama3", {**plain, "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 64}),
             ("yarn", yarn), ("yarn, not truncated", {**yarn, "truncate": False}),
             ("yarn, mscale", {**yarn, "mscale": 0.707, "mscale_all_dim": 1.0}),
             ("yarn, attention factor", {**yarn, "attention_factor": 1.25}),
             ("longrope", longrope),
             ("proportional", {**plain, "rope_type": "proportional", "partial_rotary_factor": 0.25}),
             ("alpha", {**plain, "rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0})]
    out = []
    for name, parameters in cases:
        made = transformers.LlamaConfig(
            hidden_size=4 * head, num_attention_heads=4, head_dim=head, max_position_embeddings=512,
            rope_parameters=dict(parameters))
        kind = parameters["rope_type"]
        if kind == "dynamic":
            frequencies, factor = module(
                "hunyuan_v1_moe", "HunYuanMoEV1RotaryEmbedding").compute_ntk_alpha_rope_parameters(
                    config(head_dim=head, rope_parameters=parameters))
        elif kind == "default":
            width = int(head * parameters.get("partial_rotary_factor", 1.0))
            frequencies = 1.0 / (parameters["rope_theta"] ** (torch.arange(0, width, 2).float() / width))
            factor = 1.0
        else:
            frequencies, factor = ROPE_INIT_FUNCTIONS[kind](made, "cpu", seq_len=8)
        angles = torch.tensor(POSITIONS).float()[:, None] * frequencies.float()[None, :]
        out.append({"name": name, "parameters": parameters, "frequencies": numbers(frequencies),
                    "factor": numbers(torch.tensor(float(factor), dtype=torch.float64)),
                    "cos": numbers(angles.double().cos() * factor), "sin": numbers(angles.double().sin() * factor)})
    return {"head_dim": head, "max_positions": 512, "positions": POSITIONS, "cases": out, "rotations": rotations(head)}


def rotations(head):
    """One head turned by the functions that the families use, in the order in which they leave its dims."""
    x = wave(1, head, 0.6, 2.0).double()
    theta = 1.0 / (100.0 ** (torch.arange(0, head, 2).double() / head))
    angles = (3.0 * theta.float()).double()
    cos, sin = angles.cos(), angles.sin()
    both_cos, both_sin = (torch.cat([t, t])[None, None] for t in (cos, sin))
    four = x[None, None]
    half = module("llama", "apply_rotary_pos_emb")(four, four, both_cos, both_sin)[0]
    ernie = module("ernie4_5_moe", "apply_rotary_pos_emb")(four, four, both_cos, both_sin)[0]
    llama4 = module("llama4", "apply_rotary_emb")(
        x[None, :, None].double(), x[None, :, None].double(), torch.polar(torch.ones_like(angles), angles)[None, None])[0]
    partial = module("glm4_moe", "apply_rotary_pos_emb")(
        four, four, *(torch.cat([t[: head // 4], t[: head // 4]])[None, None] for t in (cos, sin)))[0]
    return {"x": numbers(x[0]), "cos": numbers(cos), "sin": numbers(sin),
            "half_split": numbers(half.reshape(-1)), "interleaved": numbers(ernie.reshape(-1)),
            "interleaved_complex": numbers(llama4.reshape(-1)), "half_split_partial": numbers(partial.reshape(-1))}


def main():
    torch.manual_seed(0)
    for name, make in (("routers", make_routers), ("activations", make_activations), ("norms", make_norms),
                       ("ropes", make_ropes)):
        with open(f"{sys.argv[1]}/{name}.json", "w", encoding="utf-8") as file:
            values = {"transformers": transformers.__version__, **make()}
            file.write(compact(values) + "\n")


def compact(value, indent=0):
    """JSON with one line for everything that holds no object and is not a list of lists."""
    pad = " " * indent
    if isinstance(value, dict):
        inner = ",\n".join(f"{pad} {json.dumps(key)}: {compact(item, indent + 1)}" for key, item in value.items())
        return "{\n" + inner + "\n" + pad + "}"
    if isinstance(value, list) and value and isinstance(value[0], (list, dict)):
        return "[\n" + ",\n".join(f"{pad} {compact(item, indent + 1)}" for item in value) + "\n" + pad + "]"
    return json.dumps(value)


if __name__ == "__main__":
    main()
