"""The bar that a language model must clear: an n-gram model that counts the same tokens.

    python recipes/benchmarks/ngram_baseline.py runs/recurrent-wikitext
    python recipes/benchmarks/ngram_baseline.py runs/recurrent-wikitext --dataset my_texts/   # where the data is now
    python recipes/benchmarks/ngram_baseline.py runs/recurrent-wikitext --mix                 # and both together

Interpolated Kneser-Ney smoothing with the three modified discounts of each order (Kneser & Ney 1995; Chen & Goodman
1999): before neural networks, the best that counting gave. It counts the tokens that the run learnt from, in the run's
vocabulary, and is scored on the run's test split, or on validation where there is no test split. One line for each
order shows what one more token of context buys; where a token is a letter, --order 8 is the better bar.

--mix asks what the network has learnt that counting has not: the mean of both probabilities. Bengio et al. 2003 mix
their network with a trigram model (section "Experimental Results"). It says nothing of which one is better.

The exit code is 0 if the run's perplexity is below that of the best order, 1 if it is not, 2 if there was a mistake.
The n-grams always see all their context; a run's model sees half a block or more of it, or carries its state along.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import AutoTokenizer

from hf_edu_models.data import collator_for, group_into_blocks, token_stream
from hf_edu_models.metrics import load
from hf_edu_models.training import corpus_for, read_results
from hf_edu_models.training.checkpoint_scores import Checkup, arguments_for, load_checkpoint, reads_streams
from hf_edu_models.training.evaluation import by_word
from hf_edu_models.training.run_folder import read_settings

SCORES = ("perplexity", "word_perplexity", "bits_per_character")
# For texts with no n-gram that is rare enough to estimate by: every single letter has been seen thousands of times.
USUAL_DISCOUNTS = np.array([0.5, 1.0, 1.5])


def estimate_discounts(counts):
    """What is taken from an n-gram seen once, twice, and more often: Chen & Goodman's D1, D2 and D3+."""
    once, twice, thrice, four_times = (np.count_nonzero(counts == number) for number in (1, 2, 3, 4))
    if not (once and twice and thrice):
        return USUAL_DISCOUNTS
    share = once / (once + 2 * twice)  # Y
    ratios = np.array([twice / once, thrice / twice, four_times / thrice])
    found = np.array([1, 2, 3]) - np.array([2, 3, 4]) * share * ratios
    return found if (found > 0).all() else USUAL_DISCOUNTS


class Discounted:
    """The n-grams of one order: what each keeps of its context's probability, and what a context gives away.

    Args:
        contexts: for each n-gram, the number of the one that it continues: itself without its last token.
    """

    def __init__(self, contexts, counts, num_contexts):
        discounts = np.append(0.0, estimate_discounts(counts))[np.minimum(counts, 3)]
        totals = np.bincount(contexts, counts, num_contexts)
        given_away = np.bincount(contexts, discounts, num_contexts)
        divisors = np.maximum(totals, 1)
        # One more entry at the end, which -1 finds: an unseen n-gram keeps nothing, an unseen context gives all away.
        self.kept = np.append((counts - discounts) / divisors[contexts], 0.0)
        self.given_away = np.append(np.where(totals > 0, given_away / divisors, 1.0), 1.0)

    def mix(self, contexts, ngrams, shorter):
        """The probability by this order, with `shorter` that of the same token in a context of one token less."""
        return self.kept[ngrams] + self.given_away[contexts] * shorter


class KneserNey:
    """Kneser-Ney models of the orders 1 to `order`, which share their lower orders.

    An n-gram is the number of its context, which is an n-gram of one token less, times the vocabulary, plus its last
    token: one whole number, however long it is. Each order keeps its numbers sorted.
    """

    def __init__(self, tokens, vocab_size, order):
        self.vocab_size = vocab_size
        self.orders = []  # sorted n-grams
        self.plain = []  # how often an n-gram was seen: for the highest order
        self.continuing = []  # how many different tokens it was seen after: for all orders below
        tokens = np.asarray(tokens, np.int64)
        shorter, num_contexts = np.zeros_like(tokens), 1
        for length in range(1, order + 1):
            start = length - 1  # the first token that has so long a context
            joined = self._join(self._contexts(shorter, length), tokens)[start:]
            ngrams, places, numbers, counts = np.unique(
                joined, return_index=True, return_inverse=True, return_counts=True
            )
            if self.orders:  # each n-gram is one more token that its ending was seen after
                endings = np.bincount(shorter[start:][places], minlength=len(self.orders[-1]))
                below = self.orders[-1] // vocab_size
                self.continuing.append(Discounted(below, endings, num_contexts))
                num_contexts = len(self.orders[-1])
            self.plain.append(Discounted(ngrams // vocab_size, counts, num_contexts))
            self.orders.append(ngrams)
            shorter = np.append(np.full(min(start, len(tokens)), -1), numbers)

    def probabilities(self, tokens):
        """How probable each token is after those before it: a row for each order, a column for each token."""
        tokens = np.asarray(tokens, np.int64)
        ngrams, lower, rows = np.zeros_like(tokens), np.full(len(tokens), 1 / self.vocab_size), []
        for length, known in enumerate(self.orders, start=1):
            contexts = self._contexts(ngrams, length)
            ngrams = self._find(known, self._join(contexts, tokens))
            rows.append(self.plain[length - 1].mix(contexts, ngrams, lower))
            if length < len(self.orders):
                lower = self.continuing[length - 1].mix(contexts, ngrams, lower)
        return np.stack(rows)

    def _contexts(self, shorter, length):
        """The number of the n-gram that ends before each token; -1 where the text has only begun."""
        return np.append(0 if length == 1 else -1, shorter[:-1])

    def _join(self, contexts, tokens):
        return contexts * self.vocab_size + tokens  # below zero, and so never found, where the context is -1

    def _find(self, known, ngrams):
        known = np.append(known, np.iinfo(np.int64).max)  # what is above all known n-grams finds a place as well
        places = np.searchsorted(known, ngrams)
        return np.where(known[places] == ngrams, places, -1)


def data_of(run, dataset=None):
    """The splits that a run read, cut as it cut them; `dataset` says where they are now."""
    settings = read_settings(run)
    args = arguments_for(Checkup(str(run), dataset=settings.get("dataset", dataset)))
    if dataset is not None:
        args.dataset = dataset
        args.dataset_config = None if Path(dataset).exists() else args.dataset_config  # a Hub data set alone has one
    try:
        corpus = corpus_for(args)
    except FileNotFoundError as problem:
        raise FileNotFoundError(f"{problem}; --dataset says where the run's data is now") from problem
    expected, found = read_results(run)["data"]["sizes"], {split: len(rows) for split, rows in corpus.items()}
    if expected != found:
        raise ValueError(f"{run} has read {_rows(expected)}, but {args.dataset} has {_rows(found)}; give its own data")
    return corpus


def _rows(sizes):
    return ", ".join(f"{size} rows of {split}" for split, size in sizes.items())


@torch.inference_mode()
def guesses_of(run, split, tokenizer, steps=1024):
    """The probability that a run's model gives each token of a split but the first."""
    model, _ = load_checkpoint(str(run))
    model.eval()
    if reads_streams("language_modeling", model):
        return _read_on(model, torch.as_tensor(token_stream(split, tokenizer)).long(), steps)
    block_size = read_settings(run).get("max_length", 128)
    blocks = group_into_blocks(split, tokenizer, block_size, overlap=block_size // 2)
    found = []
    for batch in DataLoader(blocks, batch_size=16, collate_fn=collator_for("language_modeling", tokenizer)):
        targets = batch.pop("labels")[:, 1:]
        logits = model(**batch).logits[:, :-1]
        found.append(_chosen(logits, targets.clamp(min=0))[targets >= 0])
    return torch.cat(found).numpy()


def _read_on(model, tokens, steps):
    """The text from its first token to its last, with the state carried along."""
    state, found = None, []
    for start in range(0, len(tokens) - 1, steps):
        following = tokens[start + 1 : start + 1 + steps]
        output = model(tokens[start : start + len(following)][None], past_key_values=state, use_cache=True)
        state = output.past_key_values
        found.append(_chosen(output.logits[0], following))
    return torch.cat(found).numpy()


def _chosen(logits, targets):
    return logits.double().softmax(-1).gather(-1, targets[..., None])[..., 0]


def compare(run, dataset=None, order=5, mix=False):
    """The scores of a run and of every order up to `order`, and whether the run's perplexity is the lowest."""
    if order < 1:
        raise ValueError(f"--order must be 1 or more, got {order}")
    results = read_results(run)
    if results["task"] != "language_modeling":
        raise ValueError(f"{run} has learnt {results['task']}; n-grams compare with a run of a language model")
    split = "test" if "test" in results["scores"] else "validation"
    corpus, tokenizer = data_of(run, dataset), AutoTokenizer.from_pretrained(run)
    learnt = token_stream(corpus["train"], tokenizer)
    # Nothing stands before the first token, and no run guesses it.
    guessed = KneserNey(learnt, len(tokenizer), order).probabilities(token_stream(corpus[split], tokenizer))[:, 1:]
    losses = -np.log(guessed).sum(axis=1)
    scores = [scores_of(loss, guessed.shape[1], corpus[split], tokenizer) for loss in losses]
    best = min(range(order), key=lambda place: scores[place]["perplexity"])
    own = {name: results["scores"][split][name] for name in SCORES}
    mixed = {}
    if mix:
        both = (guessed[best] + guesses_of(run, corpus[split], tokenizer)) / 2
        mixed = {"mixed": scores_of(-np.log(both).sum(), len(both), corpus[split], tokenizer)}
    return mixed | {
        "run": Path(run).name,
        "rung": results["rung"],
        "split": split,
        "tokens": {"train": len(learnt), split: guessed.shape[1]},
        "vocabulary": len(tokenizer),
        "orders": [{"order": place + 1, **score} for place, score in enumerate(scores)],
        "best_order": best + 1,
        "run_scores": own,
        "is_better": own["perplexity"] < scores[best]["perplexity"],
    }


def scores_of(loss, tokens, split, tokenizer):
    """The scores that a run has, by the same functions."""
    found = load("perplexity").compute(predictions=[loss], references=[tokens])
    found |= by_word(found["nll"], split, tokenizer)
    return {name: found[name] for name in SCORES}


def show(found):
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


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="folder of a finished run of a language model")
    parser.add_argument("--dataset", help="the run's own data, where it is not where the run found it")
    parser.add_argument("--order", type=int, default=5, help="longest n-grams (default: %(default)s)")
    parser.add_argument(
        "--mix", action="store_true", help="also score the mean of the run's probabilities and the best order's"
    )
    parser.add_argument("--json", help="also write the figures to this file")
    args = parser.parse_args(argv)
    try:
        found = compare(args.run, args.dataset, args.order, args.mix)
    except (ValueError, FileNotFoundError) as problem:
        print(f"{parser.prog}: {problem}", file=sys.stderr)
        return 2
    show(found)
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    return 0 if found["is_better"] else 1


if __name__ == "__main__":
    sys.exit(main())
