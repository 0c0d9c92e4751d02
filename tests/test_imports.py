"""What imports what inside the package, read from its source; and what importing the package loads."""

import ast
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "hf_edu_models"
HEAVY = ("torch", "transformers", "datasets", "matplotlib")
ABOVE = {"training", "experiments", "explain", "convert", "hub", "lab", "serve", "doctor", "cli"}  # of data, metrics
SIBLINGS = {"explain", "convert", "hub", "lab", "doctor"}  # serve answers with what explain computes


def imported_modules(tree: ast.AST, parents: list[str]):
    """Yields each import statement of ours and the module it names, as a path of names inside the package.

    Imports inside functions and under `TYPE_CHECKING` count: a cycle of lazy imports is a cycle. Modules named in
    strings do not: the `_HOMES` tables of the packages and the rows of `tasks` name where a public name lives, and
    `hub` and `explain` keep aliases there for names that have moved to other packages.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            yield from ((node, path[1:]) for path in names if path[0] == PACKAGE.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            if node.level:
                base = [PACKAGE.name, *parents[: len(parents) - node.level + 1], *base]
            if base and base[0] == PACKAGE.name:
                yield from ((node, [*base[1:], alias.name]) for alias in node.names)


def import_graph(package: Path) -> dict[str, dict[str, list[str]]]:
    """For each top-level module or subpackage, those it imports, with the statements that do so.

    `__init__` is the package's own file, which a name such as `__version__` comes from.
    """
    units = {path.stem if path.is_file() else path.name for path in package.iterdir()}
    graph: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file in sorted(package.rglob("*.py")):
        inside = file.relative_to(package)
        unit = inside.parts[0].removesuffix(".py")
        for node, path in imported_modules(ast.parse(file.read_text(), str(file)), list(inside.parts[:-1])):
            imported = path[0] if path and path[0] in units else "__init__"
            statement = f"{inside}:{node.lineno} ({ast.unparse(node)})"
            if imported != unit and statement not in graph[unit][imported]:
                graph[unit][imported].append(statement)
    return graph


def find_cycle(graph: dict[str, dict[str, list[str]]]) -> list[str]:
    """A shortest cycle, its first member repeated at the end; empty if there is none."""
    cycles = []
    for start in sorted(graph):
        paths, seen = [[start]], {start}
        for path in paths:  # breadth first: `paths` grows while it is read
            for following in sorted(graph.get(path[-1], ())):
                if following == start:
                    cycles.append([*path, start])
                elif following not in seen:
                    seen.add(following)
                    paths.append([*path, following])
    return min(cycles, key=len, default=[])


def describe_cycle(graph: dict[str, dict[str, list[str]]], cycle: list[str]) -> str:
    links = [
        f"{importer} imports {imported} in {'; '.join(graph[importer][imported])}"
        for importer, imported in pairwise(cycle)
    ]
    return f"import cycle {' -> '.join(cycle)}; move what they share into a module below both.\n" + "\n".join(links)


def forbidden_imports(graph: dict[str, dict[str, list[str]]]) -> list[str]:
    """Imports against the direction models < data, metrics < training < experiments < cli."""
    found = []
    for importer, imports in graph.items():
        for imported, statements in imports.items():
            is_wrong = (
                importer == "models"
                or (importer in ("data", "metrics") and imported in ABOVE)
                or {importer, imported} <= SIBLINGS
                or imported == "cli"
            )
            if is_wrong:
                found.append(f"{importer} must not import {imported}: {'; '.join(statements)}")
    return found


def write_package(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / PACKAGE.name / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder / PACKAGE.name


def test_no_import_cycle():
    graph = import_graph(PACKAGE)
    cycle = find_cycle(graph)
    assert not cycle, describe_cycle(graph, cycle)


def test_imports_follow_the_design():
    found = forbidden_imports(import_graph(PACKAGE))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "lazy_import",
    [
        "def read():\n    from ..training.run import launch\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..training.run import launch\n",
        "import hf_edu_models.training.run\n",
        "from .. import training\n",
    ],
    ids=["function", "type checking", "absolute", "package"],
)
def test_a_lazy_cycle_is_found(tmp_path, lazy_import):
    package = write_package(
        tmp_path, {"data/corpora.py": lazy_import, "training/run.py": "from ..data.corpora import read\n"}
    )
    graph = import_graph(package)
    cycle = find_cycle(graph)
    assert cycle == ["data", "training", "data"]
    assert "training/run.py:1 (from ..data.corpora import read)" in describe_cycle(graph, cycle)
    assert len(forbidden_imports(graph)) == 1  # data -> training; training -> data is the direction of the design


def test_forbidden_imports_are_found(tmp_path):
    files = {
        "models/modeling_gpt.py": "from ..lazy import resolve\n",
        "hub/push.py": "from ..doctor.report import Report\n",
        "auto.py": "from . import cli\n",
        "lazy.py": "",
        "doctor/report.py": "",
        "cli/hub.py": "from ..hub.push import push\n",
    }
    package = write_package(tmp_path, files)
    found = forbidden_imports(import_graph(package))
    assert [line.partition(":")[0] for line in sorted(found)] == [
        "auto must not import cli",
        "hub must not import doctor",
        "models must not import lazy",
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "import hf_edu_models",
        "import hf_edu_models.cli",
        "from hf_edu_models.cli import app; app(['--help'], standalone_mode=False)",
    ],
    ids=["package", "cli", "help"],
)
def test_importing_loads_nothing_heavy(statement, tmp_path):
    code = f"{statement}\nimport sys; print('loaded:', *[name for name in {HEAVY} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    loaded = run.stdout.rpartition("loaded:")[2].split()
    assert not loaded, f"`{statement}` loads {', '.join(loaded)}; import them where they are used"
