"""What the scripts that measure other engines share: prompts, memory, and the table and JSON line they print.

The rows have the names, units and prompts of end_to_end.py, so that compare.py can put them side by side.
"""
import json
import os
import pathlib
import statistics
import threading
import time

from quiet import family, undisturbed

CONTEXTS = ((1, 128), (1, 1920), (8, 128), (32, 128))  # (streams, prompt tokens) of the decode rows


def prompt(length, salt):
    """Token ids without a pattern that a router could follow; two salts share no prefix."""
    return [3 + (i * 7919 + salt * 104729) % 30000 for i in range(length)]


class Memory(threading.Thread):
    """Largest Pss of this process and its descendants in bytes, anonymous and file-mapped pages together."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak = 0
        self.start()

    def run(self):
        while True:
            total = 0
            for pid in family(os.getpid()):
                try:
                    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
                        total += next(int(line.split()[1]) * 1024 for line in f if line.startswith("Pss:"))
                except (OSError, StopIteration):
                    pass
            self.peak = max(self.peak, total)
            time.sleep(0.5)  # each look walks the page tables


class Rows:
    """Rows of samples, printed as they come and at the end as one JSON line."""

    def __init__(self, engine):
        self.engine, self.rows = engine, []
        print(engine, flush=True)

    def add(self, name, unit, samples, others=0.0):
        """others: largest share of the cores that other processes took during a sample (quiet.py)."""
        self.rows.append({"name": name, "unit": unit, "samples": samples, "others": round(others, 3)})
        best = (max if unit == "tokens/s" else min)(samples)
        print(f"{name:36s} {statistics.median(samples):10.3f} {unit:9s}" +
              (f" best {best:.3f} of {len(samples)}, others {others:.0%}" if len(samples) > 1 else ""), flush=True)

    def finish(self, path=None):
        line = json.dumps({"engine": self.engine, "load_average": os.getloadavg()[0], "rows": self.rows})
        print(line, flush=True)
        if path:
            pathlib.Path(path).write_text(line + "\n", encoding="utf-8")


def add_flags(parser):
    """The flags that all peers' scripts have."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3, help="measurements of each row")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each decode measurement")
    parser.add_argument("--only", default="", help="only rows with this in their name")
    parser.add_argument("--ids", help="continue these token ids greedily, to compare models, and measure nothing")
    parser.add_argument("--json", help="file for the line of JSON")


def common_rate(arrivals):
    """Tokens a second over all streams while all of them decode; arrivals: per stream, the time of each token."""
    begin = max(a[0] for a in arrivals)
    end = min(a[-1] for a in arrivals)
    return sum(sum(begin < t <= end for t in a) for a in arrivals) / (end - begin)


def measure(rows, engine, options):
    """Fills rows with what options ask for (add_flags). engine.first_token(ids) → seconds;
    engine.generate(prompts, tokens) → arrival times per stream in seconds from the submission of all prompts."""
    salts = iter(range(1, 30000))
    engine.first_token(prompt(64, next(salts)))
    for length in (512, 2048):
        name = f"prefill {length}"
        if options.only in name:
            engine.first_token(prompt(length, next(salts)))
            rows.add(name, "tokens/s", *undisturbed(
                lambda: length / engine.first_token(prompt(length, next(salts))), options.repeat))
    for streams, context in CONTEXTS:
        name = f"decode, {streams} streams, context {context}"
        if options.only not in name:
            continue
        runs, others = undisturbed(
            lambda: engine.generate([prompt(context, next(salts)) for _ in range(streams)], options.tokens),
            options.repeat)
        rows.add(name, "tokens/s", [common_rate(a) for a in runs], others)
        if streams == 32:
            rows.add("first token at 32 × 128", "s", [statistics.mean(a[0] for a in run) for run in runs], others)
