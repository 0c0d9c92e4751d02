"""The launches that recipes/README.md shows are ones that torchrun and Accelerate take."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import ClusterConfig
from accelerate.commands.launch import launch_command_parser
from safetensors.torch import load_file
from torch import equal
from torch.distributed.run import get_args_parser

from hf_edu_models.training import parse_arguments
from hf_edu_models.training.presets import recipes_folder

TEXT = (recipes_folder() / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```(bash|yaml)\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [line for kind, block in BLOCKS if kind == "bash" for line in block.splitlines()]
COMMANDS = [line for line in COMMANDS if "torchrun" in line or "accelerate launch" in line]
CONFIGS = [block for kind, block in BLOCKS if kind == "yaml" and "distributed_type" in block]


def parse(line: str):
    """The launcher's own options, then the script's, each read by its own parser; an unknown one ends the process."""
    words = [word for word in shlex.split(line) if not re.fullmatch(r"[A-Z_]+=\S+", word)]
    if words[0] == "torchrun":
        given = get_args_parser().parse_args(words[1:])
    else:
        given = launch_command_parser().parse_args(words[2:])
    return given


@pytest.mark.parametrize("line", COMMANDS)
def test_a_launch_is_understood(line):
    given = parse(line)
    script = recipes_folder().parent / given.training_script
    assert script.is_file()
    flags = [word for word in given.training_script_args if word != "--use_cpu"]
    args, _ = parse_arguments(str(script), [*flags, "--use_cpu"])
    assert args.dataset


def test_there_are_launches_of_every_kind():
    assert len(COMMANDS) >= 7 and {yaml.safe_load(each)["distributed_type"] for each in CONFIGS} == {
        "FSDP",
        "DEEPSPEED",
    }


@pytest.mark.parametrize("text", CONFIGS)
def test_a_configuration_is_understood(text, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    config = ClusterConfig.from_yaml_file(file)  # refuses keys that it does not know
    parser = launch_command_parser()
    known = {action.dest for action in parser._actions}
    inner = {**config.fsdp_config, **config.deepspeed_config}
    assert inner and set(inner) <= known


@pytest.mark.slow
def test_torchrun_and_accelerate_start_two_processes(tmp_path):
    """The two commands for CPUs as they stand, from the recipe's first line to its results."""
    runs = {}
    for name, line in zip(("torchrun", "accelerate"), [each for each in COMMANDS if "smoke" in each][:2], strict=True):
        script = str(recipes_folder() / "04_bahdanau.py")
        words = shlex.split(line.replace("recipes/04_bahdanau.py", script))
        settings = dict(word.split("=") for word in words if re.fullmatch(r"[A-Z_]+=\S+", word))
        command = [str(Path(sys.executable).with_name(words[len(settings)])), *words[len(settings) + 1 :]]
        folder = runs[name] = tmp_path / name
        done = subprocess.run(
            [*command, "--output_dir", str(folder)], env=os.environ | settings, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert json.loads((folder / "results.json").read_text())["machine"]["processes"] == 2
    one, other = (load_file(folder / "model.safetensors") for folder in runs.values())
    assert all(equal(one[name], other[name]) for name in one)
