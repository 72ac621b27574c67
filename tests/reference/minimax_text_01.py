#!/usr/bin/env python3
"""MiniMax-Text-01 (MiniMaxText01ForCausalLM, the original repository), from its modeling_minimax_text_01.py and
"MiniMax-01" (2025): lightning attention (attn_type_list 0) and softmax attention rotating the first rotary_dim dims
(1). With postnorm, the residual is the *normed* input: h = norm(h); h = alpha h + beta f(h), factors by kind of layer.

Lightning layers: silu of qkv_proj, viewed by head as [q | k | v], no rotation and no scale; decay of head h in layer l
of L: slope_h (1 - l / (L - 1) + 1e-5); RMSNorm over all heads, sigmoid(output_gate x), out_proj. That norm has eps
1e-6, not rms_norm_eps (vLLM: 1e-5).
"""
import numpy as np

import common as c

SEED = 73
CONFIG = {
    "architectures": ["MiniMaxText01ForCausalLM"],
    "attention_dropout": 0.0,
    "attn_type_list": [0, 1, 0, 0],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "head_dim": 8,
    "hidden_act": "silu",
    "hidden_size": 32,
    "initializer_range": 0.02,
    "intermediate_size": 10,
    "layernorm_full_attention_alpha": 1.5,
    "layernorm_full_attention_beta": 0.9,
    "layernorm_linear_attention_alpha": 1.3,
    "layernorm_linear_attention_beta": 1.1,
    "layernorm_mlp_alpha": 1.2,
    "layernorm_mlp_beta": 0.8,
    "max_position_embeddings": 512,
    "model_type": "minimax_text_01",
    "num_attention_heads": 6,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 7,
    "output_router_logits": False,
    "pad_token_id": 0,
    "postnorm": True,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000000,
    "rotary_dim": 4,
    "router_aux_loss_coef": 0.001,
    "router_jitter_noise": 0.0,
    "shared_intermediate_size": 0,
    "shared_moe_mode": "sigmoid",
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "use_cache": True,
    "vocab_size": 128,
}


def make_weights(config, seed):
    w = c.Weights(seed)
    hidden, heads, kv, d, width = (config[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads",
                                                       "head_dim", "intermediate_size"))
    w.matrix("model.embed_tokens", config["vocab_size"], hidden, gain=6)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        w.norm(p + "input_layernorm", hidden)
        if config["attn_type_list"][layer] == 0:
            w.matrix(p + "self_attn.qkv_proj", 3 * heads * d, hidden)
            w.matrix(p + "self_attn.output_gate", heads * d, hidden)
            w.norm(p + "self_attn.norm", heads * d)
            w.matrix(p + "self_attn.out_proj", hidden, heads * d)
        else:
            w.matrix(p + "self_attn.q_proj", heads * d, hidden)
            w.matrix(p + "self_attn.k_proj", kv * d, hidden)
            w.matrix(p + "self_attn.v_proj", kv * d, hidden)
            w.matrix(p + "self_attn.o_proj", hidden, heads * d)
        w.norm(p + "post_attention_layernorm", hidden)
        w.matrix(p + "block_sparse_moe.gate", config["num_local_experts"], hidden, gain=2)
        for e in range(config["num_local_experts"]):
            w.matrix(p + f"block_sparse_moe.experts.{e}.w1", width, hidden)
            w.matrix(p + f"block_sparse_moe.experts.{e}.w3", width, hidden)
            w.matrix(p + f"block_sparse_moe.experts.{e}.w2", hidden, width)
    w.norm("model.norm", hidden)
    w.matrix("lm_head", config["vocab_size"], hidden, gain=1.9)
    return w


def lightning(config, w, prefix, x, layer):
    heads, d = config["num_attention_heads"], config["head_dim"]
    qkv = c.silu(c.linear(w, prefix + "qkv_proj", x)).reshape(len(x), heads, 3 * d)
    q, k, v = np.split(qkv, 3, axis=2)
    factor = 1 - layer / (config["num_hidden_layers"] - 1) + 1e-5
    o = c.lightning_attention(q, k, v, [s * factor for s in c.alibi_slopes(heads)]).reshape(len(x), -1)
    o = c.rms_norm(o, w[prefix + "norm.weight"], 1e-6) * c.sigmoid(c.linear(w, prefix + "output_gate", x))
    return c.linear(w, prefix + "out_proj", o)


def softmax_attention(config, w, prefix, x):
    d = config["head_dim"]
    frequencies = c.rope_frequencies(config["rotary_dim"], config["rope_theta"])
    q, k, v = (c.linear(w, prefix + f"{part}_proj", x).reshape(len(x), -1, d) for part in "qkv")
    return c.linear(w, prefix + "o_proj", c.attention(c.rope(q, frequencies), c.rope(k, frequencies), v, d ** -0.5))


def forward(config, w, ids):
    eps = config["rms_norm_eps"]
    h = w["model.embed_tokens.weight"][ids]
    routes = {}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        x = c.rms_norm(h, w[p + "input_layernorm.weight"], eps)
        if config["attn_type_list"][layer] == 0:
            kind, y = "linear_attention", lightning(config, w, p + "self_attn.", x, layer)
        else:
            kind, y = "full_attention", softmax_attention(config, w, p + "self_attn.", x)
        residual = x if config["postnorm"] else h
        h = residual * config[f"layernorm_{kind}_alpha"] + y * config[f"layernorm_{kind}_beta"]
        x = c.rms_norm(h, w[p + "post_attention_layernorm.weight"], eps)
        routes[layer] = c.route_softmax(c.linear(w, p + "block_sparse_moe.gate", x), config["num_experts_per_tok"],
                                        renormalise=True)

        def expert(e, rows):
            q = p + f"block_sparse_moe.experts.{e}."
            return c.gated_mlp(w, rows, q + "w1", q + "w3", q + "w2")

        residual = x if config["postnorm"] else h
        y = c.mixture(x, routes[layer], expert)
        h = residual * config["layernorm_mlp_alpha"] + y * config["layernorm_mlp_beta"]
    return c.linear(w, "lm_head", c.rms_norm(h, w["model.norm.weight"], eps)), routes


if __name__ == "__main__":
    c.main(__file__, CONFIG, make_weights, forward, CONFIG["num_local_experts"], SEED,
           "the original repository's names: lightning attention (six heads: slopes between powers of two), softmax "
           "attention with rotary_dim 4 of 8, residual of the normed input with factors by kind of layer")
