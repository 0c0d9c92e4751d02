"""Senses: contextual vectors tell them apart where a static one cannot."""

import numpy as np
import pytest
import torch
from attenders import ATTENDERS
from datasets import Dataset, DatasetDict
from sklearn.metrics import balanced_accuracy_score
from sklearn.neighbors import NearestCentroid
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli.explain import app
from hf_edu_models.data import train_tokenizer
from hf_edu_models.explain import draw_senses, in_contexts, score_pairs, senses_of
from hf_edu_models.explain.words.senses import (
    Occurrence,
    _best_threshold,
    _centroid_accuracy,
    occurrence_vectors,
    read_occurrences,
)


def rows_of(count, seed=0):
    """The word before the word tells its sense."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(count):
        sense = ("water", "money")[number % 2]
        before = "river" if sense == "water" else "rich"
        row = {"word": "bank", "sentence": f"{rng.choice(['a', 'the', 'one'])} {before} bank", "position": 2}
        rows.append(row | {"sense": f"bank_{sense}"})
    return rows


def pairs_of(count, seed=0):
    first, second = rows_of(count, seed), rows_of(count, seed + 1)
    np.random.default_rng(seed).shuffle(second)
    rows = []
    for one, other in zip(first, second, strict=True):
        row = {"word": "bank", "label": int(one["sense"] == other["sense"])}
        for side, each in ((1, one), (2, other)):
            start = each["sentence"].index("bank")
            row |= {f"sentence{side}": each["sentence"], f"start{side}": start, f"end{side}": start + 4}
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def model_and_tokenizer(tmp_path_factory):
    texts = [row["sentence"] for row in rows_of(60)]
    tokenizer = train_tokenizer(texts, kind="word", cache_dir=tmp_path_factory.mktemp("cache"))
    torch.manual_seed(0)
    sizes = {"embedding_size": 20, "hidden_size": 24, "initializer_range": 0.1}
    config = hf_edu_models.EduRecurrentConfig(vocab_size=len(tokenizer), **sizes)
    return hf_edu_models.EduRecurrentForCausalLM(config), tokenizer


def test_the_static_vector_cannot_tell_and_the_state_can(model_and_tokenizer):
    train, test = (read_occurrences(rows_of(60, seed), "bank")["bank"] for seed in (0, 1))
    scores = senses_of(*model_and_tokenizer, "bank", train, test)
    assert scores.accuracies["static word"] == scores.majority == 0.5
    assert scores.accuracies["static sentence"] > 0.95 and scores.accuracies["2"] > 0.95
    assert scores.accuracies["0"] == 0.5  # the LSTM's layer 0 is the embedding of the word
    figure = draw_senses(scores)
    counts = [sum(len(part.get_offsets()) for part in axis.collections) for axis in figure.axes]
    assert counts == [60, 60, 60]
    assert np.ptp(np.concatenate([part.get_offsets() for part in figure.axes[0].collections]), axis=0).max() == 0


def test_vectors_are_those_of_the_word_in_its_context(model_and_tokenizer):
    occurrences = read_occurrences(rows_of(7))["bank"]
    vectors = occurrence_vectors(*model_and_tokenizer, occurrences, batch_size=3)
    for layer in range(len(vectors.layers)):
        expected = in_contexts(*model_and_tokenizer, "bank", [each.sentence for each in occurrences], layer).vectors
        np.testing.assert_allclose(vectors.layers[layer], expected, rtol=1e-4, atol=1e-6)
    static = in_contexts(*model_and_tokenizer, "bank", [each.sentence for each in occurrences], "static").vectors
    np.testing.assert_allclose(vectors.static["word"], static, rtol=1e-5)


def test_the_centroids_are_scikit_learns():
    """On vectors of length one around zero, as many of each class, cosine and distance choose the same centroid."""
    rng = np.random.default_rng(0)
    angles = np.concatenate([rng.normal(0, 0.8, 40), rng.normal(np.pi, 0.8, 40)])
    vectors, labels = np.stack([np.cos(angles), np.sin(angles)], 1), np.repeat(["a", "b"], 40)
    vectors -= vectors.mean(axis=0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    new, truth = rng.normal(size=(30, 2)), rng.choice(["a", "b"], 30)
    lengths = vectors - vectors.mean(axis=0)
    lengths /= np.linalg.norm(lengths, axis=1, keepdims=True)
    fitted = NearestCentroid().fit(lengths, labels)
    fitted.centroids_ /= np.linalg.norm(fitted.centroids_, axis=1, keepdims=True)
    moved = new - vectors.mean(axis=0)
    predictions = fitted.predict(moved / np.linalg.norm(moved, axis=1, keepdims=True))
    expected = balanced_accuracy_score(truth, predictions)
    assert _centroid_accuracy(vectors, labels, new, truth) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(6))
def test_no_threshold_is_better(seed):
    rng = np.random.default_rng(seed)
    cosines, labels = rng.choice([-0.5, 0.0, 0.2, 0.4, 0.9], size=11), rng.integers(2, size=11)

    def accuracy(threshold):
        return ((cosines >= threshold) == labels).mean()

    assert accuracy(_best_threshold(cosines, labels)) == max(accuracy(each) for each in [*cosines, 2])


def test_pairs_are_told_by_a_threshold(model_and_tokenizer):
    scores = score_pairs(*model_and_tokenizer, pairs_of(60), pairs_of(31, seed=5))
    assert scores.accuracies["static word"] <= scores.majority < scores.accuracies["2"]
    assert scores.train_size == 60 and scores.test_size == 31


def test_a_word_behind_the_positions_is_left_out(built):
    model, tokenizer = built(next(each for each in ATTENDERS if each.name == "bert"))
    far = Occurrence("the cat " * 20 + "sat", (160, 163))
    near = Occurrence("sat the cat", (0, 3))
    assert occurrence_vectors(model, tokenizer, [far, near]).rows == [1]
    with pytest.raises(ValueError, match="behind the model's 90 positions"):
        occurrence_vectors(model, tokenizer, [far])


@pytest.mark.parametrize(
    "row, message",
    [
        ({"text": "a"}, "senses need word, sentence and sense"),
        ({"word": "a", "sentence": "b c", "sense": "x"}, "not in 'b c'; give a column position"),
        ({"word": "a", "sentence": "a", "sense": "x", "position": 4}, "outside of the 1 words"),
    ],
)
def test_wrong_rows_are_refused(row, message):
    with pytest.raises(ValueError, match=message):
        read_occurrences([row])


def test_one_sense_is_refused(model_and_tokenizer):
    same = [Occurrence("the river bank", (10, 14), "x")] * 3
    with pytest.raises(ValueError, match="has 1 sense"):
        senses_of(*model_and_tokenizer, "bank", same, same)


def test_the_command_draws_a_word_and_scores_pairs(model_and_tokenizer, tmp_path):
    for part in model_and_tokenizer:
        part.save_pretrained(tmp_path / "model")
    for name, make in (("senses", rows_of), ("pairs", pairs_of)):
        parts = {"train": make(20), "test": make(10, 1)}
        folder = DatasetDict({split: Dataset.from_list(rows) for split, rows in parts.items()})
        folder.save_to_disk(tmp_path / name)

    def run(*arguments):
        return CliRunner().invoke(app, ["senses", str(tmp_path / "model"), *arguments], env={"COLUMNS": "120"})

    drawn = run("bank", "--dataset", str(tmp_path / "senses"), "--out", str(tmp_path / "bank.png"))
    assert drawn.exit_code == 0 and "static sentence" in drawn.output, drawn.output
    assert (tmp_path / "bank.png").read_bytes().startswith(b"\x89PNG")
    assert "mean over the senses" in run("--dataset", str(tmp_path / "senses")).output
    assert "majority class" in run("--dataset", str(tmp_path / "pairs")).output
    for arguments, message in (
        (["bank"], "give --dataset"),
        (["cat", "--dataset", str(tmp_path / "senses")], "no sentence of 'cat'; it has bank"),
        (["bank", "--dataset", str(tmp_path / "pairs")], "leave out 'bank'"),
        (["--dataset", str(tmp_path / "senses"), "--out", "x.png"], "senses of one word"),
        (["bank", "--dataset", str(tmp_path / "senses"), "--out", "x.png", "--layer", "7"], "layer must be from"),
        (["bank", "--dataset", str(tmp_path / "senses"), "--layer", "1"], "give --out"),
        (["bank", "--dataset", str(tmp_path / "senses"), "--method", "lda"], "method must be one of pca, tsne"),
    ):
        refused = run(*arguments)
        assert isinstance(refused.exception, ValueError) and message in str(refused.exception)
