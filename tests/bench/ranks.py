"""What expert parallelism costs on one machine: decode rates of several ranks over one rank's, in alternating runs.

    build/venv/bin/python tests/bench/ranks.py MODEL [--ranks 2] [--streams 32] [--threads N] [--rounds 3]

Ranks as threads, as processes over TCP, and as processes over Gloo. The bytes are those that a token's rows take in the
exchanges of one MoE layer; the least is what an exact dispatch must send, one row to each rank that has one of the
token's experts and one row back (parallel/README.md).
"""
import argparse
import json
import pathlib

from serving import Bench, decode

WAYS = {
    "1 rank": [],
    "threads": ["--ranks-in-process"],
    "processes, TCP": [],
    "processes, Gloo": ["--rank-transport", "gloo"],
}


def exchange(server):
    return {"bytes": server.metric("moe_all_to_all_bytes_total"), "rows": server.metric("moe_all_to_all_rows_total"),
            "seconds": server.metric("moe_all_to_all_seconds_total"), "tokens": server.metric("moe_step_tokens_sum")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    config = json.loads((pathlib.Path(options.model) / "config.json").read_text())
    layers, row_bytes = config["num_hidden_layers"], 2 * config["hidden_size"]
    print(f"{'ranks as':16} {'tokens/s':>9} {'of 1 rank':>9} {'bytes':>8} {'least':>8} {'exchange s':>10}   (bytes: a token and layer)")
    for _ in range(options.rounds):
        one = None
        for name, flags in WAYS.items():
            if name != "1 rank":
                flags = ["--expert-parallel-size", str(options.ranks), *flags]
            with Bench(options.model, "--max-model-len", "1024", "--threads", str(options.threads),
                       "--kv-cache-memory-gib", "1", *flags, admin=True) as bench:
                decode(bench.stub, options.streams, 128, 32)
                before = exchange(bench.server)
                rate = max(decode(bench.stub, options.streams, 128, 128)[0] for _ in range(2))
                spent = {key: value - before[key] for key, value in exchange(bench.server).items()}
            one = one or rate
            rows = spent["tokens"] * layers
            print(f"{name:16} {rate:9.1f} {rate / one:9.3f} {spent['bytes'] / rows:8.0f} "
                  f"{2 * row_bytes * spent['rows'] / rows:8.0f} {spent['seconds']:10.2f}", flush=True)


if __name__ == "__main__":
    main()
