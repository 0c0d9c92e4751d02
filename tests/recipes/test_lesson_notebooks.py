"""The lessons run, show the code and the quiz of today, and their exercises tell right answers from wrong ones."""

import json
import math
import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from hf_edu_models.lessons import EXERCISES, check, leave_one_out

FOLDER = Path(__file__).parents[2] / "recipes" / "lessons"
LESSONS = sorted(FOLDER.glob("*.ipynb"))
NAMES = [file.stem for file in LESSONS]
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
UNTRAINED = ("01_kernel", "03_recurrent")  # nothing is trained, so the short run is the full run


def cells_of(name):
    return json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))["cells"]


def source(cell):
    return "".join(cell["source"])


def stored_output(cell):
    """The text below a cell: what was printed, and code that was displayed."""
    outputs = [each.get("text") or each["data"].get("text/markdown", "") for each in cell["outputs"]]
    text = "".join("".join(each) for each in outputs)
    return text.removeprefix("```python\n").removesuffix("\n```").strip()


def run(name, monkeypatch, capsys, folder, quick="1"):
    """The variables after the last cell, and what each code cell printed."""
    monkeypatch.setenv("HF_EDU_QUICK", quick)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(folder / "cache"))
    monkeypatch.chdir(folder)
    variables, printed = {"__name__": "lesson"}, []
    for number, cell in enumerate(cells_of(name)):
        if cell["cell_type"] == "code":
            capsys.readouterr()
            exec(compile(source(cell), f"{name}, cell {number}", "exec"), variables)
            printed.append((cell, capsys.readouterr().out.strip()))
    return variables, printed


def check_outcome(name, results, quick):
    """What a lesson says about its own numbers."""
    if name == "01_kernel":
        assert results[0.3] < results[0.03] < results[3.0]
    elif name == "02_feedforward":
        assert results[1] > 1.2 * results[2] and results[2] > results[4]
    elif name == "03_recurrent":
        assert results["rnn"][20] < 1e-4 and results["rnn"][40] < results["gru"][40] < results["lstm"][40]
    elif name == "04_lstm":
        assert results["LSTM, bias 5"][-1] > 0.9
        assert max(results["RNN"][-1], results["LSTM, bias 0"][-1]) < 0.5
    elif name == "05_word_vectors":
        assert max(curve[0] for curve in results.values()) < 0.2
        assert min(curve[-1] for curve in results.values()) > (0.7 if quick else 0.9)
        assert results["skip-gram, window 2"][3] > results["skip-gram, window 5"][3] + 0.1  # after 90 steps
    elif name == "06_seq2seq":
        turned, straight = results["reversed, 64 units"], results["as written, 64 units"]
        assert turned > straight + 0.2 and turned > results["reversed, 16 units"] + 0.2
    elif name == "07_bahdanau":
        assert results["with attention"] > results["without attention"] + (0.05 if quick else 0.2)
    elif name == "08_hierarchical":
        assert results["attention"][2] > results["mean"][2] + 0.2
        assert results["attention"][-1] > 0.95
    elif name == "09_transformer":
        full = results["4 heads"][-1]
        assert full > results["1 head"][-1] + 0.02 and full > results["4 heads, no positions"][-1] + 0.15
    elif name == "10_elmo":
        assert results["layer 0"] < 0.6 and min(results["layer 2"], results["mixed"]) > (0.75 if quick else 0.95)
        assert max(results["layer 2, forwards"], results["layer 2, backwards"]) < results["layer 2"] - 0.05
    elif name == "11_gpt":
        assert min(results["causal mask"].values()) > (0.5 if quick else 0.9)
        assert max(results["no mask"].values()) < 0.25
    elif name == "12_bert":
        gains = [results["pre-trained", labels] - results["from scratch", labels] for labels in (10, 25, 100)]
        assert sum(gains) / 3 > (0.03 if quick else 0.15)
        assert quick or results["pre-trained", 10] > results["from scratch", 100]
    else:
        pytest.fail(f"say here which outcome of {name} matters")


def check_printed(now, then):
    """The same words, and numbers within a tenth of one another."""
    assert NUMBER.sub("#", now) == NUMBER.sub("#", then)
    for new, old in zip(NUMBER.findall(now), NUMBER.findall(then), strict=True):
        assert math.isclose(float(new), float(old), rel_tol=0.1, abs_tol=0.01), (now, then)


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_runs_and_shows_the_code_of_today(name, monkeypatch, capsys, tmp_path):
    variables, printed = run(name, monkeypatch, capsys, tmp_path)
    check_outcome(name, variables["results"], quick=True)
    code = [(cell, text) for cell, text in printed if "show_code(" in source(cell) or "quiz(" in source(cell)]
    assert len(code) >= 2 and all(stored_output(cell) == text for cell, text in code), (
        "run the notebook again and commit it"
    )
    if name in UNTRAINED:
        for cell, text in printed:
            if "show_" not in source(cell):
                check_printed(text, stored_output(cell))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in UNTRAINED])
def test_a_trained_lesson_still_prints_what_it_shows(name, monkeypatch, capsys, tmp_path):
    variables, printed = run(name, monkeypatch, capsys, tmp_path, quick="0")
    check_outcome(name, variables["results"], quick=False)
    for cell, text in printed:
        # Neighbours of words and attention weights hang on rounding; what is measured does not.
        if "results[" in source(cell) or "results =" in source(cell):
            check_printed(text, stored_output(cell))


def solutions():
    """By exercise, the code that is folded away below its check."""
    found = {}
    for name in NAMES:
        cells = cells_of(name)
        for cell, after in pairwise(cells):
            asked = re.search(r'^check\("(.+)", answer\)$', source(cell), flags=re.MULTILINE)
            if asked and cell["cell_type"] == "code":
                assert "<details><summary>Solution</summary>" in source(after)
                found[asked[1]] = re.search(r"```python\n(.*?)```", source(after), flags=re.DOTALL)[1]
    return found


def test_the_labels_of_the_lesson_on_bert_are_the_order_of_the_stories():
    """Checked with the grammar that generates the stories, which the lesson does not use."""
    from itertools import groupby

    from hf_edu_models.data import load_corpus
    from hf_edu_models.data.builtin import stories as grammar

    (cell,) = [each for each in cells_of("12_bert") if "def sentences_with_parts" in source(each)]
    definitions = source(cell).split("labelled = ")[0]
    variables = {"groupby": groupby, "stories": load_corpus("stories", train_size=5, validation_size=20, test_size=5)}
    exec(definitions, variables)
    templates = {
        "opening": grammar.OPENINGS,
        "loss": grammar.LOSSES,
        "middle": grammar.MIDDLES,
        "finding": grammar.FINDINGS,
        "ending": grammar.ENDINGS,
    }
    rows = list(variables["sentences_with_parts"]("validation"))
    assert len(rows) == 100
    for text, part in rows:
        patterns = [re.sub(r"\\{\w+\\}", "[A-Za-z ]+", re.escape(template)) for template in templates[part]]
        assert any(re.fullmatch(pattern, text, flags=re.IGNORECASE) for pattern in patterns), (text, part)


# A mistake that is likely, for each exercise.
MISTAKES = {
    "kernel 1": lambda query, keys, values, width: (-((query - keys) ** 2) / (2 * width)).softmax(-1) @ values,
    "kernel 2": "mean",
    "kernel 3": 0.03,
    "feedforward 1": lambda embedding_size, window_size, hidden_size: embedding_size * window_size * hidden_size,
    "feedforward 2": lambda window, weight, bias: torch.tanh(weight @ window.flatten()) + bias,
    "feedforward 3": lambda probabilities: 1 / probabilities.mean(),
    "recurrent 1": lambda x, h, W, U, b: torch.tanh(W @ x + U @ h) + b,
    "recurrent 2": lambda new_state, U: (1 - new_state**2) * U,
    "recurrent 3": 65,
    "lstm 1": lambda sums, cell_state: (sums.chunk(4, -1)[3].sigmoid() * cell_state, cell_state),
    "lstm 2": 7,
    "lstm 3": lambda input_size, hidden_size: 4 * (hidden_size * input_size + hidden_size**2 + hidden_size),
    "word_vectors 1": lambda center, context, negatives: (
        -(torch.sigmoid(context @ center).log() + torch.sigmoid(negatives @ center).log().sum())
    ),
    "word_vectors 2": lambda counts: counts / counts.sum(),
    "word_vectors 3": lambda vectors, a, b, c: (vectors @ (vectors[b] - vectors[a] + vectors[c])).argmax(),
    "seq2seq 1": lambda num_layers, hidden_size: num_layers * hidden_size,
    "seq2seq 2": lambda i, length, is_reversed: 2 * i if is_reversed else length,
    "seq2seq 3": lambda step, state, start, end, max_tokens: [int(step(start, state)[0].argmax())] * max_tokens,
    "bahdanau 1": lambda s, h, W, U, v: (W @ s + h @ U.T) @ v,
    "bahdanau 2": lambda scores, h: scores @ h,
    "bahdanau 3": "flatter",
    "hierarchical 1": lambda h, W, b, u: ((h @ W.T + b) @ u).softmax(-1) @ h,
    "hierarchical 2": lambda scores, mask: scores.softmax(-1) * mask,
    "hierarchical 3": "max",
    "transformer 1": lambda Q, K, V: (Q @ K.T).softmax(-1) @ V,
    "transformer 2": lambda length: torch.ones(length, length).tril(-1),
    "transformer 3": lambda position, size: torch.cat(
        [wave(position / 10000 ** (torch.arange(0, size, 2) / size)) for wave in (torch.sin, torch.cos)]
    ),
    "elmo 1": lambda layers, w, gamma: gamma * torch.einsum("l,ltd->td", w, layers),
    "elmo 2": lambda token_ids: (token_ids, token_ids),
    "elmo 3": "both",
    "gpt 1": lambda length: torch.full((length, length), float("-inf")).triu(),
    "gpt 2": lambda logits, temperature, k: (logits / temperature).softmax(-1),
    "gpt 3": lambda prompt, new: (prompt * new, prompt + new),
    "bert 1": lambda ids, segments, tokens, parts, positions: tokens[ids] + parts[segments],
    "bert 2": lambda logits, ids, is_chosen: torch.nn.functional.cross_entropy(logits, ids),
    "bert 3": lambda vocab, hidden, layers, inner, positions: (
        (vocab + positions + 2) * hidden + layers * (4 * hidden**2 + 2 * hidden * inner)
    ),
}


def test_every_lesson_has_three_exercises_with_solutions_and_mistakes():
    assert set(solutions()) == set(EXERCISES) == set(MISTAKES)
    topics = [name.partition("_")[2] for name in NAMES]
    assert set(EXERCISES) == {f"{topic} {number}" for topic in topics for number in (1, 2, 3)}


@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_check_passes_the_solution_and_fails_a_mistake(exercise, capsys):
    variables = {"torch": torch, "leave_one_out": leave_one_out}
    exec(solutions()[exercise], variables)
    assert check(exercise, variables["answer"]) is True
    assert check(exercise, MISTAKES[exercise]) is False
    assert check(exercise, ...) is None
    right, wrong, missing = capsys.readouterr().out.strip().splitlines()
    assert right == f"{exercise}: right" and wrong.startswith(f"{exercise}: wrong. ") and "replace" in missing


def test_a_check_reports_an_answer_that_raises_and_an_unknown_exercise(capsys):
    assert check("kernel 1", lambda: None) is False
    assert "TypeError" in capsys.readouterr().out
    with pytest.raises(ValueError, match="choose one of bahdanau 1"):
        check("kernel 9", 1)


@pytest.mark.parametrize("file", LESSONS, ids=NAMES)
def test_a_committed_lesson_is_small_executed_and_listed(file):
    assert file.stat().st_size < 300_000
    cells = cells_of(file.stem)
    assert all(cell["execution_count"] for cell in cells if cell["cell_type"] == "code")
    kinds = {each["output_type"] for cell in cells for each in cell.get("outputs", [])}
    assert kinds <= {"stream", "display_data"}  # no error
    pictures = sum("image/png" in each.get("data", {}) for cell in cells for each in cell.get("outputs", []))
    assert pictures >= 2  # the architecture and the picture
    assert f"blob/main/recipes/lessons/{file.name})" in source(cells[0])  # the Colab badge
    assert f"]({file.name})" in (FOLDER / "README.md").read_text("utf-8")
