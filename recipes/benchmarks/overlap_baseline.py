"""The bar that a model of two texts must clear: counting the words that they share.

    python recipes/benchmarks/overlap_baseline.py runs/bert_finetune-mrpc       # do two sentences say the same?
    python recipes/benchmarks/overlap_baseline.py runs/bert_pretrain-texts      # does one passage follow the other?
    python recipes/benchmarks/overlap_baseline.py runs/bert_finetune-mrpc --dataset my_pairs/   # where the data is now

A logistic regression on a few numbers of each pair, in the run's own tokens: first the two lengths alone, then also how
many tokens are in both texts, rare ones counting more. It learns from the run's train split and is scored on its test
split, or on validation where there is no test split. A model that is not above it has not learnt to compare words.

The exit code is 0 if the run's accuracy is above both, 1 if it is not, 2 if there was a mistake.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from ngram_baseline import data_of
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import AutoTokenizer

from hf_edu_models.data import build_nsp_pairs
from hf_edu_models.data.columns import read_column
from hf_edu_models.training import read_results
from hf_edu_models.training.run_folder import read_settings

SCORES = {"classification": "accuracy", "pretraining": "nsp_accuracy"}


def pairs_of(task, rows, tokenizer, settings):
    """Token ids of both texts, and the label, of every pair of a split."""
    if task == "pretraining":
        cut = {"max_length": settings.get("max_length", 128), "split_sentences": settings.get("split_sentences", False)}
        built = build_nsp_pairs(rows, tokenizer, **cut)
        special = set(tokenizer.all_special_ids)
        texts = ([], [])
        for ids, segments in zip(read_column(built, "input_ids"), read_column(built, "token_type_ids"), strict=True):
            for number, found in enumerate(texts):
                found.append([i for i, at in zip(ids, segments, strict=True) if at == number and i not in special])
        return *texts, read_column(built, "next_sentence_label")
    texts = (tokenizer(list(rows[name]), add_special_tokens=False)["input_ids"] for name in ("text", "text_pair"))
    return *texts, read_column(rows, "label")


class Comparison:
    """Numbers by which two texts may be compared; the texts that it is made with say how rare a token is."""

    def __init__(self, *texts):
        counts = Counter(token for column in texts for text in column for token in text)
        total = sum(counts.values())
        self.weights = {token: np.log(total / count) for token, count in counts.items()}
        self.unseen = np.log(total)

    def lengths(self, first, second):
        return [[len(a), len(b), abs(len(a) - len(b))] for a, b in zip(first, second, strict=True)]

    def shared(self, first, second):
        """Of the tokens in both texts: their weight, and its share of the smaller, the larger, and all."""
        rows = []
        for a, b in zip(map(set, first), map(set, second), strict=True):
            both, weight, other = self.weight(a & b), self.weight(a), self.weight(b)
            wholes = (min(weight, other), max(weight, other), weight + other - both)
            rows.append([both, *(both / whole if whole else 0.0 for whole in wholes)])
        return rows

    def weight(self, tokens):
        return sum(self.weights.get(token, self.unseen) for token in tokens)


def compare(run, dataset=None):
    """The accuracies of a run, of lengths, and of shared words, and whether the run's is the highest."""
    results, settings = read_results(run), read_settings(run)
    task = results["task"]
    if task not in SCORES:
        raise ValueError(f"{run} has learnt {task}; shared words compare with a run on pairs: {' or '.join(SCORES)}")
    split = "test" if "test" in results["scores"] else "validation"
    if SCORES[task] not in results["scores"][split]:
        raise ValueError(f"{run} has no {SCORES[task]}, which shared words could compare with")
    corpus, tokenizer = data_of(run, dataset), AutoTokenizer.from_pretrained(run)
    if task == "classification" and "text_pair" not in corpus["train"].column_names:
        raise ValueError(f"{run} has read single texts; shared words need two")
    learnt, scored = (pairs_of(task, corpus[name], tokenizer, settings) for name in ("train", split))
    known = Comparison(*learnt[:2])

    def accuracy(*kinds):
        numbers = (np.hstack([kind(*pairs[:2]) for kind in kinds]) for pairs in (learnt, scored))
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        return model.fit(next(numbers), learnt[2]).score(next(numbers), scored[2])

    labels = Counter(scored[2])
    found = {
        "most frequent answer": max(labels.values()) / labels.total(),
        "lengths": accuracy(known.lengths),
        "lengths and shared words": accuracy(known.lengths, known.shared),
    }
    own = results["scores"][split][SCORES[task]]
    return {
        "run": Path(run).name,
        "split": split,
        "pairs": {"train": len(learnt[2]), split: len(scored[2])},
        "accuracies": found | {"run": own},
        "is_better": own > max(found.values()),
    }


def show(found):
    sizes = found["pairs"]
    print(f"{found['split']} split, {sizes[found['split']]:,} pairs; learnt from {sizes['train']:,} pairs of train")
    for name, score in found["accuracies"].items():
        print(f"{found['run'] if name == 'run' else name:28} {score:7.1%}")
    print(f"{found['run']} is {'above' if found['is_better'] else 'NOT above'} what counting gives")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="folder of a finished run on pairs of texts")
    parser.add_argument("--dataset", help="the run's own data, where it is not where the run found it")
    parser.add_argument("--json", help="also write the figures to this file")
    args = parser.parse_args(argv)
    try:
        found = compare(args.run, args.dataset)
    except (ValueError, FileNotFoundError) as problem:
        print(f"{parser.prog}: {problem}", file=sys.stderr)
        return 2
    show(found)
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    return 0 if found["is_better"] else 1


if __name__ == "__main__":
    sys.exit(main())
