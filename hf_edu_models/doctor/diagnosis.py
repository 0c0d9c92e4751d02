"""The doctor: runs every check on any transformers model, not only ours.

The checks are in `weights.py`, `outputs.py`, `training.py` and `portability.py`. Each is a function that takes the
model under test and returns a `Finding`; its decorator has its name, how to fix what it finds, and what it needs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from . import outputs, portability, training, weights
from .report import Check, Finding, Report, fail, skipped
from .subject import ModelUnderTest, load_subject, preserve_state, summarise

_MODULES = (weights, outputs, training, portability)
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
) -> Report:
    """Check a model for common bugs of custom transformers 5 models.

    The model is in memory once, in float32, with at most one copy in memory and one on disk: BERT base, 440 MB, peaks
    at 1.1 GB. A model that you pass in is not changed.

    Args:
        model_or_path_or_class: a model; a checkpoint folder or Hub id; a class or its name, `package.module:Class`,
            which is built with a small configuration.
        trust_remote_code: run the code of the checkpoint.
        settings: config fields for a class.
        quick: skip the checks that start a new process.
    """
    model = model_or_path_or_class if isinstance(model_or_path_or_class, PreTrainedModel) else None
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder, preserve_state(model), torch.no_grad():
        subject = load_subject(model_or_path_or_class, Path(folder), trust_remote_code, settings)
        findings: dict[str, Finding] = {}
        for each in sort_by_needs(CHECKS):
            findings[each.name] = _run(each, subject, findings, quick)
        return Report(subject.name, subject.model_class.__name__, tuple(findings[each.name] for each in CHECKS))


def sort_by_needs(checks: Iterable[Check]) -> list[Check]:
    """Every check after those that it needs, otherwise in the given order."""
    by_name = {each.name: each for each in checks}
    ordered: dict[str, Check] = {}

    def add(each: Check) -> None:
        for name in each.needs:
            add(by_name[name])
        ordered.setdefault(each.name, each)

    for each in by_name.values():
        add(each)
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
