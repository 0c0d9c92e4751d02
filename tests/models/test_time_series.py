"""Forecasts against torch's own LSTM and a loop over lags; weights that find the lags of a series."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from tiny import CASES, inputs_for, random_numbers, targets_for
from torch import nn
from torch.testing import assert_close
from transformers import AutoModelForTimeSeriesPrediction, Trainer, TrainingArguments

from hf_edu_models import EduRecurrentConfig, EduRecurrentForTimeSeriesPrediction
from hf_edu_models.data import collator_for, fit_scale, load_corpus, make_windows
from hf_edu_models.data.corpora import value_names
from hf_edu_models.data.series import SeriesWindows, find_season, naive_forecasts
from hf_edu_models.forecasting import forecast_file
from hf_edu_models.metrics import compute_metrics_for

PLAIN, LAGS = CASES["recurrent-ForTimeSeriesPrediction"], CASES["recurrent-ForTimeSeriesPrediction-lags"]


def lstm_of(stack):
    """torch's LSTM with the weights of ours."""
    first = stack.layers[0].forward_cell
    reference = nn.LSTM(first.input_weight.shape[1], first.hidden_size, len(stack.layers), batch_first=True)
    names = {"weight_ih": "input_weight", "weight_hh": "state_weight", "bias_ih": "input_bias", "bias_hh": "state_bias"}
    with torch.no_grad():
        for number, layer in enumerate(stack.layers):
            for theirs, ours in names.items():
                getattr(reference, f"{theirs}_l{number}").copy_(getattr(layer.forward_cell, ours))
    return reference


@pytest.mark.parametrize("form", ["eager", "fused"])
def test_without_attention_it_is_an_lstm_between_two_linear_layers(form):
    model, past = PLAIN.build(form=form), inputs_for(PLAIN)["past_values"]
    states, _ = lstm_of(model.model.stack)(model.value_proj(past))
    expected = past[:, -1:] + model.forecast_proj(states[:, -1]).view(2, 9, 6)
    assert_close(model(past).prediction_outputs, expected)
    future = targets_for(PLAIN)["future_values"]
    assert_close(model(past, future).loss, (expected - future).square().mean())


def test_attention_is_a_weighted_sum_over_lags():
    """h~_t = sum_tau alpha(t, tau) h_{t-tau}, where the score of lag tau has b_tau."""
    model, past = LAGS.build(), inputs_for(LAGS)["past_values"]
    outputs = model(past, output_attentions=True)
    states, _ = lstm_of(model.model.stack)(model.value_proj(past))
    attention, last = model.model.window_attention, states[:, -1]
    scores = []
    for lag in (4, 3, 2, 1):
        aligned = torch.tanh(attention.query_proj(last) + attention.key_proj(states[:, -1 - lag]))
        scores.append(attention.score_proj(aligned)[:, 0] + attention.lag_bias[-lag])
    weights = torch.stack(scores, dim=1).softmax(dim=1)
    context = sum(weights[:, 4 - lag, None] * states[:, -1 - lag] for lag in (4, 3, 2, 1))
    features = torch.tanh(attention.output_proj(torch.cat([last, context], dim=1)))
    assert_close(outputs.attentions[0][:, 0, -1], weights)
    assert_close(outputs.prediction_outputs, past[:, -1:] + model.forecast_proj(features).view(2, 9, 6))


def test_the_past_before_the_window_of_the_forecast_is_read_too():
    model, past = PLAIN.build(), inputs_for(PLAIN)["past_values"]
    changed = past.clone()
    changed[:, 0] += 1
    assert not torch.allclose(model(past).prediction_outputs, model(changed).prediction_outputs)


def test_many_steps_read_their_own_forecasts_in_the_units_of_the_series():
    scale = {"input_mean": [5.0, -3.0], "input_std": [2.0, 10.0]}
    sizes = LAGS.settings | {"num_input_channels": 2, "prediction_length": 3, "context_length": 6}
    model = EduRecurrentForTimeSeriesPrediction(EduRecurrentConfig(**sizes | scale)).eval()
    mean, std = torch.tensor(scale["input_mean"]), torch.tensor(scale["input_std"])
    series = random_numbers(2, 10, 2) * std + mean
    values, weights = model.forecast(series, steps=5)
    scaled = (series - mean) / std
    first = model(scaled[:, -6:], output_attentions=True)
    second = model(torch.cat([scaled, first.prediction_outputs], dim=1)[:, -6:])
    expected = torch.cat([first.prediction_outputs, second.prediction_outputs], dim=1)[:, :5] * std + mean
    assert_close(values, expected.detach())
    assert_close(weights, first.attentions[0][:, 0, -1].detach())
    assert model.forecast(series)[0].shape == (2, 3, 2)


@pytest.mark.slow
@pytest.mark.parametrize("lags", [(5, 12), (8,)])
def test_the_weights_peak_at_the_lags_of_the_series(lags, tmp_path):
    """Each of the heaviest states is that of a lag, or the one after it, which may still hold the value."""
    corpus = load_corpus("seasons", train_size=1_500, validation_size=300, test_size=0, lags=lags)
    sizes = {"cell_type": "rnn", "hidden_size": 16, "num_hidden_layers": 1, "dropout": 0.0, "initializer_range": 0.2}
    sizes |= {"attention_window": 14, "attention_lag_bias": True, "context_length": 24}
    torch.manual_seed(0)
    model = EduRecurrentForTimeSeriesPrediction(EduRecurrentConfig(**sizes, **fit_scale(corpus["train"])))
    windows, collator = make_windows(corpus, model.config), collator_for("time_series")
    arguments = TrainingArguments(
        tmp_path,
        num_train_epochs=10,
        per_device_train_batch_size=64,
        learning_rate=0.01,
        lr_scheduler_type="cosine",
        label_names=["future_values"],
        report_to="none",
        use_cpu=True,
        save_strategy="no",
    )
    scorer = compute_metrics_for("time_series", windows=windows["validation"])
    trainer = Trainer(model, arguments, collator, windows["train"], windows["validation"], compute_metrics=scorer)
    trainer.train()
    scores = trainer.evaluate()
    past = torch.tensor(windows["validation"].past.copy())
    with torch.no_grad():
        weights = model.eval()(past, output_attentions=True).attentions[0][:, 0, -1].mean(dim=0)
    heaviest = {len(weights) - index + 1 for index in weights.argsort(descending=True)[: len(lags)].tolist()}
    assert all(heaviest & {lag, lag - 1} for lag in lags), weights
    assert weights.topk(len(lags)).values.min() > 1.5 / len(weights)
    assert scores["eval_mse"] < scores["eval_last_value_mse"]
    # One season back is nearly the best forecast of a series with a single lag.
    assert len(lags) == 1 or scores["eval_mse"] < scores["eval_seasonal_naive_mse"]


def test_naive_forecasts_of_a_sine_are_perfect_one_season_back():
    values = np.sin(np.arange(200) * 2 * math.pi / 12)
    windows = SeriesWindows(values[:, None], 48, 15)
    assert find_season(windows.past) == 12 and len(windows) == 200 - 48 - 15 + 1
    found = naive_forecasts(windows.past, 15)
    np.testing.assert_allclose(found["seasonal_naive"], windows.future, atol=1e-5)
    np.testing.assert_allclose(found["last_value"], np.repeat(windows.past[:, -1:], 15, axis=1))
    assert find_season(np.zeros((3, 20, 1))) is None


def test_the_auto_class_of_transformers_loads_it(tmp_path):
    model = LAGS.build()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForTimeSeriesPrediction.from_pretrained(tmp_path)
    assert type(loaded) is EduRecurrentForTimeSeriesPrediction
    assert_close(loaded.model.window_attention.lag_bias, model.model.window_attention.lag_bias)


def test_a_forecast_names_the_columns_as_the_file_does(tmp_path):
    sizes = PLAIN.settings | {"num_input_channels": 2, "prediction_length": 3, "context_length": 6}
    EduRecurrentForTimeSeriesPrediction(EduRecurrentConfig(**sizes)).save_pretrained(tmp_path / "model")
    rows = [f"{0.1 * day:.1f},2026-11-{day:02},{day % 3}" for day in range(1, 15)]
    (tmp_path / "sales.csv").write_text("\n".join(["bread,date,milk", *rows]))
    found = forecast_file(str(tmp_path / "model"), tmp_path / "sales.csv")
    assert found.channels == ["bread", "milk"] and list(found.rows[0]) == ["date", "bread", "milk"]
    assert found.past[0].tolist() == [0.1, 1] and found.rows[0]["bread"] == found.values[0, 0]
    pd.DataFrame({"date": ["2026-11-01"], "values": [[1.0, 2.0]]}).to_parquet(tmp_path / "lists.parquet")
    assert value_names(tmp_path / "lists.parquet") == ["values 0", "values 1"]
    (tmp_path / "one.csv").write_text("date,values\n2026-11-01,3.5\n")
    assert value_names(tmp_path / "one.csv") == ["values"]


PAST = inputs_for(PLAIN)["past_values"]
WRONG = {
    "channels": ({"past_values": PAST[..., :4]}, r"past_values has shape \(2, 7, 4\), but \(any, any, 6\) is needed"),
    "NaN": ({"past_values": PAST * math.nan}, "past_values has values from nan to nan"),
    "integers": ({"past_values": PAST.long()}, "past_values has dtype torch.int64, but real numbers are needed"),
    "no step": ({"past_values": PAST[:, :0]}, r"past_values has shape \(2, 0, 6\); give at least one row"),
    "horizon": (
        {"past_values": PAST, "future_values": PAST},
        r"future_values has shape \(2, 7, 6\), but \(2, 9, 6\) is needed",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_rejected(name):
    call, sentence = WRONG[name]
    with pytest.raises(ValueError, match=sentence):
        PLAIN.build()(**call)


CONFIGURATIONS = [
    ({"prediction_length": 0}, "prediction_length must be 1 or more, got 0"),
    ({"num_input_channels": 2, "input_std": [1.0, 0.0]}, "input_std must have a finite number above 0 for each of 2"),
    ({"input_mean": [1.0, 2.0]}, "input_mean must have a finite number for each of 1 channels, got [1.0, 2.0]"),
    ({"attention_lag_bias": True}, "attention_lag_bias is for a window of attention; set attention_window too"),
]


@pytest.mark.parametrize(("settings", "sentence"), CONFIGURATIONS)
def test_an_invalid_configuration(settings, sentence):
    with pytest.raises(Exception) as error:
        EduRecurrentConfig(**settings)
    assert sentence in str(error.value)


def test_a_forecast_in_both_directions_or_of_no_step():
    with pytest.raises(ValueError, match="a forecast must not read the future"):
        EduRecurrentForTimeSeriesPrediction(EduRecurrentConfig(bidirectional=True))
    with pytest.raises(ValueError, match="steps must be 1 or more, got 0"):
        PLAIN.build().forecast(PAST, steps=0)
