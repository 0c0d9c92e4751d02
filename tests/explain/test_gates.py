"""Gates of the cells: the paper's equations hold between the recorded values."""

import numpy as np
import pytest
from tiny import CASES
from typer.testing import CliRunner

from hf_edu_models.cli.commands import app
from hf_edu_models.data import train_tokenizer
from hf_edu_models.explain import gate_activations

TEXT = "the cat sat. It sat on the mat."
LAYERS = {
    "recurrent": ["layer 1", "layer 2"],
    "recurrent-gru": ["layer 1", "layer 2"],
    "recurrent-ForTokenClassification-gru-bidirectional": [
        "layer 1",
        "layer 1 backwards",
        "layer 2",
        "layer 2 backwards",
    ],
    "seq2seq": ["encoder layer 1", "encoder layer 2", "decoder layer 1", "decoder layer 2"],
    "bahdanau-additive-lstm": ["encoder layer 1", "encoder layer 1 backwards", "decoder layer 1"],
    "hierarchical": ["word layer 1", "word layer 1 backwards", "sentence layer 1", "sentence layer 1 backwards"],
}


def build(name):
    tokenizer = train_tokenizer([TEXT] * 3, "word", 60, rung=CASES[name].rung.name)
    return CASES[name].build(vocab_size=len(tokenizer)), tokenizer


@pytest.mark.parametrize("name", LAYERS)
def test_the_equations_hold_between_the_values(name):
    model, tokenizer = build(name)
    before = model.config.recurrent_implementation
    found = gate_activations(model, tokenizer, TEXT)
    assert list(found) == LAYERS[name] and model.config.recurrent_implementation == before
    for layer, each in found.items():
        values = each.values
        assert all(len(array) == len(each.tokens) for array in values.values())
        is_backward = "backwards" in layer or (name == "seq2seq" and "encoder" in layer)
        if "word" in layer or "decoder" in layer:
            continue  # several sequences after each other, or a state that does not start at zero
        order = slice(None, None, -1 if is_backward else 1)
        step = {key: array[order] for key, array in values.items()}
        if each.cell == "LSTMCell":
            kept, added = step["forget gate"][1:] * step["cell state"][:-1], step["input gate"] * step["candidate"]
            assert np.allclose(step["cell state"][1:], kept + added[1:], atol=1e-6)
            assert np.allclose(step["hidden state"], step["output gate"] * np.tanh(step["cell state"]), atol=1e-6)
        else:
            update = step["update gate"][1:]
            expected = update * step["hidden state"][:-1] + (1 - update) * step["candidate"][1:]
            assert np.allclose(step["hidden state"][1:], expected, atol=1e-6)


def test_the_last_hidden_states_are_the_models():
    model, tokenizer = build("recurrent")
    found = gate_activations(model, tokenizer, TEXT)
    states = model.model(**tokenizer(TEXT, return_tensors="pt"), output_hidden_states=True).hidden_states[1:]
    for each, state in zip(found.values(), states, strict=True):
        assert np.allclose(each.values["hidden state"], state[0].detach().numpy(), atol=1e-6)


def test_products_and_saturation():
    model, tokenizer = build("recurrent")
    each = gate_activations(model, tokenizer, TEXT)["layer 1"]
    forget = each.values["forget gate"]
    by_hand = [forget[position + 1 :].prod(axis=0).mean() for position in range(len(forget))]
    assert each.kept() == pytest.approx(by_hand, rel=1e-5) and each.kept()[-1] == 1
    closed, opened = each.saturation("forget gate", 0.4, 0.6)
    assert closed == pytest.approx((forget < 0.4).mean(0)) and opened == pytest.approx((forget > 0.6).mean(0))


def test_models_without_gates_are_rejected():
    with pytest.raises(ValueError, match="has no recurrent cells"):
        gate_activations(*build("gpt"), TEXT)
    model, tokenizer = build("recurrent-rnn")
    with pytest.raises(ValueError, match="RNNCell has no gates; train with cell_type lstm or gru"):
        gate_activations(model, tokenizer, TEXT)["layer 1"].kept()


def test_the_command_draws_and_writes_its_numbers(tmp_path):
    model, tokenizer = build("seq2seq")
    model.save_pretrained(tmp_path / "run")
    tokenizer.save_pretrained(tmp_path / "run")
    out = tmp_path / "gates.png"
    command = ["explain", "gates", str(tmp_path / "run"), "the cat", "--target", "the mat", "--out", str(out)]
    run = CliRunner().invoke(app, command)
    assert run.exit_code == 0, run.output
    assert "forget gate" in run.output and out.read_bytes().startswith(b"\x89PNG")
    assert CliRunner().invoke(app, [*command, "--layer", "9"]).exception.args[0].startswith("there is no layer '9'")
