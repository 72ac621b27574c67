"""End-to-end speed and memory of `moe serve` on one checkpoint, through real gRPC.

    build/venv/bin/python tests/bench/end_to_end.py MODEL_DIR [--threads N] [--cpu-isa X] [--bandwidth GBPS] [--json F]

Prints one table and, with --json, the same as JSON. Decode rates come beside the bandwidth limit: the bytes of active
weights a step must read over the read bandwidth (measure it with kernel_bench in the same sitting and pass it).
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import platform
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import BINARY, Server, pb, request  # noqa: E402


class Memory(threading.Thread):
    """Largest Pss of a process in bytes, anonymous and file-mapped pages together."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.peak, self.running = pid, 0, True
        self.start()

    def now(self):
        with open(f"/proc/{self.pid}/smaps_rollup", encoding="ascii") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("Pss:"))

    def run(self):
        while self.running:
            try:
                self.peak = max(self.peak, self.now())
            except (OSError, StopIteration):
                pass
            time.sleep(0.02)


def prompt(length, salt):
    return [3 + (i * 7919 + salt * 104729) % 30000 for i in range(length)]


def first_token(stub, length, salt):
    """Seconds from the call to the first token."""
    start = time.perf_counter()
    stub.Generate(request(ids=prompt(length, salt), max_new_tokens=1, ignore_eos=True, temperature=0, skip_text=True))
    return time.perf_counter() - start


def decode(stub, streams, context, tokens):
    """(tokens a second over all streams while all of them decode, mean seconds to the first token)."""
    def one(i):
        call = stub.GenerateStream(request(ids=prompt(context, 1000 + i), max_new_tokens=tokens, ignore_eos=True,
                                           temperature=0, skip_text=True))
        start = time.perf_counter()
        arrivals = []
        for chunk in call:
            arrivals += [time.perf_counter()] * len(chunk.delta.token_ids)
        return arrivals[0] - start, arrivals
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        results = list(pool.map(one, range(streams)))
    begin = max(a[0] for _, a in results)
    end = min(a[-1] for _, a in results)
    count = sum(sum(begin < t <= end for t in a) for _, a in results)
    return count / (end - begin), sum(t for t, _ in results) / streams


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--cpu-isa", default="auto")
    parser.add_argument("--bandwidth", type=float, help="measured read bandwidth in GB/s")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each decode measurement")
    parser.add_argument("--json")
    options = parser.parse_args()

    facts = json.loads(subprocess.run([BINARY, "inspect", "--json", options.model], capture_output=True,
                                      check=True).stdout)
    element = 4 if facts["expert_dtype"] == "float32" else 2
    embedding = facts["vocab_size"] * facts["hidden_size"]
    active_bytes = element * (facts["active_parameters"] - (0 if facts["tied_head"] else embedding))
    weight_bytes = facts["memory"]["weight_bytes"]

    start = time.perf_counter()
    flags = ["--threads", str(options.threads), "--cpu-isa", options.cpu_isa, "--max-model-len", "4096"]
    server = Server(*flags, model=os.path.abspath(options.model), wait=False)
    memory = Memory(server.process.pid)
    rows = []
    try:
        server.wait_ready(600)
        rows.append(("load", "s", time.perf_counter() - start))
        rows.append(("resident after load (Pss)", "× weights", memory.now() / weight_bytes))
        stub = server.stub()
        info = stub.GetModel(pb.GetModelRequest())
        first_token(stub, 64, 0)
        for length in (512, 2048):
            seconds = min(first_token(stub, length, salt) for salt in (1, 2, 3))
            rows.append((f"prefill {length}", "tokens/s", length / seconds))
        for streams, context in ((1, 128), (1, 1920), (8, 128), (32, 128)):
            rate, ttft = decode(stub, streams, context, options.tokens)
            rows.append((f"decode, {streams} streams, context {context}", "tokens/s", rate))
            if streams == 1 and options.bandwidth:
                rows.append((f"  of the bandwidth limit, context {context}", "share",
                             rate * active_bytes / (options.bandwidth * 1e9)))
            if streams == 32:
                rows.append(("first token at 32 × 128", "s", ttft))
        rows.append(("largest resident (Pss)", "× weights", memory.peak / weight_bytes))
    finally:
        memory.running = False
        server.stop()

    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="ascii")
                if line.startswith("model name")), platform.processor())
    print(f"{info.architecture}, {facts['parameters'] / 1e9:.2f} billion parameters ({weight_bytes / 2**30:.2f} GiB), "
          f"{active_bytes / 1e6:.1f} MB of active weights a token; {info.backend}, {cpu}, "
          f"load average {os.getloadavg()[0]:.1f}")
    for name, unit, value in rows:
        print(f"{name:40s} {value:10.3f} {unit}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump({"model": facts, "backend": info.backend, "cpu": cpu, "load_average": os.getloadavg()[0],
                       "rows": [{"name": n.strip(), "unit": u, "value": v} for n, u, v in rows]}, f, indent=1)


if __name__ == "__main__":
    main()
