"""Flags of a recipe's command line: short names, help of two lengths, and the nearest option for an unknown one."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
from pathlib import Path
from typing import Any

import torch
from transformers import HfArgumentParser

_ALIASES = {
    "lr": "learning_rate",
    "epochs": "num_train_epochs",
    "batch_size": "per_device_train_batch_size",
    "out": "output_dir",
}
# Options of Trainer that `--help` shows; `--help-all` shows all of them.
_COMMON = (
    "learning_rate", "num_train_epochs", "max_steps", "warmup_steps", "lr_scheduler_type",
    "gradient_accumulation_steps",
)  # fmt: skip
# Options of ours that only `--help-all` shows.
_RARE = (
    "restore_callback_states_from_checkpoint", "report_to", "logging_steps", "save_total_limit", "num_proc", "licence",
    "dataset_config", "layer_lr_decay", "unfreeze_every", "slanted_triangular", "slanted_ratio", "new_weights",
    "halve_lr_after", "mixed_precision", "quiet",
)  # fmt: skip
_EPILOG = """--device chooses cpu, cuda or mps. --help-all lists the options of Trainer too; all of them work here."""


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults, keeps the line breaks of a recipe's docstring, and writes an option once, with its short name."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        names = [name for name in action.option_strings if "-" not in name[2:]]
        return ", ".join(names) + ("" if action.nargs in (0, "?") else " VALUE")

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


def build_parser(file: Path, classes: tuple[type, ...], show_all: bool = False) -> HfArgumentParser:
    """The parser of a recipe, whose docstring is the description.

    Args:
        classes: The recipe's arguments, then those of its run.
        show_all: Whether the help has the options of Trainer.
    """
    parser = HfArgumentParser(
        classes,
        prog=file.name,
        usage="%(prog)s --preset NAME [options]",
        description=file.read_text("utf-8").split('"""')[1] if file.is_file() else "",
        epilog=_EPILOG,
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
    )
    parser.error = _raise_parser_error
    short = {target: f"--{name}" for name, target in _ALIASES.items()}
    shown = _shown(classes)
    for action in parser._actions:
        if action.dest in ("columns", "data_options", "model", "general_lm", "target_lm"):
            action.__class__ = argparse._ExtendAction  # the flag can be repeated, as those of `hf-edu` are
        if action.dest in short and action.option_strings[0].startswith(f"--{action.dest}"):
            action.option_strings = [*action.option_strings, short[action.dest]]
        if action.dest not in shown and action.dest != "help" and not show_all:
            action.help = argparse.SUPPRESS
    return parser


def _shown(classes: tuple[type, ...]) -> set[str]:
    *ours, run = classes
    names = {field.name for each in ours for field in dataclasses.fields(each)} | set(run.__annotations__)
    return (names | set(_COMMON)) - set(_RARE)


def expand_flags(argv: list[str]) -> list[str]:
    """The flags with short names written out: `--lr 0.1` is `--learning_rate 0.1`, `--device cpu` is `--use_cpu`."""
    words = iter(argv)
    expanded = []
    for word in words:
        flag, equals, value = word.partition("=")
        name = flag[2:].replace("-", "_") if flag.startswith("--") else ""
        if name == "device":
            expanded += _device_flags(value if equals else next(words, ""))
        else:
            expanded.append(f"--{_ALIASES[name]}{equals}{value}" if name in _ALIASES else word)
    return expanded


def _device_flags(device: str) -> list[str]:
    """Trainer uses the accelerator if there is one; a number is chosen with CUDA_VISIBLE_DEVICES."""
    if device == "cpu":
        return ["--use_cpu"]
    kind, _, number = device.partition(":")
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if found is None or kind != found.type:
        raise ValueError(f"--device {device} is not available; there is {found.type if found else 'cpu'}")
    if number:
        raise ValueError(f"--device {device}: choose one with CUDA_VISIBLE_DEVICES={number} before the command")
    return []


def unknown_flag(flag: str, parser: argparse.ArgumentParser) -> ValueError:
    """The error for a flag that no option has, with the nearest one."""
    known = [name[2:] for name in parser._option_string_actions if name.startswith("--") and "-" not in name[2:]]
    name = flag.partition("=")[0].lstrip("-").replace("-", "_")
    near = difflib.get_close_matches(name, [*known, *_ALIASES, "device"], n=1)
    hint = f"did you mean --{near[0]}?" if near else "--help lists the options, --help-all those of Trainer too"
    return ValueError(f"there is no option {flag!r}; {hint}")


def flag_value(argv: list[str], name: str) -> str | None:
    """Value of a flag before the command line is parsed."""
    for index, word in enumerate(argv):
        if word == f"--{name}" and index + 1 < len(argv):
            return argv[index + 1]
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
    return None


def _raise_parser_error(message: str) -> Any:
    """Instead of argparse's two pages of usage."""
    raise ValueError(f"{message}; --help lists the options")
