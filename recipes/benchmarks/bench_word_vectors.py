"""Speed and quality of word vectors beside gensim's, in one run: words per CPU-second, and what the vectors are worth.

    python recipes/benchmarks/bench_word_vectors.py --dataset my_texts/ --similarities pairs.csv
    python recipes/benchmarks/bench_word_vectors.py --dataset my_texts/ --words 10000000 --seeds 0 1 2

Both get the same words: those that our tokenizer finds at least `--min-count` times, with the same window, size,
negatives, subsampling and epochs. The time is the CPU time of training alone, of all threads; a word is counted in each
epoch, also where subsampling drops it. gensim has one worker and reads lists of words ("gensim") or a file ("gensim,
corpus_file"). Ours is `WordVectorsTrainer` with its batches and subsampling. The systems take turns within a seed. The
learning rate is that of word2vec for both: 0.025, with CBOW 0.05.

`--similarities` is a table (.parquet, .csv) with the columns word1, word2, score, and perhaps set; `--analogies` is
word2vec's file of questions, or a table with the columns a, b, c, d. Answers are sought among 30,000 frequent words.
"""

import argparse
import json
import logging
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas
import torch
from interleaved import machine
from transformers import set_seed

from hf_edu_models import EduWordVectorsConfig, EduWordVectorsForCBOW, EduWordVectorsForSkipGram
from hf_edu_models.data import collator_for, count_words, encode_words, load_corpus, plain_words, train_tokenizer
from hf_edu_models.explain.words.analogies import read_analogies, score_analogies, score_similarities, word_table
from hf_edu_models.models.blocks_subwords import subword_table
from hf_edu_models.training import RunArguments, WordVectorsTrainer

METHODS = ("skip_gram", "cbow", "fasttext")
RATES = {"skip_gram": 0.025, "cbow": 0.05, "fasttext": 0.025}
SCORED = 30_000  # most frequent words among which an analogy is solved
BUCKETS = 200_000


def existing_file(path):
    """Known before the first training, not after it."""
    if not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"no file {path}; give a table or file of questions")
    return Path(path)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True, help="texts: a file, folder or built-in corpus")
    parser.add_argument("--words", type=int, default=2_000_000, help="words of an epoch")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--min-count", type=int, default=5)
    parser.add_argument("--sample", type=float, default=1e-3)
    parser.add_argument("--buckets", type=int, default=BUCKETS, help="vectors of the n-grams of fastText")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--similarities", type=existing_file)
    parser.add_argument("--analogies", type=existing_file)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--without-gensim", action="store_true")
    parser.add_argument("--json", help="also write the figures to this file")
    return parser.parse_args()


def read_texts(args):
    """A tokenizer, rows of token ids, and the same rows as lists of words."""
    rows = load_corpus(args.dataset)["train"]
    texts, words = [], 0
    for batch in rows.iter(batch_size=1000):
        texts += batch["text"]
        words += sum(len(text.split()) for text in batch["text"])
        if words > args.words:
            break
    corpus = {"train": rows.select(range(len(texts)))}
    tokenizer = train_tokenizer(
        corpus, "word", 100_000, lowercase=True, min_frequency=args.min_count, rung="word_vectors"
    )
    encoded = encode_words(corpus, tokenizer, 1000)["train"]
    names = plain_words(tokenizer)
    # Two tokens may have one text, a comma with and without its space; gensim keeps them apart, too.
    seen, unique = set(), []
    for number, name in enumerate(names):
        is_one_word = name is not None and name.split() == [name]  # some characters are spaces to Python and gensim
        unique.append(name if is_one_word and name not in seen else f"{number}#")
        seen.add(name)
    lists = [[unique[token] for token in row["input_ids"]] for row in encoded]
    return tokenizer, encoded, unique, lists


def train_ours(args, method, seed, tokenizer, encoded, counts, folder):
    set_seed(seed)
    settings = {"hidden_size": args.size, "window_size": args.window}
    if method == "fasttext":
        settings["num_buckets"] = args.buckets
    config = EduWordVectorsConfig.for_tokenizer(tokenizer, **settings)
    table = subword_table(plain_words(tokenizer), config) if config.num_buckets else None
    if table is not None:
        config.num_ngrams = len(table[0])
    model = (EduWordVectorsForCBOW if method == "cbow" else EduWordVectorsForSkipGram)(config)
    if table is not None:
        model.model.embed_tokens.set_words(*table)
    options = {"window_size": args.window, "sample": args.sample}
    trainer = WordVectorsTrainer(
        model=model,
        args=RunArguments(
            output_dir=folder,
            num_train_epochs=args.epochs,
            per_device_train_batch_size=64,
            learning_rate=RATES[method],
            eval_strategy="no",
            save_strategy="no",
            logging_strategy="no",
            seed=seed,
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=encoded,
        data_collator=collator_for("cbow" if method == "cbow" else "skip_gram", tokenizer, counts=counts, **options),
        processing_class=tokenizer,
    )
    start = time.process_time()
    trainer.train()
    seconds = time.process_time() - start
    with torch.no_grad():
        vectors = model.get_input_embeddings()(torch.arange(len(tokenizer))).numpy()
    return seconds, vectors


def train_gensim(args, method, seed, lists, file):
    from gensim.models import FastText, Word2Vec

    options = {"vector_size": args.size, "window": args.window, "min_count": 1, "negative": 5, "workers": 1}
    options |= {"sample": args.sample, "seed": seed, "alpha": RATES[method], "sg": int(method != "cbow")}
    if method == "fasttext":
        model = FastText(**options, bucket=args.buckets)
    else:
        model = Word2Vec(**options)
    source = {"corpus_file": str(file)} if file is not None else {"corpus_iterable": lists}
    model.build_vocab(**source)
    totals = {"total_examples": model.corpus_count, "total_words": model.corpus_total_words}
    start = time.process_time()
    model.train(**source, **totals, epochs=args.epochs)
    seconds = time.process_time() - start
    if method == "fasttext":
        model.wv.adjust_vectors()  # a word as the mean of its parts
    return seconds, model.wv


def score(args, words, vectors):
    """Of the words in order of frequency."""
    scores = {}
    if args.similarities:
        table = word_table(words, vectors)
        is_parquet = args.similarities.suffix == ".parquet"
        pairs = pandas.read_parquet(args.similarities) if is_parquet else pandas.read_csv(args.similarities)
        groups = pairs.groupby("set") if "set" in pairs.columns else [("similarity", pairs)]
        for name, group in groups:
            columns = (group[column].tolist() for column in ("word1", "word2", "score"))
            scores[name] = score_similarities(table, zip(*columns, strict=True))[0]
    if args.analogies:
        table = word_table(words, vectors, SCORED)
        scores["analogies"] = score_analogies(table, read_analogies(args.analogies))[-1].accuracy
    return scores


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    logging.getLogger("gensim").setLevel(logging.ERROR)
    tokenizer, encoded, names, lists = read_texts(args)
    counts = count_words(encoded, len(tokenizer))
    order = [int(token) for token in np.argsort(-counts, kind="stable") if counts[token]]
    words, total = [names[token] for token in order], int(counts.sum())
    print(f"{total:,} words of {len(words):,} kinds, {args.epochs} epochs; {machine('off')}", flush=True)
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.txt"
        file.write_text("\n".join(" ".join(row) for row in lists) + "\n", "utf-8")
        for seed in args.seeds:
            for method in args.methods:
                for system in ["ours"] if args.without_gensim else ["gensim", "ours", "gensim, corpus_file"]:
                    if system == "ours":
                        seconds, vectors = train_ours(args, method, seed, tokenizer, encoded, counts, folder)
                        vectors = vectors[order]
                    else:
                        seconds, keyed = train_gensim(args, method, seed, lists, file if "file" in system else None)
                        vectors = np.stack([keyed[word] for word in words])
                    row = {"method": method, "system": system, "seed": seed}
                    row["words_per_cpu_second"] = round(total * args.epochs / seconds)
                    figures.append(row | score(args, words, vectors))
                    values = figures[-1].values()
                    print(*(f"{value:.3f}" if isinstance(value, float) else value for value in values), flush=True)
    report(figures)
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=2) + "\n", "utf-8")


def report(figures):
    """Means over the seeds, and the speed of ours as a multiple of gensim's."""
    names = [name for name in figures[0] if name not in ("method", "system", "seed", "words_per_cpu_second")]
    print("\n| method | system | words per CPU-second | ours / it |" + "".join(f" {name} |" for name in names))
    print("|---|---|---|---|" + "---|" * len(names))
    table = pandas.DataFrame(figures).groupby(["method", "system"], sort=False).mean(numeric_only=True)
    for (method, system), row in table.iterrows():
        speed = table.loc[(method, "ours"), "words_per_cpu_second"] / row["words_per_cpu_second"]
        values = "".join(f" {row[name]:.3f} |" for name in names)
        print(f"| {method} | {system} | {row['words_per_cpu_second']:,.0f} | {speed:.2f} |{values}")


if __name__ == "__main__":
    main()
