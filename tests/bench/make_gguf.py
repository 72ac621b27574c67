"""Writes a Qwen3-MoE checkpoint (Hugging Face layout, bfloat16) as GGUF for llama.cpp, without a vocabulary.

    PYTHON tests/bench/make_gguf.py MODEL_DIR OUT.gguf [--also q8_0=OUT2.gguf --also q4_0=OUT3.gguf]

Needs the package gguf; --also needs llama-cpp-python, whose quantiser makes the smaller files. Matrices stay bfloat16
bit for bit; norms and the router become float32, as llama.cpp's own converter writes them.
"""
import argparse
import json
import pathlib

import gguf
import numpy as np

LAYER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


class Checkpoint:
    """Name → bfloat16 bits as uint16, mapped from the safetensors files of a folder."""

    def __init__(self, folder):
        self.tensors = {}
        for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
            data = np.memmap(path, np.uint8, "r")
            length = int(data[:8].view(np.uint64)[0])
            for name, entry in json.loads(bytes(data[8:8 + length])).items():
                if name == "__metadata__":
                    continue
                if entry["dtype"] != "BF16":
                    raise SystemExit(f"{name} is {entry['dtype']}, not BF16")
                begin, end = entry["data_offsets"]
                self.tensors[name] = data[8 + length + begin:8 + length + end].view(np.uint16).reshape(entry["shape"])

    def take(self, name):
        return self.tensors.pop(name + ".weight")


def add(writer, name, bits):
    if bits.ndim == 1 or "ffn_gate_inp" in name:
        writer.add_tensor(name + ".weight", (bits.astype(np.uint32) << 16).view(np.float32))
    else:
        writer.add_tensor(name + ".weight", np.ascontiguousarray(bits).view(np.uint8),
                          raw_dtype=gguf.GGMLQuantizationType.BF16)


def write(folder, out):
    config = json.loads((pathlib.Path(folder) / "config.json").read_text(encoding="utf-8"))
    if config["model_type"] != "qwen3_moe":
        raise SystemExit(f"model_type is {config['model_type']}, not qwen3_moe")
    checkpoint = Checkpoint(folder)
    writer = gguf.GGUFWriter(out, "qwen3moe")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_count(config["num_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    for source, target in TOP.items():
        if source + ".weight" in checkpoint.tensors:
            add(writer, target, checkpoint.take(source))
    for layer in range(config["num_hidden_layers"]):
        for source, target in LAYER.items():
            add(writer, f"blk.{layer}.{target}", checkpoint.take(f"model.layers.{layer}.{source}"))
        for part in ("gate", "up", "down"):
            experts = [checkpoint.take(f"model.layers.{layer}.mlp.experts.{e}.{part}_proj")
                       for e in range(config["num_experts"])]
            add(writer, f"blk.{layer}.ffn_{part}_exps", np.stack(experts))
    if checkpoint.tensors:
        raise SystemExit(f"tensors left over: {sorted(checkpoint.tensors)[:5]}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantize(source, kind, out):
    import llama_cpp
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind.upper()}")
    if llama_cpp.llama_model_quantize(source.encode(), out.encode(), params) != 0:
        raise SystemExit(f"quantising to {kind} failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--also", action="append", default=[], metavar="KIND=FILE")
    options = parser.parse_args()
    write(options.model, options.out)
    for item in options.also:
        kind, _, path = item.partition("=")
        quantize(options.out, kind, path)


if __name__ == "__main__":
    main()
