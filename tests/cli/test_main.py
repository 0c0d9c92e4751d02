"""The `hf-edu` program: start-up, version, exit codes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hf_edu_models.cli.commands
from hf_edu_models import cli
from hf_edu_models.cli import app

VERBS = {
    "ladder",
    "demo",
    "data",
    "train",
    "encode",
    "draw",
    "forecast",
    "lab",
    "serve",
    "evaluate",
    "generate",
    "translate",
    "card",
    "predict",
    "probe-text",
    "check",
    "push",
    "convert",
    "export",
    "doctor",
    "benchmark",
    "glossary",
    "quiz",
}
GROUPS = {
    "explain": {
        "attention",
        "analogies",
        "input",
        "map",
        "align",
        "text",
        "surprisal",
        "compare",
        "gates",
        "layers",
        "parse",
        "senses",
        "gradients",
        "positions",
        "neighbours",
        "contexts",
        "probe",
    },
    "figure": {
        *("bleu-by-length", "reversal", "heads", "positions", "masking", "nsp"),
        *("attention-steps", "key-value", "denoising", "scaling", "masks", "permutation"),
        *("descent", "rnn-types", "kernels", "poincare", "exposure", "long-time-lags"),
        *("scores", "diversity", "reach", "context", "landscape", "cross-lingual"),
    },
}
HEAVY = ("torch", "transformers", "datasets", "matplotlib", "numpy")


def hf_edu(*arguments, **environment):
    """Run the program as a user does."""
    command = [Path(sys.executable).with_name("hf-edu"), *arguments]
    environment = {**os.environ, "COLUMNS": "100", **environment}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_help_lists_every_verb_and_imports_nothing_heavy():
    code = f"""
import sys
from hf_edu_models.cli import main
try:
    main()
finally:
    assert not set(sys.modules) & set({HEAVY!r}), set(sys.modules) & set({HEAVY!r})
"""
    for arguments, verbs in ((), VERBS | set(GROUPS)), *(((group,), verbs) for group, verbs in GROUPS.items()):
        run = subprocess.run([sys.executable, "-c", code, *arguments, "--help"], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        listed = {line.split()[1] for line in run.stdout.splitlines() if line.startswith("│ ") and line[2].isalpha()}
        assert listed == verbs


@pytest.mark.parametrize(
    "verb", [*((verb,) for verb in VERBS - {"train"}), *((g, v) for g in GROUPS for v in GROUPS[g])]
)
def test_every_verb_explains_every_argument(verb):
    run = CliRunner().invoke(app, [*verb, "--help"], env={"COLUMNS": "100"})
    assert run.exit_code == 0, run.output
    command = app_command(verb)
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{' '.join(verb)}: {parameter.name} has no help"


def app_command(path):
    from typer.main import get_command

    command = get_command(app)
    for name in path:
        command = command.commands[name]
    return command


def test_version():
    assert hf_edu("--version").stdout == f"hf-edu {hf_edu_models.__version__}\n"


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("blocked", ["typer", "torch"])
def test_an_interrupt_during_imports_is_one_sentence(tmp_path, blocked):
    """Ctrl-C while a slow library loads: no traceback, exit code 130."""
    stub = "import os, signal, time\n"
    stub += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a process in the background ignores it
    stub += "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(10)\n"
    for library in (blocked, "transformers"):
        (tmp_path / f"{library}.py").write_text(stub)
    run = hf_edu("ladder", PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert run.returncode == 130 and run.stdout == "" and run.stderr.strip() == "hf-edu: interrupted"


def error_of(monkeypatch, capsys, problem):
    """What `main` prints, and its exit code, for an error of a verb."""

    def raise_problem():
        raise problem

    monkeypatch.setattr(cli.commands, "app", raise_problem)
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    return capsys.readouterr().err.strip(), exit_.value.code


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (ValueError("--limit is 0"), "hf-edu: --limit is 0"),
        (FileNotFoundError("no model in 'x'"), "hf-edu: no model in 'x'"),
        (PermissionError(13, "Permission denied", "runs/x"), "hf-edu: runs/x: Permission denied"),
        (IsADirectoryError(21, "Is a directory", "runs"), "hf-edu: runs: Is a directory"),
        (OSError(28, "No space left on device"), "hf-edu: [Errno 28] No space left on device"),
    ],
)
def test_mistakes_exit_with_2_and_one_sentence(monkeypatch, capsys, problem, message):
    assert error_of(monkeypatch, capsys, problem) == (message, 2)
    monkeypatch.setenv("HF_EDU_TRACEBACK", "1")
    with pytest.raises(type(problem)):
        cli.main()


def test_bugs_keep_their_traceback(monkeypatch):
    def fail():
        raise RuntimeError("a bug")

    monkeypatch.setattr(cli.commands, "app", fail)
    with pytest.raises(RuntimeError):
        cli.main()


def test_numbers_out_of_range_are_rejected():
    run = CliRunner().invoke(app, ["explain", "align", "x", "--source", "a", "--target", "b", "--limit", "0"])
    assert run.exit_code == 2 and "--limit" in run.output
