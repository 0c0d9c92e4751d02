"""Every shape comment is the shape of its tensor.

The tiny models are run with a tracer on. Behind every line of `models/` that ends in `# (B, T, D)` the tensor that the
line made is looked at: its letters must have one meaning within the call and a size that the tiny models have.
"""

import ast
import re
import sys
from pathlib import Path

import pytest
import torch
from tiny import ALL, BATCH, CASES, CHOICES, LENGTH, NUMERIC, SOURCE, inputs_for, pad, random_ids, targets_for

import hf_edu_models
from hf_edu_models.auto import AXES

FOLDER = Path(hf_edu_models.__file__).parent / "models"
COMMENT = re.compile(r"# \(([A-Z0-9, +]+?),?\)(?:  |$|, )")
# What a letter may stand for, with every width that a tiny model gives it.
SIZES = {
    "H": {3},
    "K": {4},
    # sentences, or unpadded tokens
    "N": {AXES["sentences"], BATCH, BATCH * SOURCE, BATCH * LENGTH, BATCH * LENGTH * CHOICES},
    "B": {BATCH, BATCH * CHOICES, BATCH * AXES["sentences"]},
    "T": {1, AXES["sentences"], SOURCE, LENGTH, LENGTH + 2},  # shared blocks run over sources and sentences, too
    "S": {1, SOURCE, LENGTH, LENGTH + 2, LENGTH + SOURCE},  # also the memory and the segment of a Transformer-XL
    "E": {10},
    "D": {4, 6, 9, 10, 12, 18, 24, 42, 72},
    "C": {4, 12, 24},  # choices, or an annotation
    "A": {8, 12},
    "G": {12, 36, 48},
    "L": {1, 2},
    "V": {29, 3},
    "W": {4},
    "Q": {1, 3, 4},
    "A + G": {12, 24, 36, 48, 60},
    "I": {10, 12},
    "F": {5, 6},
    "Y": {1},
}


def commented_lines() -> dict[str, dict[int, tuple[str, list[str]]]]:
    """For each file, the last line of each statement with a shape: the name that it sets, and the letters."""
    found = {}
    for file in sorted(FOLDER.glob("*.py")):
        lines = file.read_text().splitlines()
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Assign):
                continue
            comment = COMMENT.search(lines[node.end_lineno - 1])
            if comment and isinstance(node.targets[0], ast.Name):
                letters = [part.strip() for part in comment[1].split(",") if part.strip()]
                found.setdefault(str(file), {})[node.lineno] = (node.targets[0].id, letters)
    return found


class Tracer:
    """Checks each commented tensor when the line after it is reached."""

    def __init__(self, lines, sizes=SIZES):
        self.lines, self.sizes = lines, sizes
        self.reached, self.errors = set(), []

    def __call__(self, frame, event, _):
        commented = self.lines.get(frame.f_code.co_filename)
        if commented is None:
            return None
        meaning, pending = {}, []

        def look(frame, event, _):
            while pending:
                line = pending.pop()
                self.check(frame, line, *commented[line], meaning)
            if event == "line" and frame.f_lineno in commented:
                pending.append(frame.f_lineno)
            return look

        return look

    def check(self, frame, line, name, letters, meaning):
        tensor = frame.f_locals.get(name)
        if not isinstance(tensor, torch.Tensor):
            return
        self.reached.add((frame.f_code.co_filename, line))
        place = f"{Path(frame.f_code.co_filename).name}:{line} {name} # ({', '.join(letters)})"
        if tensor.ndim != len(letters):
            self.errors.append(f"{place} has shape {tuple(tensor.shape)}")
            return
        for letter, size in zip(letters, tensor.shape, strict=True):
            if letter.isdigit():
                is_right = size == int(letter)
            else:
                is_right = meaning.setdefault(letter, size) == size
                is_right &= letter not in self.sizes or size in self.sizes[letter]
            if not is_right:
                self.errors.append(f"{place} has shape {tuple(tensor.shape)}: {letter} was {meaning.get(letter)}")


def run_everything():
    """Forward, backward and generation of every tiny model in every form, padded and not."""
    for case in ALL:
        for form in ("eager", "fused"):
            model = case.build(form=form)
            model.train()(**inputs_for(case), **targets_for(case)).loss.backward()
            inputs = inputs_for(case)
            inputs["input_ids"], inputs["attention_mask"], _ = pad(inputs["input_ids"], "left")
            with torch.no_grad():
                model.eval()(**inputs)
            if case.task == "translation":
                model(input_ids=inputs["input_ids"], **targets_for(case))
    vectors = CASES["word_vectors"]
    vectors.build()(**inputs_for(vectors), **targets_for(vectors), negative_ids=random_ids(BATCH, 4))
    for case in NUMERIC:
        model = case.build()
        model.train()(**inputs_for(case), **targets_for(case)).loss.backward()
    CASES["recurrent-ForTimeSeriesPrediction-lags"].build().forecast(torch.randn(BATCH, LENGTH, AXES["features"]))
    xl = CASES["transformer_xl"].build()
    xl(random_ids(BATCH, LENGTH), past_key_values=xl(random_ids(BATCH, SOURCE), use_cache=True).past_key_values)
    windows = random_ids(BATCH * CHOICES, LENGTH).unflatten(0, (BATCH, CHOICES))
    for mask in (None, torch.ones_like(windows)):
        CASES["bert-ForSequenceClassification"].build()(windows, mask)
    kernel = CASES["kernel"].build()
    kernel(**inputs_for(CASES["kernel"]), memory_ids=torch.tensor([0, 1]))
    packed = torch.arange(LENGTH).expand(BATCH, LENGTH) % 4
    CASES["gpt"].build()(random_ids(BATCH, LENGTH), torch.ones(BATCH, LENGTH), position_ids=packed)
    CASES["gpt"].build()(random_ids(BATCH, LENGTH), position_ids=packed)
    elmo = CASES["elmo"].build().config.to_dict()
    features = [{"config": elmo, "pieces": 1, "prefix": [2], "suffix": [3]}]
    tagger = CASES["recurrent-ForTokenClassification"].build(features=features)
    tagger.model.features[0].spellings[:, 0] = 5
    tagger(random_ids(BATCH, LENGTH))
    dropped = {"dropout": 0.1, "embedding_dropout": 0.1, "lock_dropout_masks": True}
    awd = CASES["recurrent-awd-lstm"]
    awd.build(**dropped).train()(**inputs_for(awd), **targets_for(awd))
    for name in ("seq2seq-cho", "bahdanau"):
        CASES[name].build(form="fused").generate(random_ids(BATCH, SOURCE), num_beams=CHOICES, max_new_tokens=3)
    forgetful = CASES["seq2seq-cho"].build(teacher_forcing_ratio=0.5).train()
    for model in (forgetful, CASES["transformer"].build().train()):
        pairs = {"input_ids": random_ids(BATCH, SOURCE), "labels": random_ids(BATCH, LENGTH)}
        model(**pairs, teacher_forcing_ratio=0.5)


def traced(tracer, run):
    sys.settrace(tracer)
    try:
        run()
    finally:
        sys.settrace(None)


@pytest.fixture(autouse=True)
def no_other_tracer():
    if sys.gettrace() is not None:
        pytest.skip("another tracer (a debugger, coverage) is on")


def test_every_shape_comment_is_true_and_reached():
    lines = commented_lines()
    tracer = Tracer(lines)
    traced(tracer, run_everything)
    assert not tracer.errors, "\n".join(sorted(set(tracer.errors))[:20])
    expected = {(file, line) for file, found in lines.items() for line in found}
    never = [f"{Path(file).name}:{line}" for file, line in sorted(expected - tracer.reached)]
    assert not never, f"never reached by a tiny model: {never}"
    assert len(expected) > 60


def test_shape_comments_are_on_assignments():
    """Elsewhere they would not be checked."""
    known = commented_lines()
    for file in FOLDER.glob("*.py"):
        ends = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Assign) and node.lineno in known.get(str(file), {}):
                ends.add(node.end_lineno)
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            assert not COMMENT.search(line) or number in ends, f"{file.name}:{number} {line.strip()}"


@pytest.mark.parametrize("comment, is_right", [("(B, T)", True), ("(T, B)", False), ("(B,)", False), ("(B, 1)", False)])
def test_the_tracer_finds_a_wrong_shape(comment, is_right, tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text(f"import torch\ndef make():\n    states = torch.zeros(2, 7)  # {comment}\n    return states\n")
    space = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    letters = [part.strip() for part in COMMENT.search(f"# {comment}")[1].split(",") if part.strip()]
    tracer = Tracer({str(file): {3: ("states", letters)}})
    traced(tracer, space["make"])
    assert tracer.reached and (not tracer.errors) == is_right
