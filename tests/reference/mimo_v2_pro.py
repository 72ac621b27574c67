#!/usr/bin/env python3
"""MiMo-V2.5-Pro (MiMoV2ForCausalLM), unquantised, from vLLM 0.23 model_executor/models/mimo_v2.py and the converters of
the released files: sliding layers (hybrid_layer_pattern 1) have their own head counts, theta and sinks; heads of values
are smaller than those of keys, values are multiplied by attention_value_scale; one fused qkv_proj, stored as
T = num_key_value_heads chunks [q_r | k_r | v_r] (that of the full layers, in sliding layers too); sigmoid router with
correction bias. A query of a sliding layer sees sliding_window_size keys before its own, as SGLang and transformers'
mimo_v2_flash have it (vLLM counts its own in). Tensors under model.mtp are skipped.
"""
import numpy as np

import common as c
from bailing_moe import make_mlp, mlp

SEED = 11
CONFIG = {
    "add_full_attention_sink_bias": False,
    "add_swa_attention_sink_bias": True,
    "architectures": ["MiMoV2ForCausalLM"],
    "attention_bias": False,
    "attention_chunk_size": 8,
    "attention_dropout": 0.0,
    "attention_projection_layout": "fused_qkv",
    "attention_value_scale": 0.612,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "head_dim": 24,
    "hidden_act": "silu",
    "hidden_size": 32,
    "hybrid_layer_pattern": [0, 1, 1, 0],
    "intermediate_size": 40,
    "layernorm_epsilon": 1e-05,
    "max_position_embeddings": 512,
    "model_type": "mimo_v2",
    "moe_intermediate_size": 8,
    "moe_layer_freq": [0, 1, 1, 1],
    "n_group": 1,
    "n_routed_experts": 8,
    "n_shared_experts": None,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "partial_rotary_factor": 0.334,
    "rope_theta": 10000000,
    "routed_scaling_factor": None,
    "scoring_func": "sigmoid",
    "sliding_window": 8,
    "sliding_window_size": 8,
    "swa_head_dim": 24,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 4,
    "swa_rope_theta": 10000,
    "swa_v_head_dim": 16,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "torch_dtype": "float32",
    "use_cache": True,
    "v_head_dim": 16,
    "vocab_size": 128,
}


def head_counts(config, layer):
    """(heads, kv heads, dim of keys, dim of values) of the layer's attention."""
    swa = "swa_" if config["hybrid_layer_pattern"][layer] == 1 else ""
    return tuple(config[swa + k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim"))


def make_weights(config, seed):
    w = c.Weights(seed)
    hidden = config["hidden_size"]
    w.matrix("model.embed_tokens", config["vocab_size"], hidden, gain=6)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        heads, kv, d, v_dim = head_counts(config, layer)
        w.norm(p + "input_layernorm", hidden)
        w.matrix(p + "self_attn.qkv_proj", heads * d + kv * (d + v_dim), hidden)
        w.matrix(p + "self_attn.o_proj", hidden, heads * v_dim)
        if config["hybrid_layer_pattern"][layer] == 1:
            w.vector(p + "self_attn.attention_sink_bias", heads, 1.0)
        w.norm(p + "post_attention_layernorm", hidden)
        if not config["moe_layer_freq"][layer]:
            make_mlp(w, p + "mlp.", hidden, config["intermediate_size"])
            continue
        w.matrix(p + "mlp.gate", config["n_routed_experts"], hidden, gain=1.5)
        w.vector(p + "mlp.gate.e_score_correction_bias", config["n_routed_experts"], 0.2)
        for e in range(config["n_routed_experts"]):
            make_mlp(w, p + f"mlp.experts.{e}.", hidden, config["moe_intermediate_size"])
    w.skip("model.mtp.layers.0.enorm.weight", hidden)
    w.norm("model.norm", hidden)
    w.matrix("lm_head", config["vocab_size"], hidden, gain=1.9)
    return w


def split_chunks(config, qkv, heads, kv, d, v_dim):
    """[T, chunks * (q_r | k_r | v_r)] → q, k, v by head."""
    chunks = config["num_key_value_heads"]
    sizes = [heads // chunks * d, kv // chunks * d, kv // chunks * v_dim]
    parts = np.split(qkv.reshape(len(qkv), chunks, -1), np.cumsum(sizes)[:-1], axis=2)
    return [part.reshape(len(qkv), -1, dim) for part, dim in zip(parts, (d, d, v_dim))]


def forward(config, w, ids):
    eps = config["layernorm_epsilon"]
    h = w["model.embed_tokens.weight"][ids]
    routes = {}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        heads, kv, d, v_dim = head_counts(config, layer)
        sliding = config["hybrid_layer_pattern"][layer] == 1
        frequencies = c.rope_frequencies(int(d * config["partial_rotary_factor"]),
                                         config["swa_rope_theta" if sliding else "rope_theta"])
        x = c.rms_norm(h, w[p + "input_layernorm.weight"], eps)
        q, k, v = split_chunks(config, c.linear(w, p + "self_attn.qkv_proj", x), heads, kv, d, v_dim)
        o = c.attention(c.rope(q, frequencies), c.rope(k, frequencies), v * config["attention_value_scale"], d ** -0.5,
                        window=config["sliding_window_size"] + 1 if sliding else None,
                        sinks=w[p + "self_attn.attention_sink_bias"] if sliding else None)
        h = h + c.linear(w, p + "self_attn.o_proj", o)
        x = c.rms_norm(h, w[p + "post_attention_layernorm.weight"], eps)
        if not config["moe_layer_freq"][layer]:
            h = h + mlp(w, p + "mlp.", x)
            continue
        routes[layer] = c.route_sigmoid(c.linear(w, p + "mlp.gate", x), w[p + "mlp.gate.e_score_correction_bias"],
                                        config["num_experts_per_tok"], config["n_group"], config["topk_group"])
        h = h + c.mixture(x, routes[layer], lambda e, rows: mlp(w, p + f"mlp.experts.{e}.", rows))
    return c.linear(w, "lm_head", c.rms_norm(h, w["model.norm.weight"], eps)), routes


if __name__ == "__main__":
    c.main(__file__, CONFIG, make_weights, forward, CONFIG["n_routed_experts"], SEED,
           "fused qkv_proj in chunks by key head of the full layers, own key heads, theta, sinks and window on sliding "
           "layers, value scale, v_head_dim not head_dim, partial rotary, sigmoid routing with correction bias")
