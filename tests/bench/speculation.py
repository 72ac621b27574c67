"""What `--speculative ngram` brings and costs: the same requests to a server with it and to one without, in turns.

    build/venv/bin/python tests/bench/speculation.py MODEL_DIR [--threads N] [--tokens N] [--flags "…"]

repetitive: greedy, from a prompt that repeats itself and with twelve tokens to choose from; greedy: as the model
likes; sampled: drawn at temperature 1, where guesses are rare or false, and nothing may be lost. Both servers answer with the same tokens, which
is checked. tokens a step: of one sequence, the first token's step included.
"""
import argparse
import concurrent.futures
import os
import statistics
import time

from serving import Server, fresh, prompt, request


def requests(kind, vocab, streams, tokens):
    out = []
    for _ in range(streams):
        salt = fresh()
        ids = [3 + i % (vocab - 3) for i in prompt(12, salt)]
        out.append(request(ids=ids * 4, max_new_tokens=tokens, ignore_eos=True, seed=salt, skip_text=True,
                           temperature=1 if kind == "sampled" else 0,
                           **({"logit_bias": {i: 100 for i in ids}} if kind == "repetitive" else {})))
    return out


def run(server, calls):
    """(tokens a second, token ids, tokens a sequence and step, guesses that came true, guesses)"""
    stub = server.stub()
    before = server.metrics()
    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        ids = [list(a.choices[0].token_ids) for a in pool.map(stub.Generate, calls)]
    seconds = time.perf_counter() - start
    server.wait_idle()
    after = server.metrics()

    def grown(name):
        return sum(v - before.get(k, 0) for k, v in after.items() if k.partition("{")[0] == name)
    return (sum(map(len, ids)) / seconds, ids,
            grown("moe_generated_tokens_total") / grown("moe_step_sequences_sum"),
            grown("moe_speculative_accepted_tokens_total"), grown("moe_speculative_proposed_tokens_total"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--vocab", type=int, default=2000)
    parser.add_argument("--flags", default="", help="more flags of the server that guesses")
    options = parser.parse_args()
    base = ["--threads", str(options.threads), "--max-model-len", "1024"]
    model = os.path.abspath(options.model)
    with Server(*base, model=model, admin=True) as off, \
            Server(*base, "--speculative", "ngram", *options.flags.split(), model=model, admin=True) as ngram:
        for server in (off, ngram):
            run(server, requests("sampled", options.vocab, 2, 8))
        print(f"{'':24s}{'off':>10s}{'ngram':>10s}{'ratio':>8s}{'tokens a step':>16s}{'came true':>16s}")
        for kind in ("repetitive", "greedy", "sampled"):
            for streams in options.streams:
                results = []
                for _ in range(options.rounds):
                    calls = requests(kind, options.vocab, streams, options.tokens)
                    plain = run(off, calls)
                    guessed = run(ngram, calls)
                    assert plain[1] == guessed[1], "not the same tokens"
                    results.append((plain, guessed))
                rates = [statistics.median(r[i][0] for r in results) for i in (0, 1)]
                ratio = statistics.median(g[0] / p[0] for p, g in results)
                true, proposed = (int(sum(r[1][i] for r in results)) for i in (3, 4))
                name = f"{kind}, {streams} streams"
                print(f"{name:24s}{rates[0]:10.1f}{rates[1]:10.1f}{ratio:8.2f}"
                      f"{statistics.median(r[1][2] for r in results):16.2f}{f'{true} of {proposed}':>16s}", flush=True)


if __name__ == "__main__":
    main()
