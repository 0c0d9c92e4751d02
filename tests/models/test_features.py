"""Features of frozen models: read in the right place, by whatever tokenizer, and part of the checkpoint."""

import json
import shutil

import pytest
import torch
import transformers
from tiny import TINY
from torch.testing import assert_close

import hf_edu_models
from hf_edu_models.checkpoints import check_complete, load_as, load_tokenizer, read_checkpoint
from hf_edu_models.data import train_tokenizer
from hf_edu_models.training import features_for

TEXTS = ["the red dog ran home", "a dog ran", "unseen words"]
BODIES = {"elmo": "ForPreTraining", "gpt": "ForCausalLM", "bert": "ForMaskedLM", "recurrent": "ForCausalLM"}


def build(name, suffix, tokenizer, seed=1, **settings):
    rung = next(rung for rung in hf_edu_models.LADDER if rung.name == name)
    torch.manual_seed(seed)
    head = getattr(hf_edu_models, f"{rung.prefix}{suffix}")
    return head(rung.config.for_tokenizer(tokenizer, **{**TINY[name], "vocab_size": len(tokenizer)} | settings)).eval()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A saved model of every kind with a tokenizer of words, and of characters; ours reads subwords."""
    folder, cache = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("cache")

    def save(name, rung, suffix, kind):
        tokenizer = train_tokenizer(TEXTS[:2], kind, 60, rung=rung, cache_dir=cache)
        settings = {"dropout": 0.5, "num_hidden_layers": 2} if rung in BODIES else {"dropout": 0.5}
        for part in (build(rung, suffix, tokenizer, **settings), tokenizer):
            part.save_pretrained(folder / name)

    for rung, suffix in BODIES.items():
        save(rung, rung, suffix, "wordpiece")
    save("words", "word_vectors", "ForSkipGram", "wordpiece")
    save("cove", "bahdanau", "ForConditionalGeneration", "wordpiece")
    save("flair", "recurrent", "ForCausalLM", "char")
    save("flair-both", "elmo", "ForPreTraining", "char")
    return folder


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return train_tokenizer(TEXTS, "wordpiece", 70, rung="recurrent", cache_dir=tmp_path_factory.mktemp("cache"))


def tagger(features, tokenizer, suffix="ForTokenClassification", **settings):
    return features.fill(build("recurrent", suffix, tokenizer, bidirectional=True, **features.settings | settings))


def states_of(folder, ids):
    """Hidden states of all layers of a saved model without its head, for one row of its own token ids."""
    body = load_as(transformers.AutoModel, str(folder))
    body = body.get_encoder() if body.config.is_encoder_decoder else body
    with torch.no_grad():
        outputs = body(torch.tensor([ids]), output_hidden_states=True)
    return outputs


@pytest.mark.parametrize("name", ["elmo", "gpt", "bert", "cove", "words"])
def test_a_known_token_has_the_states_of_its_own_place(name, runs, tokenizer):
    theirs = load_tokenizer(str(runs / name))
    model = tagger(features_for(str(runs / name), tokenizer), tokenizer, feature_mix="last")
    text = "the red dog ran"
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    own = theirs(text)["input_ids"]
    start = own.index(theirs("the", add_special_tokens=False)["input_ids"][0])
    expected = states_of(runs / name, own).last_hidden_state[:, start:]
    found = model.model.features[0](ids, None)[:, 1:]  # behind our <s>
    split = theirs("the red dog ran", add_special_tokens=False)["input_ids"]
    assert len(split) == found.shape[1], "each word is one token of both"
    assert_close(found, expected[:, : found.shape[1]])


def test_a_character_model_is_read_where_the_word_ends(runs, tokenizer):
    """Flair: forwards behind the last character, backwards from the first."""
    theirs = load_tokenizer(str(runs / "flair"))
    ids = tokenizer("red dog", return_tensors="pt")["input_ids"]
    characters = theirs(" red dog")["input_ids"]  # <s>, then one for each character
    assert len(characters) == 9
    features = features_for(f"{runs / 'flair'},{runs / 'flair-both'}", tokenizer)
    forwards, both = tagger(features, tokenizer, feature_mix="last").model.features
    expected = states_of(runs / "flair", characters).last_hidden_state[0]
    assert_close(forwards(ids, None)[0, -1], expected[-1])
    assert_close(forwards(ids, None)[0, 1], expected[4])
    ahead, behind = states_of(runs / "flair-both", characters).last_hidden_state[0].chunk(2, dim=-1)
    assert_close(both(ids, None)[0, -1], torch.cat([ahead[-1], behind[5]]))


@pytest.mark.parametrize(
    "mix, expected",
    [
        ("scalar", lambda layers: torch.stack(layers).mean(0)),
        ("sum2", lambda layers: layers[1] + layers[2]),
        ("concat2", lambda layers: torch.cat(layers[1:], dim=-1)),
    ],
)
@pytest.mark.parametrize("name", ["elmo", "bert"])
def test_layers_are_mixed_alike(name, mix, expected, runs, tokenizer):
    model = tagger(features_for(str(runs / name), tokenizer), tokenizer, feature_mix=mix)
    theirs = load_tokenizer(str(runs / name))
    ids = tokenizer("the red dog", return_tensors="pt")["input_ids"]
    layers = states_of(runs / name, theirs("the red dog")["input_ids"]).hidden_states
    assert_close(model.model.features[0](ids, None)[:, 1:], expected(layers)[:, 1:4])


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(side, runs, tokenizer):
    names = ("elmo", "gpt", "bert", "cove", "flair-both")
    model = tagger(features_for(",".join(str(runs / name) for name in names), tokenizer), tokenizer)
    tokenizer.padding_side = side
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    together = model(**batch).logits
    for row, text in enumerate(TEXTS):
        alone = model(**tokenizer(text, return_tensors="pt")).logits[0]
        assert_close(together[row][batch["attention_mask"][row].bool()], alone)


def test_the_features_are_frozen_and_the_mix_is_learnt(runs, tokenizer):
    model = tagger(features_for(str(runs / "elmo"), tokenizer), tokenizer, dropout=0.0).train()
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    labels = batch["input_ids"] % 2
    first, again = (model(**batch, labels=labels).loss for _ in range(2))
    assert torch.equal(first, again), "the dropout of the frozen model is off"
    first.backward()
    without = {name for name, weight in model.named_parameters() if weight.grad is None}
    assert without == {name for name, _ in model.named_parameters() if ".body." in name}
    assert model.model.features[0].layer_mix.scores.grad.any()


@pytest.mark.parametrize("suffix", ["ForTokenClassification", "ForSequenceClassification"])
def test_the_checkpoint_needs_no_other_run(suffix, runs, tokenizer, tmp_path):
    copies = shutil.copytree(runs, tmp_path / "copies")
    names = ("elmo", "bert", "cove", "flair")
    features = features_for(",".join(str(copies / name) for name in names), tokenizer)
    model = tagger(features, tokenizer, suffix, feature_mix="sum1")
    shutil.rmtree(copies)
    model.save_pretrained(tmp_path / "run")
    tokenizer.save_pretrained(tmp_path / "run")
    loaded = type(model).from_pretrained(tmp_path / "run").eval()
    assert loaded.config.to_dict() == model.config.to_dict() | {"_name_or_path": loaded.config._name_or_path}
    batch = tokenizer(TEXTS[:1], return_tensors="pt")
    assert_close(loaded(**batch).logits, model(**batch).logits)
    check_complete(read_checkpoint(tmp_path / "run"))  # the code of the frozen models, too
    assert (tmp_path / "run" / "modeling_bahdanau.py").is_file()
    assert str(copies) not in json.dumps(loaded.config.to_dict())


def test_a_text_longer_than_the_positions_has_no_features_at_its_end(runs, tokenizer):
    model = tagger(features_for(str(runs / "bert"), tokenizer), tokenizer, feature_mix="last")
    ids = tokenizer("the dog " * 30, return_tensors="pt")["input_ids"]
    found = model.model.features[0](ids, None)[0].abs().sum(dim=-1)
    assert found[1:40].all() and not found[40:].any()  # [CLS] has the first of the 40 positions


def test_new_tokens_and_special_tokens(runs, tokenizer):
    model = tagger(features_for(str(runs / "elmo"), tokenizer), tokenizer)
    model.resize_token_embeddings(len(tokenizer) + 3)
    ids = torch.tensor([[len(tokenizer) + 2, 2, 3]])  # nothing that the other tokenizer could write
    assert model(ids).logits.isfinite().all()


def test_wrong_use_of_features(runs, tokenizer):
    features = features_for(str(runs / "elmo"), tokenizer)
    with pytest.raises(ValueError, match="features may have read what a language model predicts"):
        build("recurrent", "ForCausalLM", tokenizer, **features.settings)
    with pytest.raises(ValueError, match=r"layer_mix 'sum4' is not known; choose scalar, last, sumN or concatN, .* 3"):
        tagger(features, tokenizer, feature_mix="sum4")
    with pytest.raises(ValueError, match="give input_ids instead of inputs_embeds"):
        tagger(features, tokenizer)(inputs_embeds=torch.zeros(1, 2, 10))
    features.settings["features"][0]["config"]["model_type"] = "edu_hierarchical"
    with pytest.raises(ValueError, match="the features of a edu_hierarchical are not known; choose a run of"):
        tagger(features, tokenizer)
