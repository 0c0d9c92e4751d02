"""Lines of text in, lines of text out: the input and output of `generate`, `translate`, `predict` and `encode`."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TextIO

import typer
from rich.console import Console

from ..redaction import make_visible

_SECONDS_BETWEEN_LOGS = 60
Texts = Annotated[list[str] | None, typer.Argument(help="Input texts; default the lines of --file or stdin.")]
InputFile = Annotated[Path | None, typer.Option(help="Input file, one text per line.")]
OutputFile = Annotated[Path | None, typer.Option(help="Output file; default stdout.")]


@dataclass
class Lines:
    """The open input and output of a verb.

    Args:
        is_interactive: Whether somebody types the lines.
        report: Takes the bytes of each finished line.
    """

    inputs: Iterable[Any]
    is_interactive: bool
    output: TextIO
    report: Callable[[int], None]

    def write(self, line: str, outputs: Iterable[str]) -> None:
        """Write the outputs of a line. Output n belongs to input n, so an output must be a single line.

        A terminal would obey control characters that a model wrote; a file or a pipe gets them as they are.
        """
        rows = [" ".join(output.splitlines()) for output in outputs]
        rows = [make_visible(row) for row in rows] if self.output.isatty() else rows
        self.output.writelines(f"{row}\n" for row in rows)
        self.output.flush()
        self.report(len(line.encode()) + 1)


@contextmanager
def open_lines(
    texts: list[str] | None,
    file: Path | None,
    out: Path | None,
    inputs: Iterable[Any] | None = None,
    has_bar: bool | None = None,
) -> Iterator[Lines]:
    """Open the texts, `file` or stdin, and `out` or stdout, with a progress bar.

    Args:
        inputs: Rows to use instead of lines.
        has_bar: Whether the bar is shown; by default unless the outputs themselves go to the terminal.
    """
    with ExitStack() as open_files:
        inputs, size, is_interactive = (inputs, None, False) if inputs else _open_input(texts, file, open_files)
        output = sys.stdout if out is None else open_files.enter_context(out.open("w", encoding="utf-8", newline="\n"))
        has_bar = out is not None or not sys.stdout.isatty() if has_bar is None else has_bar
        report = open_files.enter_context(_progress(size, has_bar))
        yield Lines(inputs, is_interactive, output, report)


def log_truncated(count: int) -> None:
    """Log how many texts were truncated, if any."""
    if count:
        _log(f"{count:,} texts exceeded the maximum length of the model and were truncated")


def check_files(texts: list[str] | None, file: Path | None, out: Path | None) -> None:
    """Raise an error for files that do not exist or would be overwritten, before a model is loaded."""
    if texts and file is not None:
        raise ValueError(f"give either texts or --file {file}, not both")
    if file is not None and not file.is_file():
        raise FileNotFoundError(f"--file {file} is not a file")
    if out is not None and not out.parent.is_dir():
        raise FileNotFoundError(f"the folder of --out {out} does not exist; create {out.parent} first")
    if file is not None and out is not None and out.exists() and file.samefile(out):
        raise ValueError(f"--file and --out are both {file}; it would be overwritten before it is read")


def _open_input(
    texts: list[str] | None, file: Path | None, open_files: ExitStack
) -> tuple[Iterable[str], int | None, bool]:
    """The input lines, their size in bytes if it is known, and whether somebody types them."""
    if texts:
        return texts, None, False
    if file is None and sys.stdin.isatty():
        _log("type a text and press Enter; Ctrl-D ends")
        return _decode_lines(sys.stdin.buffer, "stdin"), None, True
    handle = sys.stdin.buffer if file is None else open_files.enter_context(file.open("rb"))
    return _decode_lines(handle, "stdin" if file is None else str(file)), _file_size(handle), False


def _decode_lines(handle: BinaryIO, name: str) -> Iterator[str]:
    for number, line in enumerate(handle, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"line {number} of {name} is not UTF-8; convert the file first, e.g. with iconv") from None
        yield text.rstrip("\r\n")


def _file_size(handle: BinaryIO) -> int | None:
    """The bytes of a regular file; None for a pipe."""
    try:
        status = os.fstat(handle.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


@contextmanager
def _progress(size: int | None, has_bar: bool) -> Iterator[Callable[[int], None]]:
    """A function that takes the bytes of each finished line: a bar on a terminal, else a log line now and then."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield LoggedProgress(size)
        return
    if not has_bar:
        yield lambda count: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.fields[lines]:,} lines"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # Outputs must not be redirected through rich to stderr. Batches may take minutes: estimate speed over all of them.
    options: dict[str, Any] = {"transient": True, "redirect_stdout": False, "speed_estimate_period": 3600}
    with Progress(*columns, console=console, **options) as bar:
        task = bar.add_task("", total=size, lines=0)
        yield lambda count: bar.update(task, advance=count, lines=bar.tasks[0].fields["lines"] + 1)


class LoggedProgress:
    """Logs the progress at most once a minute."""

    def __init__(self, size: int | None):
        self.size, self.lines, self.count = size, 0, 0
        self.start = self.last = time.monotonic()

    def __call__(self, count: int) -> None:
        self.lines, self.count = self.lines + 1, self.count + count
        now = time.monotonic()
        if now - self.last < _SECONDS_BETWEEN_LOGS:
            return
        self.last = now
        message = f"{self.lines:,} lines done"
        if self.size:
            minutes = (now - self.start) * (self.size - self.count) / self.count / 60
            message += f", {self.count / self.size:.0%}, about {minutes:.0f} min left"
        _log(message)


def _log(message: str) -> None:
    print(f"hf-edu: {message}", file=sys.stderr, flush=True)
