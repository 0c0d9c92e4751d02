"""Texts coloured by the attention of their classifier."""

import re

import pytest
from tiny import CASES

from hf_edu_models.data import train_tokenizer
from hf_edu_models.explain import text_weights, write_text_page
from hf_edu_models.prediction import DocumentClassifier, TextClassifier

TEXT = "A slow start. The ending is superb, though! <b>Bold</b>"
LABELS = {"id2label": {0: "bad", 1: "fair", 2: "good"}, "label2id": {"bad": 0, "fair": 1, "good": 2}}


def predictor_for(name, kind="word", **settings):
    tokenizer = train_tokenizer([TEXT] * 3, kind, 300, rung=CASES[name].rung.name)
    classifier = DocumentClassifier if "hierarchical" in name else TextClassifier
    model = CASES[name].build(vocab_size=len(tokenizer), **settings)
    model.config.id2label, model.config.label2id = LABELS["id2label"], LABELS["label2id"]
    return classifier(model, tokenizer)


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_the_weights_of_a_document_are_the_models(kind):
    predictor = predictor_for("hierarchical", kind)
    [found] = text_weights(predictor, TEXT)
    words, sentences = predictor.model(**predictor.collate([{"text": TEXT}]), output_attentions=True).attentions
    assert found.sentence_weights == pytest.approx(sentences[0].tolist())
    assert len(found.sentences) == 3 and sum(found.sentence_weights) == pytest.approx(1, abs=1e-5)
    # Special tokens are left out, so the words of a sentence have the rest.
    starts = words[0, :, 0].tolist()
    for start, sentence in zip(starts, found.sentences, strict=True):
        assert sum(weight for _, weight in sentence) == pytest.approx(1 - start, abs=1e-5)
    assert [word for word, _ in found.sentences[0]][:3] == ["A", "slow", "start."]
    assert max(max(row) for row in found.shades()) == 20


def test_each_label_has_its_own_colours():
    predictor = predictor_for("recurrent-ForSequenceClassification-label-attention")
    bad, good = text_weights(predictor, TEXT, ["bad", "good"])
    weights = predictor.model(**predictor.collate([{"text": TEXT}]), output_attentions=True).attentions[-1][0, :, 0]
    assert bad.sentence_weights is None
    for found, row in ((bad, weights[0]), (good, weights[2])):  # the words, not the special token before them
        assert found.sentences[0][0] == ("A", pytest.approx(row[1].item()))
        assert sum(weight for _, weight in found.sentences[0]) == pytest.approx(row[1:].sum().item())
    with pytest.raises(ValueError, match="has no label 'great'; it has bad, fair, good"):
        text_weights(predictor, TEXT, ["great"])


def test_a_model_that_does_not_pool_by_attention_is_rejected():
    with pytest.raises(ValueError, match="does not pool its tokens by attention; train the hierarchical recipe"):
        text_weights(predictor_for("recurrent-ForSequenceClassification"), TEXT)
    with pytest.raises(ValueError, match="the text is empty"):
        text_weights(predictor_for("hierarchical"), " ")


def test_the_page_escapes_the_text_and_asks_for_nothing(tmp_path):
    predictor = predictor_for("hierarchical")
    page = write_text_page(text_weights(predictor, TEXT, ["good"]), tmp_path / "page.html", "model").read_text()
    assert "<b>" not in page and "&lt;" in page
    assert "default-src 'none'" in page and "http" not in page.replace("http-equiv", "")
    shown = re.findall(r'class="w\d+" title="([\d.]+)"', page)
    assert len(shown) == sum(len(sentence) for sentence in text_weights(predictor, TEXT)[0].sentences)
