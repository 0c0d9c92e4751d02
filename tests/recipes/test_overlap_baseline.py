"""Counting shared words finds what is in them, nothing where there is nothing, and says whether a run is better."""

import importlib
import random
from pathlib import Path

import datasets
import pytest

from hf_edu_models.data import load_corpus, train_tokenizer
from hf_edu_models.training import read_results
from hf_edu_models.training.run_folder import write_results, write_settings

BENCHMARKS = Path(__file__).parents[2] / "recipes" / "benchmarks"
WORDS = [f"w{number}" for number in range(300)]


@pytest.fixture
def baseline(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("overlap_baseline")


def pairs(count, seed, means_something):
    """Texts of eight words; where the label is 1, half of the second one's are the first one's."""
    rng = random.Random(seed)
    rows = {"text": [], "text_pair": [], "label": []}
    for _ in range(count):
        label = rng.randrange(2)
        first, second = rng.sample(WORDS, 8), rng.sample(WORDS, 8)
        if label if means_something else rng.randrange(2):
            second[:4] = first[4:]
        rng.shuffle(second)
        for name, value in zip(rows, (" ".join(first), " ".join(second), label), strict=True):
            rows[name].append(value)
    return datasets.Dataset.from_dict(rows)


@pytest.fixture
def finished_run(tmp_path):
    """What a run on pairs leaves behind that the baseline reads."""

    def make(accuracy, means_something=True):
        data, run = tmp_path / "pairs", tmp_path / "run"
        data.mkdir()
        for seed, (split, count) in enumerate((("train", 400), ("validation", 20), ("test", 300))):
            pairs(count, seed, means_something).to_parquet(str(data / f"{split}.parquet"))
        corpus = load_corpus(data)
        train_tokenizer(corpus, "wordpiece", 400, rung="bert").save_pretrained(run)
        write_settings(run, {"dataset": str(data)})
        sizes = {split: len(rows) for split, rows in corpus.items()}
        scores = {"test": {"accuracy": accuracy}}
        write_results(run, {"task": "classification", "data": {"name": "pairs", "sizes": sizes}, "scores": scores})
        return run

    return make


def test_shared_words_are_found_and_lengths_say_nothing(baseline, finished_run):
    found = baseline.compare(finished_run(0.9))["accuracies"]
    assert found["lengths and shared words"] > 0.97
    assert abs(found["lengths"] - 0.5) < 0.12  # 300 coins: wrong once in 30,000
    assert 0.5 <= found["most frequent answer"] < 0.62 and found["run"] == 0.9


def test_nothing_is_found_where_there_is_nothing(baseline, finished_run):
    found = baseline.compare(finished_run(0.9, means_something=False))
    assert abs(found["accuracies"]["lengths and shared words"] - 0.5) < 0.12 and found["is_better"]


@pytest.mark.parametrize(("means_something", "code"), [(False, 0), (True, 1)])
def test_the_exit_code_says_whether_the_run_is_better(baseline, finished_run, means_something, code, capsys):
    assert baseline.main([str(finished_run(0.8, means_something))]) == code
    assert ("NOT above" in capsys.readouterr().out) == bool(code)


def test_rare_words_weigh_more(baseline):
    known = baseline.Comparison([[1, 1, 1, 1, 2]], [[1, 1, 3]])
    assert known.weight([1]) < known.weight([2]) == known.weight([4])  # one not seen at all is as one seen once
    assert known.shared([[1, 2]], [[2, 1]])[0][1:] == [1, 1, 1]  # the same words, all of them
    assert known.shared([[]], [[1]]) == [[0, 0, 0, 0]]


def test_on_a_run_of_next_sentences(baseline, smoke):
    run = smoke("bert-pretrain")
    found = baseline.compare(run)
    assert found["accuracies"]["run"] == read_results(run)["scores"]["test"]["nsp_accuracy"]
    assert found["pairs"]["test"] > 10 and 0.5 <= found["accuracies"]["most frequent answer"] < 1


@pytest.mark.parametrize(("name", "sentence"), [("bert-finetune", "single texts"), ("gpt", "has learnt language_mod")])
def test_other_runs_are_refused(baseline, smoke, name, sentence, capsys):
    assert baseline.main([str(smoke(name))]) == 2
    assert sentence in capsys.readouterr().err
