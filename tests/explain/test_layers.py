"""The weights of the layers in a task, and one word in many contexts of ELMo."""

import pytest
import torch
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli import app
from hf_edu_models.data import spellings, train_tokenizer
from hf_edu_models.explain import in_contexts, layer_weights, nearest

SENTENCES = ["the bank of the river", "the bank has money"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return train_tokenizer(SENTENCES, "word", 60, rung="elmo", cache_dir=tmp_path_factory.mktemp("cache"))


def build(head, tokenizer, **settings):
    torch.manual_seed(0)
    config = hf_edu_models.EduElmoConfig.for_tokenizer(tokenizer, hidden_size=6, cell_size=8, **settings)
    return getattr(hf_edu_models, f"EduElmo{head}")(config).eval()


def test_weights_of_an_elmo_tagger(tokenizer, tmp_path):
    model = build("ForTokenClassification", tokenizer)
    with torch.no_grad():
        model.layer_mix.scores.copy_(torch.tensor([1.0, 2.0, 5.0]).log())
    assert layer_weights(model)["elmo"] == pytest.approx({"token vectors": 1 / 8, "layer 1": 2 / 8, "layer 2": 5 / 8})
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "run")
    done = CliRunner().invoke(app, ["explain", "layers", str(tmp_path / "run"), "--out", str(tmp_path / "x.png")])
    assert done.exit_code == 0 and "12.5%" in done.output and "62.5%" in done.output
    assert (tmp_path / "x.png").stat().st_size > 1_000


def test_a_model_without_weights_of_layers(tokenizer):
    with pytest.raises(ValueError, match="EduElmoForSequenceClassification learns no weights of layers; give an ELMo"):
        layer_weights(build("ForSequenceClassification", tokenizer, layer_mix="last"))


@pytest.mark.parametrize("kind", ["embedding", "characters"])
def test_one_word_in_many_contexts(kind, tokenizer):
    """The token vectors are the same in every sentence, the states are not."""
    model = build("Model", tokenizer, token_encoder=kind, char_filters=[[1, 4], [2, 5]], max_characters=9)
    if kind == "characters":
        model.embed_tokens.spell_vocabulary(spellings(tokenizer))
    for layer, is_same in (("static", True), (0, True), (1, False), (-1, False)):
        similarities = in_contexts(model, tokenizer, "bank", SENTENCES, layer=layer).similarities
        assert (similarities[0, 1] > 0.999999) == is_same
    assert len(nearest(model, tokenizer, "bank", 3).neighbours) == 3
