"""Time of preprocessing: the first time, and from the cache; speed and memory of --streaming.

    python recipes/benchmarks/bench_data.py
    python recipes/benchmarks/bench_data.py --streaming                  # speed against prepared data, and memory
    python recipes/benchmarks/bench_data.py --streaming --gigabytes 10   # memory over more text

The data is generated in a temporary folder: no network. Speed: CPU time, medians of interleaved runs.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import psutil

from hf_edu_models import EduGPTConfig, EduGPTForCausalLM
from hf_edu_models.data import (
    build_nsp_pairs,
    collator_for,
    encode_corpus,
    group_into_blocks,
    load_corpus,
    train_tokenizer,
)
from hf_edu_models.data.streaming import StreamedExamples
from hf_edu_models.training import EduTrainer
from hf_edu_models.training.arguments import RunArguments


def timed(name, run):
    """Run twice with the same cache."""
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - start)
    rows = sum(len(split) for split in result.values()) if isinstance(result, dict) else len(result)
    print(f"{name:24} {rows:8,} rows   first {seconds[0]:6.2f} s   cached {seconds[1]:6.2f} s", flush=True)


def write_stories(folder, megabytes):
    """A file with ten sentences of the stories on each line, repeated to a size."""
    stories = load_corpus("stories", train_size=5_000, validation_size=0, test_size=0, cache_dir=folder)["train"]
    sentences = stories["text"][:]
    text = "".join(" ".join(sentences[start : start + 10]) + "\n" for start in range(0, len(sentences), 10))
    file = Path(folder) / "stories.txt"
    file.write_text(text * (1 + megabytes * 1_000_000 // len(text)))
    return file


def train(tokenizer, dataset, folder, steps):
    """Seconds of CPU time of a few steps of a small GPT."""
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}
    settings = {"max_steps": steps, "per_device_train_batch_size": 32, "save_strategy": "no", "eval_strategy": "no"}
    settings["buffer_size"] = 1_000  # about 30 steps: a run of a few steps should not pay for many
    trainer = EduTrainer(
        EduGPTForCausalLM(EduGPTConfig.for_tokenizer(tokenizer, max_position_embeddings=128, **sizes)),
        RunArguments(folder, use_cpu=True, quiet=True, disable_tqdm=True, **settings),
        train_dataset=dataset,
        data_collator=collator_for("language_modeling", tokenizer),
    )
    start = time.process_time()
    trainer.train()
    return time.process_time() - start


def bench_speed(file, tokenizer, folder, steps, rounds):
    """Training on a stream against training on prepared blocks, whose preparation is not counted."""
    texts = {streaming: load_corpus(file, streaming=streaming)["train"] for streaming in (False, True)}
    blocks = {each: group_into_blocks(texts[each], tokenizer, 128, cache_dir=folder) for each in texts}
    seconds = {streaming: [] for streaming in blocks}
    for _ in range(rounds):
        for streaming, dataset in blocks.items():
            seconds[streaming].append(train(tokenizer, dataset, folder, steps))
    prepared, streamed = (statistics.median(seconds[each]) for each in (False, True))
    print(f"{steps} steps of GPT: prepared {prepared:.1f} s, streamed {streamed:.1f} s of CPU time")
    print(f"throughput of streaming, of the prepared path: {prepared / streamed:.2f}", flush=True)


def bench_memory(name, examples, size_of, gigabytes, marks=10):
    """Resident size while reading, at `marks` amounts of text; the file is read over and over."""
    done, sizes, start = 0, [], time.perf_counter()
    for batch, _ in examples.read(batch_size=32, buffer_size=10_000):
        done += sum(map(size_of, batch))
        if done >= (len(sizes) + 1) * gigabytes * 1e9 / marks:
            sizes.append(psutil.Process().memory_info().rss / 1e6)
            if len(sizes) == marks:
                break
    line = " ".join(f"{size:.0f}" for size in sizes)
    print(f"{name}: {done / 1e9:.2f} GB in {time.perf_counter() - start:.0f} s; MB in memory at each tenth: {line}")


def bench_streaming(folder, gigabytes, steps, rounds):
    file = write_stories(folder, megabytes=40)
    stream = load_corpus(file, streaming=True)["train"]
    sample = [row["text"] for row in stream.take(10_000)]
    tokenizer = train_tokenizer(sample, "bpe", 2_000, rung="gpt", cache_dir=folder)
    texts = StreamedExamples(stream, lambda chunk, seed: chunk[:])
    bench_memory("texts", texts, lambda example: len(example["text"]) + 1, gigabytes)
    size = sum(map(len, sample)) / sum(map(len, tokenizer(sample)["input_ids"]))  # characters of a token
    blocks = group_into_blocks(stream, tokenizer, 128)
    bench_memory("blocks of tokens", blocks, lambda example: len(example["input_ids"]) * size, gigabytes / 20)
    bench_speed(file, tokenizer, folder, steps, rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--streaming", action="store_true")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="text to read; a twentieth is also tokenised")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.streaming:
            return bench_streaming(folder, args.gigabytes, args.steps, args.rounds)
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
