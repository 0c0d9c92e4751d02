"""What a check is, what it finds, and the report of all findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from rich.console import Console
from rich.table import Table
from rich.text import Text

_STYLES = {"ok": "green", "warning": "yellow", "fail": "red", "skipped": "dim"}


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Args:
        status: `ok`, `warning`, `fail` or `skipped`.
        what: what was found, or why the check was skipped.
        remedy: how to fix it; empty where nothing is wrong.
    """

    name: str
    status: str
    what: str
    remedy: str = ""


# What a check returns; `diagnose` adds its name, and its remedy where the finding has none of its own.
ok, warning, fail, skipped = (partial(Finding, "", status) for status in _STYLES)


@dataclass(frozen=True)
class Check:
    """A function that checks one property of a model.

    Args:
        remedy: how to fix it, unless the finding has a more specific remedy.
        needs: checks whose failure implies that this one fails, so that it is skipped.
        is_slow: takes several seconds; skipped with `quick`.
    """

    name: str
    remedy: str
    function: Callable[..., Finding]
    needs: tuple[str, ...] = ()
    is_slow: bool = False


def check(name: str, remedy: str, needs: tuple[str, ...] = (), is_slow: bool = False) -> Callable[[Callable], Check]:
    """Decorator: makes a `Check` of a function."""
    return lambda function: Check(name, remedy, function, needs, is_slow)


@dataclass(frozen=True)
class Report:
    """All findings about one model, in the order of the checks.

    Args:
        model: what was checked: a folder, a Hub id or the name of a class.
    """

    model: str
    model_class: str
    findings: tuple[Finding, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether no check failed; warnings are allowed."""
        return not self.failed

    @property
    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return [finding.name for finding in self.findings if finding.status == "fail"]

    def __getitem__(self, name: str) -> Finding:
        return next(finding for finding in self.findings if finding.name == name)

    def to_dict(self) -> dict:
        return asdict(self) | {"is_healthy": self.is_healthy}


def print_report(report: Report, console: Console) -> None:
    """Print a table of the findings, how to fix each failure and warning, and a summary in one line."""
    is_named = report.model.endswith(report.model_class)
    title = Text(report.model if is_named else f"{report.model} ({report.model_class})")
    table = Table("check", "", "finding", title=title, title_justify="left")
    remedies = Table.grid(padding=(0, 2, 1, 0))
    for finding in report.findings:
        style = _STYLES[finding.status]
        table.add_row(Text(finding.name), Text(finding.status, style=style), Text(finding.what, overflow="fold"))
        if finding.remedy:
            remedies.add_row(Text(finding.name, style=style), Text(finding.remedy, overflow="fold"))
    console.print(table)
    if remedies.row_count:
        console.print(Text("How to fix it", style="bold"))
        console.print(remedies)
    counts = Counter(finding.status for finding in report.findings)
    summary = ", ".join(f"{counts[status]} {status}" for status in _STYLES if counts[status])
    console.print(Text(f"{'healthy' if report.is_healthy else 'not healthy'}: {summary}"))
