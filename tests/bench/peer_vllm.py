"""The peer vLLM on CPU: the same rows as end_to_end.py, in bfloat16, without gRPC or HTTP in between.

    PYTHON tests/bench/peer_vllm.py MODEL_DIR [--threads 2] [--repeat 3] [--tokens 64] [--json F]
    PYTHON tests/bench/peer_vllm.py MODEL_DIR --ids "5 6 7" --tokens 24       # greedy continuation, to compare models

Needs vllm built for CPU. Its documentation recommends tcmalloc and Intel's OpenMP through LD_PRELOAD: set it, or the
ones found beside this Python and on the system are taken; --no-preload takes none. Steps are driven here, one token of
each stream a step, so that a token's time is its arrival.
"""
import argparse
import ctypes.util
import os
import pathlib
import sys
import time

import peer


class Engine:
    def __init__(self, model):
        from vllm import LLM, SamplingParams
        self.params = SamplingParams
        llm = LLM(model, dtype="bfloat16", max_model_len=4096, skip_tokenizer_init=True, enable_prefix_caching=False)
        self.engine, self.number = llm.llm_engine, 0

    def generate(self, prompts, tokens, ids=None):
        """Arrival times of every stream's tokens; the tokens themselves are appended to ids when given."""
        params = self.params(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        start = time.perf_counter()
        arrivals = {}
        for tokens_in in prompts:
            self.number += 1
            arrivals[str(self.number)] = []
            self.engine.add_request(str(self.number), {"prompt_token_ids": tokens_in}, params)
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                now = time.perf_counter() - start
                times = arrivals[output.request_id]
                times += [now] * (len(output.outputs[0].token_ids) - len(times))
                if output.finished and ids is not None:
                    ids.append(list(output.outputs[0].token_ids))
        return list(arrivals.values())

    def first_token(self, prompt):
        return self.generate([prompt], 1)[0][0]


def preload():
    """What LD_PRELOAD should hold: tcmalloc and Intel's OpenMP, where they are installed."""
    beside = pathlib.Path(sys.prefix) / "lib"
    found = [next(map(str, beside.glob("libtcmalloc_minimal.so*")), ctypes.util.find_library("tcmalloc_minimal")),
             next(map(str, beside.glob("libiomp5.so")), None)]
    return ":".join(name for name in found if name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--no-preload", action="store_true")
    peer.add_flags(parser)
    options = parser.parse_args()

    # A library can only be preloaded by a process that starts, so this one starts once more.
    if not options.no_preload and "LD_PRELOAD" not in os.environ and preload():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_PRELOAD": preload()})
    for name, value in {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": f"0-{options.threads - 1}",
                        "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}.items():
        os.environ.setdefault(name, value)

    memory = peer.Memory()
    start = time.perf_counter()
    engine = Engine(options.model)
    load = time.perf_counter() - start
    if options.ids:
        ids = []
        engine.generate([[int(i) for i in options.ids.split()]], options.tokens, ids)
        print(*ids[0])
        return
    import vllm
    from vllm.platforms import current_platform
    rows = peer.Rows(f"vLLM {vllm.__version__} ({type(current_platform).__name__}), bfloat16, "
                     f"{options.threads} threads")
    rows.add("load", "s", [load])
    peer.measure(rows, engine, options)
    rows.add("largest resident (Pss)", "GiB", [memory.peak / 2**30])
    rows.finish(options.json)


if __name__ == "__main__":
    main()
