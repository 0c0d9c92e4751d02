"""The n-gram baseline computes the probabilities of the formula, and reports whether a run is better."""

import importlib.util
import json
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from transformers import AutoTokenizer

from hf_edu_models.data import load_corpus, token_stream, train_tokenizer
from hf_edu_models.run_folder import write_results, write_settings
from hf_edu_models.training import read_results, recipe_files


def load_script():
    folder = next(iter(recipe_files().values())).parent / "benchmarks"
    spec = importlib.util.spec_from_file_location("ngram_baseline", folder / "ngram_baseline.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


baseline = load_script()
A, B, C = range(3)


def after(model, context):
    """The probabilities of every token after a context: a row for each order."""
    tokens = range(model.vocab_size)
    return np.stack([model.probabilities([*context, token])[:, -1] for token in tokens], axis=1)


def perplexities(model, tokens):
    return np.exp(-np.log(model.probabilities(tokens)).mean(axis=1))


@pytest.fixture(scope="module")
def tokens():
    """Text in which some tokens are common, some rare, and the last two never seen."""
    return np.random.default_rng(0).zipf(1.5, 3_000) % 9


CONTEXTS = {"seen": [0, 1, 2, 1], "partly seen": [8, 9, 1], "never seen": [10, 9, 10, 9], "short": [1], "none": []}


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
def test_probabilities_are_positive_and_sum_to_one(tokens, context):
    found = after(baseline.KneserNey(tokens, 11, order=4), context)
    assert found.shape == (4, 11) and (found > 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("text", [[A], [A, A, A], [A, B]], ids=["one token", "one kind", "shorter than the order"])
def test_a_tiny_text_still_gives_probabilities(text):
    model = baseline.KneserNey(text, 3, order=4)
    for context in ([], [A], [A, A, A], [C, C, B]):
        found = after(model, context)
        assert (found > 0).all()
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)


def test_three_words_by_hand():
    # Seen: a b (twice), b a, a c, c a. No count is 3, so the discounts are the usual: 1/2 for 1, 1 for 2.
    model = baseline.KneserNey([A, B, A, C, A, B], 3, order=2)
    # a was seen after two different words, b and c after one: 4 bigrams. They give away 1 + 1/2 + 1/2 of 4.
    lower = {
        A: Fraction(2 - 1, 4) + Fraction(2, 4) * Fraction(1, 3),
        B: (1 - Fraction(1, 2)) / 4 + Fraction(2, 4) * Fraction(1, 3),
        C: (1 - Fraction(1, 2)) / 4 + Fraction(2, 4) * Fraction(1, 3),
    }
    # a is followed three times: by b twice, by c once. They give away 1 + 1/2 of 3.
    shared = Fraction(3, 2) / 3
    after_a = [shared * lower[A], Fraction(2 - 1, 3) + shared * lower[B], (1 - Fraction(1, 2)) / 3 + shared * lower[C]]
    assert sum(after_a) == 1
    np.testing.assert_allclose(after(model, [A])[1], [float(each) for each in after_a])


def test_discounts_by_hand():
    # Four n-grams seen once, two twice, one three times, one four times: Y = 4 / (4 + 2 * 2) = 1/2.
    found = baseline.estimate_discounts(np.array([1, 1, 1, 1, 2, 2, 3, 4]))
    np.testing.assert_allclose(found, [1 - 2 * 0.5 * 2 / 4, 2 - 3 * 0.5 * 1 / 2, 3 - 4 * 0.5 * 1 / 1])


def test_order_one_is_the_interpolated_unigram(tokens):
    counts = np.bincount(tokens, minlength=11)
    discounts = np.array([0, *baseline.estimate_discounts(counts)])[np.minimum(counts, 3)]
    expected = (counts - discounts) / len(tokens) + discounts.sum() / len(tokens) / 11
    model = baseline.KneserNey(tokens, 11, order=1)
    np.testing.assert_allclose(after(model, [])[0], expected)
    np.testing.assert_allclose(after(model, [3, 1])[0], expected)  # it does not look back


def reference(text, vocab_size, context, word, order):
    """Interpolated Kneser-Ney as the paper writes it, from dictionaries, one order inside the other."""

    def counted(length):
        seen = Counter(tuple(text[start : start + length]) for start in range(len(text) - length + 1))
        if length == order:
            return seen
        return Counter(ngram[1:] for ngram in {tuple(text[at : at + length + 1]) for at in range(len(text) - length)})

    def probability(context, length):
        if length == 0:
            return 1 / vocab_size
        counts = counted(length)
        followers = {ngram[-1]: count for ngram, count in counts.items() if ngram[:-1] == context}
        shorter = probability(context[1:], length - 1)
        if not followers:
            return shorter
        discounts = [0, *baseline.estimate_discounts(np.array(list(counts.values())))]
        total, discounted = sum(followers.values()), sum(discounts[min(each, 3)] for each in followers.values())
        count = followers.get(word, 0)
        return (count - discounts[min(count, 3)] + discounted * shorter) / total

    return probability(tuple(context[len(context) - order + 1 :]), order)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_every_order_is_what_the_formula_says(tokens, order):
    text = tokens[:400].tolist()
    model = baseline.KneserNey(text, 11, order=4)  # holds the lower orders as models of their own
    for context in ([0, 1, 2], [1, 1, 1], [5, 0, 1], [10, 1, 0], text[-3:]):
        expected = [reference(text, 11, context, word, order) for word in range(11)]
        np.testing.assert_allclose(after(model, context)[order - 1], expected, rtol=1e-10)


def test_a_token_does_not_depend_on_what_comes_later(tokens):
    model = baseline.KneserNey(tokens, 11, order=4)
    whole = model.probabilities(tokens[:40])
    np.testing.assert_array_equal(model.probabilities(tokens[:17]), whole[:, :17])


def test_context_helps_where_text_repeats_itself():
    # What follows 0 is clear only from the token before it.
    text = np.tile([1, 0, 2, 3, 0, 4], 200)
    found = perplexities(baseline.KneserNey(text[:900], 5, order=3), text[900:])
    assert found[0] > found[1] > found[2] and found[2] < 1.1


def test_perplexity_of_random_tokens_is_the_vocabulary_size():
    tokens = np.random.default_rng(1).integers(0, 20, 60_000)
    found = perplexities(baseline.KneserNey(tokens[:50_000], 20, order=2), tokens[50_000:])
    np.testing.assert_allclose(found, 20, rtol=0.02)


def test_on_a_run(smoke, tmp_path, capsys):
    run, file = smoke("feedforward"), tmp_path / "figures.json"
    code = baseline.main([str(run), "--order", "3", "--json", str(file)])
    found, own = json.loads(file.read_text()), read_results(run)["scores"]["test"]
    assert code == (0 if found["is_better"] else 1)
    assert found["run_scores"] == {name: own[name] for name in baseline.SCORES}
    assert [scores["order"] for scores in found["orders"]] == [1, 2, 3]
    printed = capsys.readouterr().out
    assert all(f"{scores['perplexity']:,.3f}" in printed for scores in found["orders"])
    # The ratio between tokens, words and characters is that of the run: both have read the same text.
    for scores in found["orders"]:
        for name, measure in {"word_perplexity": np.log, "bits_per_character": float}.items():
            ours, theirs = measure(scores[name]), measure(own[name])
            assert ours / theirs == pytest.approx(np.log(scores["perplexity"]) / np.log(own["perplexity"]))


@pytest.mark.parametrize("rung", ["feedforward", "recurrent", "gpt"])
def test_the_probabilities_of_a_run_are_those_that_it_was_scored_by(smoke, rung):
    run = smoke(rung)
    results, tokenizer = read_results(run), AutoTokenizer.from_pretrained(run)
    split = baseline.data_of(run)["test"]
    found = baseline.probabilities_of(run, split, tokenizer, steps=50)
    assert len(found) == len(token_stream(split, tokenizer)) - 1
    # A recurrent run is scored in several streams, each of which begins with an empty state and loses a few last words.
    exactly = {"rel": 0.05 if rung == "recurrent" else 1e-4}
    assert np.exp(-np.log(found).mean()) == pytest.approx(results["scores"]["test"]["perplexity"], **exactly)
    np.testing.assert_allclose(found, baseline.probabilities_of(run, split, tokenizer, steps=7), rtol=1e-4)


def test_interpolation_with_the_network(smoke, capsys):
    run = smoke("feedforward")
    found = baseline.compare(run, order=3, mix=True)
    counted = found["orders"][found["best_order"] - 1]["perplexity"]
    geometric = np.sqrt(counted * found["run_scores"]["perplexity"])
    assert found["mixed"]["perplexity"] < geometric, "the mean of two probabilities is above their geometric mean"
    baseline.print_comparison(found)
    assert f"{found['mixed']['perplexity']:,.3f}" in capsys.readouterr().out


@pytest.fixture
def finished_run(tmp_path):
    """The files of a language model's run that the baseline reads; its data has moved."""
    text, run = tmp_path / "moved.txt", tmp_path / "run"
    text.write_text("".join(f"{number} is the number {number * number}\n" for number in range(60)))
    sizes = {"validation_size": 10, "test_size": 5}
    corpus = load_corpus(text, **sizes)
    train_tokenizer(corpus, "char", 50, rung="recurrent").save_pretrained(run)
    settings = {"dataset": str(tmp_path / "gone.txt"), "dataset_config": "of the hub", **sizes}
    write_settings(run, settings)

    def with_perplexity(perplexity, splits=("validation", "test"), task="language_modeling"):
        scores = {"perplexity": perplexity, "word_perplexity": 7.0, "bits_per_character": 3.0}
        data = {"name": "gone.txt", "sizes": {split: len(rows) for split, rows in corpus.items()}}
        results = {"rung": "recurrent", "task": task, "data": data, "scores": dict.fromkeys(splits, scores)}
        write_results(run, results)
        return run, text, corpus

    return with_perplexity


@pytest.mark.parametrize("perplexity, code", [(1.01, 0), (49.0, 1), (float("nan"), 1)])
def test_the_exit_code_says_whether_the_run_is_better(finished_run, perplexity, code, capsys):
    run, text, _ = finished_run(perplexity)
    assert baseline.main([str(run), "--dataset", str(text)]) == code
    assert ("NOT below" in capsys.readouterr().out) == bool(code)


@pytest.mark.parametrize("splits, split", [(("validation", "test"), "test"), (("validation",), "validation")])
def test_ngrams_are_counted_on_the_train_split_of_the_run(finished_run, splits, split):
    run, text, corpus = finished_run(2.0, splits)
    found = baseline.compare(run, str(text), order=3)
    tokenizer = AutoTokenizer.from_pretrained(run)
    train, tokens = (token_stream(corpus[name], tokenizer) for name in ("train", split))
    assert found["split"] == split and found["tokens"] == {"train": len(train), split: len(tokens) - 1}
    probabilities = baseline.KneserNey(train, len(tokenizer), 3).probabilities(tokens)[:, 1:]
    expected = np.exp(-np.log(probabilities).mean(axis=1))
    np.testing.assert_allclose([scores["perplexity"] for scores in found["orders"]], expected)
    assert found["best_order"] == expected.argmin() + 1


def test_user_errors_are_one_sentence(finished_run, tmp_path, capsys):
    run, text, _ = finished_run(2.0)
    other = tmp_path / "other.txt"
    other.write_text("a line\n" * 40)
    mistakes = [
        ([run], "give the path of the run's data"),
        ([run, "--dataset", other], "45 rows of train"),
        ([run, "--dataset", text, "--order", "0"], "--order must be 1 or more"),
        ([tmp_path], "results.json"),
    ]
    for argv, words in mistakes:
        assert baseline.main([str(word) for word in argv]) == 2
        printed = capsys.readouterr().err
        assert words in printed.splitlines()[-1] and "Traceback" not in printed
    run, text, _ = finished_run(2.0, task="translation")
    assert baseline.main([str(run), "--dataset", str(text)]) == 2 and "translation" in capsys.readouterr().err
