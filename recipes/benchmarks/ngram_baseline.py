"""Baseline for language models: n-grams with modified Kneser-Ney smoothing, on the same tokens.

    python recipes/benchmarks/ngram_baseline.py runs/recurrent-wikitext
    python recipes/benchmarks/ngram_baseline.py runs/recurrent-wikitext --dataset my_texts/   # if the data has moved
    python recipes/benchmarks/ngram_baseline.py runs/recurrent-wikitext --mix                 # and interpolated with it

Interpolated Kneser-Ney smoothing with the three modified discounts of each order (Kneser & Ney 1995; Chen & Goodman
1999): before neural networks, the best language models. The n-grams are counted on the run's train split in the run's
vocabulary, and scored on its test split, or on validation if there is no test split. One row per order shows what one
more token of context is worth; for character tokens, --order 8 is the stronger baseline.

--mix averages the probabilities of the network and of the n-grams, as Bengio et al. 2003 do with a trigram model
(section "Experimental Results"). It shows what the network adds, not which of the two is better.

The exit code is 0 if the run's perplexity is below that of the best order, 1 if it is not, 2 after an error. The
n-grams always see their full context; the run's model sees at least half a block, or carries its state.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import AutoTokenizer

from hf_edu_models.checkpoints import load_with_head
from hf_edu_models.data import collator_for, group_into_blocks, token_stream
from hf_edu_models.metrics import load
from hf_edu_models.metrics.scorers import by_word
from hf_edu_models.run_folder import read_settings
from hf_edu_models.training import corpus_for, read_results
from hf_edu_models.training.evaluate_checkpoint import EvaluationRequest, arguments_for, reads_streams

SCORES = ("perplexity", "word_perplexity", "bits_per_character")
# Used if no n-gram is rare enough to estimate them, as for single characters, which occur thousands of times.
DEFAULT_DISCOUNTS = np.array([0.5, 1.0, 1.5])


def estimate_discounts(counts):
    """Chen & Goodman's discounts D1, D2 and D3+, for n-grams that occur once, twice, and more often."""
    once, twice, thrice, four_times = (np.count_nonzero(counts == number) for number in (1, 2, 3, 4))
    if not (once and twice and thrice):
        return DEFAULT_DISCOUNTS
    y = once / (once + 2 * twice)  # Y of Chen & Goodman
    ratios = np.array([twice / once, thrice / twice, four_times / thrice])
    discounts = np.array([1, 2, 3]) - np.array([2, 3, 4]) * y * ratios
    return discounts if (discounts > 0).all() else DEFAULT_DISCOUNTS


class DiscountedNgrams:
    """The n-grams of one order: discounted probabilities, and the backoff weight of each context.

    Args:
        contexts: For each n-gram, the index of its context: the n-gram without its last token.
    """

    def __init__(self, contexts, counts, num_contexts):
        discounts = np.append(0.0, estimate_discounts(counts))[np.minimum(counts, 3)]
        totals = np.bincount(contexts, counts, num_contexts)
        discounted = np.bincount(contexts, discounts, num_contexts)
        divisors = np.maximum(totals, 1)
        # One more entry, for index -1: an unseen n-gram has probability 0, an unseen context backs off entirely.
        self.probabilities = np.append((counts - discounts) / divisors[contexts], 0.0)
        self.backoff = np.append(np.where(totals > 0, discounted / divisors, 1.0), 1.0)

    def interpolate(self, contexts, ngrams, lower):
        """Probability by this order; `lower` is that of the next lower order."""
        return self.probabilities[ngrams] + self.backoff[contexts] * lower


class KneserNey:
    """Kneser-Ney models of the orders 1 to `order`, which share their lower orders.

    An n-gram is one integer: the index of its context, which is an n-gram of the next lower order, times the vocabulary
    size, plus its last token. Each order is sorted.
    """

    def __init__(self, tokens, vocab_size, order):
        self.vocab_size = vocab_size
        self.orders = []  # sorted n-grams
        self.highest = []  # from counts, for the highest order
        self.continuation = []  # from continuation counts (the number of different tokens before), for lower orders
        tokens = np.asarray(tokens, np.int64)
        shorter, num_contexts = np.zeros_like(tokens), 1
        for length in range(1, order + 1):
            start = length - 1  # the first token with a full context
            joined = self._join(self._contexts(shorter, length), tokens)[start:]
            ngrams, first, indices, counts = np.unique(
                joined, return_index=True, return_inverse=True, return_counts=True
            )
            if self.orders:  # each different n-gram adds 1 to the continuation count of its suffix
                continuations = np.bincount(shorter[start:][first], minlength=len(self.orders[-1]))
                below = self.orders[-1] // vocab_size
                self.continuation.append(DiscountedNgrams(below, continuations, num_contexts))
                num_contexts = len(self.orders[-1])
            self.highest.append(DiscountedNgrams(ngrams // vocab_size, counts, num_contexts))
            self.orders.append(ngrams)
            shorter = np.append(np.full(min(start, len(tokens)), -1), indices)

    def probabilities(self, tokens):
        """Probability of each token after those before it; one row per order."""
        tokens = np.asarray(tokens, np.int64)
        ngrams, lower, rows = np.zeros_like(tokens), np.full(len(tokens), 1 / self.vocab_size), []
        for length, known in enumerate(self.orders, start=1):
            contexts = self._contexts(ngrams, length)
            ngrams = self._find(known, self._join(contexts, tokens))
            rows.append(self.highest[length - 1].interpolate(contexts, ngrams, lower))
            if length < len(self.orders):
                lower = self.continuation[length - 1].interpolate(contexts, ngrams, lower)
        return np.stack(rows)

    def _contexts(self, shorter, length):
        """Index of the n-gram before each token; -1 at the beginning of the text."""
        return np.append(0 if length == 1 else -1, shorter[:-1])

    def _join(self, contexts, tokens):
        return contexts * self.vocab_size + tokens  # negative, and so never found, if the context is -1

    def _find(self, known, ngrams):
        known = np.append(known, np.iinfo(np.int64).max)  # so that every search has a result
        indices = np.searchsorted(known, ngrams)
        return np.where(known[indices] == ngrams, indices, -1)


def data_of(run, dataset=None):
    """The splits of a run; `dataset` is where the data is now."""
    settings = read_settings(run)
    args = arguments_for(EvaluationRequest(str(run), dataset=settings.get("dataset", dataset)))
    if dataset is not None:
        args.dataset = dataset
        args.dataset_config = None if Path(dataset).exists() else args.dataset_config  # only a Hub dataset has one
    try:
        corpus = corpus_for(args)
    except FileNotFoundError as problem:
        raise FileNotFoundError(f"{problem}; give the path of the run's data with --dataset") from problem
    expected, found = read_results(run)["data"]["sizes"], {split: len(rows) for split, rows in corpus.items()}
    if expected != found:
        raise ValueError(
            f"{run} was trained on {_rows(expected)}, but {args.dataset} has {_rows(found)}; give the run's data"
        )
    return corpus


def _rows(sizes):
    return ", ".join(f"{size} rows of {split}" for split, size in sizes.items())


@torch.inference_mode()
def probabilities_of(run, split, tokenizer, steps=1024):
    """Probability of each token of a split but the first, by the run's model."""
    model, _ = load_with_head(str(run))
    model.eval()
    if reads_streams("language_modeling", model):
        return _with_carried_state(model, torch.as_tensor(token_stream(split, tokenizer)).long(), steps)
    block_size = read_settings(run).get("max_length", 128)
    blocks = group_into_blocks(split, tokenizer, block_size, overlap=block_size // 2)
    found = []
    for batch in DataLoader(blocks, batch_size=16, collate_fn=collator_for("language_modeling", tokenizer)):
        targets = batch.pop("labels")[:, 1:]
        logits = model(**batch).logits[:, :-1]
        found.append(_gather(logits, targets.clamp(min=0))[targets >= 0])
    return torch.cat(found).numpy()


def _with_carried_state(model, tokens, steps):
    """The text as one sequence, with the hidden state carried from chunk to chunk."""
    state, found = None, []
    for start in range(0, len(tokens) - 1, steps):
        following = tokens[start + 1 : start + 1 + steps]
        output = model(tokens[start : start + len(following)][None], past_key_values=state, use_cache=True)
        state = output.past_key_values
        found.append(_gather(output.logits[0], following))
    return torch.cat(found).numpy()


def _gather(logits, targets):
    return logits.double().softmax(-1).gather(-1, targets[..., None])[..., 0]


def compare(run, dataset=None, order=5, mix=False):
    """Scores of a run and of every order up to `order`, and whether the run's perplexity is the lowest."""
    if order < 1:
        raise ValueError(f"--order must be 1 or more, got {order}")
    results = read_results(run)
    if results["task"] != "language_modeling":
        raise ValueError(f"{run} was trained for {results['task']}; give the run of a language model")
    split = "test" if "test" in results["scores"] else "validation"
    corpus, tokenizer = data_of(run, dataset), AutoTokenizer.from_pretrained(run)
    train = token_stream(corpus["train"], tokenizer)
    # No model predicts the first token.
    ngrams = KneserNey(train, len(tokenizer), order).probabilities(token_stream(corpus[split], tokenizer))[:, 1:]
    losses = -np.log(ngrams).sum(axis=1)
    scores = [scores_of(loss, ngrams.shape[1], corpus[split], tokenizer) for loss in losses]
    best = min(range(order), key=lambda index: scores[index]["perplexity"])
    own = {name: results["scores"][split][name] for name in SCORES}
    mixed = {}
    if mix:
        both = (ngrams[best] + probabilities_of(run, corpus[split], tokenizer)) / 2
        mixed = {"mixed": scores_of(-np.log(both).sum(), len(both), corpus[split], tokenizer)}
    return mixed | {
        "run": Path(run).name,
        "rung": results["rung"],
        "split": split,
        "tokens": {"train": len(train), split: ngrams.shape[1]},
        "vocabulary": len(tokenizer),
        "orders": [{"order": index + 1, **score} for index, score in enumerate(scores)],
        "best_order": best + 1,
        "run_scores": own,
        "is_better": own["perplexity"] < scores[best]["perplexity"],
    }


def scores_of(loss, tokens, split, tokenizer):
    """Scores by the functions that score a run."""
    found = load("perplexity").compute(predictions=[loss], references=[tokens])
    found |= by_word(found["nll"], split, tokenizer)
    return {name: found[name] for name in SCORES}


def print_comparison(found):
    sizes = found["tokens"]
    print(
        f"{found['split']} split, {sizes[found['split']]:,} tokens; n-grams of {sizes['train']:,} tokens of train, "
        f"vocabulary of {found['vocabulary']:,}"
    )
    width = max(12, len(found["run"]))
    print(" ".join([" " * width, *(f"{name.replace('_', ' '):>18}" for name in SCORES)]))
    lines = [(f"order {scores['order']}", scores) for scores in found["orders"]] + [(found["run"], found["run_scores"])]
    if "mixed" in found:
        lines.append((f"with order {found['best_order']}", found["mixed"]))
    for name, scores in lines:
        print(" ".join([f"{name:{width}}", *(f"{scores[score]:18,.3f}" for score in SCORES)]))
    best = found["orders"][found["best_order"] - 1]
    print(
        f"{found['run']} is {'below' if found['is_better'] else 'NOT below'} the best order, {best['order']}: "
        f"perplexity {found['run_scores']['perplexity']:,.2f} against {best['perplexity']:,.2f}"
    )


def run_baseline(argv, description, compare, print_comparison, **options):
    """Parse the command line, compare, print the figures, and return the exit code."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="folder of a finished run")
    parser.add_argument("--dataset", help="the run's data, if it has moved")
    parser.add_argument("--json", help="also write the figures to this file")
    for name, settings in options.items():
        parser.add_argument(f"--{name}", **settings)
    args = vars(parser.parse_args(argv))
    file = args.pop("json")
    try:
        found = compare(**args)
    except (ValueError, FileNotFoundError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print_comparison(found)
    if file:
        Path(file).write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    return 0 if found["is_better"] else 1


def main(argv=None):
    order = {"type": int, "default": 5, "help": "highest order of the n-grams (default: %(default)s)"}
    mix = {"action": "store_true", "help": "also score the mean of the run's and the best order's probabilities"}
    return run_baseline(argv, __doc__, compare, print_comparison, order=order, mix=mix)


if __name__ == "__main__":
    sys.exit(main())
