"""The tasks with long time lags: what counts as correct, how gates start, trials that succeed, fail, are read back."""

import csv
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from hf_edu_models.cli.commands import app
from hf_edu_models.data.builtin.long_time_lags import PAD, Sequences
from hf_edu_models.experiments import long_time_lags as lags
from hf_edu_models.experiments.published import PUBLISHED

SHORT = replace(
    lags.LAG_TASKS["lag 100, noise"], inputs=7, lag=4, options={"lag": 4, "distractors": 3}, max_sequences=20_000
)


def judge(name, outputs, **drawn):
    task = lags.LAG_TASKS[name]
    count = len(outputs)
    drawn = {"inputs": np.zeros((count, outputs.shape[1])), "lengths": np.full(count, outputs.shape[1])} | drawn
    return loss_and_correct(task, outputs, Sequences(**drawn))


def loss_and_correct(task, outputs, drawn):
    loss, errors = lags.loss_and_errors(task, outputs, drawn)
    return loss, errors < task.tolerance


def test_a_number_is_correct_within_0_04():
    outputs = torch.zeros(3, 5, 1)
    outputs[:, 3, 0] = torch.tensor([0.5, 0.539, 0.541])
    loss, correct = judge("adding", outputs, targets=np.full(3, 0.5), lengths=np.full(3, 4))
    assert correct.tolist() == [True, True, False]
    assert loss.item() == pytest.approx((0.039**2 + 0.041**2) / 3, rel=1e-4)


@pytest.mark.parametrize(("name", "tolerance"), [("lag 100, noise", 0.2), ("temporal order", 0.3)])
def test_a_class_is_correct_if_every_output_is_within_the_tolerance(name, tolerance):
    classes = lags.LAG_TASKS[name].outputs
    outputs = torch.zeros(2, 6, classes)
    for row, probability in enumerate((1 - tolerance + 0.01, 1 - tolerance - 0.01)):
        outputs[row, -1] = torch.log(torch.tensor([probability] + [(1 - probability) / (classes - 1)] * (classes - 1)))
    _, correct = judge(name, outputs, targets=np.zeros(2, dtype=int))
    assert correct.tolist() == [True, False]


def test_allowed_symbols_must_be_the_most_active_at_every_step():
    drawn = lags.draw(lags.LAG_TASKS["reber"], np.random.default_rng(0), 3)[1]
    outputs = torch.as_tensor(drawn.allowed).float() + 0.1 * torch.rand(drawn.allowed.shape)
    right = loss_and_correct(lags.LAG_TASKS["reber"], outputs, drawn)[1]
    outputs[1, drawn.lengths[1] - 1] *= -1  # the last step of one string
    outputs[2, drawn.lengths[2] :] *= -1  # padding
    wrong = loss_and_correct(lags.LAG_TASKS["reber"], outputs, drawn)[1]
    assert right.all() and wrong.tolist() == [True, False, True]


def test_a_copy_is_correct_if_its_symbols_are():
    task = lags.LAG_TASKS["delayed copy"]
    _, drawn = lags.draw(task, np.random.default_rng(0), 3)
    outputs = nn.functional.one_hot(torch.as_tensor(drawn.targets), task.outputs).float()
    outputs[1, -1] = outputs[1, -1].roll(1)
    outputs[2, 6] = outputs[2, 6].roll(1)  # a blank, before the delimiter
    loss, correct = loss_and_correct(task, outputs, drawn)
    assert correct.tolist() == [True, False, True]
    expected = nn.functional.cross_entropy(outputs.flatten(0, 1), torch.as_tensor(drawn.targets).flatten())
    assert loss.item() == pytest.approx(expected.item()) and (drawn.targets != PAD).all()


def test_every_next_symbol_counts_or_the_last_one_alone():
    drawn = lags.draw(lags.LAG_TASKS["lag 100, regular"], np.random.default_rng(0), 3)[1]
    targets = torch.as_tensor(drawn.targets)
    probabilities = torch.full((3, 100, 101), 0.24 / 100)
    probabilities.scatter_(-1, targets[..., None], 0.76)
    probabilities[0, 5] = 1 / 101
    probabilities[1, -1] = 1 / 101
    for name, expected in {"lag 100, regular": [False, False, True], "lag 100, random": [True, False, True]}.items():
        loss, correct = loss_and_correct(lags.LAG_TASKS[name], probabilities.log(), drawn)
        assert correct.tolist() == expected
        assert loss.item() == pytest.approx(-(298 * np.log(0.76) - 2 * np.log(101)) / 300, rel=1e-4)


def test_two_sequences_are_judged_without_the_noise_of_their_targets_and_trained_with_it():
    outputs, expected = torch.tensor([0.2, 0.31, 0.75])[:, None, None], np.array([0.2, 0.2, 0.8])
    drawn = {"targets": expected + np.array([0.5, 0.1, -0.2]), "expected": expected}
    loss, correct = judge("two sequences, noisy targets", outputs, **drawn)
    assert correct.tolist() == [True, False, True]
    assert loss.item() == pytest.approx((0.5**2 + 0.01**2 + 0.15**2) / 3, rel=1e-4)


def test_a_diverged_model_is_wrong():
    for name, task in lags.LAG_TASKS.items():
        inputs, drawn = lags.draw(task, np.random.default_rng(0), 4)
        outputs = torch.full((*inputs.shape[:2], task.outputs), torch.nan)
        errors = lags.loss_and_errors(task, outputs, drawn)[1]
        assert lags.is_wrong(task, errors).all(), name
    assert not lags.is_successful(lags.LAG_TASKS["adding"], torch.full((2_000,), torch.nan))


def test_a_trial_ends_when_few_are_wrong_and_the_mean_error_is_small():
    task, plain = lags.LAG_TASKS["two sequences, noise"], lags.LAG_TASKS["reber"]
    errors = torch.zeros(2_000)
    errors[:39] = 0.5
    assert lags.is_successful(task, errors) and not lags.is_successful(plain, errors)
    assert not lags.is_successful(task, errors + 0.04), "the mean error is too large"
    errors[:40] = 0.5
    assert not lags.is_successful(task, errors)


def test_direct_outputs_see_the_input_of_their_step():
    torch.manual_seed(0)
    model = lags.SequenceReader("lstm", 7, 5, 3, lag=50, is_direct=True)
    for parameter in model.layer.parameters():
        nn.init.zeros_(parameter)
    ids = torch.tensor([[1, 4, 1]])
    expected = model.readout.weight[:, 5 + ids[0]].T + model.readout.bias
    torch.testing.assert_close(model(ids)[0], expected)


@pytest.mark.parametrize("cell", lags.CELLS)
def test_gates_start_as_the_lag_needs_them_and_padding_changes_nothing(cell):
    torch.manual_seed(0)
    model = lags.SequenceReader(cell, 7, 5, 2, lag=50)
    biases = (model.layer.forward_cell.input_bias + model.layer.forward_cell.state_bias).sigmoid().split(5)
    open_for_50 = torch.full((5,), 50 / 51)
    if cell == "lstm":
        torch.testing.assert_close(biases[1], open_for_50)  # forget gate
        torch.testing.assert_close(biases[0], 1 - open_for_50)  # input gate
    if cell == "gru":
        torch.testing.assert_close(biases[1], open_for_50)  # update gate
    ids = torch.tensor([[1, 2, 3, PAD, PAD]])
    torch.testing.assert_close(model(ids)[:, :3], model(ids[:, :3]))


def test_a_trial_succeeds_on_a_short_lag_and_is_reproducible():
    settings = {"task": asdict(SHORT), "cell": "lstm"}
    lines = []
    first = lags.train_reader(settings, 0, None, lines.append)
    assert first["success"] == 1 and 2_000 < first["sequences"] < 20_000 and first["wrong_of_2560"] <= 30
    assert "sequences" in lines[0]
    again = lags.train_reader(settings, 0, None)
    assert {**first, "seconds": 0} == {**again, "seconds": 0}
    longer = replace(lags.LAG_TASKS["lag 100, noise"], max_sequences=512)
    failed = lags.train_reader({"task": asdict(longer), "cell": "rnn"}, 0, None)
    assert failed["success"] == 0 and failed["sequences"] == 512 and failed["wrong_of_2560"] > 1_000


def test_the_command_trains_draws_and_reads_back(tmp_path):
    arguments = ["figure", "long-time-lags", "--quick", "--seeds", "1", "--folder", str(tmp_path)]
    arguments += ["--task", "reber", "--task", "adding"]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output + str(run.exception)
    with open(tmp_path / "long-time-lags.csv") as file:
        rows = list(csv.DictReader(file))
    assert [(row["task"], row["cell"]) for row in rows] == [(t, c) for t in ("reber", "adding") for c in lags.CELLS]
    assert (tmp_path / "long-time-lags.png").read_bytes().startswith(b"\x89PNG")
    assert CliRunner().invoke(app, arguments).output.count("read back") == 6
    problem = CliRunner().invoke(app, ["figure", "long-time-lags", "--task", "parity"]).exception
    assert "'parity' is not one of 'reber'" in str(problem)


def test_every_published_task_is_one_of_ours():
    assert set(PUBLISHED["long-time-lags"].rows) < set(lags.LAG_TASKS)
