"""End-to-end speed and memory of `moe serve` on one checkpoint, through real gRPC.

    build/venv/bin/python tests/bench/end_to_end.py MODEL_DIR [--threads N] [--cpu-isa X] [--bandwidth GBPS] [--json F]

Prints one table and, with --json, the same as JSON. Decode rates come beside the bandwidth limit: the bytes of active
weights a step must read over the read bandwidth (measure it with kernel_bench in the same sitting and pass it).
"""
import argparse
import glob
import json
import os
import platform
import statistics
import subprocess

from quiet import LIMIT, undisturbed
from serving import BINARY, Bench, decode, disturbed, first_token, fresh, pb, prefill, read_seconds

KV_GIB = 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--cpu-isa", default="auto")
    parser.add_argument("--bandwidth", type=float, help="measured read bandwidth in GB/s")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each decode measurement")
    parser.add_argument("--repeat", type=int, default=3, help="measurements of a row; the median is printed")
    parser.add_argument("--peers-rows", action="store_true", help="only the rows that compare.py puts beside peers")
    parser.add_argument("--json")
    parser.add_argument("flags", nargs="*", help="further flags of moe serve, after --")
    options = parser.parse_args()

    facts = json.loads(subprocess.run([BINARY, "inspect", "--json", options.model], capture_output=True,
                                      check=True).stdout)
    element = 4 if facts["expert_dtype"] == "float32" else 2
    embedding = facts["vocab_size"] * facts["hidden_size"]
    active_bytes = element * (facts["active_parameters"] - (0 if facts["tied_head"] else embedding))
    weight_bytes = facts["memory"]["weight_bytes"]

    rows = []

    def add(name, unit, *samples, others=0.0):
        """others: largest share of the cores that other processes took during a sample (quiet.py)."""
        rows.append({"name": name, "unit": unit, "samples": samples, "value": statistics.median(samples),
                     "others": round(others, 3)})

    reading = sum(read_seconds(f) for f in glob.glob(os.path.join(options.model, "*.safetensors")))
    flags = ["--threads", str(options.threads), "--cpu-isa", options.cpu_isa, "--max-model-len", "4096",
             "--kv-cache-memory-gib", str(KV_GIB), *options.flags]
    with Bench(options.model, *flags) as bench:
        stub = bench.stub
        add("load", "s", bench.load_seconds)
        if not options.peers_rows:
            add("  over reading the file from the page cache", "×", bench.load_seconds / reading)
            add("resident after load (Pss)", "× weights", bench.memory.now() / weight_bytes)
        info = stub.GetModel(pb.GetModelRequest())
        for length in (512, 2048):
            rates, others = undisturbed(lambda: prefill(stub, length), options.repeat)
            add(f"prefill {length}", "tokens/s", *rates, others=others)
        for streams, context in ((1, 128), (1, 1920), (8, 128), (32, 128), (128, 128)):
            if streams > 32 and options.peers_rows:
                continue
            tokens = options.tokens * max(1, streams // 32)  # so that there is a time when all decode
            pairs, others = undisturbed(lambda: decode(stub, streams, context, tokens), options.repeat)
            add(f"decode, {streams} streams, context {context}", "tokens/s", *(rate for rate, _ in pairs),
                others=others)
            if streams == 1 and options.bandwidth:
                add(f"  of the bandwidth limit, context {context}", "share",
                    rows[-1]["value"] * active_bytes / (options.bandwidth * 1e9))
            if streams == 32:
                add("first token at 32 × 128", "s", *(ttft for _, ttft in pairs), others=others)
        if not options.peers_rows:
            salt = fresh()
            add("first token of a cached 2,000-token prefix", "× sooner",
                first_token(stub, 2000, salt) / first_token(stub, 2000, salt))
            for streams in (8, 32):
                alone, median, longest, ttft = disturbed(stub, streams, 4 * options.tokens, 512)
                add(f"token gap of {streams} streams during a 512-token prefill", "× (median)", median / alone)
                add("  longest", "×", longest / alone)
                add("  its first token after", "s", ttft)
        add("largest resident (Pss)", "GiB", bench.memory.peak / 2**30)
        add("  over weights and configured K/V", "×", bench.memory.peak / (weight_bytes + KV_GIB * 2**30))

    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="ascii")
                if line.startswith("model name")), platform.processor())
    print(f"{info.architecture}, {facts['parameters'] / 1e9:.2f} billion parameters ({weight_bytes / 2**30:.2f} GiB), "
          f"{active_bytes / 1e6:.1f} MB of active weights a token; {info.backend}, {cpu}, "
          f"load average {os.getloadavg()[0]:.1f}")
    for row in rows:
        spread = f"   {min(row['samples']):.3f} … {max(row['samples']):.3f}" if len(row["samples"]) > 1 else ""
        spread += f"   (others took {row['others']:.0%})" if row["others"] > LIMIT else ""
        print(f"{row['name']:55s} {row['value']:10.3f} {row['unit']}{spread}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump({"model": facts, "backend": info.backend, "cpu": cpu, "load_average": os.getloadavg()[0],
                       "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
