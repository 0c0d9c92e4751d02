"""Schedules of teacher forcing: their values, and that every step of a run has that of its number."""

import functools
import itertools
import math

import pytest
from tiny_runs import arguments, masking, translating, translator
from transformers import TrainerCallback

from hf_edu_models.run_folder import log_history
from hf_edu_models.training.teacher_forcing import SCHEDULES

LAST = 1000
FALLING = [name for name in SCHEDULES if name != "constant"]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("end", [0.05, 0.5, 0.9])
def test_the_last_step_has_the_end(name, end):
    assert SCHEDULES[name](LAST, LAST, end) == pytest.approx(end, rel=1e-6)


@pytest.mark.parametrize("name", FALLING)
def test_it_falls_from_nearly_one(name):
    values = [SCHEDULES[name](step, LAST, 0.1) for step in range(LAST + 1)]
    assert values[0] > 0.98 and all(before > after for before, after in itertools.pairwise(values))


def test_known_points():
    """By the formulas of the paper."""
    assert [SCHEDULES["linear"](step, 4, 0.2) for step in range(5)] == pytest.approx([1, 0.8, 0.6, 0.4, 0.2])
    assert [SCHEDULES["exponential"](step, 2, 0.25) for step in range(3)] == pytest.approx([1, 0.5, 0.25])
    assert {SCHEDULES["constant"](step, LAST, 0.3) for step in (0, 500, LAST)} == {0.3}
    k = 100
    end = k / (k + math.exp(LAST / k))
    for step in (0, 250, 461, LAST):
        assert SCHEDULES["inverse_sigmoid"](step, LAST, end) == pytest.approx(k / (k + math.exp(step / k)), rel=1e-4)


def test_short_runs_have_values_too():
    for name in SCHEDULES:
        assert 0 <= SCHEDULES[name](0, 0, 0.5) <= 1


class Given(TrainerCallback):
    """What `forward` gets."""

    def __init__(self, model):
        self.ratios, forward = [], model.forward

        @functools.wraps(forward)
        def noted(*args, teacher_forcing_ratio=None, **kwargs):
            if model.training:
                self.ratios.append(teacher_forcing_ratio)
            return forward(*args, teacher_forcing_ratio=teacher_forcing_ratio, **kwargs)

        model.forward = noted


@pytest.mark.parametrize("kind", ["bahdanau", "transformer"])
def test_each_step_has_the_value_of_its_number(kind, tmp_path):
    options = {"max_steps": 6, "gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
    model = translator(kind)
    trainer = translating(arguments(tmp_path, **options, teacher_forcing="linear", teacher_forcing_end=0.0), model)
    given = Given(model)
    trainer.train()
    expected = [1 - step / 5 for step in range(6)]
    assert given.ratios == pytest.approx([value for value in expected for _ in range(2)])
    trainer.save_state()
    logged = [entry["teacher_forcing_ratio"] for entry in log_history(tmp_path) if "loss" in entry]
    assert len(logged) == 3


def test_without_a_schedule_nothing_is_passed(tmp_path):
    model = translator("bahdanau")
    trainer = translating(arguments(tmp_path, max_steps=2), model)
    given = Given(model)
    trainer.train()
    assert given.ratios == [None, None]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"teacher_forcing": "cosine"},
            "teacher_forcing must be one of constant, linear, exponential, inv",
        ),
        ({"teacher_forcing": "linear", "teacher_forcing_end": 1.5}, "teacher_forcing_end must be from 0 to 1, got 1.5"),
        ({"teacher_forcing": "exponential", "teacher_forcing_end": 0}, "teacher_forcing exponential never reaches 0"),
        ({"teacher_forcing": "inverse_sigmoid", "teacher_forcing_end": 1}, "inverse_sigmoid never reaches 1; give"),
    ],
)
def test_a_wrong_schedule_is_one_sentence(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        arguments(tmp_path, **options)


def test_other_models_reject_it(tmp_path):
    with pytest.raises(ValueError, match="--teacher_forcing is for decoders with a source, but EduBertForMaskedLM has"):
        masking(arguments(tmp_path, teacher_forcing="linear"))
