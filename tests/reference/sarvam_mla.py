#!/usr/bin/env python3
"""sarvam-105b (SarvamMLAForCausalLM), from vLLM 0.23 model_executor/models/sarvam.py and its pull request 56034 by the
authors: DeepSeek-V3 with direct queries (q_lora_rank null) and one group of experts; the configuration keeps its own
names (num_experts, num_shared_experts, head_dim = kv_lora_rank + qk_rope_head_dim) and calls YaRN deepseek_yarn, which
multiplies the softmax scale by m(factor, mscale_all_dim)² and the rotation by m(factor, mscale) /
m(factor, mscale_all_dim). (transformers reads this one as deepseek_v3.)
"""
import common as c
from bailing_moe import make_mlp, mlp

SEED = 5
CONFIG = {
    "architectures": ["SarvamMLAForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "embedding_dropout": 0.0,
    "eos_token_id": 2,
    "first_k_dense_replace": 1,
    "head_dim": 24,
    "hidden_act": "silu",
    "hidden_size": 32,
    "initializer_range": 0.006,
    "intermediate_size": 40,
    "kv_lora_rank": 16,
    "max_position_embeddings": 512,
    "model_type": "sarvam_mla",
    "moe_intermediate_size": 14,
    "moe_router_enable_expert_bias": True,
    "num_attention_heads": 4,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 3,
    "num_shared_experts": 1,
    "output_dropout": 0.0,
    "output_router_logits": False,
    "pad_token_id": 0,
    "q_head_dim": 24,
    "q_lora_rank": None,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 8,
        "mscale": 1.0,
        "mscale_all_dim": 0.7,
        "original_max_position_embeddings": 64,
        "type": "deepseek_yarn",
    },
    "rope_theta": 10000.0,
    "routed_scaling_factor": 2.5,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "use_cache": True,
    "use_qk_norm": True,
    "v_head_dim": 12,
    "vocab_size": 128,
}


def make_weights(config, seed):
    w = c.Weights(seed)
    hidden, heads, width = config["hidden_size"], config["num_attention_heads"], config["moe_intermediate_size"]
    rank, rotary, nope, v_dim = (config[k] for k in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim",
                                                     "v_head_dim"))
    w.matrix("model.embed_tokens", config["vocab_size"], hidden, gain=6)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        w.norm(p + "input_layernorm", hidden)
        w.matrix(p + "self_attn.q_proj", heads * (nope + rotary), hidden)
        w.matrix(p + "self_attn.kv_a_proj_with_mqa", rank + rotary, hidden)
        w.norm(p + "self_attn.kv_a_layernorm", rank)
        w.matrix(p + "self_attn.kv_b_proj", heads * (nope + v_dim), rank)
        w.matrix(p + "self_attn.o_proj", hidden, heads * v_dim)
        w.norm(p + "post_attention_layernorm", hidden)
        if layer < config["first_k_dense_replace"]:
            make_mlp(w, p + "mlp.", hidden, config["intermediate_size"])
            continue
        w.matrix(p + "mlp.gate", config["num_experts"], hidden, gain=1.5)
        w.vector(p + "mlp.gate.e_score_correction_bias", config["num_experts"], 0.2)
        for e in range(config["num_experts"]):
            make_mlp(w, p + f"mlp.experts.{e}.", hidden, width)
        make_mlp(w, p + "mlp.shared_experts.", hidden, width * config["num_shared_experts"])
    w.norm("model.norm", hidden)
    w.matrix("lm_head", config["vocab_size"], hidden, gain=1.9)
    return w


def forward(config, w, ids):
    eps, yarn = config["rms_norm_eps"], config["rope_scaling"]
    frequencies = c.yarn_frequencies(config["qk_rope_head_dim"], config["rope_theta"], yarn["factor"],
                                     yarn["original_max_position_embeddings"], yarn["beta_fast"], yarn["beta_slow"])
    all_dim = c.yarn_mscale(yarn["factor"], yarn["mscale_all_dim"])
    scale = (config["qk_nope_head_dim"] + config["qk_rope_head_dim"]) ** -0.5 * all_dim ** 2
    rope_scale = c.yarn_mscale(yarn["factor"], yarn["mscale"]) / all_dim
    h = w["model.embed_tokens.weight"][ids]
    routes = {}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        x = c.rms_norm(h, w[p + "input_layernorm.weight"], eps)
        h = h + c.latent_attention(w, p + "self_attn.", x, config, frequencies, eps, scale, rope_scale)
        x = c.rms_norm(h, w[p + "post_attention_layernorm.weight"], eps)
        if layer < config["first_k_dense_replace"]:
            h = h + mlp(w, p + "mlp.", x)
            continue
        routes[layer] = c.route_sigmoid(c.linear(w, p + "mlp.gate", x), w[p + "mlp.gate.e_score_correction_bias"],
                                        config["num_experts_per_tok"], scale=config["routed_scaling_factor"])
        h = h + c.mixture(x, routes[layer], lambda e, rows: mlp(w, p + f"mlp.experts.{e}.", rows))
        h = h + mlp(w, p + "mlp.shared_experts.", x)
    return c.linear(w, "lm_head", c.rms_norm(h, w["model.norm.weight"], eps)), routes


if __name__ == "__main__":
    c.main(__file__, CONFIG, make_weights, forward, CONFIG["num_experts"], SEED,
           "MLA with direct queries and interleaved rope, deepseek_yarn with mscale, sigmoid routing with correction "
           "bias over one group, one shared expert, dense first layer")
