"""Regularisation of the AWD-LSTM and the classifier of ULMFiT, against nn.LSTM and formulae written out in loops."""

import pytest
import torch
import torch.nn.functional as F
from huggingface_hub.errors import StrictDataclassClassValidationError
from tiny import LENGTH, TINY, random_ids
from torch import nn
from torch.testing import assert_close

from hf_edu_models import (
    EduRecurrentConfig,
    EduRecurrentForCausalLM,
    EduRecurrentForSequenceClassification,
    EduRecurrentForTimeSeriesPrediction,
)
from hf_edu_models.models.blocks_awd_lstm import EmbeddingDropout, LockedDropout, WeightDrop, activation_penalty
from hf_edu_models.models.blocks_pooling import ConcatPooling
from hf_edu_models.models.blocks_recurrent import CELLS, RecurrentLayer

AWD = {
    "lock_dropout_masks": True, "dropout": 0.4, "input_dropout": 0.3, "layer_dropout": 0.2, "embedding_dropout": 0.1,
    "weight_dropout": 0.5, "activation_regularization": 2.0, "temporal_activation_regularization": 1.0,
}  # fmt: skip


def language_model(**settings):
    torch.manual_seed(0)
    return EduRecurrentForCausalLM(EduRecurrentConfig(**TINY["recurrent"] | settings))


def test_one_mask_for_all_time_steps():
    states = torch.randn(3, 50, 40)
    dropped = LockedDropout(0.25).train()(states)
    mask = dropped / states
    assert_close(mask, mask[:, :1].expand_as(mask))
    assert_close(mask, torch.where(mask > 0, 4 / 3, 0.0))
    assert {*mask.gt(0).flatten().tolist()} == {True, False}
    assert not torch.equal(mask[0], mask[1]), "each row has its own mask"
    assert torch.equal(LockedDropout(0.25).eval()(states), states)


def test_a_dropped_word_is_zero_wherever_it_occurs():
    table, ids = torch.randn(30, 6), torch.randint(30, (8, 40))
    dropped = EmbeddingDropout(0.4).train()(table[ids], ids, 30)
    is_zero = (dropped == 0).all(dim=-1)
    words = {False: set(ids[~is_zero].tolist()), True: set(ids[is_zero].tolist())}
    assert words[True] and words[False] and not words[True] & words[False]
    assert_close(dropped[~is_zero], table[ids][~is_zero] / 0.6)
    assert torch.equal(EmbeddingDropout(0.4).eval()(table[ids], ids, 30), table[ids])
    with pytest.raises(ValueError, match="give input_ids instead of inputs_embeds"):
        EmbeddingDropout(0.4).train()(table[ids], None, 30)


@pytest.mark.parametrize("form", ["eager", "fused"])
@pytest.mark.parametrize("cell", CELLS)
def test_weight_drop_is_torchs_layer_with_a_masked_matrix(cell, form, monkeypatch):
    """Outputs and gradients are those of nn.LSTM whose U is M * U / (1 - p)."""
    layer = RecurrentLayer(cell, 5, 4, weight_dropout=0.5).double().train()
    matrix = layer.forward_cell.state_weight
    mask = (torch.rand(matrix.shape) < 0.5).double() * 2
    monkeypatch.setattr(F, "dropout", lambda weight, p, *_: weight * mask)
    reference = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[cell](5, 4, batch_first=True).double()
    with torch.no_grad():
        for own, theirs in zip(layer.forward_cell.weights(), reference.all_weights[0], strict=True):
            theirs.copy_(own)
        reference.weight_hh_l0.mul_(mask)
    inputs = torch.randn(3, LENGTH, 5, dtype=torch.double)
    found, expected = layer(inputs, None, form)[0], reference(inputs)[0]
    assert_close(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    assert_close(matrix.grad, reference.weight_hh_l0.grad * mask)
    assert_close(layer.forward_cell.input_weight.grad, reference.weight_ih_l0.grad)


def test_weight_drop_scales_and_draws_a_new_mask_for_each_pass():
    cell = CELLS["lstm"](20, 50)
    drop = WeightDrop(0.3).train()
    first, second = (drop(cell).weights() for _ in range(2))
    assert not torch.equal(first[1], second[1]) and first[0] is cell.input_weight
    kept = first[1] != 0
    assert kept.float().mean().item() == pytest.approx(0.7, abs=0.02)
    assert_close(first[1][kept], cell.state_weight[kept] / 0.7)
    assert drop.eval()(cell) is cell and WeightDrop(0.0).train()(cell) is cell


def test_both_forms_train_alike():
    """The same masks, the same loss and gradients: eager and fused draw them in the same order."""
    ids, gradients = random_ids(2, LENGTH), []
    for form in ("eager", "fused"):
        model = language_model(**AWD, recurrent_implementation=form).train()
        torch.manual_seed(1)
        loss = model(ids, labels=ids).loss
        loss.backward()
        gradients.append([loss.detach(), *(parameter.grad for parameter in model.parameters())])
    assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_evaluation_is_the_plain_lstm():
    """The same state dict, deterministic outputs, and a loss without penalties."""
    regularised, plain = language_model(**AWD).eval(), language_model().eval()
    assert regularised.state_dict().keys() == plain.state_dict().keys()
    ids = random_ids(2, LENGTH)
    first, second, expected = (model(ids, labels=ids) for model in (regularised, regularised, plain))
    assert torch.equal(first.logits, second.logits) and torch.equal(first.logits, expected.logits)
    assert first.loss == expected.loss


def test_all_of_it_is_off_by_default():
    config = EduRecurrentConfig(**TINY["recurrent"])
    assert not config.lock_dropout_masks and config.pooling == "last" and config.classifier_hidden_size is None
    penalties = config.activation_regularization, config.temporal_activation_regularization
    assert (config.embedding_dropout, config.weight_dropout, *penalties) == (0, 0, 0, 0)
    model = EduRecurrentForCausalLM(EduRecurrentConfig(**TINY["recurrent"] | {"dropout": 0.35}))
    assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} == {0.35, 0.0}
    assert model.model.dropout.p == model.model.stack.dropout.p == model.dropout.p == 0.35


def penalty_in_loops(states, dropped, mask, alpha, beta):
    """Of each row: the sum over real tokens of alpha |m h_t|^2 / D, and over pairs of beta |h_t - h_{t+1}|^2 / D."""
    rows = []
    for row in range(states.shape[0]):
        total = 0.0
        real = [step for step in range(states.shape[1]) if mask[row][step]]
        for step in real:
            total += alpha * sum(float(value) ** 2 for value in dropped[row, step]) / states.shape[2]
            if step + 1 in real:
                change = states[row, step] - states[row, step + 1]
                total += beta * sum(float(value) ** 2 for value in change) / states.shape[2]
        rows.append(total)
    return torch.tensor(rows)


def test_the_penalties_are_those_of_the_paper():
    states, mask = torch.randn(2, 5, 3), torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]).bool()
    dropped = states * (torch.rand(2, 1, 3) > 0.5)
    found = activation_penalty(states, dropped, mask, 2.0, 0.5).sum(dim=1)
    assert_close(found, penalty_in_loops(states, dropped, mask, 2.0, 0.5), rtol=1e-5, atol=1e-6)
    everything = activation_penalty(states, dropped, None, 2.0, 0.5).mean()
    change = (states[:, 1:] - states[:, :-1]).square().mean()
    assert_close(everything, 2.0 * dropped.square().mean() + 0.5 * change * 4 / 5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_loss_of_a_language_model_has_both_penalties(side):
    """The mean over the tokens that are predicted."""
    model = language_model(activation_regularization=2.0, temporal_activation_regularization=1.0).train()
    ids, mask = random_ids(2, LENGTH), torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, slice(0, 3) if side == "left" else slice(4, None)] = 0
    labels = ids.masked_fill(mask == 0, -100)
    if side == "left":
        labels[1, 3] = -100  # it is predicted from padding
    states = model.model(ids, mask).last_hidden_state
    plain = language_model().train()(ids, mask, labels=labels).loss
    counted = F.pad(labels[:, 1:] != -100, (0, 1)) & mask.bool()
    total = 0.0
    for row, step in counted.nonzero().tolist():
        total = total + 2.0 * states[row, step].square().mean()
        total = total + (states[row, step] - states[row, step + 1]).square().mean()
    assert_close(model(ids, mask, labels=labels).loss, plain + total / counted.sum())


def test_the_loss_of_a_classifier_has_both_penalties():
    """The mean over rows of their mean over tokens."""
    ids, labels = random_ids(2, LENGTH), torch.tensor([1, 0])
    mask = torch.tensor([[1] * LENGTH, [1] * 3 + [0] * (LENGTH - 3)])
    losses = []
    for weights in ({}, {"activation_regularization": 2.0, "temporal_activation_regularization": 1.0}):
        torch.manual_seed(0)
        config = EduRecurrentConfig(**TINY["recurrent"] | weights, num_labels=2)
        model = EduRecurrentForSequenceClassification(config).train()
        losses.append(model(ids, mask, labels=labels).loss)
    states = model.model(ids, mask).last_hidden_state.detach()
    expected = penalty_in_loops(states, states, mask.bool(), 2.0, 1.0) / mask.sum(1)
    assert_close(losses[1] - losses[0], expected.mean(), rtol=1e-4, atol=1e-5)


def test_concat_pooling_is_last_max_and_mean():
    states, lengths = torch.randn(3, 6, 4), [6, 2, 4]
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    pooled, weights = ConcatPooling(4)(states, mask)
    for row, length in enumerate(lengths):
        real = states[row, :length]
        assert_close(pooled[row, 0], torch.cat([real[-1], real.amax(0), real.mean(0)]))
    assert weights is None


def test_the_classifier_has_two_linear_blocks():
    """Batch norm, dropout and a linear layer, ReLU between the two, against torch's own modules."""
    sizes = {"pooling": "concat", "classifier_hidden_size": 11, "num_labels": 3, "dropout": 0.0}
    model = EduRecurrentForSequenceClassification(EduRecurrentConfig(**TINY["recurrent"] | sizes)).train()
    first, second = model.hidden, model.score
    assert (first.linear.in_features, first.linear.out_features, second.linear.out_features) == (36, 11, 3)
    reference = nn.Sequential(nn.BatchNorm1d(36), nn.Linear(36, 11), nn.ReLU(), nn.BatchNorm1d(11), nn.Linear(11, 3))
    parts = (first.norm, first.linear, second.norm, second.linear)
    for ours, theirs in zip(parts, (reference[index] for index in (0, 1, 3, 4)), strict=True):
        theirs.load_state_dict(ours.state_dict())
    ids = random_ids(4, LENGTH)
    states = model.model(ids).last_hidden_state
    pooled = torch.cat([states[:, -1], states.amax(1), states.mean(1)], dim=-1)
    assert_close(model(ids).logits, reference(pooled))
    assert_close(first.norm.running_mean, reference[0].running_mean)
    assert_close(model.eval()(ids).logits, reference.eval()(pooled))


def test_a_batch_of_one_row_is_trained_on():
    """The last batch of an epoch; it is normalised by the running statistics, which it leaves as they are."""
    sizes = {"classifier_hidden_size": 11, "num_labels": 3, "dropout": 0.0}
    model = EduRecurrentForSequenceClassification(EduRecurrentConfig(**TINY["recurrent"] | sizes)).train()
    model(random_ids(4, LENGTH), labels=torch.tensor([0, 1, 2, 0]))
    before, ids = model.hidden.norm.running_var.clone(), random_ids(1, LENGTH)
    outputs = model(ids, labels=torch.tensor([1]))
    outputs.loss.backward()
    assert torch.equal(model.hidden.norm.running_var, before)
    assert_close(outputs.logits, model.eval()(ids).logits)


def test_a_language_model_becomes_a_classifier(tmp_path):
    """Head and batch norm are new, everything else is loaded."""
    saved = language_model(pooling="concat", classifier_hidden_size=11)
    saved.save_pretrained(tmp_path)
    model = EduRecurrentForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    for name, weight in saved.model.state_dict().items():
        assert torch.equal(model.model.state_dict()[name], weight), name
    for norm in (model.hidden.norm, model.score.norm):
        assert not norm.running_mean.any() and (norm.running_var == 1).all() and (norm.weight == 1).all()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"weight_dropout": 1.0}, "weight_dropout must be at least 0 and below 1"),
        ({"activation_regularization": -1.0}, "must be 0 or more, got -1.0 and 0.0"),
        ({"pooling": "label_attention", "classifier_hidden_size": 5}, "leave it out or choose another pooling"),
        ({"classifier_hidden_size": 0}, "classifier_hidden_size must be at least 1, got 0"),
    ],
)
def test_wrong_settings_are_rejected(setting, message):
    with pytest.raises(StrictDataclassClassValidationError, match=message):
        EduRecurrentConfig(**TINY["recurrent"] | setting)


def test_a_time_series_has_no_words_to_drop():
    config = EduRecurrentConfig(**TINY["recurrent"] | {"embedding_dropout": 0.1})
    with pytest.raises(ValueError, match="use input_dropout instead"):
        EduRecurrentForTimeSeriesPrediction(config)


def test_penalties_need_hidden_states_which_trainers_label_smoothing_does_not_have():
    model, ids = language_model(activation_regularization=2.0).train(), random_ids(2, LENGTH)
    with pytest.raises(ValueError, match="set label_smoothing in the model's configuration instead"):
        model.penalise(torch.zeros(()), model(ids), None, ids)
