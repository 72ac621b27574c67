"""Rank processes that die, stop and come back under load, and what clients see of it.

    build/venv/bin/python tests/integration/chaos.py [--model NAME] [--ranks 4] [--streams 32] [--kills 200] [--stops 50]
        [--drains 0] [--rebalances 0] [--quiet-seconds 0]

A fixed set of requests (greedy, sampled with a seed, with stop strings and log-probabilities) is answered once without
disturbance. Then so many streams run all the time while ranks are killed (SIGKILL) or stopped (SIGSTOP), one after the
other, each time once the group is whole again. Every stream must end well and be bit-equal to the undisturbed answer.
Prints, of all disturbances: how long until the front knew (its log), and until every stream that was running had its
next token.
"""
import argparse
import os
import pathlib
import random
import signal
import threading
import time

from conftest import PATIENCE, Server, demo_dir, pb, request, wait_until

PROMPTS = ["O Romeo, ", "KING HENRY:\n", "The quality of mercy", "My lord, I", "To be", "What news"]


def asks():
    """The requests, each of them different."""
    requests = []
    for i in range(24):
        more = {"temperature": 0} if i % 3 == 0 else {"temperature": 0.9, "seed": 100 + i}
        if i % 4 == 1:
            more["stop"] = ["the", "\n\n"]
        r = request(text=PROMPTS[i % len(PROMPTS)] * (1 + i % 5), max_new_tokens=60 + 5 * i, ignore_eos=i % 4 != 1, **more)
        r.output.logprobs = i % 3
        requests.append(r)
    return requests


def answer(stub, ask, on_token=None):
    """Everything of a stream that must not depend on what happens to the ranks."""
    text, ids, logprobs, finish = "", [], [], None
    for chunk in stub.GenerateStream(ask, timeout=300 * PATIENCE):
        text += chunk.delta.text
        ids += chunk.delta.token_ids
        logprobs += [(t.token_id, t.logprob, [(x.token_id, x.logprob) for x in t.top]) for t in chunk.delta.logprobs]
        finish = chunk.delta.finish_reason or finish
        if on_token and chunk.delta.token_ids:
            on_token()
    return text, ids, logprobs, finish


class Load:
    """Streams that run until the end, and what was wrong with any of them."""

    def __init__(self, server, streams, requests, expected):
        self.requests, self.expected = requests, expected
        self.wrong, self.completed = [], 0
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._last = [None] * streams  # when a stream's last token came; None: between two requests
        self._threads = [threading.Thread(target=self._run, args=(server.stub(), i)) for i in range(streams)]
        for thread in self._threads:
            thread.start()

    def _run(self, stub, number):
        choice = random.Random(number)
        while not self._end.is_set():
            i = choice.randrange(len(self.requests))

            def on_token():
                self._last[number] = time.monotonic()
            try:
                got = answer(stub, self.requests[i], on_token)
            except Exception as error:  # noqa: BLE001: whatever it is, a client should not have seen it
                got = error
            self._last[number] = None
            with self._lock:
                self.completed += 1
                if got != self.expected[i]:
                    self.wrong.append((i, got if isinstance(got, Exception) else f"{got[1]} instead of {self.expected[i][1]}"))

    def running(self):
        return [n for n, last in enumerate(self._last) if last is not None]

    def gap_after(self, when, running, seconds):
        """Seconds from `when` until all of these streams have had a token or have ended; None: not in time."""
        end = time.monotonic() + seconds
        worst = 0.0
        left = set(running)
        while left and time.monotonic() < end:
            for n in list(left):
                last = self._last[n]
                if last is None or last > when:
                    left.discard(n)
                    worst = max(worst, (last or time.monotonic()) - when)
            time.sleep(0.002)
        return None if left else worst

    def stop(self):
        self._end.set()
        for thread in self._threads:
            thread.join()


def children(server):
    path = pathlib.Path(f"/proc/{server.process.pid}/task")
    pids = []
    for task in path.iterdir():
        try:
            pids += [int(pid) for pid in (task / "children").read_text().split()]
        except FileNotFoundError:
            continue
    return pids


def whole(server, ranks):
    return server.metric("moe_ranks_alive") == ranks and len(children(server)) == ranks


def await_lost(server, before, seconds):
    """When the front's log says that one more rank is lost (monotonic time); None: not in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if server.log().count(" is lost: ") > before:
            return time.monotonic()
        time.sleep(0.005)
    return None


def disturb(server, load, how, choice):
    """(seconds until the front knew, seconds until all streams went on)."""
    before = server.log().count(" is lost: ")
    victim = choice.choice(children(server))
    running = load.running()
    when = time.monotonic()
    os.kill(victim, how)
    limit = 30 * PATIENCE
    known = await_lost(server, before, limit)
    assert known is not None, "the front does not notice:\n" + server.log()[-3000:]
    gap = load.gap_after(when, running, limit)
    assert gap is not None, "streams do not go on:\n" + server.log()[-3000:]
    return known - when, gap


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def run(model, ranks=4, streams=32, kills=6, stops=2, drains=0, rebalances=0, quiet_seconds=0, flags=(), seed=1, say=print):
    """Raises AssertionError; returns the figures."""
    choice = random.Random(seed)
    # Ranks that die for no fault of theirs are wanted back at once.
    with Server("--expert-parallel-size", str(ranks), "--rank-restart-delay", "0", *flags, model=demo_dir(model), admin=True) as server:
        requests = asks()
        stub = server.stub()
        expected = [answer(stub, ask) for ask in requests]
        load = Load(server, streams, requests, expected)
        figures = {}
        try:
            assert wait_until(lambda: len(load.running()) > streams // 2, 30)
            if quiet_seconds:
                time.sleep(quiet_seconds)
                assert server.log().count(" is lost: ") == 0, "a rank was fenced although nothing was wrong with it"
            for name, how, times in (("kill", signal.SIGKILL, kills), ("stop", signal.SIGSTOP, stops),
                                     ("drain", signal.SIGTERM, drains)):
                known, gaps = [], []
                for i in range(times):
                    assert wait_until(lambda: whole(server, ranks), 60), server.log()[-3000:]
                    time.sleep(choice.uniform(0, 0.3))
                    seconds, gap = disturb(server, load, how, choice)
                    known.append(seconds)
                    gaps.append(gap)
                    if say and i % 10 == 9:
                        say(f"{name} {i + 1}: known {max(known[-10:]):.3f}, next token {max(gaps[-10:]):.3f} at most, "
                            f"{load.completed} streams", flush=True)
                    assert not load.wrong, load.wrong[:3]
                if times:
                    figures[name] = {"count": times, "known p50": percentile(known, 0.5), "known p99": percentile(known, 0.99),
                                     "next token p50": percentile(gaps, 0.5), "next token p99": percentile(gaps, 0.99)}
            for i in range(rebalances):
                # Moving experts needs the whole group; a busy one says so.
                assert wait_until(lambda: whole(server, ranks), 60)
                server.operations().RebalanceExperts(pb.RebalanceExpertsRequest(redundant_experts=i % 9), timeout=60)
        finally:
            load.stop()
        assert not load.wrong, load.wrong[:3]
        assert wait_until(lambda: whole(server, ranks), 60)
        assert server.wait_idle(10)
        figures["streams"] = {"completed": load.completed, "wrong": len(load.wrong),
                              "recoveries": server.metric("moe_rank_recoveries_total"),
                              "replayed": server.metric("moe_sequences_replayed_total")}
        for name, values in figures.items():
            say(name + ": " + ", ".join(f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}"
                                        for key, value in values.items()))
        return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="shakespeare-nemotronh")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--stops", type=int, default=50)
    parser.add_argument("--drains", type=int, default=0, help="ranks that leave in order (SIGTERM) and come back")
    parser.add_argument("--rebalances", type=int, default=0)
    parser.add_argument("--quiet-seconds", type=float, default=0, help="full load before the first disturbance")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("flags", nargs="*", help="further flags of moe serve, after --")
    o = parser.parse_args()
    run(o.model, o.ranks, o.streams, o.kills, o.stops, o.drains, o.rebalances, o.quiet_seconds, o.flags, o.seed)


if __name__ == "__main__":
    main()
