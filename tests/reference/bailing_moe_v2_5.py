#!/usr/bin/env python3
"""Ring-2.5 (BailingMoeV2_5ForCausalLM), from inclusionAI/Ring-V2.5 models/modeling_bailing_moe_v2_5.py: lightning
attention in all layers but each `layer_group_size`-th, which has latent attention; the experts of Ling 2.

Lightning layers: per-head RMSNorm and partial half-split rotation of queries and keys, queries times d^-0.5, as many
key heads as heads; the output is RMS-normed in `group_norm_size` slices, gated by sigmoid(g_proj x), projected.
Decay of head h in layer l of L: slope_h (1 - l / (L - 1) + 1e-5), as in vLLM 0.23, SGLang and the training code of
inclusionAI/AReaL (whose layers count from 1); the modeling file subtracts that 1 from layers counting from 0.
Latent layers rotate pairs (2i, 2i + 1) of qk_rope_head_dim = head_dim * partial_rotary_factor dims. The norms of the
latents have eps 1e-6, which is the rms_norm_eps of the release. The output projection is `dense` in both kinds.
"""
import numpy as np

import common as c
from bailing_moe import make_mlp, mlp
from bailing_moe_v2 import make_moe, moe

SEED = 4
CONFIG = {
    "architectures": ["BailingMoeV2_5ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "embedding_dropout": 0.0,
    "eos_token_id": 2,
    "first_k_dense_replace": 1,
    "group_norm_size": 2,
    "head_dim": 8,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 40,
    "kv_lora_rank": 16,
    "layer_group_size": 2,
    "linear_silu": False,
    "max_position_embeddings": 512,
    "max_window_layers": 4,
    "model_type": "bailing_hybrid",
    "moe_intermediate_size": 10,
    "moe_router_enable_expert_bias": True,
    "moe_shared_expert_intermediate_size": 10,
    "n_group": 4,
    "norm_topk_prob": True,
    "num_attention_heads": 6,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 4,
    "num_key_value_heads": 6,
    "num_nextn_predict_layers": 0,
    "num_shared_experts": 1,
    "output_dropout": 0.0,
    "pad_token_id": 0,
    "partial_rotary_factor": 0.5,
    "q_lora_rank": 20,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "rms_norm_eps": 1e-06,
    "rope_interleave": True,
    "rope_scaling": None,
    "rope_theta": 6000000,
    "routed_scaling_factor": 2.5,
    "router_dtype": "fp32",
    "score_function": "sigmoid",
    "scoring_func": "sigmoid",
    "seq_aux": True,
    "tie_word_embeddings": False,
    "topk_group": 2,
    "topk_method": "noaux_tc",
    "torch_dtype": "float32",
    "use_bias": False,
    "use_cache": True,
    "use_qk_norm": True,
    "use_qkv_bias": False,
    "v_head_dim": 10,
    "vocab_size": 128,
}


def is_latent(config, layer):
    return (layer + 1) % config["layer_group_size"] == 0


def make_weights(config, seed):
    w = c.Weights(seed)
    hidden, heads, d = config["hidden_size"], config["num_attention_heads"], config["head_dim"]
    rank, rotary, q_rank = config["kv_lora_rank"], config["qk_rope_head_dim"], config["q_lora_rank"]
    nope, v_dim = config["qk_nope_head_dim"], config["v_head_dim"]
    w.matrix("model.word_embeddings", config["vocab_size"], hidden, gain=6)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        w.norm(p + "input_layernorm", hidden)
        if is_latent(config, layer):
            w.matrix(p + "attention.q_a_proj", q_rank, hidden)
            w.norm(p + "attention.q_a_layernorm", q_rank)
            w.matrix(p + "attention.q_b_proj", heads * (nope + rotary), q_rank)
            w.matrix(p + "attention.kv_a_proj_with_mqa", rank + rotary, hidden)
            w.norm(p + "attention.kv_a_layernorm", rank)
            w.matrix(p + "attention.kv_b_proj", heads * (nope + v_dim), rank)
            w.matrix(p + "attention.dense", hidden, heads * v_dim)
        else:
            w.matrix(p + "attention.query_key_value", 3 * heads * d, hidden)
            w.norm(p + "attention.query_layernorm", d)
            w.norm(p + "attention.key_layernorm", d)
            w.matrix(p + "attention.g_proj", heads * d, hidden)
            w.norm(p + "attention.g_norm", heads * d)
            w.matrix(p + "attention.dense", hidden, heads * d)
        w.norm(p + "post_attention_layernorm", hidden)
        if layer < config["first_k_dense_replace"]:
            make_mlp(w, p + "mlp.", hidden, config["intermediate_size"])
        else:
            make_moe(w, p + "mlp.", config, config["moe_intermediate_size"] * config["num_shared_experts"])
    w.norm("model.norm", hidden)
    w.matrix("lm_head", config["vocab_size"], hidden, gain=1.9)
    return w


def lightning(config, w, prefix, x, layer, frequencies):
    heads, d, eps = config["num_attention_heads"], config["head_dim"], config["rms_norm_eps"]
    q, k, v = np.split(c.linear(w, prefix + "query_key_value", x).reshape(len(x), 3 * heads, d), 3, axis=1)
    q = c.rope(c.rms_norm(q, w[prefix + "query_layernorm.weight"], eps), frequencies)
    k = c.rope(c.rms_norm(k, w[prefix + "key_layernorm.weight"], eps), frequencies)
    factor = 1 - layer / (config["num_hidden_layers"] - 1) + 1e-5
    o = c.lightning_attention(q * d ** -0.5, k, v, [s * factor for s in c.alibi_slopes(heads)])
    o = c.rms_norm(o.reshape(len(x), -1), w[prefix + "g_norm.weight"], eps, groups=config["group_norm_size"])
    return c.linear(w, prefix + "dense", o * c.sigmoid(c.linear(w, prefix + "g_proj", x)))


def forward(config, w, ids):
    eps, rotary = config["rms_norm_eps"], config["qk_rope_head_dim"]
    frequencies = c.rope_frequencies(int(config["head_dim"] * config["partial_rotary_factor"]), config["rope_theta"])
    latent_frequencies = c.rope_frequencies(rotary, config["rope_theta"])
    h = w["model.word_embeddings.weight"][ids]
    routes = {}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        x = c.rms_norm(h, w[p + "input_layernorm.weight"], eps)
        if is_latent(config, layer):
            scale = (config["qk_nope_head_dim"] + rotary) ** -0.5
            y = c.latent_attention(w, p + "attention.", x, config, latent_frequencies, 1e-6, scale, out="dense")
        else:
            y = lightning(config, w, p + "attention.", x, layer, frequencies)
        h = h + y
        x = c.rms_norm(h, w[p + "post_attention_layernorm.weight"], eps)
        if layer < config["first_k_dense_replace"]:
            y = mlp(w, p + "mlp.", x)
        else:
            y, routes[layer] = moe(config, w, p + "mlp.", x)
        h = h + y
    return c.linear(w, "lm_head", c.rms_norm(h, w["model.norm.weight"], eps)), routes


if __name__ == "__main__":
    c.main(__file__, CONFIG, make_weights, forward, CONFIG["num_experts"], SEED,
           "lightning layers with q/k norm, partial rotary, grouped norm and sigmoid gate (six heads: slopes between "
           "powers of two) alternating with MLA layers; sigmoid routing with expert_bias over four groups")
