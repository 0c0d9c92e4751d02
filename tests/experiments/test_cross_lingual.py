"""A task learnt in one language, tested in another: which rows a body reads, labels, and the command."""

import csv
import json
import random

import pytest
from typer.testing import CliRunner

from hf_edu_models.cli import app
from hf_edu_models.data import load_corpus, train_tokenizer
from hf_edu_models.experiments.cross_lingual import cross_lingual_variants, pretraining_rows, subject_of

WORDS = {"man": "mann", "woman": "frau", "dog": "hund", "girl": "mädchen", "runs": "rennt", "sits": "sitzt", "a": "ein"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    draw, place = random.Random(0), tmp_path_factory.mktemp("pairs")
    for split, size in (("train", 60), ("validation", 5), ("test", 20)):
        rows = [["a", draw.choice(["man", "woman", "dog", "girl"]), draw.choice(["runs", "sits"])] for _ in range(size)]
        pairs = [{"en": " ".join(row), "de": " ".join(WORDS[word] for word in row)} for row in rows]
        (place / f"{split}.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), "utf-8")
    return str(place)


def test_the_subject_is_the_first_of_the_words():
    assert subject_of("A Woman and her dog") == 1 and subject_of("Two dogs chase a man.") == 3
    assert subject_of("A boy") == subject_of("children") == 2 and subject_of("A cat on a manhole") is None


def test_each_body_reads_what_its_name_says(folder):
    corpus = load_corpus(folder, task="translation", source="en", target="de")
    tokenizer = train_tokenizer(corpus, "wordpiece", 100, lowercase=True, rung="bert")
    texts = {
        languages: [
            tokenizer.decode(row["input_ids"]) for row in pretraining_rows(corpus["train"], tokenizer, languages, 32)
        ]
        for languages in ("first", "both", "pairs")
    }
    assert {name: len(rows) for name, rows in texts.items()} == {"first": 60, "both": 120, "pairs": 60}
    assert not any("ein" in text for text in texts["first"])
    assert sum("ein" in text for text in texts["both"]) == 60
    first, second = texts["pairs"][:2]
    assert first.startswith("[CLS] ein") and second.startswith("[CLS] a") and "ein" in second  # each language is first
    assert all(text.count("[SEP]") == 2 for text in texts["pairs"])


def test_the_variants_differ_in_what_they_read_alone():
    for quick in (True, False):
        settings = [variant.settings for variant in cross_lingual_variants(quick, dataset="x", steps=None)]
        changed = {name for name in settings[0] if len({json.dumps(each[name]) for each in settings}) > 1}
        assert changed == {"languages"} and settings[0]["dataset"] == "x" and settings[0]["steps"]


def test_the_command_trains_scores_and_draws(folder, tmp_path):
    command = ["figure", "cross-lingual", "--dataset", folder, "--quick", "--folder", str(tmp_path)]
    run = CliRunner().invoke(app, command)
    assert run.exit_code == 0, run.output + str(run.exception)
    with open(tmp_path / "cross-lingual.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows] == ["en alone", "both", "both, in pairs"]
    assert all(0 <= float(row[language]) <= 100 for row in rows for language in ("en", "de"))
    assert (tmp_path / "cross-lingual.png").stat().st_size > 1000
