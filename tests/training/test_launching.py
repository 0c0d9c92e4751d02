"""The launch commands and examples of the pages parse and run."""

import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from accelerate.commands.config.config_args import ClusterConfig
from accelerate.commands.launch import launch_command_parser
from safetensors.torch import load_file
from torch import equal
from torch.distributed.run import get_args_parser

import hf_edu_models.training
from hf_edu_models.training import parse_arguments
from hf_edu_models.training.presets import recipes_folder

TEXT = (recipes_folder() / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```(bash|yaml)\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [line for kind, block in BLOCKS if kind == "bash" for line in block.splitlines()]
COMMANDS = [line for line in COMMANDS if "torchrun" in line or "accelerate launch" in line]
CONFIGS = [block for kind, block in BLOCKS if kind == "yaml" and "distributed_type" in block]
CONFIGS += [file.read_text("utf-8") for file in sorted((recipes_folder() / "launch").glob("*.yaml"))]


def parse(line: str):
    """Parse a command with the parser of its launcher; an unknown option exits."""
    words = [word for word in shlex.split(line) if not re.fullmatch(r"[A-Z_]+=\S+", word)]
    if words[0] == "torchrun":
        parsed = get_args_parser().parse_args(words[1:])
    else:
        parsed = launch_command_parser().parse_args(words[2:])
    return parsed


@pytest.mark.parametrize("line", COMMANDS)
def test_a_launch_command_parses(line):
    parsed = parse(line)
    script = recipes_folder().parent / parsed.training_script
    assert script.is_file()
    flags = [word for word in parsed.training_script_args if word != "--use_cpu"]
    args, _ = parse_arguments(str(script), [*flags, "--use_cpu"])
    assert args.dataset


def test_the_page_has_launches_of_every_kind():
    assert len(COMMANDS) >= 7 and {yaml.safe_load(each)["distributed_type"] for each in CONFIGS} == {
        "FSDP",
        "DEEPSPEED",
    }


@pytest.mark.parametrize("text", CONFIGS)
def test_a_configuration_parses(text, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    config = ClusterConfig.from_yaml_file(file)  # rejects unknown keys
    parser = launch_command_parser()
    known = {action.dest for action in parser._actions}
    inner = {**config.fsdp_config, **config.deepspeed_config}
    assert inner and set(inner) <= known


def test_the_example_of_the_training_package_runs(tmp_path, monkeypatch):
    """Trained, saved, and resumed as its comment says."""
    page = Path(hf_edu_models.training.__file__).with_name("README.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews").mkdir()
    rows = [{"text": text, "label": label} for text, label in (("a good film", "pos"), ("a bad film", "neg"))] * 4
    for split in ("train", "validation"):
        (tmp_path / "reviews" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    example: dict = {}
    exec(code, example)
    assert (tmp_path / "runs" / "reviews" / "model.safetensors").is_file()
    example["trainer"].train(resume_from_checkpoint=True)


def test_every_file_is_in_the_table_of_the_training_package():
    folder = Path(hf_edu_models.training.__file__).parent
    listed = re.findall(r"^\| `(\w+\.py)` \|", (folder / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(file.name for file in folder.glob("*.py") if file.name != "__init__.py")


@pytest.mark.slow
def test_torchrun_and_accelerate_start_two_processes(tmp_path):
    """The two commands for CPUs, unchanged."""
    runs = {}
    for name, line in zip(("torchrun", "accelerate"), [each for each in COMMANDS if "smoke" in each][:2], strict=True):
        script = str(recipes_folder() / "2015_bahdanau.py")
        words = shlex.split(line.replace("recipes/2015_bahdanau.py", script))
        settings = dict(word.split("=") for word in words if re.fullmatch(r"[A-Z_]+=\S+", word))
        command = [str(Path(sys.executable).with_name(words[len(settings)])), *words[len(settings) + 1 :]]
        folder = runs[name] = tmp_path / name
        done = subprocess.run(
            [*command, "--output_dir", str(folder)], env=os.environ | settings, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert json.loads((folder / "results.json").read_text())["machine"]["processes"] == 2
    assert_same_weights(*runs.values())


def assert_same_weights(run, other):
    one, two = (load_file(folder / "model.safetensors") for folder in (run, other))
    assert all(equal(one[name], two[name]) for name in one)


def start(line: str, folder: Path, log: Path) -> subprocess.Popen:
    """Start a command of the page with another output folder."""
    words = shlex.split(re.sub(r"recipes/(\S+\.py)", lambda file: str(recipes_folder() / file[1]), line))
    settings = dict(word.split("=") for word in words if re.fullmatch(r"[A-Z_]+=\S+", word))
    launcher, *options = words[len(settings) :]
    command = [str(Path(sys.executable).with_name(launcher)), *options, "--output_dir", str(folder)]
    with log.open("w") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=folder.parent, env=os.environ | settings
        )


def kill(machine: subprocess.Popen) -> None:
    """Kill an agent and its processes, which have sessions of their own."""
    with contextlib.suppress(psutil.NoSuchProcess):
        agent = psutil.Process(machine.pid)
        for process in [agent, *agent.children(recursive=True)]:
            process.kill()
    machine.wait()


def wait_for(condition, processes, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end and all(process.poll() is None for process in processes)
        time.sleep(0.02)


@pytest.mark.slow
def test_a_machine_that_is_killed_and_started_again_ends_the_same(tmp_path):
    """The command for two machines, unchanged but for its port: two agents on loopback, each with one process."""
    (line,) = [each for each in COMMANDS if "two-machines" in each]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        line = line.replace("29500", str(free.getsockname()[1]))
    whole, run = tmp_path / "whole", tmp_path / "run"
    reference = re.sub(r"--nnodes 2 --nproc_per_node 1|--rdzv\S+ \S+", "", line).replace(
        "torchrun", "torchrun --nproc_per_node 2"
    )
    alone = start(reference, whole, tmp_path / "whole.txt")
    assert alone.wait(300) == 0, (tmp_path / "whole.txt").read_text()[-3000:]

    logs = [tmp_path / f"machine-{number}.txt" for number in range(3)]
    host = start(line, run, logs[0])
    wait_for(lambda: is_listening(line), [host])
    machines = [host, start(line, run, logs[1])]
    try:
        wait_for(lambda: any(run.glob("checkpoint-*")), machines)
        kill(machines[1])
        assert not (run / "results.json").exists()
        machines.append(start(line, run, logs[2]))
        ends = [machine.wait(300) for machine in machines[::2]]
    finally:
        for machine in machines:
            kill(machine)
    output = "".join(log.read_text() for log in logs)
    assert ends == [0, 0], output[-4000:]
    assert "resumed from checkpoint-" in output
    assert json.loads((run / "results.json").read_text())["machine"]["processes"] == 2
    assert_same_weights(run, whole)


def is_listening(line: str) -> bool:
    """Whether the rendezvous is open; the agent that opens it keeps the list of the machines."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(re.search(r"localhost:(\d+)", line)[1]))) == 0
