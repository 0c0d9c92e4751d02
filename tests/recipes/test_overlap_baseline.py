"""The overlap baseline predicts labels that depend on shared words, and reports whether a run is better."""

import importlib
import random
from pathlib import Path

import datasets
import pytest

from hf_edu_models.data import load_corpus, train_tokenizer
from hf_edu_models.run_folder import write_results, write_settings
from hf_edu_models.training import read_results

BENCHMARKS = Path(__file__).parents[2] / "recipes" / "benchmarks"
WORDS = [f"w{number}" for number in range(300)]


@pytest.fixture
def baseline(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("overlap_baseline")


def pairs(count, seed, is_informative):
    """Texts of eight words; where the label is 1, half of the second one's are the first one's."""
    rng = random.Random(seed)
    rows = {"text": [], "text_pair": [], "label": []}
    for _ in range(count):
        label = rng.randrange(2)
        first, second = rng.sample(WORDS, 8), rng.sample(WORDS, 8)
        if label if is_informative else rng.randrange(2):
            second[:4] = first[4:]
        rng.shuffle(second)
        for name, value in zip(rows, (" ".join(first), " ".join(second), label), strict=True):
            rows[name].append(value)
    return datasets.Dataset.from_dict(rows)


@pytest.fixture
def finished_run(tmp_path):
    """The files of a run on pairs that the baseline reads."""

    def make(accuracy, is_informative=True):
        data, run = tmp_path / "pairs", tmp_path / "run"
        data.mkdir()
        for seed, (split, count) in enumerate((("train", 400), ("validation", 20), ("test", 300))):
            pairs(count, seed, is_informative).to_parquet(str(data / f"{split}.parquet"))
        corpus = load_corpus(data)
        train_tokenizer(corpus, "wordpiece", 400, rung="bert").save_pretrained(run)
        write_settings(run, {"dataset": str(data)})
        sizes = {split: len(rows) for split, rows in corpus.items()}
        scores = {"test": {"accuracy": accuracy}}
        write_results(run, {"task": "classification", "data": {"name": "pairs", "sizes": sizes}, "scores": scores})
        return run

    return make


def test_shared_words_predict_the_label_and_lengths_do_not(baseline, finished_run):
    found = baseline.compare(finished_run(0.9))["accuracies"]
    assert found["lengths and shared words"] > 0.97
    assert abs(found["lengths"] - 0.5) < 0.12  # 300 coins: wrong once in 30,000
    assert 0.5 <= found["majority class"] < 0.62 and found["run"] == 0.9


def test_random_labels_are_not_predicted(baseline, finished_run):
    found = baseline.compare(finished_run(0.9, is_informative=False))
    assert abs(found["accuracies"]["lengths and shared words"] - 0.5) < 0.12 and found["is_better"]


@pytest.mark.parametrize(("is_informative", "code"), [(False, 0), (True, 1)])
def test_the_exit_code_says_whether_the_run_is_better(baseline, finished_run, is_informative, code, capsys):
    assert baseline.main([str(finished_run(0.8, is_informative))]) == code
    assert ("NOT above" in capsys.readouterr().out) == bool(code)


def test_rare_words_weigh_more(baseline):
    features = baseline.PairFeatures([[1, 1, 1, 1, 2]], [[1, 1, 3]])
    assert (
        features.weight([1]) < features.weight([2]) == features.weight([4])
    )  # one not seen at all is as one seen once
    assert features.shared([[1, 2]], [[2, 1]])[0][1:] == [1, 1, 1]  # the same words, all of them
    assert features.shared([[]], [[1]]) == [[0, 0, 0, 0]]


def test_next_sentence_prediction(baseline, smoke):
    run = smoke("bert-pretrain")
    found = baseline.compare(run)
    assert found["accuracies"]["run"] == read_results(run)["scores"]["test"]["nsp_accuracy"]
    assert found["pairs"]["test"] > 10 and 0.5 <= found["accuracies"]["majority class"] < 1


@pytest.mark.parametrize(
    ("name", "sentence"), [("bert-finetune", "single texts"), ("gpt", "was trained for language_mod")]
)
def test_other_runs_raise_an_error(baseline, smoke, name, sentence, capsys):
    assert baseline.main([str(smoke(name))]) == 2
    assert sentence in capsys.readouterr().err
