"""Corpora of real numbers: features and a value."""

import json
import math

import numpy as np
import pytest
import torch

from hf_edu_models import EduRecurrentConfig
from hf_edu_models.data import collator_for, encode_corpus, fit_scale, load_corpus, make_windows
from hf_edu_models.data.builtin.curves import function_of


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("dimensions", [1, 3])
def test_the_curve_without_noise_is_the_function(dimensions):
    corpus = load_corpus("curve", train_size=50, dimensions=dimensions, noise=0.0)
    for row in corpus["train"]:
        assert len(row["features"]) == dimensions and all(0 <= x <= 5 for x in row["features"])
        assert row["value"] == pytest.approx(function_of(row["features"]), abs=1e-4)
    assert function_of([math.pi / 2]) == pytest.approx(2 + (math.pi / 2) ** 0.8)


@pytest.mark.parametrize(("option", "sentence"), [({"dimensions": 0}, "1 or more, got 0"), ({"noise": -1}, "got -1")])
def test_a_wrong_option_of_the_curve(option, sentence):
    with pytest.raises(ValueError, match=sentence):
        load_corpus("curve", **option)


def test_columns_of_a_table_become_features(tmp_path):
    file = tmp_path / "houses.csv"
    file.write_text("rooms,age,price\n3,20,310.5\n4,5,420\n")
    for columns in ({"value": "price"}, {"value": "price", "features": ("rooms", "age")}):
        corpus = load_corpus(file, columns=columns)
        assert corpus["train"][:] == {"features": [[3.0, 20.0], [4.0, 5.0]], "value": [310.5, 420.0]}
    assert load_corpus(file, columns={"value": "price", "features": "age"})["train"]["features"][:] == [[20.0], [5.0]]
    encoded = encode_corpus(corpus, None, task="regression")["train"]
    batch = collator_for("regression")([encoded[0] | {"memory_ids": 0}, encoded[1] | {"memory_ids": 1}])
    assert torch.equal(batch["input_values"], torch.tensor([[3.0, 20.0], [4.0, 5.0]]))
    assert batch["labels"].dtype == torch.float32 and batch["memory_ids"].tolist() == [0, 1]


WRONG = {
    "NaN": ({"features": [1.0, math.nan], "value": 2.0}, r"'features' is \[1.0, nan\] in row 1 of train"),
    "nothing": ({"features": None, "value": 2.0}, "'features' is None in row 1 of train"),
    "a gap": ({"features": [1.0, 2.0], "value": None}, r"'value' is None in row 1 of train .*; fill it in, or remove"),
    "another size": ({"features": [1.0], "value": 2.0}, "'features' has 1 numbers in row 1 of train, but 2 before"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_number_is_named_with_its_row(name, tmp_path):
    row, sentence = WRONG[name]
    file = write_rows(tmp_path / "rows.jsonl", [{"features": [1.0, 2.0], "value": 3.0}, row])
    with pytest.raises(ValueError, match=sentence):
        load_corpus(file)


def test_a_table_without_a_value(tmp_path):
    file = write_rows(tmp_path / "rows.jsonl", [{"a": 1.0, "b": 2.0}])
    with pytest.raises(ValueError, match="task regression needs the column 'value' and none of 'a', 'b' is known"):
        load_corpus(file, task="regression")


def write_series(path, dates, values):
    path.write_text(
        "date,load,temperature\n" + "".join(f"{d},{v},{2 * v}\n" for d, v in zip(dates, values, strict=True))
    )
    return path


HOURS = [f"2020-01-{day:02} {hour:02}:00:00" for day in (1, 2, 3, 4) for hour in range(24)]


def test_a_table_with_dates_is_a_series_cut_in_order(tmp_path):
    file = write_series(tmp_path / "load.csv", HOURS, range(96))
    corpus = load_corpus(file, task="time_series", validation_size=20, test_size=10)
    assert [len(corpus[split]) for split in ("train", "validation", "test")] == [66, 20, 10]
    assert corpus["train"][0]["values"] == [0.0, 0.0] and corpus["validation"][0]["values"] == [66.0, 132.0]
    assert [row["values"][0] for row in corpus["test"]] == list(range(86, 96))
    first = load_corpus(file, task="time_series", columns={"values": "load"})
    assert first["train"]["values"][3] == [3.0]


def test_the_scale_is_that_of_the_train_split(tmp_path):
    file = write_series(tmp_path / "load.csv", HOURS, range(96))
    corpus = load_corpus(file, task="time_series", validation_size=20, test_size=10)
    scale = fit_scale(corpus["train"])
    assert scale["input_mean"] == [32.5, 65.0]
    config = EduRecurrentConfig(num_input_channels=2, context_length=6, prediction_length=2, **scale)
    windows = make_windows(corpus, config)
    assert len(windows["train"]) == 66 - 8 + 1
    batch = collator_for("time_series")([windows["test"][0], windows["test"][2]])
    assert batch["past_values"].shape == (2, 6, 2) and batch["future_values"].shape == (2, 2, 2)
    expected = (torch.arange(92, 94) - 32.5) / scale["input_std"][0]
    torch.testing.assert_close(batch["future_values"][0, :, 0], expected)
    with pytest.raises(ValueError, match="a split has 10 rows, but a window needs context_length 48"):
        make_windows(corpus["test"], EduRecurrentConfig(num_input_channels=2, **scale))


BROKEN = {
    "a gap": ([*HOURS[:5], *HOURS[7:]], range(94), "in row 5 of train .* leaves a gap after 2020-01-01 04:00:00; sort"),
    "the order": ([HOURS[1], HOURS[0], *HOURS[2:]], range(96), "in row 1 of train .* is not after 2020-01-01 01:00:00"),
    "twice": ([HOURS[0], *HOURS], range(97), "in row 1 of train .* is not after"),
    "no date": (["yesterday", *HOURS[1:]], range(96), "'date' is 'yesterday' in row 0 of train"),
    "NaN": (HOURS, [1.0, math.nan, *range(94)], r"'values' is \[nan, nan\] in row 1 of train"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_series_is_rejected_with_its_row(name, tmp_path):
    dates, values, sentence = BROKEN[name]
    with pytest.raises(ValueError, match=sentence):
        load_corpus(write_series(tmp_path / "load.csv", dates, values), task="time_series")


def test_months_have_no_gaps(tmp_path):
    months = [f"20{year}-{month:02}-01" for year in (20, 21) for month in range(1, 13)]
    assert len(load_corpus(write_series(tmp_path / "load.csv", months, range(24)), task="time_series")["train"]) == 24


def test_seasons_depend_on_their_lags():
    train = load_corpus("seasons", train_size=4_000, lags=(3, 7), noise=0.5)["train"]
    values = np.array(train["values"][:])[:, 0]
    lagged = np.stack([values[10 - lag : len(values) - lag] for lag in range(1, 11)], axis=1)
    found = np.linalg.lstsq(lagged, values[10:], rcond=None)[0]
    expected = np.zeros(10)
    expected[[2, 6]] = 0.475
    np.testing.assert_allclose(found, expected, atol=0.06)
    for option in ({"lags": (0,)}, {"noise": 0}):
        with pytest.raises(ValueError, match=r"lags must be integers|noise must be above 0"):
            load_corpus("seasons", **option)
