"""The bag-of-words baseline learns which words go with a label, and reports whether a run is better."""

import importlib
import random
from pathlib import Path

import datasets
import pytest

from hf_edu_models.data import load_corpus, train_tokenizer
from hf_edu_models.run_folder import write_results, write_settings

BENCHMARKS = Path(__file__).parents[2] / "recipes" / "benchmarks"
WORDS = [f"w{number}" for number in range(60)]


@pytest.fixture
def baseline(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("bag_of_words_baseline")


def single_texts(rng):
    """The order of two words decides: bigrams know it, single words do not."""
    label = rng.randrange(2)
    words = rng.sample(WORDS, 8)
    words[3:5] = ("yes", "no") if label else ("no", "yes")
    return {"text": " ".join(words), "label": label}


def label_sets(rng):
    labels = [number for number in range(3) if rng.random() < 0.5]
    return {"text": " ".join([*rng.sample(WORDS, 4), *(f"topic{number}" for number in labels)]), "label": labels}


def numbers(rng):
    count = rng.randrange(6)
    return {
        "text": " ".join([*rng.sample(WORDS, 4), *["good"] * (count > 2)]),
        "text_pair": "a b",
        "label": float(count),
    }


def pairs(rng):
    """The label is whether half of the words are the same, which single words do not tell."""
    label = rng.randrange(2)
    first, second = rng.sample(WORDS, 8), rng.sample(WORDS, 8)
    second[:4] = first[4:] if label else second[:4]
    return {"text": " ".join(first), "text_pair": " ".join(second), "label": label}


KINDS = {single_texts: "accuracy", label_sets: "f1_macro", numbers: "spearman", pairs: "accuracy"}


@pytest.fixture
def finished_run(tmp_path):
    """The files of a run that the baseline reads."""

    def make(row, score=0.9):
        data, run = tmp_path / "data", tmp_path / "run"
        data.mkdir()
        for seed, (split, count) in enumerate((("train", 300), ("validation", 20), ("test", 200))):
            rng = random.Random(seed)
            rows = datasets.Dataset.from_list([row(rng) for _ in range(count)])
            if row is label_sets:
                names = datasets.ClassLabel(names=["x", "y", "z"])
                rows = rows.cast_column("label", datasets.Sequence(names))
            rows.to_parquet(str(data / f"{split}.parquet"))
        corpus = load_corpus(data)
        train_tokenizer(corpus, "word", 400, rung="bert").save_pretrained(run)
        write_settings(run, {"dataset": str(data)})
        facts = {"task": "classification", "main_score": KINDS[row], "scores": {"test": {KINDS[row]: score}}}
        write_results(
            run, facts | {"data": {"name": "data", "sizes": {name: len(part) for name, part in corpus.items()}}}
        )
        return run

    return make


@pytest.mark.parametrize("row", KINDS)
def test_words_are_above_the_majority(row, baseline, finished_run):
    found = baseline.compare(finished_run(row))
    scores, name = found["scores"], "and shared words" if row is pairs else "words and bigrams"
    assert scores[name] > {numbers: 0.7}.get(row, 0.95) and scores["majority"] < 0.7
    assert found["score"] == KINDS[row] and found["rows"] == {"train": 300, "test": 200}
    if row is pairs:
        assert scores["words and bigrams"] < 0.65


@pytest.mark.parametrize(("score", "code"), [(1.01, 0), (0.6, 1)])
def test_the_exit_code_says_whether_the_run_is_above(score, code, baseline, finished_run, capsys):
    assert baseline.main([str(finished_run(single_texts, score))]) == code
    assert ("NOT above" in capsys.readouterr().out) == bool(code)


def test_the_bar_of_a_preset_needs_no_run(baseline, finished_run, tmp_path, capsys):
    finished_run(single_texts)
    assert baseline.main(["sst2", "--dataset", str(tmp_path / "data")]) == 0
    assert "accuracy on 200 rows of test; trained on" in capsys.readouterr().out


def test_what_cannot_be_compared_is_one_sentence(baseline, finished_run, capsys):
    assert (
        baseline.main(["sst3"]) == 2 and "sst3 is neither the folder of a run nor a preset" in capsys.readouterr().err
    )
    run = finished_run(single_texts)
    write_results(run, {"task": "translation", "scores": {}})
    assert baseline.main([str(run)]) == 2 and "was trained for translation" in capsys.readouterr().err
