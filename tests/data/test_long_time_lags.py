"""The built-in corpora with long time lags: every label follows from its text by the rule of the paper."""

import re

import numpy as np
import pytest

from hf_edu_models.data import load_corpus
from hf_edu_models.data.builtin import long_time_lags as lags
from hf_edu_models.data.builtin import two_sequences

SIZES = {"train_size": 200, "validation_size": 0, "test_size": 20}


def rows_of(name, tmp_path, **options):
    return list(load_corpus(name, **SIZES, cache_dir=tmp_path, **options)["train"])


def test_reber_strings_end_as_they_begin_and_follow_the_published_grammar(tmp_path):
    """The language as a regular expression, worked out from Figures 3 and 4 of the paper."""
    upper = "(?:XT*VP)*(?:S|XT*VV)"
    inner = f"B(?:TS*X{upper}|PT*V(?:V|P{upper}))E"
    for row in rows_of("reber", tmp_path):
        text = row["text"].replace(" ", "")
        assert text[1] == text[-2] in "TP" and text[0] == "B" and text[-1] == "E"
        assert re.fullmatch(inner, text[2:-2]), text


def test_only_the_allowed_symbols_follow():
    drawn = lags.sample_reber(np.random.default_rng(0), 300)
    asked = drawn.targets != lags.PAD
    assert drawn.allowed[asked][np.arange(asked.sum()), drawn.targets[asked]].all()
    assert set(drawn.allowed.sum(-1)[asked]) == {1, 2} and not drawn.allowed[~asked].any()
    seen = {}
    for inputs, targets, length in zip(drawn.inputs, drawn.targets, drawn.lengths, strict=True):
        for step in range(length):
            seen.setdefault(tuple(inputs[: step + 1]), set()).add(targets[step])
    often = tuple(lags.REBER_SYMBOLS.index(symbol) for symbol in "BTB")
    assert seen[often] == {lags.REBER_SYMBOLS.index("T"), lags.REBER_SYMBOLS.index("P")}


def test_the_second_symbol_is_asked_for_after_the_lag(tmp_path):
    for row in rows_of("long_lags", tmp_path, lag=30, distractors=7):
        symbols = row["text"].split()
        assert symbols[0] == "b" and symbols[-1] == "e" and len(symbols) >= 33
        assert symbols[1] == "xy"[row["label"]]
        assert set(symbols[2:-1]) <= {f"a{number}" for number in range(1, 8)}
    lengths = lags.sample_long_lags(np.random.default_rng(1), 20_000, lag=30).lengths
    assert lengths.mean() == pytest.approx(30 + 3 + 9, abs=0.3)  # q + 14 without the label, as the paper computes


@pytest.mark.parametrize("regular", [True, False])
def test_the_first_symbol_comes_again_at_the_end(regular, tmp_path):
    texts = [row["text"].split() for row in rows_of("first_again", tmp_path, lag=12, regular=regular)]
    symbols = [f"a{number}" for number in range(1, 12)]
    for text in texts:
        assert text[0] == text[-1] in ("x", "y") and len(text) == 13
        assert text[1:-1] == symbols if regular else set(text[1:-1]) <= set(symbols)
    assert len({tuple(text) for text in texts}) == (2 if regular else 200)
    drawn = lags.sample_first_again(np.random.default_rng(0), 9, lag=12, regular=regular)
    assert drawn.inputs.shape == drawn.targets.shape == (9, 12)
    assert (drawn.inputs[:, 1:] == drawn.targets[:, :-1]).all() and (drawn.inputs[:, 0] == drawn.targets[:, -1]).all()


@pytest.mark.parametrize("variant", ["a", "b", "c"])
def test_the_first_numbers_tell_the_class_and_noise_is_where_the_task_has_it(variant, tmp_path):
    for row in rows_of("two_sequences", tmp_path, variant=variant, length=40, signal=2):
        numbers = [float(word) for word in row["text"].split()]
        assert 40 <= len(numbers) <= 44
        if variant == "a":
            assert numbers[:2] == [2 * row["label"] - 1] * 2
    drawn = two_sequences.sample_two_sequences(np.random.default_rng(0), 20_000, variant, length=40, signal=2)
    classes = np.unique(drawn.expected)
    assert classes.tolist() == ([0.2, 0.8] if variant == "c" else [0, 1])
    first = drawn.expected == (0.2 if variant == "c" else 1)
    assert first.mean() == pytest.approx(0.5, abs=0.02)
    signs = np.where(first, 1, -1)[:, None]
    assert (drawn.inputs[:, :2, 0] - signs).var() == pytest.approx(0.2 if variant == "b" else 0, abs=0.01)
    assert drawn.inputs[:, 2:40].var() == pytest.approx(0.2, abs=0.01)
    assert (drawn.targets - drawn.expected).var() == pytest.approx(0.1 if variant == "c" else 0, abs=0.01)
    assert (drawn.inputs[np.arange(44) >= drawn.lengths[:, None]] == 0).all()


@pytest.mark.parametrize(
    ("name", "lowest", "rule"),
    [("adding", -1, lambda one, two: 0.5 + (one + two) / 4), ("multiplication", 0, lambda one, two: one * two)],
)
def test_the_marked_numbers_make_the_label(name, lowest, rule, tmp_path):
    firsts = []
    for row in rows_of(name, tmp_path, length=60):
        words = row["text"].split()
        marked = [place for place, word in enumerate(words) if word.endswith("*")]
        numbers = [float(word.rstrip("*")) for word in words]
        assert 60 <= len(words) <= 66 and len(marked) == 2 and lowest <= min(numbers) <= max(numbers) <= 1
        assert marked[0] < 10 and marked[1] < 30
        assert row["label"] == pytest.approx(rule(*(numbers[place] for place in marked)), abs=1e-6)
        firsts += [numbers[0]] if marked[0] == 0 else []
    assert set(firsts) == {float(name == "multiplication")}, "a marked first number changes nothing"
    drawn = getattr(lags, f"sample_{name}")(np.random.default_rng(0), 50, length=60)
    last = drawn.inputs[np.arange(50), drawn.lengths - 1, 1]
    assert (last == -1).all() and ((drawn.inputs[..., 1] == 1).sum(1) == 2).all()


@pytest.mark.parametrize("relevant", [2, 3])
def test_the_class_is_the_order_of_x_and_y(relevant, tmp_path):
    corpus = load_corpus("temporal_order", **SIZES, relevant=relevant, cache_dir=tmp_path)["train"]
    names = corpus.features["label"].names
    found = {}
    for row in corpus:
        symbols = row["text"].split()
        order = "".join(symbol for symbol in symbols if symbol in "XY")
        assert symbols[0] == "E" and symbols[-1] == "B" and 100 <= len(symbols) <= 110 and len(order) == relevant
        found.setdefault(order, set()).add(names[row["label"]])
    assert all(len(each) == 1 for each in found.values()) and len(found) == 2**relevant
    expected = {"XX": "Q", "XY": "R", "YX": "S", "YY": "U"} if relevant == 2 else {"XXX": "Q", "YXY": "A", "YYY": "C"}
    assert {order: found[order].pop() for order in expected} == expected


def test_the_symbols_come_again_after_the_delay(tmp_path):
    corpus = load_corpus("delayed_copy", **SIZES, delay=20, length=4, symbols=5, cache_dir=tmp_path)["train"]
    names = corpus.features["tags"].feature.names
    for row in corpus:
        tags = [names[tag] for tag in row["tags"]]
        assert len(tags) == len(row["tokens"]) == 28 and row["tokens"].index("|") == 23
        assert tags[-4:] == row["tokens"][:4] and set(tags[:-4]) == {"_"} == set(row["tokens"][24:])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("long_lags", {"lag": 0}, "lag must be 1 or more, got 0"),
        ("first_again", {"lag": 1}, "lag must be 2 or more, got 1"),
        ("two_sequences", {"variant": "d"}, "variant must be a, b or c .*, got 'd'"),
        ("two_sequences", {"length": 5, "signal": 6}, "signal must be between 1 and length 5, got 6"),
        ("adding", {"length": 10}, "length must be 22 or more, got 10"),
        ("temporal_order", {"relevant": 4}, r"relevant must be 2 \(Task 6a\) or 3"),
        ("delayed_copy", {"symbols": 2, "length": 3}, "too few different sequences for 220 rows"),
    ],
)
def test_impossible_options_are_rejected(name, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        rows_of(name, tmp_path, **options)
