#!/usr/bin/env python3
"""Step3 (Step3VLForConditionalGeneration, text only), from the authors' modeling_step3.py and vLLM 0.23
model_executor/models/step3_text.py: multi-matrix factorisation attention ("Step-3 is Large yet Affordable", 2025):
queries through a shared low-rank projection, an RMSNorm and wq; one key and value head for all. Experts stacked by
projection [E, out, in], softmax over all without renormalisation unless norm_expert_weight, one shared expert beside
them. The checkpoint is that of the multimodal model: configuration under text_config, text tensors under model.
"""
import common as c
from bailing_moe import make_mlp, mlp

SEED = 381
TEXT = {
    "architectures": ["Step3TextForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "head_dim": 12,
    "hidden_size": 32,
    "intermediate_size": 40,
    "max_position_embedding": 512,
    "max_seq_len": 512,
    "model_type": "step3_text",
    "moe_intermediate_size": 16,
    "moe_layers_enum": "1,3",
    "moe_num_experts": 6,
    "moe_top_k": 3,
    "norm_expert_weight": False,
    "num_attention_groups": 1,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 500000,
    "share_expert_dim": 20,
    "share_q_dim": 20,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "vocab_size": 128,
}
CONFIG = {
    "architectures": ["Step3VLForConditionalGeneration"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_size": 32,
    "image_token_id": 127,
    "model_type": "step3_vl",
    "pad_token_id": 0,
    "projector_bias": False,
    "text_config": TEXT,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "understand_projector_stride": 2,
    "vision_config": {"hidden_size": 8, "model_type": "step3_vision_encoder", "num_hidden_layers": 1,
                      "output_hidden_size": 8},
}


def make_weights(config, seed):
    config = config["text_config"]
    w = c.Weights(seed)
    hidden, heads, d, width, rank = (config[k] for k in ("hidden_size", "num_attention_heads", "head_dim",
                                                         "moe_intermediate_size", "share_q_dim"))
    w.matrix("model.embed_tokens", config["vocab_size"], hidden, gain=6)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        w.norm(p + "input_layernorm", hidden)
        w.matrix(p + "self_attn.q_proj", rank, hidden)
        w.norm(p + "self_attn.inter_norm", rank)
        w.matrix(p + "self_attn.wq", heads * d, rank)
        w.matrix(p + "self_attn.k_proj", d, hidden)
        w.matrix(p + "self_attn.v_proj", d, hidden)
        w.matrix(p + "self_attn.o_proj", hidden, heads * d)
        w.norm(p + "post_attention_layernorm", hidden)
        if str(layer) not in config["moe_layers_enum"].split(","):
            make_mlp(w, p + "mlp.", hidden, config["intermediate_size"])
            continue
        experts = config["moe_num_experts"]
        w.matrix(p + "moe.gate", experts, hidden, gain=1.5)
        w.matrix(p + "moe.gate_proj", experts, width, hidden)
        w.matrix(p + "moe.up_proj", experts, width, hidden)
        w.matrix(p + "moe.down_proj", experts, hidden, width)
        make_mlp(w, p + "share_expert.", hidden, config["share_expert_dim"])
    w.norm("model.norm", hidden)
    w.matrix("lm_head", config["vocab_size"], hidden, gain=1.9)
    w.skip("vision_model.embeddings.class_embedding", 8)
    w.skip("vit_downsampler.weight", 8, 8, 2, 2)
    w.skip("vit_downsampler2.weight", 16, 8, 1, 1)
    w.skip("vit_large_projector.weight", hidden, 16)
    return w


def forward(config, w, ids):
    config = config["text_config"]
    d, eps = config["head_dim"], config["rms_norm_eps"]
    frequencies = c.rope_frequencies(d, config["rope_theta"])
    h = w["model.embed_tokens.weight"][ids]
    routes = {}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        x = c.rms_norm(h, w[p + "input_layernorm.weight"], eps)
        q = c.rms_norm(c.linear(w, p + "self_attn.q_proj", x), w[p + "self_attn.inter_norm.weight"], eps)
        q = c.linear(w, p + "self_attn.wq", q).reshape(len(ids), -1, d)
        k, v = (c.linear(w, p + f"self_attn.{part}_proj", x)[:, None, :] for part in "kv")
        o = c.attention(c.rope(q, frequencies), c.rope(k, frequencies), v, d ** -0.5)
        h = h + c.linear(w, p + "self_attn.o_proj", o)
        x = c.rms_norm(h, w[p + "post_attention_layernorm.weight"], eps)
        if str(layer) not in config["moe_layers_enum"].split(","):
            h = h + mlp(w, p + "mlp.", x)
            continue
        routes[layer] = c.route_softmax(c.linear(w, p + "moe.gate", x), config["moe_top_k"],
                                        config["norm_expert_weight"])

        def expert(e, rows):
            gate, up, down = (w[p + f"moe.{part}_proj.weight"][e] for part in ("gate", "up", "down"))
            return (c.silu(rows @ gate.T) * (rows @ up.T)) @ down.T

        h = h + c.mixture(x, routes[layer], expert) + mlp(w, p + "share_expert.", x)
    return c.linear(w, "lm_head", c.rms_norm(h, w["model.norm.weight"], eps)), routes


if __name__ == "__main__":
    c.main(__file__, CONFIG, make_weights, forward, TEXT["moe_num_experts"], SEED,
           "layout of the multimodal checkpoint with vision tensors to skip; multi-matrix factorisation attention "
           "(shared query projection, norm, wq; one key head), stacked experts, softmax top-3 not renormalised, shared "
           "expert")
