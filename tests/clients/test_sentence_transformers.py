"""sentence-transformers scores pairs with our classifiers as with BERT."""

import numpy as np
import pytest
import torch
from tiny import CASES

from hf_edu_models.data import train_tokenizer

sentence_transformers = pytest.importorskip("sentence_transformers")
PAIRS = [("one two", "three"), ("four", "two two one")]


@pytest.mark.parametrize("num_labels", [1, 3])
@pytest.mark.parametrize("rung", ["bert", "gpt", "recurrent"])
def test_cross_encoder(rung, num_labels, tmp_path):
    case = CASES[f"{rung}-ForSequenceClassification"]
    tokenizer = train_tokenizer(["one two three four"], "word", 29, rung=rung)
    model = case.build(num_labels=num_labels, vocab_size=29)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    found = sentence_transformers.CrossEncoder(str(tmp_path), device="cpu").predict(PAIRS)
    for pair, score in zip(PAIRS, found, strict=True):
        with torch.no_grad():
            logits = model(**tokenizer(*pair, return_tensors="pt")).logits[0]
        expected = logits.sigmoid()[0] if num_labels == 1 else logits
        np.testing.assert_allclose(score, expected.numpy(), atol=1e-5)
