"""Measurements on a machine that others use too: how much of it they took, and trying again when it was too much.

A spinning thread pool, as OpenMP's, slows down many times when another process takes one of its cores, so that a
disturbed sample says nothing about the engine.
"""
import os
import pathlib
import time

LIMIT = 0.05  # share of all cores that other processes (or the host, by steal time) may take
# Seconds to wait for a quiet moment, all samples of a row together; 0 where this runs at a higher priority than the
# rest, which then only fills the gaps.
PATIENCE = float(os.environ.get("MOE_BENCH_PATIENCE", "20"))
TICKS = os.sysconf("SC_CLK_TCK")


def family(pid):
    """The process and all its descendants."""
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in task.read_text(encoding="ascii").split():
                found += family(int(child))
        except OSError:
            pass
    return found


def _machine():
    """Busy processor seconds of all cores since boot: user, nice, system, irq, softirq, steal."""
    with open("/proc/stat", encoding="ascii") as f:
        fields = [int(x) for x in f.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICKS


def _own():
    """Processor seconds of this process and its descendants."""
    total = 0
    for pid in family(os.getpid()):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as f:
                total += sum(int(x) for x in f.read().rsplit(")", 1)[1].split()[11:13])
        except OSError:
            pass
    return total / TICKS


def disturbance(measure):
    """(what measure() returns, share of all cores that others took meanwhile)."""
    machine, own, start = _machine(), _own(), time.perf_counter()
    value = measure()
    seconds = time.perf_counter() - start
    others = (_machine() - machine) - (_own() - own)
    return value, max(0.0, others / (seconds * os.cpu_count()))


def undisturbed(measure, repeat):
    """(repeat results of measure(), the largest share that others took in them): after a disturbed one, waits for
    a quiet moment (up to PATIENCE), tries up to twice as often until enough are within LIMIT, and otherwise returns the
    least disturbed."""
    results = []
    patience = PATIENCE
    while len(results) < 2 * repeat and sum(share <= LIMIT for _, share in results) < repeat:
        results.append(disturbance(measure))
        while patience > 0 and results[-1][1] > LIMIT and disturbance(lambda: time.sleep(0.5))[1] > LIMIT:
            patience -= 0.5
    results = sorted(results, key=lambda r: r[1])[:repeat]
    return [value for value, _ in results], max(share for _, share in results)
