"""The effect of each optimisation of `moe serve`: the same measurements with it switched off.

    build/venv/bin/python tests/bench/ablation.py MODEL_DIR [--threads N]

Rows are ratios to the server as it comes, measured before and after each variant (the mean of the two), so that a
machine that changes its speed on the way does not show as an effect. "–": no such figure; one sequence at a time never
decodes eight streams.
"""
import argparse
import ctypes
import math

from serving import Bench, decode, enough_tokens, first_token, fresh, prefill

PR_SET_THP_DISABLE = 41


def without_huge_pages(on):
    """Children inherit the setting (prctl(2))."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_THP_DISABLE, int(on), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_THP_DISABLE)")


def measure(model, flags, huge_pages=True):
    without_huge_pages(not huge_pages)
    try:
        with Bench(model, "--max-model-len", "4096", *flags) as bench:
            without_huge_pages(False)
            stub = bench.stub
            salt = fresh()
            cold = first_token(stub, 1024, salt)
            return {"prefill 1,024": max(prefill(stub, 1024) for _ in range(2)),
                    "decode, 1 stream": decode(stub, 1, 128, 48)[0],
                    "decode, 8 streams": decode(stub, 8, 128, enough_tokens(8))[0],
                    "same prompt again": cold / first_token(stub, 1024, salt)}
    finally:
        without_huge_pages(False)


def ratio(value, base):
    return f"{'–':>20s}" if math.isnan(value) else f"{value / base:20.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    base = ["--threads", str(options.threads)]
    variants = [("one thread", {"flags": ["--threads", "1"]}),
                ("no huge pages", {"flags": base, "huge_pages": False}),
                ("prompts in chunks of 64", {"flags": [*base, "--max-num-batched-tokens", "64"]}),
                ("one sequence at a time", {"flags": [*base, "--max-num-seqs", "1"]}),
                ("no prefix cache", {"flags": [*base, "--prefix-cache", "off"]}),
                ("AVX-512 without bf16 products", {"flags": [*base, "--cpu-isa", "avx512"]}),
                ("AVX2", {"flags": [*base, "--cpu-isa", "avx2"]})]
    before = measure(options.model, base)
    print(f"{'switched off':32s}" + "".join(f"{name:>20s}" for name in before))
    print(f"{'nothing':32s}" + "".join(f"{value:20.1f}" for value in before.values()))
    for name, how in variants:
        value = measure(options.model, **how)
        after = measure(options.model, base)
        print(f"{name:32s}" + "".join(ratio(value[k], (before[k] + after[k]) / 2) for k in value), flush=True)
        before = after


if __name__ == "__main__":
    main()
