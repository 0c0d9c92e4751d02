"""sentence-transformers and SetFit embed, score and train with our models as with BERT."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from tiny import CASES

from hf_edu_models.data import train_tokenizer

sentence_transformers = pytest.importorskip("sentence_transformers")
PAIRS = [("one two", "three"), ("four", "two two one")]
TEXTS = ["one two three", "four five six", "one one two", "five six six"]
READERS = ["feedforward", "recurrent", "gpt", "bert"]  # a decoder has nothing to read here


def save(name, folder, **settings):
    """A checkpoint with its tokenizer."""
    case = CASES[name]
    tokenizer = train_tokenizer(["one two three four five six"], "word", 29, rung=case.rung.name)
    model = case.build(vocab_size=29, **settings)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


@pytest.mark.parametrize("num_labels", [1, 3])
@pytest.mark.parametrize("rung", ["bert", "gpt", "recurrent"])
def test_cross_encoder(rung, num_labels, tmp_path):
    model, tokenizer = save(f"{rung}-ForSequenceClassification", tmp_path, num_labels=num_labels)
    found = sentence_transformers.CrossEncoder(str(tmp_path), device="cpu").predict(PAIRS)
    for pair, score in zip(PAIRS, found, strict=True):
        with torch.no_grad():
            logits = model(**tokenizer(*pair, return_tensors="pt")).logits[0]
        expected = logits.sigmoid()[0] if num_labels == 1 else logits
        np.testing.assert_allclose(score, expected.numpy(), atol=1e-5)


def training_arguments(kind, folder):
    options = {"max_steps": 5, "learning_rate": 0.01, "logging_steps": 1, "save_strategy": "no", "disable_tqdm": True}
    return kind(str(folder / "run"), use_cpu=True, report_to=[], **options)


def assert_learns(trainer):
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", READERS)
def test_sentence_embeddings_are_trained_saved_and_loaded(name, tmp_path):
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    save(name, tmp_path)
    model = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    arguments = training_arguments(sentence_transformers.SentenceTransformerTrainingArguments, tmp_path)
    rows = Dataset.from_dict({"anchor": TEXTS, "positive": TEXTS[2:] + TEXTS[:2]})
    loss = MultipleNegativesRankingLoss(model)
    assert_learns(sentence_transformers.SentenceTransformerTrainer(model, arguments, train_dataset=rows, loss=loss))
    expected = model.encode(TEXTS)
    model.save_pretrained(str(tmp_path / "saved"))
    loaded = sentence_transformers.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_array_equal(loaded.encode(TEXTS), expected)
    np.testing.assert_allclose(np.stack([loaded.encode(text) for text in TEXTS]), expected, atol=1e-5)


@pytest.mark.parametrize("rung", ["bert", "gpt", "recurrent"])
def test_a_cross_encoder_is_trained(rung, tmp_path):
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    save(f"{rung}-ForSequenceClassification", tmp_path, num_labels=1)
    model = sentence_transformers.CrossEncoder(str(tmp_path), device="cpu")
    rows = Dataset.from_dict({"first": TEXTS, "second": TEXTS, "label": [1.0, 0.0, 1.0, 0.0]})
    arguments = training_arguments(CrossEncoderTrainingArguments, tmp_path)
    assert_learns(CrossEncoderTrainer(model, arguments, train_dataset=rows, loss=BinaryCrossEntropyLoss(model)))
    model.save_pretrained(str(tmp_path / "saved"))
    loaded = sentence_transformers.CrossEncoder(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_array_equal(loaded.predict(PAIRS), model.predict(PAIRS))


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_setfit_learns_from_eight_texts(name, tmp_path):
    setfit = pytest.importorskip("setfit")
    save(name, tmp_path)
    model = setfit.SetFitModel.from_pretrained(str(tmp_path))
    rows = Dataset.from_dict({"text": TEXTS * 2, "label": [0, 1, 0, 1] * 2})
    arguments = setfit.TrainingArguments(output_dir=str(tmp_path / "run"), max_steps=5, report_to="none")
    setfit.Trainer(model=model, args=arguments, train_dataset=rows).train()
    assert model.predict(TEXTS).tolist() == [0, 1, 0, 1]
    model.save_pretrained(str(tmp_path / "saved"))
    loaded = setfit.SetFitModel.from_pretrained(str(tmp_path / "saved"))
    np.testing.assert_allclose(loaded.predict_proba(TEXTS), model.predict_proba(TEXTS), atol=1e-6)
