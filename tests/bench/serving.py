"""What the benchmarks of `moe serve` share: a server with its memory watched, prompts, and the measurements.

Every measurement goes through real gRPC, from a client on the same processors. Token ids are fixed; sampling is greedy
and ignores end tokens, so every run computes the same.
"""
import concurrent.futures
import itertools
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from conftest import BINARY, Server, pb, request  # noqa: E402, F401


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
            time.sleep(0.5)  # each look walks the page tables, which the server waits for


class Bench:
    """A server on `model`; with `memory`, its resident memory from the start. Use as a context."""

    def __init__(self, model, *flags, env=None, admin=False):
        self.begin = time.perf_counter()
        self.server = Server(*flags, model=os.path.abspath(model), wait=False, env=env, admin=admin)
        self.memory = Memory(self.server.process.pid)

    def __enter__(self):
        try:
            self.server.wait_ready(600)
        except BaseException:
            self.__exit__()
            raise
        self.load_seconds = time.perf_counter() - self.begin
        self.stub = self.server.stub()
        first_token(self.stub, 64, fresh())
        return self

    def __exit__(self, *_):
        self.memory.running = False
        self.server.stop()


# Two salts share no prefix, so a prompt with a fresh one is computed whole.
fresh = itertools.count(1).__next__


def prompt(length, salt):
    return [3 + (i * 7919 + salt * 104729) % 30000 for i in range(length)]


def greedy(length, salt, tokens):
    return request(ids=prompt(length, salt), max_new_tokens=tokens, ignore_eos=True, temperature=0, skip_text=True)


def first_token(stub, length, salt):
    """Seconds from the call to the first token."""
    start = time.perf_counter()
    stub.Generate(greedy(length, salt, 1))
    return time.perf_counter() - start


def arrivals(stub, length, salt, tokens):
    """(time of the call, arrival time of each token) of one stream."""
    start = time.perf_counter()
    times = []
    for chunk in stub.GenerateStream(greedy(length, salt, tokens)):
        times += [time.perf_counter()] * len(chunk.delta.token_ids)
    return start, times


def enough_tokens(streams):
    """Tokens a stream needs so that the first one still decodes when the last one's prompt is computed: prompts and
    tokens are computed in turns."""
    return 32 + 3 * streams


def decode(stub, streams, context, tokens):
    """(tokens a second over all streams while all of them decode, mean seconds to the first token). The rate is not a
    number where that is never so."""
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        salts = [fresh() for _ in range(streams)]
        results = list(pool.map(lambda salt: arrivals(stub, context, salt, tokens), salts))
    begin = max(times[0] for _, times in results)
    end = min(times[-1] for _, times in results)
    count = sum(sum(begin < t <= end for t in times) for _, times in results)
    rate = count / (end - begin) if end > begin else float("nan")
    return rate, sum(times[0] - start for start, times in results) / streams


def prefill(stub, length):
    """Prompt tokens a second, the first token's sampling included."""
    return length / first_token(stub, length, fresh())


def disturbed(stub, streams, tokens, prompt_length):
    """Token gaps of `streams` running streams before and while a prompt of another one is computed: (undisturbed
    median, disturbed median, disturbed longest, seconds to the prompt's first token)."""
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        running = [pool.submit(arrivals, stub, 128, fresh(), tokens) for _ in range(streams)]
        arrivals(stub, 128, fresh(), tokens // 4)  # when it is done, all the others decode
        begin = time.perf_counter()
        first_token(stub, prompt_length, fresh())
        end = time.perf_counter()
        results = [future.result()[1] for future in running]
    all_started = max(times[0] for times in results)
    before, during = [], []
    for times in results:
        for a, b in zip(times, times[1:]):
            if a > all_started and b <= begin:
                before.append(b - a)
            elif a < end and b > begin:
                during.append(b - a)
    before.sort()
    during.sort()
    return before[len(before) // 2], during[len(during) // 2], during[-1], end - begin


def read_seconds(path):
    """Best time to read a file that is in the page cache, in 1 MiB pieces."""
    best = float("inf")
    buffer = bytearray(1 << 20)
    for _ in range(3):
        start = time.perf_counter()
        with open(path, "rb", buffering=0) as f:
            while f.readinto(buffer):
                pass
        best = min(best, time.perf_counter() - start)
    return best
