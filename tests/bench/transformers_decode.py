"""The peer: the same checkpoint decoded by transformers + torch in bfloat16 with the same number of threads.

    PYTHON tests/bench/transformers_decode.py MODEL_DIR [--threads 2] [--tokens 64]

Needs torch and transformers, which nothing else here does. Prints tokens a second at batch 1 and the prefill rate.
"""
import argparse
import os
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--tokens", type=int, default=64)
options = parser.parse_args()
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
import transformers  # noqa: E402

torch.set_num_threads(options.threads)
model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16).eval()


def prompt(length):
    return torch.tensor([[3 + (i * 7919) % 30000 for i in range(length)]])


with torch.inference_mode():
    for context in (128, 1920):
        out = model(prompt(context), use_cache=True)
        cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
        for _ in range(4):
            out = model(token, past_key_values=cache, use_cache=True)
        start = time.perf_counter()
        for _ in range(options.tokens):
            out = model(token, past_key_values=cache, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
        seconds = time.perf_counter() - start
        print(f"decode, 1 stream, context {context}: {options.tokens / seconds:.2f} tokens/s", flush=True)
    for length in (512, 2048):
        best = 1e9
        for _ in range(3):
            start = time.perf_counter()
            model(prompt(length), use_cache=True, logits_to_keep=1)
            best = min(best, time.perf_counter() - start)
        print(f"prefill {length}: {length / best:.0f} tokens/s", flush=True)
print(f"torch {torch.__version__}, transformers {transformers.__version__}, {options.threads} threads")
