"""Time of preprocessing: the first time, and from the cache.

    python recipes/benchmarks/bench_data.py

The data is generated in a temporary folder: no network.
"""

import argparse
import tempfile
import time

from hf_edu_models.data import build_nsp_pairs, encode_corpus, load_corpus, train_tokenizer


def timed(name, run):
    """Run twice with the same cache."""
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - start)
    rows = sum(len(split) for split in result.values()) if isinstance(result, dict) else len(result)
    print(f"{name:24} {rows:8,} rows   first {seconds[0]:6.2f} s   cached {seconds[1]:6.2f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        timed("dates", lambda: load_corpus("dates", train_size=20_000, cache_dir=folder))

        stories = load_corpus("stories", train_size=20_000, validation_size=0, test_size=0, cache_dir=folder)["train"]
        tokenizer = train_tokenizer(stories.select(range(10_000)), "wordpiece", 2_000, rung="bert", cache_dir=folder)
        options = {"max_length": 128, "repeats": 3, "num_proc": args.processes, "cache_dir": folder}
        timed("sentence pairs for NSP", lambda: build_nsp_pairs(stories, tokenizer, **options))

        pairs = load_corpus("dates", train_size=100_000, validation_size=0, test_size=0, cache_dir=folder)
        characters = train_tokenizer(pairs, "char", rung="bahdanau", cache_dir=folder)
        timed(
            "translation pairs to ids",
            lambda: encode_corpus(pairs, characters, num_proc=args.processes, cache_dir=folder),
        )


if __name__ == "__main__":
    main()
