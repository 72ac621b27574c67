"""The peer llama.cpp: the same rows as end_to_end.py, through its C API, without a server in between.

    PYTHON tests/bench/peer_llama.py MODEL.gguf [--threads 2] [--repeat 3] [--tokens 64] [--json F]
    PYTHON tests/bench/peer_llama.py MODEL.gguf --ids "5 6 7" --tokens 24     # greedy continuation, to compare models

Needs llama-cpp-python, compiled for this processor (CMAKE_ARGS="-DGGML_NATIVE=ON"); make_gguf.py writes MODEL.gguf.
The next token is the largest logit; no sampler runs.
"""
import argparse
import ctypes
import time

import llama_cpp
import numpy as np
import peer


class Engine:
    """One model; a context is made for each number of streams, since llama.cpp fixes it when the context is made."""

    def __init__(self, path, options):
        llama_cpp.llama_log_set(_SILENT, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.options = options
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(options.batch, 0, 1)
        self.context, self.streams = None, 0
        self.use(1)

    def use(self, streams):
        """A context with an empty cache for so many sequences."""
        if streams == self.streams:
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
            return
        if self.context:
            llama_cpp.llama_free(self.context)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = 4096 if streams == 1 else 256 * streams
        params.n_seq_max = streams
        params.n_batch, params.n_ubatch = self.options.batch, self.options.ubatch
        params.n_threads = params.n_threads_batch = self.options.threads
        params.flash_attn_type = int(self.options.flash)
        params.kv_unified = self.options.unified
        params.no_perf = True
        self.context, self.streams = llama_cpp.llama_init_from_model(self.model, params), streams
        if not self.context:
            raise SystemExit("llama.cpp cannot make a context")

    def decode(self, entries):
        """Computes (sequence, position, token, wants a next token) entries; next tokens in the order of the wants."""
        batch = self.batch
        batch.n_tokens = len(entries)
        for i, (sequence, position, token, wanted) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
        if llama_cpp.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama_decode failed")
        llama_cpp.llama_synchronize(self.context)
        return [int(np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, i), (self.vocab,)).argmax())
                for i, entry in enumerate(entries) if entry[3]]

    def generate(self, prompts, tokens, ids=None):
        """Arrival times of every stream's tokens; the tokens themselves are appended to ids when given. Prompts run
        first, as many whole ones a batch as fit."""
        self.use(len(prompts))
        arrivals, last = [], []
        start = time.perf_counter()
        done = 0
        while done < len(prompts):
            entries, sequences = [], 0
            while done + sequences < len(prompts) and len(entries) + len(prompts[done + sequences]) <= \
                    max(self.options.ubatch, len(prompts[done])):
                prompt = prompts[done + sequences]
                entries += [(done + sequences, i, t, i + 1 == len(prompt)) for i, t in enumerate(prompt)]
                sequences += 1
            last += self.decode(entries)
            arrivals += [[time.perf_counter() - start] for _ in range(sequences)]
            done += sequences
        outputs = [[t] for t in last]
        for step in range(tokens - 1):
            last = self.decode([(s, len(prompts[s]) + step, t, True) for s, t in enumerate(last)])
            now = time.perf_counter() - start
            for s, token in enumerate(last):
                arrivals[s].append(now)
                outputs[s].append(token)
        if ids is not None:
            ids += outputs
        return arrivals

    def first_token(self, prompt):
        return self.generate([prompt], 1)[0][0]


@llama_cpp.llama_log_callback
def _SILENT(level, text, _):
    if level >= 4:
        print(text.decode("utf-8", "replace"), end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--ubatch", type=int, default=512, help="tokens computed at once")
    parser.add_argument("--flash", action=argparse.BooleanOptionalAction, default=True, help="flash attention")
    parser.add_argument("--unified", action="store_true", help="one cache for all sequences")
    peer.add_flags(parser)
    options = parser.parse_args()

    memory = peer.Memory()
    start = time.perf_counter()
    engine = Engine(options.model, options)
    load = time.perf_counter() - start
    if options.ids:
        ids = []
        engine.generate([[int(i) for i in options.ids.split()]], options.tokens, ids)
        print(*ids[0])
        return
    name = ctypes.create_string_buffer(128)
    llama_cpp.llama_model_desc(engine.model, name, len(name))
    rows = peer.Rows(f"llama.cpp (llama-cpp-python {llama_cpp.__version__}), {name.value.decode()}, "
                     f"{options.threads} threads")
    rows.add("load", "s", [load])
    peer.measure(rows, engine, options)
    rows.add("largest resident (Pss)", "GiB", [memory.peak / 2**30])
    rows.finish(options.json)


if __name__ == "__main__":
    main()
