#!/usr/bin/env python3
"""Ling 2 / Ring 2 (BailingMoeV2ForCausalLM), from inclusionAI/Ling-V2 models/modeling_bailing_moe_v2.py: per-head
RMSNorm of queries and keys, rotation of the first `partial_rotary_factor` of each head, sigmoid router with selection
bias over expert groups, weights renormalised and scaled; the released configurations say model_type bailing_moe.
Layers from num_hidden_layers on predict further tokens and are skipped.
"""
import numpy as np

import common as c
from bailing_moe import make_mlp, mlp

SEED = 2
CONFIG = {
    "architectures": ["BailingMoeV2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "embedding_dropout": 0.0,
    "eos_token_id": 2,
    "first_k_dense_replace": 1,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 40,
    "max_position_embeddings": 512,
    "max_window_layers": 4,
    "model_type": "bailing_moe",
    "moe_intermediate_size": 10,
    "moe_router_enable_expert_bias": True,
    "moe_shared_expert_intermediate_size": 10,
    "n_group": 4,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "num_nextn_predict_layers": 1,
    "num_shared_experts": 2,
    "output_dropout": 0.0,
    "pad_token_id": 0,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 600000,
    "routed_scaling_factor": 2.5,
    "router_dtype": "fp32",
    "score_function": "sigmoid",
    "tie_word_embeddings": False,
    "topk_group": 2,
    "torch_dtype": "float32",
    "use_bias": False,
    "use_cache": True,
    "use_qk_norm": True,
    "use_qkv_bias": False,
    "use_rmsnorm": True,
    "vocab_size": 128,
}


def make_moe(w, prefix, config, shared_width):
    hidden, width = config["hidden_size"], config["moe_intermediate_size"]
    w.matrix(prefix + "gate", config["num_experts"], hidden, gain=1.5)
    w.vector(prefix + "gate.expert_bias", config["num_experts"], 0.2)
    for e in range(config["num_experts"]):
        make_mlp(w, prefix + f"experts.{e}.", hidden, width)
    make_mlp(w, prefix + "shared_experts.", hidden, shared_width)


def moe(config, w, prefix, x):
    route = c.route_sigmoid(c.linear(w, prefix + "gate", x), w[prefix + "gate.expert_bias"],
                            config["num_experts_per_tok"], config["n_group"], config["topk_group"],
                            config["routed_scaling_factor"])
    y = c.mixture(x, route, lambda e, rows: mlp(w, prefix + f"experts.{e}.", rows))
    return y + mlp(w, prefix + "shared_experts.", x), route


def make_weights(config, seed, shared_width=None):
    w = c.Weights(seed)
    hidden, heads, kv, d = (config[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads",
                                                "head_dim"))
    shared_width = shared_width or config["moe_intermediate_size"] * config["num_shared_experts"]
    w.matrix("model.word_embeddings", config["vocab_size"], hidden, gain=6)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        w.norm(p + "input_layernorm", hidden)
        w.matrix(p + "attention.query_key_value", (heads + 2 * kv) * d, hidden)
        w.norm(p + "attention.query_layernorm", d)
        w.norm(p + "attention.key_layernorm", d)
        w.matrix(p + "attention.dense", hidden, heads * d)
        w.norm(p + "post_attention_layernorm", hidden)
        if layer < config["first_k_dense_replace"]:
            make_mlp(w, p + "mlp.", hidden, config["intermediate_size"])
        else:
            make_moe(w, p + "mlp.", config, shared_width)
    for layer in range(config["num_hidden_layers"],
                       config["num_hidden_layers"] + config.get("num_nextn_predict_layers", 0)):
        w.skip(f"model.layers.{layer}.enorm.weight", hidden)
        w.skip(f"model.layers.{layer}.mlp.experts.0.up_proj.weight", 2, hidden)
    w.norm("model.norm", hidden)
    w.matrix("lm_head", config["vocab_size"], hidden, gain=1.9)
    return w


def forward(config, w, ids):
    heads, kv, d, eps = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim",
                                             "rms_norm_eps"))
    rotary = int(d * config.get("partial_rotary_factor", 1.0))
    frequencies = c.rope_frequencies(rotary, config["rope_theta"])
    h = w["model.word_embeddings.weight"][ids]
    routes = {}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        x = c.rms_norm(h, w[p + "input_layernorm.weight"], eps)
        qkv = c.linear(w, p + "attention.query_key_value", x).reshape(len(ids), heads + 2 * kv, d)
        q, k, v = np.split(qkv, [heads, heads + kv], axis=1)
        q = c.rope(c.rms_norm(q, w[p + "attention.query_layernorm.weight"], eps), frequencies)
        k = c.rope(c.rms_norm(k, w[p + "attention.key_layernorm.weight"], eps), frequencies)
        h = h + c.linear(w, p + "attention.dense", c.attention(q, k, v, d ** -0.5))
        x = c.rms_norm(h, w[p + "post_attention_layernorm.weight"], eps)
        if layer < config["first_k_dense_replace"]:
            y = mlp(w, p + "mlp.", x)
        else:
            y, routes[layer] = moe(config, w, p + "mlp.", x)
        h = h + y
    return c.linear(w, "lm_head", c.rms_norm(h, w["model.norm.weight"], eps)), routes


if __name__ == "__main__":
    c.main(__file__, CONFIG, make_weights, forward, CONFIG["num_experts"], SEED,
           "fused query_key_value, per-head q/k norm, half rotary, sigmoid routing with expert_bias over four groups, "
           "two shared experts, dense first layer, a next-token-prediction layer to skip")
