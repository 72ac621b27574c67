"""`moe serve`, vLLM and llama.cpp side by side: one machine, one sitting, one engine at a time, in turns.

    build/venv/bin/python tests/bench/compare.py MODEL_DIR [--threads 2] [--rounds 2]
        [--vllm PYTHON]... [--llama PYTHON --gguf FILE [--gguf FILE2]...] [--json F]

Each PYTHON is one that has the engine (see peer_vllm.py and peer_llama.py; make_gguf.py writes FILE); leave out what is
not installed. In every round `moe` is measured before each peer, so that a machine that slows down slows both. Printed
are medians over all rounds and, in brackets, the best; the ratio is moe's median to that of the best peer in that row
(for seconds and memory the other way round: above 1 is better for moe in every row), quantised peers left aside. A ~
marks rows that other processes disturbed (quiet.py).

moe is measured through gRPC with its client on the same cores, the peers by calls in their own process.
"""
import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from quiet import LIMIT

HERE = pathlib.Path(__file__).resolve().parent


class Engine:
    def __init__(self, label, command, rival=True):
        self.label, self.command, self.rival = label, command, rival
        self.title, self.rows = label, {}  # rows: name → (unit, samples of all rounds, share others took at most)

    def measure(self, options):
        """Runs the engine's script once and keeps its samples."""
        with tempfile.NamedTemporaryFile("r", suffix=".json") as out, held(options.lock):
            command = [*self.command, "--threads", str(options.threads), "--repeat", str(options.repeat),
                       "--tokens", str(options.tokens), "--json", out.name]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            if done.returncode != 0:
                raise SystemExit(f"{self.label} failed:\n{done.stdout.decode('utf-8', 'replace')[-4000:]}")
            result = json.load(out)
        self.title = result.get("engine") or f"moe {result['backend']}, {result['cpu']}"
        print(f"  {self.label}: done at load average {result['load_average']:.1f}", file=sys.stderr, flush=True)
        for row in result["rows"]:
            _, samples, others = self.rows.get(row["name"], (None, [], 0.0))
            self.rows[row["name"]] = row["unit"], samples + row["samples"], max(others, row["others"])

    def median(self, name):
        return statistics.median(self.rows[name][1]) if name in self.rows else None


@contextlib.contextmanager
def held(path):
    """Holds the file lock, when there is one: builds that take it too do not disturb a measurement."""
    if not path:
        yield
        return
    with open(path, "w", encoding="ascii") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def ratio(name, moe, peers):
    """moe to the best rival in this row, above 1 where moe is better; None without a rival."""
    faster_is_more = moe.rows[name][0] == "tokens/s"
    values = [p.median(name) for p in peers if p.rival and p.median(name)]
    if not values:
        return None
    return moe.median(name) / max(values) if faster_is_more else min(values) / moe.median(name)


def cell(engine, name):
    if name not in engine.rows:
        return "–"
    unit, samples, others = engine.rows[name]
    best = (max if unit == "tokens/s" else min)(samples)
    return f"{statistics.median(samples):.4g} ({best:.4g})" + ("~" if others > LIMIT else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3, help="measurements of each row in a round")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each decode measurement")
    parser.add_argument("--cpu-isa", default="auto", help="of moe")
    parser.add_argument("--vllm", action="append", default=[], metavar="PYTHON")
    parser.add_argument("--llama", metavar="PYTHON")
    parser.add_argument("--gguf", action="append", default=[], metavar="FILE",
                        help="the first is the model as it is, further ones are quantised")
    parser.add_argument("--lock", metavar="FILE", help="hold this file lock during each engine's turn")
    parser.add_argument("--json")
    options = parser.parse_args()
    model = os.path.abspath(options.model)

    moe = Engine("moe", [sys.executable, HERE / "end_to_end.py", model, "--cpu-isa", options.cpu_isa,
                         "--peers-rows"])
    peers = [Engine("vLLM" if len(options.vllm) == 1 else f"vLLM {i + 1}", [python, HERE / "peer_vllm.py", model])
             for i, python in enumerate(options.vllm)]
    if options.llama:
        peers += [Engine("llama.cpp" if i == 0 else f"llama.cpp {pathlib.Path(gguf).stem}",
                         [options.llama, HERE / "peer_llama.py", gguf], rival=i == 0)
                  for i, gguf in enumerate(options.gguf)]
    for _ in range(options.rounds):
        for peer in peers or [None]:
            moe.measure(options)
            if peer:
                peer.measure(options)

    engines = [moe, *peers]
    for engine in engines:
        print(f"{engine.label}: {engine.title}")
    print(f"\n| | {' | '.join(e.label for e in engines)} | ratio |\n|---|{'---|' * (len(engines) + 1)}")
    for name, (unit, _, _) in moe.rows.items():
        factor = ratio(name, moe, peers)
        print(f"| {name}, {unit} | {' | '.join(cell(e, name) for e in engines)} | "
              f"{f'{factor:.2f}' if factor else '–'} |")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(
            [{"engine": e.title, "label": e.label,
              "rows": [{"name": n, "unit": u, "samples": s, "others": o}
                      for n, (u, s, o) in e.rows.items()]} for e in engines],
            indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
