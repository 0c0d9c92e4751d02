"""`hf-edu generate` and `hf-edu translate`: lines of text in, lines of text out."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.console import Console

from .options import BatchSize, MaxNewTokens, Model, NumBeams, TrustRemoteCode

SECONDS_BETWEEN_LOGS = 60


def generate(
    context: typer.Context,
    model: Model,
    text: Annotated[list[str] | None, typer.Argument(help="Input texts; default the lines of --file or stdin.")] = None,
    file: Annotated[Path | None, typer.Option(help="Input file, one text per line.")] = None,
    out: Annotated[Path | None, typer.Option(help="Output file; default stdout.")] = None,
    batch_size: BatchSize = 32,
    num_beams: NumBeams = 1,
    max_new_tokens: MaxNewTokens = None,
    sample: Annotated[
        bool,
        typer.Option(
            "--sample", help="Sample from the next-token distribution instead of taking the most likely token."
        ),
    ] = False,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature: below 1 sharpens the distribution, above 1 flattens it.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample only from the k most likely tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample only from the smallest set of tokens with this total probability.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed for sampling.")] = None,
    num_return_sequences: Annotated[int, typer.Option(min=1, help="Number of output lines per input line.")] = 1,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1 or mps; default the GPU if one is available.")
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Generate text: translate, continue a prompt, or fill in masked tokens.

    Encoder-decoders translate, causal language models continue the text, and masked language models replace each
    [MASK]. One input line gives one output line, in the same order; an empty line stays empty. Only the outputs go to
    stdout.

    hf-edu generate runs/gpt "Once upon a time" --sample --temperature 0.8 --seed 1

    hf-edu generate runs/bahdanau --file test.de --out test.en --num-beams 5
    """
    from transformers import set_seed

    from ..generation import GenerationOptions, generate_lines, load_text_writer

    options = GenerationOptions(
        batch_size, num_beams, max_new_tokens, sample, temperature, top_k, top_p, num_return_sequences
    )
    _check_files(text, file, out)
    only_translation = context.info_name == "translate"
    write = load_text_writer(model, options, device, trust_remote_code, only_translation=only_translation)
    if seed is not None:
        set_seed(seed)
    with ExitStack() as open_files:
        lines, size, is_interactive = _open_input(text, file, open_files)
        target = sys.stdout if out is None else open_files.enter_context(out.open("w", encoding="utf-8", newline="\n"))
        # No bar if the outputs themselves go to the terminal.
        report = open_files.enter_context(_progress(size, has_bar=out is not None or not sys.stdout.isatty()))
        for line, outputs in generate_lines(write, lines, options, is_interactive):
            # Output n belongs to input n, so an output must be a single line.
            target.writelines(" ".join(output.splitlines()) + "\n" for output in outputs)
            target.flush()
            report(len(line.encode()) + 1)
    if write.num_truncated:
        _log(f"{write.num_truncated:,} texts exceeded the maximum length of the model and were truncated")


TRANSLATE_HELP = """Translate lines of text with an encoder-decoder.

The same as `hf-edu generate`, but rejects models that do not translate.

hf-edu translate runs/transformer "ein Hund läuft" --num-beams 5

cat test.de | hf-edu translate runs/transformer --batch-size 64 > test.en
"""


def _check_files(texts: list[str] | None, file: Path | None, out: Path | None) -> None:
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
        if now - self.last < SECONDS_BETWEEN_LOGS:
            return
        self.last = now
        message = f"{self.lines:,} lines done"
        if self.size:
            minutes = (now - self.start) * (self.size - self.count) / self.count / 60
            message += f", {self.count / self.size:.0%}, about {minutes:.0f} min left"
        _log(message)


def _log(message: str) -> None:
    print(f"hf-edu: {message}", file=sys.stderr, flush=True)
