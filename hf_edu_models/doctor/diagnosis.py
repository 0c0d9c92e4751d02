"""The doctor: runs every check on any transformers model, not only ours.

The checks are in `weights.py`, `outputs.py`, `training.py`, `clients.py` and `portability.py`. Each is a function that
takes the model under test and returns a `Finding`; its decorator has its name, how to fix what it finds, and what it
needs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from . import clients, outputs, portability, training, weights
from .compare import join_names
from .report import Check, Finding, Report, fail, skipped
from .subject import ModelUnderTest, is_checkpoint, load_subject, preserve_state, summarise

_MODULES = (weights, outputs, training, clients, portability)
CHECKS = tuple(each for module in _MODULES for each in vars(module).values() if isinstance(each, Check))
# These two skip the forward pass themselves if the model takes no text.
_TEXT_ONLY = {each.name for each in CHECKS if "forward" in each.needs} - {"save = load", "new process"}
_FIX_FIRST = "fix first: "


def diagnose(
    model_or_path_or_class: PreTrainedModel | type[PreTrainedModel] | str | os.PathLike,
    *,
    trust_remote_code: bool = False,
    settings: dict[str, Any] | None = None,
    quick: bool = False,
    only: Collection[str] = (),
) -> Report:
    """Check a model for common bugs of custom transformers 5 models.

    The model is in memory once, in float32, with at most one copy in memory and one on disk: BERT base, 440 MB, peaks
    at 1.1 GB. A model that you pass in is not changed.

    Args:
        model_or_path_or_class: a model; a checkpoint folder or Hub id; a class or its name, `package.module:Class`,
            which is built with a small configuration.
        trust_remote_code: run the code of the checkpoint.
        settings: config fields for a class.
        quick: skip the checks that take several seconds.
        only: names of checks to run, after those that they need; all if empty.
    """
    model = model_or_path_or_class if isinstance(model_or_path_or_class, PreTrainedModel) else None
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder, preserve_state(model), torch.no_grad():
        if is_checkpoint(model_or_path_or_class) and (found := _foreign_code(str(model_or_path_or_class))):
            return found
        subject = load_subject(model_or_path_or_class, Path(folder), trust_remote_code, settings)
        findings: dict[str, Finding] = {}
        for each in sort_by_needs(CHECKS, only):
            findings[each.name] = _run(each, subject, findings, quick)
        shown = tuple(findings[each.name] for each in CHECKS if each.name in findings)
        return Report(subject.name, subject.model_class.__name__, shown)


def _foreign_code(source: str) -> Report | None:
    """The report on a checkpoint that names code of other repositories: it is not loaded, so nothing of it runs."""
    found = portability.foreign_code_in_files(os.path.expanduser(source))
    if not found:
        return None
    culprit = portability.check_foreign_code
    first = fail(f"not loaded, because it names {join_names(found)}", culprit.remedy)
    findings = [
        replace(first if each is culprit else skipped(f"{_FIX_FIRST}{culprit.name}"), name=each.name) for each in CHECKS
    ]
    return Report(source, "not loaded", tuple(findings))


def sort_by_needs(checks: Iterable[Check], only: Collection[str] = ()) -> list[Check]:
    """Every check after those that it needs, otherwise in the given order; with `only`, these and what they need."""
    by_name = {each.name: each for each in checks}
    ordered: dict[str, Check] = {}

    def add(each: Check) -> None:
        for name in each.needs:
            add(by_name[name])
        ordered.setdefault(each.name, each)

    for name in only or by_name:
        if name not in by_name:
            raise ValueError(f"there is no check {name!r}; the checks are {', '.join(by_name)}")
        add(by_name[name])
    return list(ordered.values())


def _run(check: Check, subject: ModelUnderTest, findings: dict[str, Finding], quick: bool) -> Finding:
    """Run one check; an exception in the model is a failure of the check."""
    causes = sorted({cause for name in check.needs for cause in _failed_causes(findings[name])})
    if causes:
        finding = skipped(f"{_FIX_FIRST}{', '.join(causes)}")
    elif quick and check.is_slow:
        finding = skipped("slow, and you asked for quick checks")
    elif check.name in _TEXT_ONLY and not subject.is_text_model:
        finding = skipped(outputs.NOT_TEXT)
    else:
        try:
            finding = check.function(subject)
        except Exception as error:
            finding = fail(f"raised {summarise(error)}")
    has_remedy = finding.status in ("warning", "fail")
    return replace(finding, name=check.name, remedy=(finding.remedy or check.remedy) if has_remedy else "")


def _failed_causes(finding: Finding) -> list[str]:
    """The checks that failed: this one, or those because of which it was skipped."""
    if finding.status == "fail":
        return [finding.name]
    if finding.status == "skipped" and finding.what.startswith(_FIX_FIRST):
        return finding.what.removeprefix(_FIX_FIRST).split(", ")
    return []
