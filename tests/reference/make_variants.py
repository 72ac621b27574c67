"""What transformers computes from the families' tiny checkpoints with other switches: tests/data/variants.json.

    python tests/reference/make_variants.py tests/data/families tests/data/variants.json      (torch, transformers 5.24)

Each variant is a family's checkpoint with some fields of config.json replaced and some tensors added, whose values
follow from their name and shape (`extra_values`; the test makes the same). For each prompt: the log-probabilities of its
tokens from the second on, and a greedy continuation with those of its tokens. In float32, eager, without a cache.

LongRoPE: a prompt whose continuation stays below original_max_position_embeddings and one beyond it are what
transformers gives by itself. For a sequence that would cross the border transformers changes its rotation on the way;
`whole` makes it rotate the whole sequence as a long one, which is what moe does. PhimoeRotaryEmbedding of 5.24 computes
its frequencies from the short factors whatever the length is (it forgets to pass the length on) and only its magnitude
from the long ones; here the length is passed on, as the model's own code and earlier releases of transformers do."""
import json
import os
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

NEW_TOKENS = 8
LONGROPE = {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0, 3.0, 4.0, 5.0],
            "original_max_position_embeddings": 32}


def biases(*names):
    return {name + ".bias": shape for name, shape in names}


def nemotron_biases(config, pattern):
    """Of every dense MLP, every shared expert and the latent projections."""
    out = {}
    hidden = config["hidden_size"]
    for layer, kind in enumerate(pattern):
        mixer = f"backbone.layers.{layer}.mixer."
        if kind == "-":
            out |= biases((mixer + "up_proj", [config["intermediate_size"]]), (mixer + "down_proj", [hidden]))
        if kind == "E":
            width = config["moe_shared_expert_intermediate_size"]
            out |= biases((mixer + "shared_experts.up_proj", [width]), (mixer + "shared_experts.down_proj", [hidden]))
            if config.get("moe_latent_size"):
                out |= biases((mixer + "fc1_latent_proj", [config["moe_latent_size"]]),
                              (mixer + "fc2_latent_proj", [hidden]))
    return out


VARIANTS = [
    ("mixtral longrope", "mixtral", {"head_dim": 8, "rope_scaling": {"rope_type": "longrope", "factor": 4.0, **LONGROPE}}),
    ("phimoe longrope", "phimoe", {"rope_scaling": {"type": "longrope", "short_mscale": 1.1, "long_mscale": 1.24,
                                                    **LONGROPE}}),
    ("nemotron_h mlp_bias", "nemotron_h", {"mlp_bias": True}),
    ("nemotron_h_latent mlp_bias", "nemotron_h_latent", {"mlp_bias": True}),
    ("nemotron_h attention_bias", "nemotron_h", {"attention_bias": True}),
    ("dots3_note mlp_bias", "dots3_note_text", {"mlp_bias": True}),
    ("dbrx order 2", "dbrx", {"ffn_config.moe_normalize_expert_weights": 2.0}),
    ("dbrx order 0.5", "dbrx", {"ffn_config.moe_normalize_expert_weights": 0.5}),
    ("deepseek_v2 moe_layer_freq", "deepseek_v2", {"moe_layer_freq": 2}),
    ("deepseek_v2 top_k above the groups'", "deepseek_v2", {"n_group": 8, "topk_group": 2}),
    ("deepseek_v3 moe_layer_freq", "deepseek_v3", {"moe_layer_freq": 2}),
    ("deepseek_v32 moe_layer_freq", "deepseek_v32", {"moe_layer_freq": 2, "mlp_bias": True}),
    ("glm_moe_dsa mlp_bias", "glm_moe_dsa", {"mlp_bias": True}),
    ("deepseek_v4 unused fields", "deepseek_v4", {"norm_topk_prob": False, "attention_bias": True,
                                                  "n_shared_experts": 2}),
    ("hunyuan_v1_moe unused fields", "hunyuan_v1_moe", {"use_qk_norm": False, "use_mixed_mlp_moe": False}),
    ("hunyuan_v1_moe num_shared_expert", "hunyuan_v1_moe", {"num_shared_expert": 2}),
    ("kimi_linear mla_use_nope", "kimi_linear", {"mla_use_nope": False}),
    ("ernie4_5_moe moe_use_aux_free", "ernie4_5_moe", {"moe_use_aux_free": False}),
    ("inkling_text shared_expert_sink", "inkling_text", {"shared_expert_sink": False}),
    ("minimax_m2 unused fields", "minimax_m2", {"use_qk_norm": False, "use_routing_bias": False}),
    ("minimax_m3 use_routing_bias", "minimax_m3_text", {"use_routing_bias": False}),
]


def extra_values(name, shape):
    count = 1
    for side in shape:
        count *= side
    return torch.tensor([((i * 37 + 11 * len(name)) % 101 - 50) / 250.0 for i in range(count)],
                        dtype=torch.float32).reshape(shape)


def patched(config, changes):
    config = json.loads(json.dumps(config))
    for path, value in changes.items():
        *parents, last = path.split(".")
        inner = config
        for parent in parents:
            inner = inner[parent]
        inner[last] = value
    return config


def load(directory, changes, extra):
    with open(f"{directory}/config.json", encoding="utf-8") as file:
        config = patched(json.load(file), changes)
    tensors = load_file(f"{directory}/model.safetensors")
    for name, shape in extra.items():
        assert name not in tensors, name
        tensors[name] = extra_values(name, shape)
    with tempfile.TemporaryDirectory() as made:
        with open(f"{made}/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        save_file(tensors, f"{made}/model.safetensors", metadata={"format": "pt"})
        cls = getattr(transformers, config["architectures"][0])
        model, info = cls.from_pretrained(made, attn_implementation="eager", dtype=torch.float32,
                                          output_loading_info=True)
    missing = [key for key in info["missing_keys"] if "vision" not in key and "projector" not in key]
    assert not missing and not info["unexpected_keys"], info
    model.config._experts_implementation = "eager"
    return model.eval()


def rotary(model):
    return model.model.rotary_emb


def as_long(model, length):
    """Makes the model rotate as for `length` positions."""
    settings = model.config.rope_parameters
    original = settings["original_max_position_embeddings"]
    turn = rotary(model)
    if type(turn).__name__ == "PhimoeRotaryEmbedding":
        compute = ROPE_INIT_FUNCTIONS["longrope"]
        turn.rope_init_fn = lambda config, *args, **kwargs: compute(
            config, None, seq_len=original + 1 if length > original else None)
    if length > original:
        set_border(model, 2)  # every prompt here is longer
    return original


def set_border(model, border):
    model.config.rope_parameters["original_max_position_embeddings"] = border
    if hasattr(model.config, "original_max_position_embeddings"):
        model.config.original_max_position_embeddings = border


def continue_greedily(model, prompt):
    """None where two tokens are nearly tied."""
    ids = list(prompt)
    for _ in range(NEW_TOKENS):
        best = torch.topk(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].double(), 2)
        if best.values[0] - best.values[1] < 2e-3:
            return None
        ids.append(int(best.indices[0]))
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double()
    logprobs = torch.log_softmax(logits, -1)
    chosen = [round(float(logprobs[i, ids[i + 1]]), 6) for i in range(len(ids) - 1)]
    return {"prompt": prompt, "continuation": ids[len(prompt):], "logprobs": chosen}


def run(model, vocab, length, whole, seed):
    g = torch.Generator().manual_seed(seed)
    longrope = (getattr(model.config, "rope_parameters", None) or {}).get("rope_type") == "longrope"
    original = as_long(model, length + NEW_TOKENS if whole else length) if longrope else 0
    with torch.no_grad():
        result = None
        while result is None:
            result = continue_greedily(model, torch.randint(3, vocab - 3, (length,), generator=g).tolist())
    if longrope:
        set_border(model, original)
    return result


def main():
    root, out = sys.argv[1:3]
    only = sys.argv[3:]
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    cases = []
    for name, family, changes in VARIANTS:
        if only and not any(part in name for part in only):
            continue
        print(name, flush=True)
        directory = os.path.join(root, family)
        with open(f"{directory}/config.json", encoding="utf-8") as file:
            config = json.load(file)
        extra = {}
        if name.startswith("nemotron") and "mlp_bias" in changes:
            extra = nemotron_biases(config, config["hybrid_override_pattern"])
        model = load(directory, changes, extra)
        vocab = (config.get("text_config") or config)["vocab_size"]
        prompts = [(20, False), (40, False), (28, True)] if "longrope" in name else [(21, False), (34, False)]
        cases.append({"name": name, "family": family, "config": changes, "tensors": extra,
                      "prompts": [run(model, vocab, *prompt, len(name)) for prompt in prompts]})
    with open(out, "w", encoding="utf-8") as file:
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        file.write('{"transformers":"%s","cases":[\n%s\n]}\n' % (transformers.__version__, lines))


if __name__ == "__main__":
    main()
