"""Tasks by layer: what a word tells is in the embeddings, what its neighbour tells is above them."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from sklearn.metrics import f1_score
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli.explain import app
from hf_edu_models.data import train_tokenizer
from hf_edu_models.explain import TaskLayers, draw_tasks, probe_tasks, senses_as_tags
from hf_edu_models.explain.probes.tasks import _score

WORDS = [f"{letter}{number}" for letter in "ab" for number in range(4)]


def rows_of(count, label, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        tokens = [str(word) for word in rng.choice(WORDS, size=6)]
        rows.append({"tokens": tokens, "tags": [label(tokens, place) for place in range(6)]})
    return rows


def own_letter(tokens, place):
    return tokens[place][0]


def letter_before(tokens, place):
    return tokens[place - 1][0] if place else None


@pytest.fixture(scope="module")
def model_and_tokenizer(tmp_path_factory):
    texts = [" ".join(row["tokens"]) for row in rows_of(40, own_letter)]
    tokenizer = train_tokenizer(texts, kind="word", cache_dir=tmp_path_factory.mktemp("cache"))
    torch.manual_seed(0)
    sizes = {"embedding_size": 16, "hidden_size": 24, "num_hidden_layers": 2, "initializer_range": 0.1}
    config = hf_edu_models.EduRecurrentConfig(vocab_size=len(tokenizer), **sizes)
    return hf_edu_models.EduRecurrentForCausalLM(config), tokenizer


@pytest.fixture(scope="module")
def found(model_and_tokenizer):
    tasks = {"own": rows_of(120, own_letter), "before": rows_of(120, letter_before)}
    return probe_tasks(*model_and_tokenizer, tasks, train_size=90, test_size=30)


def test_the_neighbours_letter_is_in_a_higher_layer(found):
    own, before = found
    assert own.scores[0] > 0.98 and own.baseline > 0.98
    assert before.scores[0] < 0.6 < 0.7 < before.scores[-1] and before.expected_layer > 0.7
    assert before.center_of_gravity > own.center_of_gravity
    assert before.train_words == 90 * 5 and own.train_words == 90 * 6


def test_the_means_by_hand():
    task = TaskLayers("x", [0.5, 0.8, 0.7], [0.2, 0.3, 0.5], 0.4, "accuracy", 1, 1)
    assert task.gains == pytest.approx([0.3, -0.1])
    assert task.expected_layer == pytest.approx((1 * 0.3 + 2 * -0.1) / 0.2)
    assert task.center_of_gravity == pytest.approx(0.3 + 2 * 0.5)
    flat = TaskLayers("x", [0.5, 0.5], [0.5, 0.5], 0.4, "accuracy", 1, 1)
    assert np.isnan(flat.expected_layer)


def test_words_outside_do_not_count_as_right():
    labels, predictions = np.array([0, 0, 1, 2, 2, 0]), np.array([0, 1, 1, 2, 0, 0])
    assert _score(labels, predictions, 0) == f1_score(labels, predictions, labels=[1, 2], average="micro")
    assert _score(labels, predictions, None) == pytest.approx(4 / 6)


def test_the_sense_of_one_word_is_a_tag():
    (row,) = senses_as_tags([{"sentence": "a river bank .", "position": 2, "sense": "water"}])
    assert row == {"tokens": ["a", "river", "bank", "."], "tags": [None, None, "water", None]}


def test_the_picture_shows_weights_and_gains(found):
    figure = draw_tasks(found)
    for axis, task in zip(figure.axes, found, strict=True):
        heights = [bar.get_height() for bar in axis.patches]
        assert heights[:3] == pytest.approx(task.weights)
        assert np.array(heights[4:]) * np.abs(task.gains).sum() == pytest.approx(np.array(task.gains))


def test_the_command_compares_datasets(model_and_tokenizer, tmp_path):
    for part in model_and_tokenizer:
        part.save_pretrained(tmp_path / "model")
    rows = rows_of(40, own_letter)
    words = [row | {"chunk_tags": ["B-x" if place % 2 else "O" for place in range(6)]} for row in rows]
    senses = [
        {"word": "a1", "sentence": " ".join(row["tokens"]), "position": 1, "sense": row["tags"][0]} for row in rows
    ]
    for name, part in (("words", words), ("senses", senses)):
        whole = Dataset.from_list(part)
        DatasetDict(train=whole.select(range(30)), test=whole.select(range(30, 40))).save_to_disk(tmp_path / name)
    both = [f"{tmp_path}/words:tags", f"{tmp_path}/words:chunk_tags", f"{tmp_path}/senses"]
    arguments = ["probe", str(tmp_path / "model"), *(part for name in both for part in ("--dataset", name))]
    for name in ("x.json", "x.png"):
        done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / name)], env={"COLUMNS": "150"})
        assert done.exit_code == 0 and "center of gravity" in done.output, done.output
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    saved = json.loads((tmp_path / "x.json").read_text())
    assert [task["name"] for task in saved] == ["words, tags", "words, chunk_tags", "senses"]
    assert [task["metric"] for task in saved] == ["accuracy", "F1", "accuracy"]
    wrong = CliRunner().invoke(app, [*arguments, "--layer", "1"])
    assert isinstance(wrong.exception, ValueError) and "leave out --layer" in str(wrong.exception)


def test_one_label_is_refused(model_and_tokenizer):
    with pytest.raises(ValueError, match="same: a probe needs two different labels"):
        probe_tasks(*model_and_tokenizer, {"same": rows_of(9, lambda tokens, place: "x")})
