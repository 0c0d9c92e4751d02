"""What the doctor says: a verdict of each check, and the report that holds them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

COLOURS = {"ok": "green", "warning": "yellow", "fail": "red", "skipped": "dim"}


@dataclass(frozen=True)
class Verdict:
    """How one check ended; the remedy is the check's own unless the verdict brings a better one."""

    status: str
    what: str
    remedy: str = ""


def ok(what: str) -> Verdict:
    return Verdict("ok", what)


def warning(what: str, remedy: str = "") -> Verdict:
    return Verdict("warning", what, remedy)


def fail(what: str, remedy: str = "") -> Verdict:
    return Verdict("fail", what, remedy)


def skipped(why: str) -> Verdict:
    return Verdict("skipped", why)


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Args:
        status: `ok`, `warning`, `fail` or `skipped`.
        what: what was found, or why the check was left out.
        remedy: how to mend it; empty where nothing is wrong.
    """

    name: str
    status: str
    what: str
    remedy: str = ""


@dataclass(frozen=True)
class Report:
    """All findings about one model, in the order of the checks."""

    patient: str
    model_class: str
    findings: tuple[Finding, ...]

    @property
    def is_healthy(self) -> bool:
        """Nothing failed; warnings are allowed."""
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
    """The table, then a remedy for everything that is not as it should be, then one line that sums up."""
    named = report.patient.endswith(report.model_class)
    title = Text(report.patient if named else f"{report.patient} ({report.model_class})")
    table = Table("check", "", "finding", title=title, title_justify="left")
    for finding in report.findings:
        status = Text(finding.status, style=COLOURS[finding.status])
        table.add_row(Text(finding.name), status, Text(finding.what, overflow="fold"))
    console.print(table)
    remedies = Table.grid(padding=(0, 2, 1, 0))
    for finding in report.findings:
        if finding.remedy:
            remedies.add_row(Text(finding.name, style=COLOURS[finding.status]), Text(finding.remedy, overflow="fold"))
    if remedies.row_count:
        console.print(Text("How to mend it", style="bold"))
        console.print(remedies)
    counts = Counter(finding.status for finding in report.findings)
    summary = ", ".join(f"{counts[status]} {status}" for status in COLOURS if counts[status])
    console.print(Text(f"{'healthy' if report.is_healthy else 'not healthy'}: {summary}"))
