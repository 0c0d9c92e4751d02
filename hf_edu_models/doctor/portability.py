"""Checks of the code of a custom model: can others load it from the Hub with `trust_remote_code=True`?"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedConfig
from transformers.dynamic_module_utils import get_relative_imports
from transformers.utils import cached_file

from ..tasks import TASKS, task_of_class
from .compare import is_close, join_names, make_inputs, predictions
from .report import Finding, check, fail, ok, skipped
from .subject import ModelUnderTest, auto_class_set
from .weights import LOADS

# Files of a checkpoint that may name code.
_CONFIG_FILES = ("config.json", "generation_config.json", "tokenizer_config.json", "processor_config.json",
                "preprocessor_config.json")  # fmt: skip
_REPOSITORY = re.compile(r"(?:\w+\|)?[\w.-]+/[\w.-]+(?:[@:].*)?")  # owner/name, with a revision or a function
_IF_PRESENT: dict[str, Any] = {
    "_raise_exceptions_for_missing_entries": False,
    "_raise_exceptions_for_connection_errors": False,
    "_raise_exceptions_for_gated_repo": False,
}
_NOT_CUSTOM = "the class is transformers' own, so no code is copied"


@check("code", "put all files in one folder and import with `from .sibling import name`; nothing else is copied")
def check_imports(subject: ModelUnderTest) -> Finding:
    if not subject.is_custom:
        return skipped(_NOT_CUSTOM)
    if subject.model_class.__module__ == "__main__":
        return fail("the class is defined in __main__, whose code is not copied", "move the class to a file of its own")
    files, packages = _source_files(subject), _own_packages(subject)
    problems = [f"{file.name}: {problem}" for file in files for problem in import_problems(file, packages)]
    problems += _missing_in_checkpoint(subject)
    if problems:
        return fail(join_names(problems, most=2))
    return ok(f"{len(files)} file{'s' if len(files) > 1 else ''}, all imports can be copied")


@check(
    "foreign code",
    "remove the entry: read the code of the other repository and copy it beside the weights; choose kernels when "
    "loading (attn_implementation=...), not in a file that others load",
)
def check_foreign_code(subject: ModelUnderTest) -> Finding:
    """Who loads a checkpoint trusts its repository, not those that its configuration names (CVE-2026-4372)."""
    found = foreign_code(subject.config.to_dict(), subject.source)
    return fail(f"the configuration names {join_names(found)}") if found else ok("no code of another repository")


def foreign_code(values: Any, source: str | None, key: str = "") -> list[str]:
    """Entries of a configuration that make transformers load code of another repository; nothing is loaded here.

    Args:
        values: The configuration or a part of it, as it is in its JSON file.
        source: The folder or Hub id of the checkpoint.
        key: The name of that part.
    """
    if isinstance(values, Mapping):
        return [each for name, value in values.items() for each in foreign_code(value, source, f"{key}.{name}")]
    if isinstance(values, list | tuple):
        return [each for value in values for each in foreign_code(value, source, key)]
    if not isinstance(values, str):
        return []
    repository = values.rpartition("--")[0]
    if ".auto_map" in key and repository and repository != source:
        return [f"{key.strip('.')}: {values}"]
    is_kernel = any(word in key for word in ("implementation", "kernel")) and _REPOSITORY.fullmatch(values)
    return [f"{key.strip('.')}: {values}"] if is_kernel else []


def foreign_code_in_files(source: str) -> list[str]:
    """`foreign_code` of all JSON files of a checkpoint that transformers reads."""
    try:
        files = [cached_file(source, name, **_IF_PRESENT) for name in _CONFIG_FILES]
    except (OSError, ValueError):  # it does not exist, which loading it explains
        return []
    configs = [json.loads(Path(file).read_text("utf-8")) for file in files if file]
    return [each for config in configs for each in foreign_code(config, source)]


def _own_packages(subject: ModelUnderTest) -> set[str]:
    """The packages of the model's code, which other users have not installed."""
    packages = {each.__module__.partition(".")[0] for each in (subject.model_class, type(subject.config))}
    return packages - {"transformers", "transformers_modules"}


def _source_files(subject: ModelUnderTest) -> list[Path]:
    """The files of the class and its configuration, and the siblings that they import."""
    waiting = [Path(inspect.getfile(each)) for each in subject.custom_classes]
    found = []
    while waiting:
        file = waiting.pop()
        if file not in found and file.exists():
            found.append(file)
            waiting += [file.with_name(f"{name}.py") for name in _siblings_of(file)]
    return found


def _imports_of(file: Path) -> list[ast.Import | ast.ImportFrom]:
    return [
        node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def _siblings_of(file: Path) -> list[str]:
    imports = (node for node in _imports_of(file) if isinstance(node, ast.ImportFrom))
    return [node.module for node in imports if node.level == 1 and node.module]


def import_problems(file: Path, own_packages: set[str]) -> list[str]:
    """The imports of a file that fail after it is copied to the Hub."""
    problems = []
    for node in _imports_of(file):
        if isinstance(node, ast.ImportFrom) and node.level:
            problems += _relative_import_problems(file, node)
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            own = [name for name in names if name.partition(".")[0] in own_packages]
            problems += [f"line {node.lineno} imports {name}, which others have not installed" for name in own]
    # transformers finds imports with a regular expression, which also matches in strings and comments.
    matches = {name for name in get_relative_imports(file) if "." not in name} - set(_siblings_of(file))
    missing = [name for name in sorted(matches) if not file.with_name(f"{name}.py").exists()]
    return problems + [f"a string has the line `from .{name} import`, which is read as code" for name in missing]


def _relative_import_problems(file: Path, node: ast.ImportFrom) -> list[str]:
    line = f"line {node.lineno} `from {'.' * node.level}{node.module or ''} import`"
    if node.level > 1:
        return [f"{line} is from a parent folder"]
    if node.module is None:
        return [f"{line} names no file, so none is copied"]
    if "." in node.module:
        return [f"{line} is from a sub-folder"]
    return [] if file.with_name(f"{node.module}.py").exists() else [f"{line} names a file that does not exist"]


def _missing_in_checkpoint(subject: ModelUnderTest) -> list[str]:
    """Files that `auto_map` in a checkpoint's config.json names and its folder lacks."""
    folder = Path(subject.source or "")
    if subject.source is None or not folder.is_dir():
        return []
    auto_map = json.loads((folder / "config.json").read_text("utf-8")).get("auto_map", {})
    entries = [entry for entry in auto_map.values() if isinstance(entry, str) and "--" not in entry]
    files = sorted({f"{entry.rpartition('.')[0]}.py" for entry in entries})
    return [f"{file}, which auto_map names, does not exist" for file in files if not (folder / file).exists()]


# Runs in a new process that cannot import the packages of the model's code.
_LOAD_SCRIPT = """
import json, sys

job = json.load(open(sys.argv[1]))

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in job["packages"]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
import torch, transformers
from safetensors.torch import load_file, save_file

auto_class = getattr(transformers, job["auto_class"])
model = auto_class.from_pretrained(job["folder"], trust_remote_code=True, **job["settings"]).eval()
with torch.no_grad():
    outputs = model(**load_file(job["inputs"])) if job["names"] else {}
save_file({name: outputs[name].contiguous() for name in job["names"]}, job["outputs"])
"""


@check(
    "new process",
    "save after register_for_auto_class for the configuration and the class, from files that import only siblings",
    (*LOADS, "forward", "code"),
    is_slow=True,
)
def check_loads_in_new_process(subject: ModelUnderTest) -> Finding:
    """Save with the code, then load in a Python that cannot import the package."""
    if not subject.is_custom:
        return skipped(_NOT_CUSTOM)
    shutil.rmtree(subject.folder / "saved", ignore_errors=True)  # one copy on disk is enough
    auto_class = _auto_class_of(subject)
    names = {
        each: AutoConfig.__name__ if issubclass(each, PreTrainedConfig) else auto_class
        for each in subject.custom_classes
    }
    with auto_class_set(names):
        subject.model.save_pretrained(subject.folder / "with_code")
    inputs = make_inputs(subject) if subject.is_text_model else {}
    expected = predictions(subject.model(**inputs)) if inputs else {}
    run, outputs = _load_in_new_process(subject, auto_class, inputs, list(expected))
    if run.returncode:
        lines = [line for line in run.stderr.strip().splitlines() if line.strip()]
        return fail(f"a new process cannot load the saved folder: {lines[-1][:200] if lines else 'no message'}")
    actual = load_file(outputs)
    wrong = [name for name in expected if not is_close(actual[name], expected[name].cpu())]
    if wrong:
        return fail(f"{join_names(wrong)} differs in a new process", "look for what depends on the package or machine")
    packages = join_names(sorted(_own_packages(subject)))
    return ok(f"a new process{f' without {packages}' if packages else ''} loads it with {auto_class}")


def _auto_class_of(subject: ModelUnderTest) -> str:
    """The Auto class that the class is registered for, or the one that fits its name."""
    registered = getattr(subject.model_class, "_auto_class", None)
    if registered is not None:
        return registered
    name = subject.model_class.__name__
    for auto_class, entry in (getattr(subject.config, "auto_map", None) or {}).items():
        if isinstance(entry, str) and entry.rpartition(".")[2] == name:
            return auto_class
    auto_class = f"AutoModelFor{name.partition('For')[2]}"
    if hasattr(transformers, auto_class):
        return auto_class
    task = task_of_class(name)  # of classes such as GPT2LMHeadModel or XForConditionalGeneration
    return AutoModel.__name__ if task is None else TASKS[task].auto_class


def _load_in_new_process(
    subject: ModelUnderTest, auto_class: str, inputs: dict[str, Tensor], names: list[str]
) -> tuple[subprocess.CompletedProcess, Path]:
    """Run `_LOAD_SCRIPT` with an empty cache and without a network; the outputs are in the file that is returned."""
    home = subject.folder / "home"
    home.mkdir(exist_ok=True)
    attention = getattr(subject.model.config, "_attn_implementation", None)
    inputs_file, outputs_file = home / "inputs.safetensors", home / "outputs.safetensors"
    job = {
        "packages": sorted(_own_packages(subject)),
        "auto_class": auto_class,
        "folder": str(subject.folder / "with_code"),
        "settings": {} if attention is None else {"attn_implementation": attention},
        "names": names,
        "inputs": str(inputs_file),
        "outputs": str(outputs_file),
    }
    save_file({name: tensor.cpu().contiguous() for name, tensor in inputs.items()}, inputs_file)
    (home / "job.json").write_text(json.dumps(job))
    (home / "load.py").write_text(_LOAD_SCRIPT)
    environment = {**os.environ, "HF_HOME": str(home), "HF_MODULES_CACHE": str(home / "modules"), "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, "load.py", "job.json"]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True), outputs_file
