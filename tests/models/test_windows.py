"""Texts that are longer than the positions: windows that overlap, whose vectors are pooled."""

import numpy as np
import pytest
import torch

from hf_edu_models import EduBertConfig, EduBertForSequenceClassification
from hf_edu_models.data import collator_for, train_tokenizer
from hf_edu_models.data.row_encoders import encode_classification
from hf_edu_models.prediction import TextClassifier

SIZES = {"vocab_size": 31, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
TEXTS = ["one two three four five six seven eight nine ten", "one two", "ten nine eight seven six five four three"]


def model_of(pooling="mean", **settings):
    torch.manual_seed(0)
    sizes = SIZES | {"max_position_embeddings": 9, "window_pooling": pooling, "num_labels": 3} | settings
    return EduBertForSequenceClassification(EduBertConfig(**sizes, initializer_range=0.5)).eval()


def batch_of(*window_lengths, windows=None, length=7):
    """Token ids (B, W, T) and their mask, for texts whose windows have these lengths."""
    torch.manual_seed(1)
    windows = windows or max(map(len, window_lengths))
    mask = torch.zeros(len(window_lengths), windows, length, dtype=torch.long)
    for row, lengths in enumerate(window_lengths):
        for window, size in enumerate(lengths):
            mask[row, window, :size] = 1
    return {"input_ids": torch.randint(4, 31, mask.shape) * mask, "attention_mask": mask}


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_text_of_one_window_has_the_same_logits_to_the_bit(pooling):
    batch = batch_of([7], [4], [2])
    model = model_of(pooling)
    expected = model(**{name: each[:, 0] for name, each in batch.items()}).logits
    assert torch.equal(model(**batch).logits, expected)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_padding_windows_change_nothing(pooling):
    short, model = batch_of([7, 3], [5], [6, 2]), model_of(pooling)
    expected = model(**short, labels=torch.tensor([0, 2, 1]))
    padded = {name: torch.nn.functional.pad(each, (0, 0, 0, 3)) for name, each in short.items()}
    found = model(**padded, labels=torch.tensor([0, 2, 1]))
    assert torch.equal(found.logits, expected.logits) and torch.equal(found.loss, expected.loss)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_the_vectors_of_windows_read_one_by_one_are_pooled(pooling):
    batch, model = batch_of([7, 3, 5], [5]), model_of(pooling)
    pooled = []
    for ids, mask in zip(*batch.values(), strict=True):
        states = torch.cat(
            [model.model(ids[None, n], mask[None, n]).pooler_output for n in range(len(ids)) if mask[n].any()]
        )
        pooled.append(states.mean(0) if pooling == "mean" else states.max(0).values)
    torch.testing.assert_close(model(**batch).logits, model.classifier(torch.stack(pooled)))


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_the_compiled_form_reads_all_windows_and_agrees(pooling, monkeypatch):
    batch, model = batch_of([7, 3], [5]), model_of(pooling)
    expected = model(**batch).logits
    exported = torch.export.export(model, (), batch, strict=False).module()
    torch.testing.assert_close(exported(**batch).logits, expected)


def test_every_real_window_has_a_gradient_and_no_padding_window():
    batch, model = batch_of([7, 3], [5]), model_of()
    embeds = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
    model(inputs_embeds=embeds, attention_mask=batch["attention_mask"]).logits.sum().backward()
    reached = embeds.grad.abs().sum(dim=(-1, -2)) > 0
    assert torch.equal(reached, batch["attention_mask"].bool().any(-1))


def test_wrong_shapes_and_settings_are_one_sentence():
    batch = batch_of([7, 3])
    with pytest.raises(ValueError, match=r"same \(batch, windows, length\)"):
        model_of()(batch["input_ids"], batch["attention_mask"][:, :1])
    for wrong in ({"window_stride": 9}, {"window_stride": -1}, {"window_pooling": "last"}):
        with pytest.raises(Exception, match=next(iter(wrong))):
            EduBertConfig(**SIZES, max_position_embeddings=9, **wrong)
    with pytest.raises(ValueError, match="head_diversity_weight is for texts of one window"):
        model_of(head_diversity_weight=0.1).train()(**batch)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, "wordpiece", 60, rung="bert")


@pytest.mark.parametrize("pairs", [None, ["which number ?", "two", "one two three"]])
@pytest.mark.parametrize("stride", [0, 3])
def test_windows_have_every_token_and_share_as_many_as_the_stride(pairs, stride, tokenizer):
    texts = [" ".join([text] * 8) for text in TEXTS]
    batch = {"text": texts} | ({"text_pair": pairs} if pairs else {})
    rows = encode_classification(batch, tokenizer, 14, window_stride=stride)["input_ids"]
    for number, windows in enumerate(rows):
        ids = tokenizer(texts[number], add_special_tokens=False)["input_ids"]
        first = [window[1 : window.index(tokenizer.sep_token_id)] for window in windows]
        assert len(windows) > 1 and all(len(window) <= 14 for window in windows)
        joined = first[0] + [token for window in first[1:] for token in window[stride:]]
        assert joined == ids
        if pairs:
            ends = {tuple(window[window.index(tokenizer.sep_token_id) :]) for window in windows}
            assert len(ends) == 1  # the second text is in all windows


def test_short_texts_are_encoded_as_without_windows(tokenizer):
    batch = {"text": TEXTS, "text_pair": TEXTS[::-1], "label": [0, 1, 0]}
    plain = encode_classification(batch, tokenizer, 64)
    windows = encode_classification(batch, tokenizer, 64, window_stride=8)
    assert windows.pop("labels") == plain.pop("labels")
    assert {name: [row[0] for row in rows] for name, rows in windows.items()} == plain
    collate = collator_for("classification", tokenizer)
    rows, lists = (
        [dict(zip(each, row, strict=True)) for row in zip(*each.values(), strict=True)] for each in (plain, windows)
    )
    one, many = collate(rows), collate(lists)
    assert one.keys() == many.keys() and all(torch.equal(one[name], many[name][:, 0]) for name in one)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"max_length": None, "window_stride": 3}, "needs max_length"),
        ({"max_length": 10, "window_stride": 8}, "use a smaller one"),
        ({"max_length": 10, "window_stride": -1}, "use a smaller one"),
    ],
)
def test_a_stride_without_room_is_an_error(arguments, sentence, tokenizer):
    with pytest.raises(ValueError, match=sentence):
        encode_classification({"text": TEXTS}, tokenizer, **arguments)


def test_predictions_read_the_whole_text(tokenizer):
    """What comes after the positions changes the prediction, and only where the configuration has windows."""
    names = {"vocab_size": len(tokenizer), "num_labels": 2, "id2label": {0: "a", 1: "b"}, "max_position_embeddings": 8}
    long = "one two three four five six seven eight nine ten ten ten"
    for stride in (None, 2):
        predict = TextClassifier(model_of(**names, window_stride=stride), tokenizer)
        cut, whole, *_ = predict([{"text": long}, {"text": f"{long} nine"}, {"text": "one two"}])
        assert (cut == whole) == (stride is None) and (predict.num_truncated > 0) == (stride is None)
        alone = predict([{"text": long}])[0]["probabilities"]["a"]
        np.testing.assert_allclose(alone, cut["probabilities"]["a"], atol=1e-4)
