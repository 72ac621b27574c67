#!/usr/bin/env python3
"""Param2-17B-A2.4B (Param2MoEForCausalLM), from vLLM 0.23 model_executor/models/param2moe.py and the released
configuration class: as Ling 2, but `moe_shared_expert_intermediate_size` is the width of all shared experts together.
"""
import bailing_moe_v2
import common as c
from bailing_moe_v2 import forward

SEED = 3
CONFIG = {
    "architectures": ["Param2MoEForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "embedding_dropout": 0.0,
    "eos_token_id": 2,
    "first_k_dense_replace": 1,
    "head_dim": 8,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 40,
    "max_position_embeddings": 512,
    "max_window_layers": 3,
    "model_type": "param2moe",
    "moe_intermediate_size": 16,
    "moe_router_enable_expert_bias": True,
    "moe_shared_expert_intermediate_size": 24,
    "n_group": 2,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "num_nextn_predict_layers": 0,
    "num_shared_experts": 2,
    "output_dropout": 0.0,
    "output_router_logits": False,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "routed_scaling_factor": 1.5,
    "router_dtype": "fp32",
    "score_function": "sigmoid",
    "tie_word_embeddings": False,
    "topk_group": 1,
    "torch_dtype": "float32",
    "use_bias": False,
    "use_cache": True,
    "use_qk_norm": True,
    "use_qkv_bias": False,
    "vocab_size": 128,
}


def make_weights(config, seed):
    return bailing_moe_v2.make_weights(config, seed, config["moe_shared_expert_intermediate_size"])


if __name__ == "__main__":
    c.main(__file__, CONFIG, make_weights, forward, CONFIG["num_experts"], SEED,
           "fused query_key_value, per-head q/k norm, whole rotary, sigmoid routing with expert_bias over two groups, "
           "shared experts of a total width given by the configuration, dense first layer")
