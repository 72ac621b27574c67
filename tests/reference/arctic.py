#!/usr/bin/env python3
"""Snowflake Arctic (ArcticForCausalLM), from the authors' modeling_arctic.py and vLLM 0.23
model_executor/models/arctic.py: every `moe_layer_frequency`-th layer has experts (softmax, renormalised), the others an
MLP of the same width. With parallel_attn_mlp_res (vLLM reads use_residual) a layer with experts is

    a = h + attention(input_layernorm(h))
    h' = a + residual_mlp(residual_layernorm(a)) + moe(post_attention_layernorm(h))

so the experts read the layer's input, and the residual MLP is as wide as the hidden state.
"""
import common as c

SEED = 3
CONFIG = {
    "architectures": ["ArcticForCausalLM"],
    "attention_dropout": 0,
    "bos_token_id": 1,
    "enable_expert_tensor_parallelism": False,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 32,
    "initializer_range": 0.02,
    "intermediate_size": 20,
    "max_position_embeddings": 512,
    "max_sequence_length": 512,
    "model_type": "arctic",
    "moe_eval_capacity_factor": 1,
    "moe_layer_frequency": 2,
    "moe_min_capacity": 0,
    "moe_token_dropping": False,
    "moe_train_capacity_factor": 1,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 7,
    "pad_token_id": 0,
    "parallel_attn_mlp_res": True,
    "quantization": None,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "router_aux_loss_coef": 0.001,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "use_cache": True,
    "use_residual": True,
    "vocab_size": 128,
}


def make_mlp(w, prefix, hidden, width):
    w.matrix(prefix + "w1", width, hidden)
    w.matrix(prefix + "w3", width, hidden)
    w.matrix(prefix + "w2", hidden, width)


def mlp(w, prefix, x):
    return c.gated_mlp(w, x, prefix + "w1", prefix + "w3", prefix + "w2")


def has_experts(config, layer):
    return (layer + 1) % config["moe_layer_frequency"] == 0


def make_weights(config, seed):
    w = c.Weights(seed)
    hidden, heads, kv = (config[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    d = hidden // heads
    w.matrix("model.embed_tokens", config["vocab_size"], hidden, gain=6)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        w.norm(p + "input_layernorm", hidden)
        w.matrix(p + "self_attn.q_proj", heads * d, hidden)
        w.matrix(p + "self_attn.k_proj", kv * d, hidden)
        w.matrix(p + "self_attn.v_proj", kv * d, hidden)
        w.matrix(p + "self_attn.o_proj", hidden, heads * d)
        w.norm(p + "post_attention_layernorm", hidden)
        if not has_experts(config, layer):
            make_mlp(w, p + "block_sparse_moe.mlp.", hidden, config["intermediate_size"])
            continue
        w.matrix(p + "block_sparse_moe.gate", config["num_local_experts"], hidden, gain=2)
        for e in range(config["num_local_experts"]):
            make_mlp(w, p + f"block_sparse_moe.experts.{e}.", hidden, config["intermediate_size"])
        w.norm(p + "residual_layernorm", hidden)
        make_mlp(w, p + "residual_mlp.", hidden, hidden)
    w.norm("model.norm", hidden)
    w.matrix("lm_head", config["vocab_size"], hidden, gain=1.9)
    return w


def forward(config, w, ids):
    d, eps = config["hidden_size"] // config["num_attention_heads"], config["rms_norm_eps"]
    frequencies = c.rope_frequencies(d, config["rope_theta"])
    h = w["model.embed_tokens.weight"][ids]
    routes = {}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        x = c.rms_norm(h, w[p + "input_layernorm.weight"], eps)
        q, k, v = (c.linear(w, p + f"self_attn.{part}_proj", x).reshape(len(ids), -1, d) for part in "qkv")
        o = c.attention(c.rope(q, frequencies), c.rope(k, frequencies), v, d ** -0.5)
        a = h + c.linear(w, p + "self_attn.o_proj", o)
        if not has_experts(config, layer):
            h = a + mlp(w, p + "block_sparse_moe.mlp.", c.rms_norm(a, w[p + "post_attention_layernorm.weight"], eps))
            continue
        x = c.rms_norm(h, w[p + "post_attention_layernorm.weight"], eps)
        routes[layer] = c.route_softmax(c.linear(w, p + "block_sparse_moe.gate", x), config["num_experts_per_tok"],
                                        renormalise=True)
        experts = c.mixture(x, routes[layer], lambda e, rows: mlp(w, p + f"block_sparse_moe.experts.{e}.", rows))
        h = a + mlp(w, p + "residual_mlp.", c.rms_norm(a, w[p + "residual_layernorm.weight"], eps)) + experts
    return c.linear(w, "lm_head", c.rms_norm(h, w["model.norm.weight"], eps)), routes


if __name__ == "__main__":
    c.main(__file__, CONFIG, make_weights, forward, CONFIG["num_local_experts"], SEED,
           "experts on every second layer, reading the layer's input beside a residual MLP; softmax top-2 "
           "renormalised; dense layers between")
