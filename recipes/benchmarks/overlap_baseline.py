"""Baseline for models of text pairs: logistic regression on the words that the two texts share.

    python recipes/benchmarks/overlap_baseline.py runs/bert_finetune-mrpc       # is it a paraphrase?
    python recipes/benchmarks/overlap_baseline.py runs/bert_pretrain-texts      # next sentence prediction
    python recipes/benchmarks/overlap_baseline.py runs/bert_finetune-mrpc --dataset my_pairs/   # if the data has moved

The features of a pair, in the run's own tokens: the two lengths alone, then also the shared tokens, weighted by their
inverse frequency. It is trained on the run's train split and scored on its test split, or on validation if there is no
test split. A model that is not above it has not learnt to compare words.

The exit code is 0 if the run's accuracy is above both, 1 if it is not, 2 after an error.
"""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
from ngram_baseline import data_of, run_baseline
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import AutoTokenizer

from hf_edu_models.data import build_nsp_pairs
from hf_edu_models.data.columns import read_column
from hf_edu_models.run_folder import read_settings
from hf_edu_models.training import read_results

SCORES = {"classification": "accuracy", "pretraining": "nsp_accuracy"}


def pairs_of(task, rows, tokenizer, settings):
    """Token ids of both texts, and the label, for every pair of a split."""
    if task == "pretraining":
        options = {
            "max_length": settings.get("max_length", 128),
            "split_sentences": settings.get("split_sentences", False),
        }
        built = build_nsp_pairs(rows, tokenizer, **options)
        special = set(tokenizer.all_special_ids)
        texts = ([], [])
        for ids, segments in zip(read_column(built, "input_ids"), read_column(built, "token_type_ids"), strict=True):
            for number, text in enumerate(texts):
                text.append([i for i, at in zip(ids, segments, strict=True) if at == number and i not in special])
        return *texts, read_column(built, "next_sentence_label")
    texts = (tokenizer(list(rows[name]), add_special_tokens=False)["input_ids"] for name in ("text", "text_pair"))
    return *texts, read_column(rows, "label")


class PairFeatures:
    """Features of a text pair; the token frequencies are those of the texts given to the constructor."""

    def __init__(self, *texts):
        counts = Counter(token for column in texts for text in column for token in text)
        total = sum(counts.values())
        self.weights = {token: np.log(total / count) for token, count in counts.items()}
        self.unseen = np.log(total)

    def lengths(self, first, second):
        return [[len(a), len(b), abs(len(a) - len(b))] for a, b in zip(first, second, strict=True)]

    def shared(self, first, second):
        """Weight of the shared tokens, and its fraction of the lighter text, the heavier text, and their union."""
        rows = []
        for a, b in zip(map(set, first), map(set, second), strict=True):
            both, weight, other = self.weight(a & b), self.weight(a), self.weight(b)
            wholes = (min(weight, other), max(weight, other), weight + other - both)
            rows.append([both, *(both / whole if whole else 0.0 for whole in wholes)])
        return rows

    def weight(self, tokens):
        return sum(self.weights.get(token, self.unseen) for token in tokens)


def compare(run, dataset=None):
    """Accuracies of a run, of lengths, and of shared words, and whether the run's is the highest."""
    results, settings = read_results(run), read_settings(run)
    task = results["task"]
    if task not in SCORES:
        raise ValueError(f"{run} was trained for {task}; give a run on pairs: {' or '.join(SCORES)}")
    split = "test" if "test" in results["scores"] else "validation"
    if SCORES[task] not in results["scores"][split]:
        raise ValueError(f"{run} has no score {SCORES[task]} to compare with")
    corpus, tokenizer = data_of(run, dataset), AutoTokenizer.from_pretrained(run)
    if task == "classification" and "text_pair" not in corpus["train"].column_names:
        raise ValueError(f"{run} was trained on single texts; shared words need pairs")
    train, test = (pairs_of(task, corpus[name], tokenizer, settings) for name in ("train", split))
    features = PairFeatures(*train[:2])

    def accuracy(*kinds):
        inputs = (np.hstack([kind(*pairs[:2]) for kind in kinds]) for pairs in (train, test))
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        return model.fit(next(inputs), train[2]).score(next(inputs), test[2])

    labels = Counter(test[2])
    found = {
        "majority class": max(labels.values()) / labels.total(),
        "lengths": accuracy(features.lengths),
        "lengths and shared words": accuracy(features.lengths, features.shared),
    }
    own = results["scores"][split][SCORES[task]]
    return {
        "run": Path(run).name,
        "split": split,
        "pairs": {"train": len(train[2]), split: len(test[2])},
        "accuracies": found | {"run": own},
        "is_better": own > max(found.values()),
    }


def print_comparison(found):
    sizes = found["pairs"]
    print(f"{found['split']} split, {sizes[found['split']]:,} pairs; trained on {sizes['train']:,} pairs")
    for name, score in found["accuracies"].items():
        print(f"{found['run'] if name == 'run' else name:28} {score:7.1%}")
    print(f"{found['run']} is {'above' if found['is_better'] else 'NOT above'} the baseline")


def main(argv=None):
    return run_baseline(argv, __doc__, compare, print_comparison)


if __name__ == "__main__":
    sys.exit(main())
