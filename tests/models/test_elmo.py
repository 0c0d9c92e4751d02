"""ELMo against torch's LSTM with projection, and what each direction may see."""

import pytest
import torch
import torch.nn.functional as F
from huggingface_hub.errors import StrictDataclassClassValidationError
from tiny import BATCH, CASES, LENGTH, TINY, inputs_for, pad, random_ids, targets_for
from torch import nn
from torch.testing import assert_close

from hf_edu_models import EduElmoConfig, EduElmoForPreTraining, EduElmoForTokenClassification, EduElmoModel
from hf_edu_models.data import spellings, train_tokenizer
from hf_edu_models.models.blocks_characters import CharacterEmbedding
from hf_edu_models.models.blocks_layer_mix import ScalarMix, make_layer_mix
from hf_edu_models.models.blocks_recurrent import ProjectedLSTMLayer

FORMS = pytest.mark.parametrize("form", ["eager", "fused"])
KINDS = pytest.mark.parametrize("case", [CASES["elmo"], CASES["elmo-characters"]], ids=["embedding", "characters"])
NAMES = {
    "input_weight": "weight_ih_l0",
    "state_weight": "weight_hh_l0",
    "input_bias": "bias_ih_l0",
    "state_bias": "bias_hh_l0",
    "projection_weight": "weight_hr_l0",
}


def torch_lstm(layer):
    """torch's own LSTM with projection, with the weights of a layer."""
    cell = layer.forward_cell
    reference = nn.LSTM(cell.input_weight.shape[1], cell.hidden_size, proj_size=cell.projection_size, batch_first=True)
    reference.to(cell.input_weight.dtype).load_state_dict(
        {theirs: getattr(cell, ours) for ours, theirs in NAMES.items()}
    )
    return reference


@FORMS
def test_a_layer_is_torchs_lstm_with_projection(form):
    layer = ProjectedLSTMLayer(5, 9, 4).double()
    inputs = torch.randn(3, LENGTH, 5, dtype=torch.double, requires_grad=True)
    outputs, hidden, cell_state = layer(inputs, None, form)
    expected, (end, end_cell) = torch_lstm(layer)(inputs)
    assert_close([outputs, hidden, cell_state], [expected, end[0], end_cell[0]])
    mine, theirs = (torch.autograd.grad(out.square().sum(), inputs)[0] for out in (outputs, expected))
    assert_close(mine, theirs)


def test_a_projection_that_keeps_the_size_runs():
    """torch's kernel has no such projection, so the equations are computed step by step."""
    layer, inputs = ProjectedLSTMLayer(5, 4, 4), torch.randn(3, LENGTH, 5)
    assert_close(layer(inputs, None, "fused"), layer(inputs, None, "eager"))


def run_stack(stack, embeddings):
    """Layers of `nn.LSTM(proj_size=...)`, with the residual connection written out."""
    first, second = (torch_lstm(layer) for layer in stack.layers)
    lower = first(embeddings)[0]
    return lower, lower + second(lower)[0]


@FORMS
def test_the_layers_are_two_stacks_of_torchs_lstms(form):
    model = CASES["elmo"].build(form=form).model
    ids = random_ids(BATCH, LENGTH)
    layers = model(ids, output_hidden_states=True).hidden_states
    vectors = model.embed_tokens(ids)
    forwards, backwards = run_stack(model.forward_lm, vectors), run_stack(model.backward_lm, vectors.flip(1))
    assert_close(layers[0], torch.cat([vectors, vectors], dim=-1))
    for layer, forward_states, backward_states in zip(layers[1:], forwards, backwards, strict=True):
        assert_close(layer, torch.cat([forward_states, backward_states.flip(1)], dim=-1))


@FORMS
@KINDS
def test_no_direction_sees_what_it_predicts(case, form):
    model, ids = case.build(form=form), random_ids(BATCH, LENGTH)
    before = model(ids, output_hidden_states=True)
    later, earlier = ids.clone(), ids.clone()
    later[:, 4:], earlier[:, :3] = random_ids(BATCH, LENGTH - 4, seed=9), random_ids(BATCH, 3, seed=9)
    for changed, direction, seen in ((later, 0, slice(0, 4)), (earlier, 1, slice(3, None))):
        after = model(changed, output_hidden_states=True)
        names = ("logits", "backward_logits")
        assert_close(after[names[direction]][:, seen], before[names[direction]][:, seen])
        assert not torch.allclose(after[names[1 - direction]][:, seen], before[names[1 - direction]][:, seen])
        for mine, theirs in zip(after.hidden_states, before.hidden_states, strict=True):
            assert_close(mine.chunk(2, dim=-1)[direction][:, seen], theirs.chunk(2, dim=-1)[direction][:, seen])


@pytest.mark.parametrize("where", ["left", "right"])
def test_the_loss_is_the_mean_of_both_directions(where):
    model, ids = CASES["elmo"].build(), random_ids(BATCH, LENGTH)
    outputs = model(ids, labels=ids)
    forward_loss = F.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    backward_loss = F.cross_entropy(outputs.backward_logits[:, 1:].flatten(0, 1), ids[:, :-1].flatten())
    assert_close([outputs.forward_loss, outputs.backward_loss], [forward_loss, backward_loss])
    assert_close(outputs.loss, (forward_loss + backward_loss) / 2)
    padded, mask, _ = pad(ids, where)
    labels, _, _ = pad(ids, where, value=-100)
    assert_close(model(padded, mask, labels=labels).loss, outputs.loss)


def test_both_directions_share_token_vectors_and_softmax():
    model = CASES["elmo"].build().train()
    ids = random_ids(BATCH, LENGTH)
    outputs = model(ids, labels=ids)
    for loss, others in ((outputs.forward_loss, "backward_lm"), (outputs.backward_loss, "forward_lm")):
        model.zero_grad()
        loss.backward(retain_graph=True)
        without = {name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()}
        assert without == {name for name, _ in model.named_parameters() if others in name} and without


def test_tied_token_vectors_are_the_softmax(tmp_path):
    model = CASES["elmo"].build(tie_word_embeddings=True)
    model.save_pretrained(tmp_path)
    loaded = EduElmoForPreTraining.from_pretrained(tmp_path)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert_close(loaded(**inputs_for(CASES["elmo"])).logits, model(**inputs_for(CASES["elmo"])).logits)


def test_a_scalar_mix_is_a_weighted_mean_of_layers():
    layers = torch.randn(3, BATCH, LENGTH, 4).unbind()
    mix = ScalarMix(3)
    assert_close(mix(layers), torch.stack(layers).mean(0))
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([1.0, 3.0, 4.0]).log())
        mix.scale.fill_(2.0)
    assert_close(mix(layers), 2 * (layers[0] / 8 + layers[1] * 3 / 8 + layers[2] / 2))


@pytest.mark.parametrize(
    "name, expected",
    [
        ("last", lambda layers: layers[4]),
        ("sum4", lambda layers: layers[1] + layers[2] + layers[3] + layers[4]),
        ("concat2", lambda layers: torch.cat([layers[3], layers[4]], dim=-1)),
    ],
)
def test_mixes_of_the_last_layers(name, expected):
    layers = torch.randn(5, BATCH, LENGTH, 4).unbind()
    assert_close(make_layer_mix(name, 5)(layers), expected(layers))


@pytest.mark.parametrize("name", ["sum4", "concat0", "mean", "sum"])
def test_a_mix_of_layers_that_are_not_there(name):
    with pytest.raises(ValueError, match=f"layer_mix '{name}' is not known; choose scalar, last, sumN or concatN"):
        EduElmoForTokenClassification(EduElmoConfig(**TINY["elmo"], layer_mix=name))


def test_a_frozen_body_leaves_the_mix_and_the_head():
    case = CASES["elmo-ForTokenClassification"]
    model = case.build()
    model.model.requires_grad_(False)
    model(**inputs_for(case), **targets_for(case)).loss.backward()
    learnt = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert learnt == {"layer_mix.scores", "layer_mix.scale", "classifier.weight", "classifier.bias"}


def make_characters(**changes):
    torch.manual_seed(0)
    settings = {"char_embedding_size": 3, "char_filters": [[1, 4], [2, 5], [4, 2]], "num_highway_layers": 2}
    return CharacterEmbedding(29, 6, **settings | {"max_characters": 9} | changes)


def test_token_vectors_from_characters_by_hand():
    layer = make_characters()
    word = "añ"  # three bytes
    spelled = layer.spell([word])
    assert spelled[0].tolist() == [257, *(byte + 1 for byte in word.encode()), 258, 0, 0, 0, 0]
    embedded = layer.embed_characters.weight[spelled[0, :5].long()]
    pooled = []
    for convolution in layer.convolutions:
        width = convolution.kernel_size[0]
        padded = torch.cat([embedded, torch.zeros(width - 1, 3)])
        windows = [
            (convolution.weight * padded[start : start + width].T).sum((1, 2)) + convolution.bias for start in range(5)
        ]
        pooled.append(torch.stack(windows).max(0).values.relu())
    vector = torch.cat(pooled)
    for highway in layer.highways:
        gate = highway.gate(vector).sigmoid()
        vector = gate * highway.transform(vector).relu() + (1 - gate) * vector
    assert_close(layer.encode(spelled)[0], layer.proj(vector))


def test_a_word_has_one_vector_however_it_is_padded():
    layer, word = make_characters(), ["ab"]
    wide = make_characters(max_characters=20)
    weights = {name: weight for name, weight in layer.state_dict().items() if name != "spellings"}
    wide.load_state_dict(weights, strict=False)
    assert_close(wide.encode(wide.spell(word)), layer.encode(layer.spell(word)))


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "word", "char"])
def test_the_vocabulary_is_spelled_by_its_tokenizer(kind, tmp_path):
    text = "die Bäume, unbelievable trees"
    tokenizer = train_tokenizer(
        [text] * 3, kind, 400 if kind in ("bpe", "unigram") else 40, rung="elmo", cache_dir=tmp_path
    )
    found = spellings(tokenizer)
    assert len(found) == len(tokenizer)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    spelled = b"".join(found[token_id] for token_id in ids).decode()
    assert spelled.replace(" ,", ",").removeprefix(" ") == text
    assert found[tokenizer.unk_token_id] == b"<unk>"


def test_an_unseen_word_is_read_by_its_characters(tmp_path):
    """The id of a word and its characters mean the same, saved and loaded, and a new word needs no training."""
    tokenizer = train_tokenizer(["the red dog ran"], "word", 29, rung="elmo", cache_dir=tmp_path)
    settings = CASES["elmo-characters"].settings | {"vocab_size": len(tokenizer)}
    model = EduElmoModel(EduElmoConfig(**settings)).eval()
    with pytest.raises(ValueError, match=r"2 spellings are given, but the vocabulary has \d+ tokens"):
        model.embed_tokens.spell_vocabulary(["a", "b"])
    model.embed_tokens.spell_vocabulary(spellings(tokenizer))
    model.save_pretrained(tmp_path / "run")
    model = EduElmoModel.from_pretrained(tmp_path / "run")
    ids = tokenizer("the red", return_tensors="pt")["input_ids"]
    by_characters = model.embed_tokens.encode(model.embed_tokens.spell(["<s>", " the", " red"])[None])
    assert_close(model(inputs_embeds=by_characters)[0], model(ids)[0])
    tokenizer.add_tokens(["fox"])
    model.resize_token_embeddings(len(tokenizer))
    model.embed_tokens.spell_vocabulary(spellings(tokenizer))
    unseen = model.embed_tokens.encode(model.embed_tokens.spell(["fox"]))
    assert_close(model.embed_tokens(torch.tensor([tokenizer.convert_tokens_to_ids("fox")])), unseen)


def test_highway_layers_carry_at_first():
    model = EduElmoModel(EduElmoConfig(**CASES["elmo-characters"].settings))
    assert (model.embed_tokens.highways[0].gate.bias == -2).all()
    assert not model.embed_tokens.highways[0].transform.bias.any()


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"token_encoder": "words"}, "token_encoder 'words' is not known; choose one of embedding, characters"),
        ({"char_filters": [[3, 0]]}, "char_filters must be pairs of width and number"),
        ({"max_characters": 2}, "max_characters must be 3 or more"),
        ({"token_encoder": "characters", "tie_word_embeddings": True}, "tie_word_embeddings needs a table"),
        ({"pooling": "first"}, "pooling 'first' is not known"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises((ValueError, StrictDataclassClassValidationError)) as raised:
        EduElmoConfig(**TINY["elmo"] | settings)
    assert message in str(raised.value.__cause__ or raised.value)
