"""Recipes run as a user runs them: in a new process, in an empty folder, without a network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hf_edu_models.training import recipe_files

RECIPES = recipe_files()
# The bare loop is started with accelerate launch, and saves a checkpoint in the middle.
BARE_LOOP = (
    ("--output_dir", "runs/bare-loop", "--save_strategy", "steps", "--save_steps", "3"),
    (sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1"),
)


@pytest.fixture(scope="session")
def run_recipe(tmp_path_factory):
    """Run a recipe by its name; return the folder of its run, or with `check=False` the finished process."""
    here = tmp_path_factory.mktemp("recipes")
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "COLUMNS": "120"}
    environment = os.environ | quiet | {"HF_DATASETS_CACHE": str(here / "cache")}

    def run(name: str, *options: str, check: bool = True, launcher: tuple[str, ...] = (sys.executable,)):
        command = [*launcher, str(RECIPES[name]), *map(str, options)]
        process = subprocess.run(
            command, cwd=here, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=300
        )
        if not check:
            return process
        assert process.returncode == 0, process.stderr[-4000:]
        return here / _folder(name, options)

    return run


def _folder(name: str, options: tuple) -> Path:
    if "--output_dir" in options:
        return Path(options[options.index("--output_dir") + 1])
    return Path("runs") / f"{name.replace('-', '_').removesuffix('_accelerate')}-smoke"


@pytest.fixture(scope="session")
def smoke(run_recipe):
    """The folder of a recipe's smoke run; each runs once."""
    done: dict[str, Path] = {}

    def run(name: str) -> Path:
        if name not in done:
            options, launcher = BARE_LOOP if name.endswith("accelerate") else ((), (sys.executable,))
            done[name] = run_recipe(name, "--preset", "smoke", *options, launcher=launcher)
        return done[name]

    return run
