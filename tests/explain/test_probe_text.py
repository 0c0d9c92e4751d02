"""Texts are classified by frozen vectors as scikit-learn does it with those that `encode` saves."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli import app
from hf_edu_models.data import train_tokenizer
from hf_edu_models.explain import probe_texts


def rows_of(count, seed=0):
    """A text with one of two words decides its label."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(count):
        words = list(rng.choice(["the", "film", "was", "a"], size=4))
        words.insert(int(rng.integers(5)), ("bad", "good")[number % 2])
        rows.append({"text": " ".join(words), "label": number % 2})
    return rows


CORPUS = {"train": rows_of(60), "test": rows_of(31, seed=1)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer([row["text"] for row in CORPUS["train"]], kind="word", rung="bert", cache_dir=folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
    config = hf_edu_models.EduBertConfig.for_tokenizer(tokenizer, **sizes, max_position_embeddings=20)
    hf_edu_models.EduBertModel(config).save_pretrained(folder / "run")
    tokenizer.save_pretrained(folder / "run")
    return folder


def test_the_scores_are_those_of_saved_vectors(folder):
    vectors, labels = {}, {}
    for split, rows in CORPUS.items():
        (folder / f"{split}.txt").write_text("".join(row["text"] + "\n" for row in rows))
        saved = folder / f"{split}.npy"
        arguments = ["encode", folder / "run", "--file", folder / f"{split}.txt", "--out", saved, "--layer", "-2"]
        done = CliRunner().invoke(app, [str(each) for each in arguments])
        assert done.exit_code == 0, done.output
        vectors[split], labels[split] = np.load(saved), [row["label"] for row in rows]
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))
    expected = classifier.fit(vectors["train"], labels["train"]).score(vectors["test"], labels["test"])
    found = probe_texts(*hf_edu_models.checkpoints.load_model(folder / "run"), CORPUS, layers=[-2, -1])
    assert [each.layer for each in found.layers] == [-2, -1] and found.layers[0].accuracy == pytest.approx(expected)
    assert found.tfidf.accuracy == 1 and found.majority == 16 / 31
    assert found.train_texts == 60 and found.test_texts == 31 and found.truncated == 0


@pytest.mark.parametrize(
    "corpus, message",
    [
        ({"train": rows_of(4)}, "train split and a test"),
        ({"train": rows_of(1), "test": rows_of(4)}, "the same label"),
        ({"train": [{"text": "a"}], "test": rows_of(4)}, "'text' and 'label', got text"),
        ({"train": [row | {"text_pair": "b"} for row in rows_of(4)], "test": rows_of(4)}, "reads one text"),
        ({"train": [{"text": "a", "label": 0.5}], "test": rows_of(4)}, "one class for each text"),
    ],
)
def test_wrong_data_is_refused(folder, corpus, message):
    with pytest.raises(ValueError, match=message):
        probe_texts(*hf_edu_models.checkpoints.load_model(folder / "run"), corpus)


def test_the_command_prints_layers_and_word_counts(folder):
    for split, rows in CORPUS.items():
        lines = "".join(f"{row['text']},{row['label']}\n" for row in rows)
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / f"{split}.csv").write_text(f"text,label\n{lines}")
    arguments = ["probe-text", str(folder / "run"), "--dataset", str(folder / "data"), "--layer", "0", "--layer", "-1"]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "100"})
    assert done.exit_code == 0, done.output
    assert all(text in done.output for text in ("layer 0, mean", "layer -1, mean", "tf-idf", "majority class: 51.6"))
