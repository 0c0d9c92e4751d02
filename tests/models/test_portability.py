"""The models travel: they import only torch and transformers, and checkpoints carry their code."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from tiny import ALL, EVERY, NUMERIC, VOCABULARY, inputs_for, logits_of

import hf_edu_models
from hf_edu_models import LADDER

FOLDER = Path(hf_edu_models.__file__).parent / "models"


def import_errors(path: Path, siblings: set[str]) -> list[str]:
    """What in a file would not travel to the Hub."""
    errors = []
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        elif isinstance(node, ast.ImportFrom) and (node.level > 1 or node.module not in siblings):
            errors.append(f"line {node.lineno}: only `from .sibling import name` is copied along")
        for name in names:
            root = name.partition(".")[0]
            if root not in {"torch", "transformers"} and root not in sys.stdlib_module_names:
                errors.append(f"line {node.lineno}: imports {root}")
    # transformers finds what to copy with a regular expression, which also reads docstrings.
    strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    for line in "\n".join(value for value in strings if isinstance(value, str)).splitlines():
        if line.strip().startswith(("from .", "import .")):
            errors.append(f"a text has the line {line.strip()!r}, which would be read as an import")
    return errors


def test_every_file_travels():
    files = sorted(FOLDER.glob("*.py"))
    siblings = {file.stem for file in files}
    assert len(files) > 10
    assert {file.name: import_errors(file, siblings) for file in files} == {file.name: [] for file in files}
    assert not [path for path in FOLDER.glob("[!._]*") if path.is_dir()], "the folder is flat"


@pytest.mark.parametrize(
    "line",
    [
        "from ..layers import unroll",
        "from .blocks.recurrent import unroll",
        "from . import blocks_recurrent",
        "from hf_edu_models.models.blocks_recurrent import unroll",
        "import numpy as np",
        "from datasets import load_dataset",
        "from .no_such_file import unroll",
        '"""\nfrom .blocks_recurrent import unroll\n"""',
    ],
)
def test_imports_that_do_not_travel_are_found(line, tmp_path):
    file = tmp_path / "modeling_bad.py"
    file.write_text(line + "\n")
    assert import_errors(file, {"blocks_recurrent"})
    file.write_text("import math\nimport torch\nfrom transformers import X\nfrom .blocks_recurrent import unroll\n")
    assert not import_errors(file, {"blocks_recurrent"})


STRANGER = """
import json, sys

class NoPackage:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hf_edu_models":
            raise ImportError("not here")

sys.meta_path.insert(0, NoPackage())
import torch, transformers

answers = {}
for folder, auto, inputs in json.load(open(sys.argv[1])):
    auto_class = getattr(transformers, auto)
    try:
        auto_class.from_pretrained(folder)
        raise SystemExit("loaded without trust")
    except ValueError as error:
        assert "trust_remote_code" in str(error) or "model type" in str(error), error
    model = auto_class.from_pretrained(folder, trust_remote_code=True).eval()
    inputs = {key: torch.tensor(value) for key, value in inputs.items()}
    if auto == "AutoModelForMultipleChoice":
        inputs = {key: value[:, None] for key, value in inputs.items()}
    with torch.no_grad():
        outputs = model(**inputs)
    answer = [type(model).__name__, outputs.to_tuple()[0].tolist()]
    if model.can_generate():
        answer.append(model.generate(inputs["input_ids"], num_beams=3, max_new_tokens=5).tolist())
    # Saved again from here, it must still carry its code and name every head.
    model.save_pretrained(folder + "-again")
    again = auto_class.from_pretrained(folder + "-again", trust_remote_code=True)
    assert again.config.auto_map == json.load(open(folder + "/config.json"))["auto_map"], again.config.auto_map
    answers[folder + auto] = answer
json.dump(answers, open(sys.argv[2], "w"))
"""


def test_checkpoints_load_without_the_package(tmp_path):
    """A process that cannot import the package loads the checkpoint of every rung into every head."""
    jobs, models = [], {}
    for rung in LADDER:
        case = next(case for case in EVERY if case.head in rung.config.heads.values())
        folder = str(tmp_path / rung.name)
        case.build().save_pretrained(folder)
        for auto, name in rung.config.heads.items():
            of_head = next((each for each in NUMERIC if each.head == name), case)
            jobs.append((folder, auto, {key: value.tolist() for key, value in inputs_for(of_head).items()}))
            models[folder + auto] = (name, case)
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    (tmp_path / "stranger.py").write_text(STRANGER)
    command = [sys.executable, "stranger.py", "jobs.json", "answers.json"]
    environment = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "PATH": ""}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    answers = json.loads((tmp_path / "answers.json").read_text())
    assert answers.keys() == models.keys()
    for key, (found_name, values, *generated) in answers.items():
        name, case = models[key]
        assert found_name == name
        if name == case.head:
            model = case.build()
            inputs = inputs_for(case)
            torch.testing.assert_close(torch.tensor(values), logits_of(model(**inputs)))
            assert (
                not model.can_generate()
                or generated[0] == model.generate(inputs["input_ids"], num_beams=3, max_new_tokens=5).tolist()
            )


def test_the_installed_package_wins_over_remote_code(tmp_path):
    model = ALL[0].build()
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=True)
    assert type(loaded) is type(model)


def test_importing_and_registering_again_is_harmless():
    hf_edu_models.register()
    hf_edu_models.register()
    for rung in LADDER:
        assert transformers.AutoConfig.for_model(rung.model_type).__class__ is rung.config
        for auto, head in rung.heads.items():
            config = rung.config(vocab_size=VOCABULARY)
            assert getattr(transformers, auto)._model_mapping[type(config)] is head
