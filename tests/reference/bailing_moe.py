#!/usr/bin/env python3
"""Ling-lite-1.5 (BailingMoeForCausalLM), from inclusionAI/Ling models/modeling_bailing_moe.py and "Every FLOP Counts"
(2025): llama-like, fused query_key_value rows [all q | all k | all v], softmax router with renormalisation, shared
experts as one MLP, and `norm_head`: each column of the head over its L2 norm (+ 1e-7). use_bias concerns the output
projection of the attention only (vLLM gives query_key_value and the MLPs one, too; the releases have none).
"""
import numpy as np

import common as c

SEED = 27
CONFIG = {
    "architectures": ["BailingMoeForCausalLM"],
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
    "max_window_layers": 3,
    "model_type": "bailing_moe",
    "moe_intermediate_size": 12,
    "norm_head": True,
    "norm_softmax": False,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "num_shared_experts": 2,
    "output_dropout": 0.0,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 600000,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "use_bias": True,
    "use_cache": True,
    "use_qkv_bias": True,
    "use_sliding_window": False,
    "vocab_size": 128,
}


def mlp(w, prefix, x):
    return c.gated_mlp(w, x, prefix + "gate_proj", prefix + "up_proj", prefix + "down_proj")


def make_mlp(w, prefix, hidden, width):
    w.matrix(prefix + "gate_proj", width, hidden)
    w.matrix(prefix + "up_proj", width, hidden)
    w.matrix(prefix + "down_proj", hidden, width)


def make_weights(config, seed):
    w = c.Weights(seed)
    hidden, heads, kv, d = (config[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads",
                                                "head_dim"))
    width = config["moe_intermediate_size"]
    w.matrix("model.word_embeddings", config["vocab_size"], hidden, gain=6)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        w.norm(p + "input_layernorm", hidden)
        w.matrix(p + "attention.query_key_value", (heads + 2 * kv) * d, hidden)
        w.vector(p + "attention.query_key_value.bias", (heads + 2 * kv) * d, 0.3)
        w.matrix(p + "attention.dense", hidden, heads * d)
        w.vector(p + "attention.dense.bias", hidden, 0.3)
        w.norm(p + "post_attention_layernorm", hidden)
        if layer < config["first_k_dense_replace"]:
            make_mlp(w, p + "mlp.", hidden, config["intermediate_size"])
            continue
        w.matrix(p + "mlp.gate", config["num_experts"], hidden, gain=1.5)
        for e in range(config["num_experts"]):
            make_mlp(w, p + f"mlp.experts.{e}.", hidden, width)
        make_mlp(w, p + "mlp.shared_experts.", hidden, width * config["num_shared_experts"])
    w.norm("model.norm", hidden, scale=4)
    w.matrix("lm_head", config["vocab_size"], hidden, gain=3)  # its size does not matter: norm_head
    return w


def forward(config, w, ids):
    heads, kv, d, eps = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim",
                                             "rms_norm_eps"))
    frequencies = c.rope_frequencies(d, config["rope_theta"])
    h = w["model.word_embeddings.weight"][ids]
    routes = {}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        x = c.rms_norm(h, w[p + "input_layernorm.weight"], eps)
        qkv = c.linear(w, p + "attention.query_key_value", x).reshape(len(ids), heads + 2 * kv, d)
        q, k, v = np.split(qkv, [heads, heads + kv], axis=1)
        q, k = c.rope(q, frequencies), c.rope(k, frequencies)
        h = h + c.linear(w, p + "attention.dense", c.attention(q, k, v, d ** -0.5))
        x = c.rms_norm(h, w[p + "post_attention_layernorm.weight"], eps)
        if layer < config["first_k_dense_replace"]:
            h = h + mlp(w, p + "mlp.", x)
            continue
        routes[layer] = c.route_softmax(c.linear(w, p + "mlp.gate", x), config["num_experts_per_tok"],
                                        config["norm_topk_prob"])
        h = h + c.mixture(x, routes[layer], lambda e, rows: mlp(w, p + f"mlp.experts.{e}.", rows))
        h = h + mlp(w, p + "mlp.shared_experts.", x)
    head = w["lm_head.weight"]
    head = head / (np.sqrt(np.sum(head * head, axis=0, keepdims=True)) + 1e-7)
    return c.rms_norm(h, w["model.norm.weight"], eps) @ head.T, routes


if __name__ == "__main__":
    c.main(__file__, CONFIG, make_weights, forward, CONFIG["num_experts"], SEED,
           "fused query_key_value and dense with biases, softmax top-3 renormalised, two shared experts, dense first "
           "layer, norm_head")
