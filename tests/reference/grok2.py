#!/usr/bin/env python3
"""grok-2 (Grok1ForCausalLM), from SGLang srt/models/grok.py (the engine xAI publishes it for) and vLLM 0.23
model_executor/models/grok1.py: a norm before and after both sub-layers, attention scores capped by a tanh, router
logits capped, softmax over all experts without renormalisation, a dense MLP beside the experts, (moe + mlp) / sqrt(2),
gelu in its exact form in both. Embeddings are scaled, logits scaled and then capped (SGLang; vLLM caps first).
rope_type "original" is the plain rotation. Queries at positions p > attn_temperature_len = n: capped scores times
log2(p) / log2(n) (SGLang's attention kernels, xai_temperature_len; vLLM leaves it out).
"""
import math

import numpy as np

import common as c

SEED = 18
CONFIG = {
    "architectures": ["Grok1ForCausalLM"],
    "attn_factor": 1.0,
    "attn_logit_softcapping": 3.0,
    "attn_temperature_len": 12,
    "beta_fast": 8,
    "beta_slow": 1,
    "bos_token_id": 1,
    "embedding_multiplier_scale": 5.656854249492381,
    "eos_token_id": 2,
    "extrapolation_factor": 1.0,
    "final_logit_softcapping": 8.0,
    "global_attn_every_n": 1,
    "head_dim": 8,
    "hidden_size": 32,
    "intermediate_size": 24,
    "max_position_embeddings": 512,
    "model_type": "git",
    "moe_intermediate_size": 14,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "num_local_experts": 6,
    "original_max_position_embeddings": 64,
    "output_multiplier_scale": 0.5,
    "pad_token_id": 0,
    "residual_moe": True,
    "rms_norm_eps": 1e-05,
    "rope_theta": 208533496,
    "rope_type": "original",
    "router_logit_softcapping": 2.5,
    "scaling_factor": 8.0,
    "sliding_window_size": -1,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "vocab_size": 128,
}


def make_weights(config, seed):
    w = c.Weights(seed)
    hidden, heads, kv, d = (config[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads",
                                                "head_dim"))
    w.matrix("model.embed_tokens", config["vocab_size"], hidden, gain=1.2)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        w.norm(p + "pre_attn_norm", hidden)
        w.matrix(p + "self_attn.q_proj", heads * d, hidden, gain=1.5)
        w.matrix(p + "self_attn.k_proj", kv * d, hidden, gain=1.5)
        w.matrix(p + "self_attn.v_proj", kv * d, hidden)
        w.matrix(p + "self_attn.o_proj", hidden, heads * d)
        w.norm(p + "post_attn_norm", hidden)
        w.norm(p + "pre_moe_norm", hidden)
        w.matrix(p + "block_sparse_moe.gate", config["num_local_experts"], hidden, gain=2)
        for e in range(config["num_local_experts"]):
            w.matrix(p + f"block_sparse_moe.experts.{e}.w1", config["moe_intermediate_size"], hidden)
            w.matrix(p + f"block_sparse_moe.experts.{e}.w3", config["moe_intermediate_size"], hidden)
            w.matrix(p + f"block_sparse_moe.experts.{e}.w2", hidden, config["moe_intermediate_size"], gain=2)
        w.matrix(p + "mlp.gate_proj", config["intermediate_size"], hidden)
        w.matrix(p + "mlp.up_proj", config["intermediate_size"], hidden)
        w.matrix(p + "mlp.down_proj", hidden, config["intermediate_size"])
        w.norm(p + "post_moe_norm", hidden)
    w.norm("model.norm", hidden)
    w.matrix("lm_head", config["vocab_size"], hidden, gain=4.4)
    return w


def forward(config, w, ids):
    heads, kv, d, eps = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim",
                                             "rms_norm_eps"))
    frequencies = c.rope_frequencies(d, config["rope_theta"])
    n = config["attn_temperature_len"]
    h = w["model.embed_tokens.weight"][ids] * config["embedding_multiplier_scale"]
    temperature = np.array([math.log2(p) / math.log2(n) if p > n else 1 for p in range(len(ids))]).astype(h.dtype)
    routes = {}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        x = c.rms_norm(h, w[p + "pre_attn_norm.weight"], eps)
        q, k, v = (c.linear(w, p + f"self_attn.{part}_proj", x).reshape(len(ids), -1, d) for part in "qkv")
        o = c.attention(c.rope(q, frequencies), c.rope(k, frequencies), v, d ** -0.5,
                        cap=config["attn_logit_softcapping"], temperature=temperature)
        h = h + c.rms_norm(c.linear(w, p + "self_attn.o_proj", o), w[p + "post_attn_norm.weight"], eps)
        x = c.rms_norm(h, w[p + "pre_moe_norm.weight"], eps)
        logits = c.soft_cap(c.linear(w, p + "block_sparse_moe.gate", x), config["router_logit_softcapping"])
        routes[layer] = c.route_softmax(logits, config["num_experts_per_tok"], renormalise=False)

        def expert(e, rows):
            q = p + f"block_sparse_moe.experts.{e}."
            return c.gated_mlp(w, rows, q + "w1", q + "w3", q + "w2", c.gelu)

        dense = c.gated_mlp(w, x, p + "mlp.gate_proj", p + "mlp.up_proj", p + "mlp.down_proj", c.gelu)
        y = (c.mixture(x, routes[layer], expert) + dense) / math.sqrt(2)
        h = h + c.rms_norm(y, w[p + "post_moe_norm.weight"], eps)
    logits = c.linear(w, "lm_head", c.rms_norm(h, w["model.norm.weight"], eps)) * config["output_multiplier_scale"]
    return c.soft_cap(logits, config["final_logit_softcapping"]), routes


if __name__ == "__main__":
    c.main(__file__, CONFIG, make_weights, forward, CONFIG["num_local_experts"], SEED,
           "four norms a layer, capped attention scores with a temperature by position, capped router logits, softmax "
           "top-2 not renormalised, dense MLP beside the experts, gelu, scaled embeddings, scaled and capped logits")
