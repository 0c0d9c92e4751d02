"""The numbers of the lessons."""

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.auto import find_rung
from hf_edu_models.cli.commands import app
from hf_edu_models.experiments import attention_lessons as lessons
from hf_edu_models.experiments.descent import SURFACES, descent
from hf_edu_models.experiments.kernels import kernels
from hf_edu_models.experiments.rnn_types import TYPES, rnn_types


def table(rows, **chosen):
    values = [row for row in rows if all(row[name] == value for name, value in chosen.items())]
    size = int(len(values) ** 0.5)
    return np.array([row.get("value", row.get("weight")) for row in values]).reshape(size, size)


def test_each_step_changes_one_thing():
    rows = lessons.attention_steps("the dog saw the other dog").rows
    products, weights = table(rows, step="1. products"), table(rows, step="2. weights")
    assert np.allclose(products, products.T)
    assert np.allclose(weights, torch.softmax(torch.tensor(products), -1).numpy())
    assert np.allclose(products[1], products[5])  # both are "dog"
    sharp, scaled = table(rows, step="4. queries and keys"), table(rows, step="5. scaled")
    assert np.allclose(torch.softmax(torch.tensor(np.log(sharp)) / 4, -1).numpy(), scaled)  # sqrt(16)
    heads = [table(rows, step=f"6. head {head} of 2") for head in (1, 2)]
    # The scores of the heads, each of 8 dimensions, add up to those of all 16.
    total = sum(np.log(head) * np.sqrt(8) for head in heads)
    assert np.allclose(torch.softmax(torch.tensor(total), -1).numpy(), sharp)


def test_every_kernel_beats_the_mean_and_a_learnt_width_the_given_one():
    for dimensions in (1, 2):
        rows = {row["kernel"]: row for row in kernels(dimensions=dimensions, width=1.0).rows}
        assert set(rows) == {"mean", "boxcar", "epanechnikov", "gaussian", "gaussian, learnt"}
        learnt = rows.pop("gaussian, learnt")
        assert all(learnt["leave_one_out_mse"] < row["leave_one_out_mse"] for row in rows.values())
        assert max(rows, key=lambda name: rows[name]["held_out_mse"]) == "mean"


def test_the_worked_example():
    rows = {row["query"]: row for row in lessons.key_value().rows if row["sharpness"] == 10}
    found = [[rows[query][feature] for feature in ("young", "female", "male")] for query in ("man", "woman")]
    assert np.allclose(found, [[0.7, 0, 0.7], [0.7, 0.7, 0]], atol=0.01)


@pytest.mark.parametrize("seed", range(4))
def test_what_looks_alike_denoises_better_than_what_is_near(seed):
    noisy, near, alike = (row["mean_squared_error"] for row in lessons.denoising(seed=seed).rows)
    assert alike < near < noisy


def test_scaled_scores_keep_variance_and_entropy():
    rows = lessons.scaling().rows
    plain = [row for row in rows if row["scores"] == "q · k"]
    scaled = [row for row in rows if row["scores"] != "q · k"]
    assert [row["variance"] / row["size"] for row in plain] == pytest.approx([1] * 9, rel=0.1)
    assert [row["variance"] for row in scaled] == pytest.approx([1] * 9, rel=0.1)
    assert plain[-1]["entropy"] < 0.1 * scaled[-1]["entropy"]
    assert plain[-1]["gradient"] < scaled[-1]["gradient"]


def test_hidden_keys_have_no_weight_and_the_others_all_of_it():
    for name in ("no mask", "padding", "look-ahead", "both"):
        rows = [row for row in lessons.masks().rows if row["mask"] == name]
        weights = table(rows)
        visible = np.array([row["visible"] for row in rows]).reshape(weights.shape)
        assert (weights[~visible] == 0).all() and np.allclose(weights.sum(-1), 1)
        assert np.triu(weights, 1).any() == (name in ("no mask", "padding"))


def test_a_token_is_predicted_from_those_before_it_in_the_order():
    rows = lessons.permutation(order=(2, 0, 4, 1, 3)).rows
    seen = {row["token"]: set() for row in rows}
    for row in rows:
        if row["query_stream"]:
            seen[row["token"]].add(row["key"])
    assert seen == {
        "is": set(), "New": {"is"}, "city": {"is", "New"}, "York": {"is", "New", "city"},
        "a": {"is", "New", "city", "York"},
    }  # fmt: skip
    with pytest.raises(ValueError, match="order must have each of 0 to 4 once"):
        lessons.permutation(order=(0, 0, 1, 2, 3))


def path_of(rows, name):
    return np.array([(row["x"], row["y"]) for row in rows if row["optimizer"] == name])


def test_gradient_descent_on_a_quadratic_has_a_closed_form():
    rows = descent(learning_rate=0.08, steps=30).rows
    powers = np.arange(31)[:, None]
    expected = np.array(SURFACES["ravine"].start) * (1 - 0.08 * np.array([1, 20])) ** powers
    assert np.allclose(path_of(rows, "gradient descent"), expected)
    last = {row["optimizer"]: row["distance"] for row in rows if row["step"] == 30}
    assert last["momentum 0.6"] < 0.1 * last["gradient descent"] < last["SGD (noisy gradients)"]


@pytest.mark.parametrize("name", SURFACES)
def test_momentum_is_torchs_and_the_minimum_is_one(name):
    surface, options = SURFACES[name], {"learning_rate": 0.05, "momentum": 0.7, "noise": 0.0}
    rows = descent(name, **options, steps=20).rows
    point = torch.tensor(surface.start, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([point], lr=0.05, momentum=0.7)
    for _ in range(20):
        optimizer.zero_grad()
        surface.height(*point).backward()
        optimizer.step()
    assert np.allclose(path_of(rows, "momentum 0.7")[-1], point.detach().numpy())
    # Without noise, stochastic gradient descent is gradient descent.
    assert np.array_equal(path_of(rows, "SGD (noisy gradients)"), path_of(rows, "gradient descent"))
    minimum = torch.tensor(surface.minimum, dtype=torch.float64)
    gradient = torch.func.grad(lambda at: surface.height(*at))(minimum)
    curvature = torch.func.hessian(lambda at: surface.height(*at))(minimum)
    assert gradient.abs().max() < 1e-12 and torch.linalg.eigvalsh(curvature).min() > 0


def test_settings_that_diverge_or_make_no_sense_are_rejected():
    with pytest.raises(ValueError, match=r"gradient descent diverges on ravine within .* lower the learning rate 0\.2"):
        descent(learning_rate=0.2)
    with pytest.raises(ValueError, match="surface must be one of ravine, cubic, got 'sea'"):
        descent("sea")
    with pytest.raises(ValueError, match=r"momentum 1\.5 in"):
        descent(momentum=1.5)


def test_heads_have_as_many_outputs_as_their_type():
    rows = rnn_types().rows
    assert {row["type"] for row in rows} == {each.name for each in TYPES}
    for row in rows:
        rung = find_rung(f"edu_{row['rung']}")
        model = getattr(hf_edu_models, row["head"])(rung.config(**rung.tiny)).eval()
        ids = torch.randint(4, 29, (2, row["inputs"]))
        inputs = {"input_ids": ids[:, None] if row["rung"] == "hierarchical" else ids}
        if row["type"] == "one to many":
            count = model.generate(**inputs, min_new_tokens=3, max_new_tokens=3).shape[1] - 1
        elif model.config.is_encoder_decoder:
            count = model(**inputs, decoder_input_ids=torch.ones(2, 2, dtype=torch.long)).logits.shape[1]
        else:
            logits = model(**inputs).logits
            count = logits.shape[1] if logits.dim() == 3 else 1
        assert count == row["outputs"], row


COMMANDS = [
    ["attention-steps", "a dog saw a cat"],
    ["key-value"],
    ["denoising"],
    ["scaling"],
    ["masks"],
    ["permutation"],
    ["descent"],
    ["rnn-types"],
    ["kernels", "--rows", "20"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=[command[0] for command in COMMANDS])
def test_the_command_writes_a_picture_and_its_numbers(command, tmp_path):
    out = tmp_path / "lesson.png"
    run = CliRunner().invoke(app, ["figure", *command, "--out", str(out)])
    assert run.exit_code == 0, run.output
    assert out.read_bytes().startswith(b"\x89PNG") and out.with_suffix(".csv").read_text().count("\n") > 2


@pytest.mark.parametrize("sentence", ["alone", "a " * 13])
def test_a_sentence_of_another_length_is_rejected(sentence):
    with pytest.raises(ValueError, match="words; give 2 to 12"):
        lessons.attention_steps(sentence)
