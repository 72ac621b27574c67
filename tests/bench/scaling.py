"""How cost grows: decode rate against the number of streams, the context and the number of experts.

    build/venv/bin/python tests/bench/scaling.py WORK_DIR [--threads N] [--longest 32768]

WORK_DIR gets models of the bench shape with 8 … 512 experts of equal active size (made by build/release/make_model; up
to a few GiB each, removed again). Prints one small table each.
"""
import argparse
import os
import shutil
import subprocess

from serving import BINARY, Bench, decode, enough_tokens, prefill


def make(directory, **shape):
    make_model = os.path.join(os.path.dirname(BINARY), "make_model")
    flags = [word for key, value in shape.items() for word in ("--" + key.replace("_", "-"), str(value))]
    subprocess.run([make_model, directory, *flags], check=True, stdout=subprocess.DEVNULL)
    return directory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--longest", type=int, default=32768)
    options = parser.parse_args()
    flags = ["--threads", str(options.threads)]
    directory = os.path.join(options.work, "scaling-model")

    make(directory)
    with Bench(directory, *flags, "--max-model-len", "4096") as bench:
        print("streams    tokens/s")
        for streams in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            print(f"{streams:7d} {decode(bench.stub, streams, 128, enough_tokens(streams))[0]:11.1f}", flush=True)
    with Bench(directory, *flags, "--max-model-len", str(options.longest + 256)) as bench:
        print("context    tokens/s    prefill tokens/s")
        context = 128
        while context <= options.longest:
            print(f"{context:7d} {decode(bench.stub, 1, context, 24)[0]:11.1f} "
                  f"{prefill(bench.stub, context):19.1f}", flush=True)
            context *= 4
    shutil.rmtree(directory)
    print("experts    tokens/s, 1 stream    8 streams    prefill 512")
    for experts in (8, 32, 128, 512):
        make(directory, layers=4, experts=experts, intermediate=192, top_k=4)
        with Bench(directory, *flags, "--max-model-len", "4096") as bench:
            one, eight = (decode(bench.stub, streams, 128, enough_tokens(streams))[0] for streams in (1, 8))
            print(f"{experts:7d} {one:21.1f} {eight:12.1f} {prefill(bench.stub, 512):14.1f}", flush=True)
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
