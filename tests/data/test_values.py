"""Corpora of real numbers: features and a value."""

import json
import math

import pytest
import torch

from hf_edu_models.data import collator_for, encode_corpus, load_corpus
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
