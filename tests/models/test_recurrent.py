"""Recurrent models against torch's own layers."""

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassClassValidationError
from tiny import CASES, LENGTH, TINY, inputs_for, random_ids, targets_for
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

import hf_edu_models
from hf_edu_models import EduRecurrentConfig, EduRecurrentForCausalLM, EduRecurrentForSequenceClassification
from hf_edu_models.models.blocks_attention import WindowAttention
from hf_edu_models.models.blocks_recurrent import CELLS, LSTMCell, RecurrentStack

TORCH = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
PARAMETERS = {
    "input_weight": "weight_ih",
    "state_weight": "weight_hh",
    "input_bias": "bias_ih",
    "state_bias": "bias_hh",
}


def copy_weights(stack, reference):
    """Copy our weights into torch's layer."""
    with torch.no_grad():
        for level, layer in enumerate(stack.layers):
            for cell, suffix in zip(layer.cells(), ("", "_reverse"), strict=False):
                for ours, theirs in PARAMETERS.items():
                    getattr(reference, f"{theirs}_l{level}{suffix}").copy_(getattr(cell, ours))


@pytest.mark.parametrize("form", ["eager", "fused"])
@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_parity_with_torch(cell, both_ways, form):
    stack = RecurrentStack(cell, 5, 4, 2, 0.0, both_ways).double()
    reference = TORCH[cell](5, 4, 2, batch_first=True, bidirectional=both_ways).double()
    copy_weights(stack, reference)
    inputs = torch.randn(3, LENGTH, 5, dtype=torch.double, requires_grad=True)
    lengths = torch.tensor([7, 2, 5])
    real = torch.arange(LENGTH) < lengths[:, None]

    for mask in (None, real):
        outputs, states = stack(inputs, [None, None], mask, form)
        if mask is None:
            expected, end = reference(inputs)
        else:
            packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
            expected, end = reference(packed)
            expected = pad_packed_sequence(expected, batch_first=True)[0]
        assert_close(outputs[-1], expected)
        for part, reference_part in enumerate(end if cell == "lstm" else (end,)):
            ours = torch.cat([torch.stack(states[level][part].chunk(1 + both_ways, -1)) for level in range(2)])
            assert_close(ours, reference_part)
        mine, theirs = (torch.autograd.grad(out.square().sum(), inputs)[0] for out in (outputs[-1], expected))
        assert_close(mine, theirs)


@pytest.mark.parametrize("cell", CELLS)
def test_padding_alone_leaves_the_state(cell):
    """In truncated backpropagation through time some rows end before others."""
    stack = RecurrentStack(cell, 5, 4, 1, 0.0)
    inputs = torch.randn(2, 3, 5)
    start = tuple(torch.randn(2, 4) for _ in range(CELLS[cell].state_tensors))
    mask = torch.tensor([[True, True, False], [False, False, False]])
    eager, fused = (stack(inputs, [start], mask, form) for form in ("eager", "fused"))
    assert_close(eager, fused)
    assert torch.equal(fused[1][0][0][1], start[0][1])


def test_the_gates_of_an_lstm():
    """One unit, numbers to check by hand: sigmoid(0) = 1/2, sigmoid(log 3) = 3/4, tanh(log 2) = 3/5."""
    cell = LSTMCell(1, 1)
    for parameter in cell.parameters():
        nn.init.zeros_(parameter)
    log2, log3 = torch.tensor([2.0, 3.0]).log()
    cell.input_weight.data[:, 0] = torch.stack([log3 * 0, log3, log2, log3])  # input, forget, candidate, output
    hidden, cell_state = cell(torch.ones(1, 1), (torch.zeros(1, 1), torch.full((1, 1), 0.4)))
    assert_close(cell_state.item(), 0.75 * 0.4 + 0.5 * 0.6)
    assert_close(hidden.item(), 0.75 * torch.tensor(0.6).tanh().item())


def test_initial_forget_gate_bias():
    for bias in (0.0, 2.5):
        model = EduRecurrentForCausalLM(EduRecurrentConfig(**TINY["recurrent"], forget_gate_bias=bias))
        cell = model.model.stack.layers[1].forward_cell
        assert cell.input_bias.tolist() == [0.0] * 12 + [bias] * 12 + [0.0] * 24
        assert not cell.state_bias.any()


def test_dropout_is_between_layers_only():
    model = EduRecurrentForCausalLM(
        EduRecurrentConfig(**TINY["recurrent"] | {"num_hidden_layers": 1, "dropout": 0.5})
    ).train()
    model.model.dropout.p = model.dropout.p = 0.0
    ids = random_ids(2, LENGTH)
    assert_close(model(ids, skip_logits=False).logits, model(ids, skip_logits=False).logits)
    deep = EduRecurrentForCausalLM(EduRecurrentConfig(**TINY["recurrent"] | {"dropout": 0.5})).train()
    deep.model.dropout.p = deep.dropout.p = 0.0
    assert not torch.allclose(deep(ids, skip_logits=False).logits, deep(ids, skip_logits=False).logits)


def test_truncated_backpropagation_carries_the_state_and_cuts_the_gradient():
    model = EduRecurrentForCausalLM(EduRecurrentConfig(**TINY["recurrent"])).eval()
    ids = random_ids(2, 8)
    whole = model(ids).logits
    cache = model(ids[:, :5], use_cache=True).past_key_values
    read_before = torch.tensor([word for word in ids[:, :5].unique() if word not in ids[:, 5:]])
    for carried, is_cut in ((cache, False), (cache.detach(), True)):
        logits = model(ids[:, 5:], past_key_values=carried, use_cache=False).logits
        assert_close(logits, whole[:, 5:])
        gradient = torch.autograd.grad(logits.sum(), model.model.embed_tokens.weight, retain_graph=True)[0]
        assert (gradient[read_before] == 0).all() == is_cut


def test_window_attention_by_hand():
    layer = WindowAttention(4, window=2)
    states = torch.randn(1, 5, 4)
    outputs, weights, window_states = layer(states, layer.start(states), None)
    for position in range(5):
        past = states[0, max(0, position - 2) : position]
        context = torch.zeros(4)
        if len(past):
            scores = (
                torch.tanh(layer.query_proj(states[0, position]) + layer.key_proj(past)) @ layer.score_proj.weight[0]
            )
            assert_close(weights[0, position, 2 - len(past) :], scores.softmax(0))
            context = scores.softmax(0) @ past
        expected = torch.tanh(layer.output_proj(torch.cat([states[0, position], context])))
        assert_close(outputs[0, position], expected)
    assert not weights[0, 0].any()
    assert_close(window_states[0], states[:, 3:])


def test_window_attention_is_returned():
    model = EduRecurrentForCausalLM(EduRecurrentConfig(**TINY["recurrent"], attention_window=3)).eval()
    outputs = model(random_ids(2, LENGTH), output_attentions=True)
    assert outputs.attentions[0].shape == (2, 1, LENGTH, 3)
    assert_close(outputs.attentions[0][:, :, 1:].sum(-1), torch.ones(2, 1, LENGTH - 1))


def test_a_classifier_reads_where_each_direction_ends():
    settings = TINY["recurrent"] | {"num_hidden_layers": 1, "bidirectional": True}
    model = EduRecurrentForSequenceClassification(EduRecurrentConfig(**settings)).eval()
    ids = random_ids(1, 6)
    reference = nn.LSTM(10, 12, batch_first=True, bidirectional=True)
    copy_weights(model.model.stack, reference)
    _, (ends, _) = reference(model.model.embed_tokens(ids))
    assert_close(model(ids).logits, model.score(torch.cat([ends[0], ends[1]], dim=-1)))


@pytest.mark.parametrize(
    "problem, num_labels, labels",
    [
        ("single_label_classification", 3, torch.tensor([0, 2])),
        ("multi_label_classification", 3, torch.tensor([[1.0, 0, 1], [0, 1, 0]])),
        ("regression", 1, torch.tensor([0.3, 2.0])),
        ("regression", 2, torch.tensor([[0.3, 2.0], [1.0, 1.5]])),
    ],
)
def test_the_problem_types_of_a_classifier(problem, num_labels, labels, tmp_path):
    config = EduRecurrentConfig(**TINY["recurrent"], num_labels=num_labels, problem_type=problem)
    model = EduRecurrentForSequenceClassification(config)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    first = None
    for _ in range(60):
        loss = model(random_ids(2, LENGTH), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        first = first or loss.item()
    assert loss < 0.05 * first
    model.save_pretrained(tmp_path)
    assert EduRecurrentForSequenceClassification.from_pretrained(tmp_path).config.problem_type == problem


def test_a_model_loads_into_every_head(tmp_path):
    """Train as a language model, then classify: the model is loaded, the head is initialised."""
    language_model = EduRecurrentForCausalLM(EduRecurrentConfig(**TINY["recurrent"]))
    language_model.save_pretrained(tmp_path)
    for auto, name in EduRecurrentConfig.heads.items():
        if auto == "AutoModelForTimeSeriesPrediction":  # it reads numbers, not tokens
            continue
        loaded = getattr(transformers, auto).from_pretrained(tmp_path)
        assert type(loaded) is getattr(hf_edu_models, name)
        body = loaded if auto == "AutoModel" else loaded.model
        for key, value in language_model.model.state_dict().items():
            assert torch.equal(body.state_dict()[key], value), key
        for head in ("score", "classifier"):
            if hasattr(loaded, head):
                weight = getattr(loaded, head).weight
                assert 0 < weight.abs().max() <= 0.4 and not getattr(loaded, head).bias.any()


def test_each_label_has_a_query_of_its_own():
    """The logit of a label is what one attention-pooled classifier with its query and its row of weights gives."""
    case = CASES["recurrent-ForSequenceClassification-label-attention"]
    model, ids = case.build(), random_ids(2, 7)
    outputs = model(ids, output_attentions=True)
    states = model.model(ids).last_hidden_state
    aligned = torch.tanh(model.pooling.proj(states))
    for label in range(3):
        weights = torch.softmax(aligned @ model.pooling.query_proj.weight[label], dim=1)
        pooled = torch.einsum("bt,btd->bd", weights, states)
        assert_close(outputs.logits[:, label], pooled @ model.score.weight[label] + model.score.bias[label])
        assert_close(outputs.attentions[-1][:, label, 0], weights)


def test_the_penalty_on_redundant_hops_is_in_the_loss():
    case = CASES["recurrent-ForSequenceClassification-hops"]
    model, batch = case.build(), inputs_for(case) | targets_for(case)
    weights = model(**batch, output_attentions=True).attentions[-1][:, :, 0]
    penalty = (weights @ weights.transpose(1, 2) - torch.eye(4)).square().sum((1, 2)).mean()
    found = model(**batch).loss
    model.config.redundancy_weight = 0.0
    assert_close(found, model(**batch).loss + 0.1 * penalty)


@pytest.mark.parametrize("setting", [{"num_hops": 2}, {"redundancy_weight": 0.1}, {"pooling": "sum"}, {"num_hops": 0}])
def test_settings_of_another_pooling_are_rejected(setting):
    with pytest.raises(StrictDataclassClassValidationError, match=r"pooling|num_hops"):
        CASES["recurrent-ForSequenceClassification"].build(**setting)
