"""Checks of whether a model's code travels: a folder that a stranger can load with `trust_remote_code=True`."""

from __future__ import annotations

import ast
import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, PreTrainedConfig
from transformers.dynamic_module_utils import get_relative_imports

from .doctor_compare import predictions, same, several, write_inputs
from .doctor_patient import Patient
from .doctor_report import Verdict, fail, ok, skipped

# The suffix of a class's name tells which Auto class it answers to.
AUTO_CLASSES = {
    "LMHeadModel": "AutoModelForCausalLM",
    "ForConditionalGeneration": "AutoModelForSeq2SeqLM",
    "MTModel": "AutoModelForSeq2SeqLM",
}


def check_code(patient: Patient) -> Verdict:
    if patient.is_transformers_own:
        return skipped("transformers' own code need not travel")
    if patient.model_class.__module__ == "__main__":
        return fail("the class is defined in __main__, whose code is not copied", "move the class to a file of its own")
    problems, files = [], sources_of(patient)
    for file in files:
        problems += [f"{file.name}: {problem}" for problem in import_problems(file, roots_of(patient))]
    problems += missing_in_checkpoint(patient)
    if problems:
        return fail(several(problems, most=2))
    return ok(f"{len(files)} file{'s' if len(files) > 1 else ''}, with imports that travel")


def roots_of(patient: Patient) -> set[str]:
    """The packages that a stranger does not have."""
    modules = (patient.model_class.__module__, type(patient.config).__module__)
    return {module.partition(".")[0] for module in modules} - {"transformers", "transformers_modules"}


def sources_of(patient: Patient) -> list[Path]:
    """The files of the class and its configuration, and all siblings that they import."""
    classes = [each for each in (patient.model_class, type(patient.config)) if is_custom(each)]
    waiting = [Path(sys.modules[each.__module__].__file__) for each in classes]
    found = []
    while waiting:
        file = waiting.pop()
        if file not in found and file.exists():
            found.append(file)
            waiting += [file.with_name(f"{name}.py") for name in siblings_of(file)]
    return found


def is_custom(each: type) -> bool:
    return not each.__module__.startswith("transformers.")


def imports_of(file: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    return imports_in(file.read_text("utf-8"))


@lru_cache(maxsize=100)
def imports_in(text: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    return tuple(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom))


def siblings_of(file: Path) -> list[str]:
    imports = (node for node in imports_of(file) if isinstance(node, ast.ImportFrom))
    return [node.module for node in imports if node.level == 1 and node.module]


def import_problems(file: Path, roots: set[str]) -> list[str]:
    """What in a file does not survive being copied to the Hub."""
    problems = []
    for node in imports_of(file):
        if isinstance(node, ast.ImportFrom) and node.level:
            problems += relative_problem(file, node)
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
            own = [name for name in names if name.partition(".")[0] in roots]
            problems += [f"line {node.lineno} imports {name}, which a stranger has not installed" for name in own]
    # transformers looks for imports with a regular expression, which reads texts and comments, too.
    read_as_import = [name for name in get_relative_imports(file) if "." not in name]
    for name in sorted(set(read_as_import) - set(siblings_of(file))):
        if not file.with_name(f"{name}.py").exists():
            problems.append(f"a text has the line `from .{name} import`, which is read as code")
    return problems


def relative_problem(file: Path, node: ast.ImportFrom) -> list[str]:
    written = f"line {node.lineno} `from {'.' * node.level}{node.module or ''} import`"
    if node.level > 1:
        return [f"{written} reaches into a parent folder"]
    if node.module is None:
        return [f"{written} names no file, so none is copied"]
    if "." in node.module:
        return [f"{written} reaches into a sub-folder"]
    return [] if file.with_name(f"{node.module}.py").exists() else [f"{written} names a file that is not there"]


def missing_in_checkpoint(patient: Patient) -> list[str]:
    """Files that a checkpoint folder's config.json promises and the folder lacks."""
    folder = Path(patient.source) if patient.source else None
    if folder is None or not folder.is_dir():
        return []
    auto_map = json.loads((folder / "config.json").read_text("utf-8")).get("auto_map", {})
    modules = {entry.rpartition(".")[0] for entry in auto_map.values() if isinstance(entry, str) and "--" not in entry}
    return [f"{module}.py, which auto_map names, is not there" for module in sorted(modules) if not has(folder, module)]


def has(folder: Path, module: str) -> bool:
    return (folder / f"{module}.py").exists()


STRANGER = """
import json, sys

job = json.load(open(sys.argv[1]))

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in job["roots"]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
import torch, transformers
from safetensors.torch import load_file, save_file

loader = getattr(transformers, job["auto"])
model = loader.from_pretrained(job["folder"], trust_remote_code=True, **job["settings"]).eval()
with torch.no_grad():
    outputs = model(**load_file(job["inputs"])) if job["inputs"] else {}
said = {name: outputs[name].contiguous() for name in job["predictions"]}
save_file(said, job["answers"], metadata={"class": type(model).__name__})
"""


def check_new_process(patient: Patient) -> Verdict:
    """Save with the code, then load in a Python that does not know the package."""
    if patient.is_transformers_own:
        return skipped("transformers' own code need not travel")
    shutil.rmtree(patient.workplace / "saved", ignore_errors=True)  # one copy on disk is enough
    folder = patient.workplace / "travel"
    auto = auto_class_of(patient)
    with registered(patient, auto):
        patient.model.save_pretrained(folder)
    inputs = write_inputs(patient) if patient.reads_text else {}
    with torch.no_grad():
        expected = predictions(patient.model(**inputs)) if inputs else {}
    run, answers = ask_a_stranger(patient, folder, auto, inputs, list(expected))
    if run.returncode:
        lines = [line for line in run.stderr.strip().splitlines() if line.strip()]
        return fail(f"a new process cannot load the saved folder: {lines[-1][:200] if lines else 'no message'}")
    said = load_file(answers)
    wrong = [name for name in expected if not same(said[name], expected[name].cpu())]
    if wrong:
        return fail(f"in a new process {several(wrong)} is another", "look for what depends on the package or machine")
    without = f" without {several(sorted(roots_of(patient)))}" if roots_of(patient) else ""
    return ok(f"a new process{without} loads it by {auto}")


def auto_class_of(patient: Patient) -> str:
    """The Auto class that the class is registered for, or the one that its name asks for."""
    known = getattr(patient.model_class, "_auto_class", None)
    if known is not None:
        return known
    name = patient.model_class.__name__
    for auto, entry in (getattr(patient.config, "auto_map", None) or {}).items():
        if isinstance(entry, str) and entry.rpartition(".")[2] == name:
            return auto
    for suffix, auto in AUTO_CLASSES.items():
        if name.endswith(suffix):
            return auto
    auto = f"AutoModelFor{name.partition('For')[2]}"
    return auto if hasattr(transformers, auto) else AutoModel.__name__


@contextmanager
def registered(patient: Patient, auto: str) -> Iterator[None]:
    """As if `register_for_auto_class` had been called; afterwards nothing is left of it."""
    chosen = {patient.model_class: auto}
    if is_custom(type(patient.config)):
        chosen[type(patient.config)] = AutoConfig.__name__
    before = {each: vars(each)["_auto_class"] for each in chosen if "_auto_class" in vars(each)}
    auto_map = copy.deepcopy(getattr(patient.model.config, "auto_map", None))
    for each, name in chosen.items():
        each._auto_class = name
    try:
        yield
    finally:
        for each in chosen:
            if each in before:
                each._auto_class = before[each]
            else:
                del each._auto_class
        restore_auto_map(patient.model.config, auto_map)


def restore_auto_map(config: PreTrainedConfig, auto_map: dict | None) -> None:
    if auto_map is not None:
        config.auto_map = auto_map
    elif hasattr(config, "auto_map"):
        del config.auto_map


def ask_a_stranger(patient: Patient, folder: Path, auto: str, inputs: dict, names: list[str]):
    """Run the few lines above in a Python with an empty cache and no network."""
    home = patient.workplace / "home"
    home.mkdir(exist_ok=True)
    script, job, questions, answers = (home / name for name in ("stranger.py", "job.json", "inputs", "answers"))
    save_file({name: tensor.cpu().contiguous() for name, tensor in inputs.items()}, questions)
    attention = getattr(patient.model.config, "_attn_implementation", None)
    settings = {} if attention is None else {"attn_implementation": attention}
    job.write_text(
        json.dumps(
            {
                "roots": sorted(roots_of(patient)),
                "auto": auto,
                "folder": str(folder),
                "settings": settings,
                "inputs": str(questions) if inputs else "",
                "predictions": names,
                "answers": str(answers),
            }
        )
    )
    script.write_text(STRANGER)
    environment = {**os.environ, "HF_HOME": str(home), "HF_MODULES_CACHE": str(home / "modules"), "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, str(script), str(job)]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True), answers
