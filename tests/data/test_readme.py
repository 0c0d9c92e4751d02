"""The pages of `data` and `metrics`: their examples run, and their tables name every file and every built-in corpus."""

import re
from pathlib import Path

import pytest

import hf_edu_models
from hf_edu_models.data import BUILTINS
from hf_edu_models.metrics import METRICS

PACKAGE = Path(hf_edu_models.__file__).parent


@pytest.mark.parametrize("name", ["data", "metrics"])
def test_examples_run(name):
    blocks = re.findall(r"```python\n(.*?)```", (PACKAGE / name / "README.md").read_text(), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})


@pytest.mark.parametrize("name", ["data", "metrics"])
def test_every_file_is_named(name):
    page = (PACKAGE / name / "README.md").read_text()
    files = {file.name for file in (PACKAGE / name).glob("*.py")} - {"__init__.py"}
    assert {file for file in files if f"`{file}`" not in page} == set()


@pytest.mark.parametrize(("name", "entries"), [("data", BUILTINS), ("metrics", METRICS)])
def test_every_built_in_corpus_and_every_metric_is_named(name, entries):
    rows = [line for line in (PACKAGE / name / "README.md").read_text().splitlines() if line.startswith("| `")]
    assert {entry for entry in entries if not any(f"`{entry}`" in row for row in rows)} == set()
