"""`hf-edu generate` and `hf-edu translate`: lines of text in, lines of text out, with any model that writes."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TextIO

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers import set_seed as seed_everything

from .pipelines import EduTranslationPipeline, position_limit, source_limit

NEW_TOKENS = 50  # of a continuation, where neither the user nor the checkpoint says how many
MOST_BATCHES = 16  # sorted by length at a time: enough to leave little padding, little enough to stream
SECONDS_BETWEEN_NOTES = 60
ENDINGS = {
    "translation": ("ForConditionalGeneration", "MTModel"),
    "continuation": ("ForCausalLM", "LMHeadModel"),
    "masks": ("ForMaskedLM", "BertForPreTraining"),
}
GENERATE_HELP = """Write text with a trained model: translate, continue a text, or fill in masked words.

MODEL is a run's folder, any checkpoint's folder or a Hub id. Encoder-decoders translate, language models go on \
from the text, and BERT puts a word for each [MASK]. One line in gives one line out, in the same order; an empty line \
stays empty. Only the results go to stdout, so it can stand in a pipe.

Two examples:

    hf-edu generate runs/gpt "Once upon a time" --sample --temperature 0.8 --seed 1

    hf-edu generate runs/bahdanau --file test.de --out test.en --num-beams 5
"""
TRANSLATE_HELP = """Translate lines of text with a trained encoder-decoder.

The same as `hf-edu generate`, and it refuses a model that does not translate.

Two examples:

    hf-edu translate runs/transformer "ein Hund läuft" --num-beams 5

    cat test.de | hf-edu translate runs/transformer --batch-size 64 > test.en
"""


def generate(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A run's folder, a checkpoint's folder, or a Hub id.")],
    text: Annotated[list[str] | None, typer.Argument(help="Texts; without any, lines of --file or of stdin.")] = None,
    file: Annotated[Path | None, typer.Option(help="Read one text a line from this file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of stdout.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts that run at once.")] = 32,
    num_beams: Annotated[int, typer.Option(min=1, help="Beams of beam search; 1 is greedy.")] = 1,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest output in tokens; default by the checkpoint or the source.")
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw words by their probability.")] = False,
    temperature: Annotated[float | None, typer.Option(help="With --sample: below 1 safer, above 1 bolder.")] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="With --sample: only the k likeliest words.")] = None,
    top_p: Annotated[float | None, typer.Option(help="With --sample: only the words that make up this share.")] = None,
    seed: Annotated[int | None, typer.Option(help="With --sample: the same numbers again.")] = None,
    num_return_sequences: Annotated[int, typer.Option(min=1, help="Lines out for each line in.")] = 1,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps; default the fastest there is.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the code that lies beside the weights.")
    ] = False,
) -> None:
    writing = Writing(batch_size, num_beams, max_new_tokens, sample, temperature, top_k, top_p, num_return_sequences)
    writing.check()
    check_files(text, file, out)
    write = load_writer(model, writing, device, trust_remote_code, only_translation=context.info_name == "translate")
    if seed is not None:
        seed_everything(seed)
    with ExitStack() as open_files:
        source = open_source(text, file, open_files)
        target = sys.stdout if out is None else open_files.enter_context(out.open("w", encoding="utf-8", newline="\n"))
        note = open_files.enter_context(progress(source.size, is_shown=out is not None or not sys.stdout.isatty()))
        write_lines(write, source, target, writing, note)
    if write.cut:
        complain(f"{write.cut:,} texts were longer than the model reads and were cut")


@dataclass(frozen=True)
class Writing:
    """How to write; what is None is left to the checkpoint."""

    batch_size: int = 32
    num_beams: int = 1
    max_new_tokens: int | None = None
    sample: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    num_return_sequences: int = 1

    def check(self) -> None:
        for name in ("temperature", "top_k", "top_p"):
            if getattr(self, name) is not None and not self.sample:
                raise ValueError(f"--{name.replace('_', '-')} is for drawing words; add --sample or leave it out")
        if self.temperature is not None and self.temperature <= 0:
            raise ValueError(f"--temperature must be above 0, got {self.temperature}; for no chance leave --sample out")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"--top-p must be above 0 and at most 1, got {self.top_p}")

    def options(self) -> dict[str, Any]:
        """What `generate()` takes."""
        if self.num_return_sequences > self.num_beams and not self.sample:
            raise ValueError(
                f"--num-return-sequences {self.num_return_sequences} needs as many beams or --sample; "
                f"--num-beams is {self.num_beams}"
            )
        options = {"num_beams": self.num_beams, "do_sample": self.sample}
        for name in ("temperature", "top_k", "top_p", "max_new_tokens"):
            if getattr(self, name) is not None:
                options[name] = getattr(self, name)
        return options | {"num_return_sequences": self.num_return_sequences}


class Translator:
    """Source to target, by our pipeline."""

    def __init__(self, model: Any, tokenizer: Any, writing: Writing):
        self.pipeline = EduTranslationPipeline(model, tokenizer=tokenizer, device=model.device)
        self.limit = source_limit(model.config, tokenizer)
        self.options = writing.options()
        self.cut = 0

    def __call__(self, texts: list[str]) -> list[list[str]]:
        if self.limit is not None:
            lengths = [len(ids) for ids in self.pipeline.tokenizer(texts, verbose=False)["input_ids"]]
            self.cut += sum(length > self.limit for length in lengths)
        results = self.pipeline(texts, batch_size=len(texts), truncation=True, **self.options)
        several = [result if isinstance(result, list) else [result] for result in results]
        return [[result["translation_text"] for result in each] for each in several]


class Continuer:
    """A text, and how a language model goes on from it."""

    def __init__(self, model: Any, tokenizer: Any, writing: Writing):
        self.model, self.tokenizer = model, tokenizer
        # What is written continues the last token: padding stands before the first, and a long text loses its start.
        tokenizer.padding_side = tokenizer.truncation_side = "left"
        if tokenizer.pad_token is None:  # the mask hides it, so that any token does
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
        defaults = model.generation_config
        new_tokens = writing.max_new_tokens or defaults.max_new_tokens or NEW_TOKENS
        self.options = writing.options() | {"max_new_tokens": new_tokens, "pad_token_id": tokenizer.pad_token_id}
        positions = position_limit(model.config)
        self.limit = None if positions is None else positions - new_tokens
        if self.limit is not None and self.limit < 2:
            raise ValueError(
                f"the model has {positions} positions, so that {new_tokens} new tokens leave no room for a text; "
                f"give a smaller --max-new-tokens"
            )
        self.cut = 0

    def __call__(self, texts: list[str]) -> list[list[str]]:
        lengths = [len(ids) for ids in self.tokenizer(texts, verbose=False)["input_ids"]]
        self.cut += sum(self.limit is not None and length > self.limit for length in lengths)
        encoded = self.tokenizer(
            texts, return_tensors="pt", padding=True, truncation=self.limit is not None, max_length=self.limit
        )
        given = {name: encoded[name].to(self.model.device) for name in ("input_ids", "attention_mask")}
        sequences = self.model.generate(**given, **self.options).unflatten(0, (len(texts), -1))
        prompts = self.tokenizer.batch_decode(given["input_ids"], skip_special_tokens=True)
        return [
            [text + self.new_text(prompt, sequence) for sequence in each]
            for text, prompt, each in zip(texts, prompts, sequences, strict=True)
        ]

    def new_text(self, prompt: str, sequence: torch.Tensor) -> str:
        """Decoded together, because whether a word follows a space is seen at its neighbour only."""
        return self.tokenizer.decode(sequence, skip_special_tokens=True)[len(prompt) :]


class MaskFiller:
    """A text with its masked words filled in; the second line has the second likeliest words, and so on."""

    def __init__(self, model: Any, tokenizer: Any, writing: Writing):
        self.model, self.tokenizer, self.count = model, tokenizer, writing.num_return_sequences
        for name in ("num_beams", "max_new_tokens", "sample"):
            if getattr(writing, name) != getattr(Writing(), name):
                raise ValueError(
                    f"{type(model).__name__} fills in masked words, each at once, so --{name.replace('_', '-')} has no "
                    "meaning; leave it out"
                )
        self.limit = source_limit(model.config, tokenizer)
        self.cut = 0

    def __call__(self, texts: list[str]) -> list[list[str]]:
        self.check(texts)
        encoded = self.tokenizer(texts, return_tensors="pt", padding=True).to(self.model.device)
        with torch.no_grad():
            logits = self.model(**encoded).logits  # (B, T, V)
        is_mask = encoded["input_ids"] == self.tokenizer.mask_token_id
        best = logits.topk(self.count, dim=-1).indices
        return [
            [self.fill(text, ids[:, rank].tolist()) for rank in range(self.count)]
            for text, ids in zip(texts, (row[where] for row, where in zip(best, is_mask, strict=True)), strict=True)
        ]

    def check(self, texts: list[str]) -> None:
        mask = self.tokenizer.mask_token
        for text, ids in zip(texts, self.tokenizer(texts, verbose=False)["input_ids"], strict=True):
            if self.tokenizer.mask_token_id not in ids:
                raise ValueError(
                    f"{type(self.model).__name__} fills in masked words, and the text {text[:40]!r} has none; "
                    f"put {mask} where a word is missing"
                )
            if self.limit is not None and len(ids) > self.limit:
                raise ValueError(
                    f"the text {text[:40]!r} has {len(ids)} tokens, but the model reads {self.limit}; make it shorter"
                )

    def fill(self, text: str, words: list[int]) -> str:
        """The user's own text around the new words: decoding it all would give it as the tokenizer sees it."""
        pieces = [self.tokenizer.decode([word]).strip().removeprefix("##") for word in words]
        around = text.split(self.tokenizer.mask_token)
        return "".join(part + piece for part, piece in zip_longest(around, pieces, fillvalue=""))


WRITERS = {
    "translation": (AutoModelForSeq2SeqLM, Translator),
    "continuation": (AutoModelForCausalLM, Continuer),
    "masks": (AutoModelForMaskedLM, MaskFiller),
}


def load_writer(
    name: str, writing: Writing, device: str | None, trust_remote_code: bool, *, only_translation: bool = False
) -> Translator | Continuer | MaskFiller:
    """The model behind a name, ready to write lists of texts."""
    from .hub.convert import quiet

    place = find_device(device)
    options = {"trust_remote_code": trust_remote_code}
    try:
        config = AutoConfig.from_pretrained(name, **options)
        kind = kind_of(name, config)
        if only_translation and kind != "translation":
            raise ValueError(f"{name} holds {config.architectures[0]}, which does not translate; use hf-edu generate")
        auto_class, writer = WRITERS[kind]
        with quiet():
            model = auto_class.from_pretrained(name, **options).to(place).eval()
    except OSError as problem:
        sentence = str(problem).strip().splitlines()[0]
        raise FileNotFoundError(f"no model can be loaded from {name!r}: {sentence}") from None
    return writer(model, load_tokenizer(name, trust_remote_code), writing)


def load_tokenizer(name: str, trust_remote_code: bool) -> Any:
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
    except (OSError, ValueError):  # transformers tells it in a list of many lines
        raise ValueError(
            f"no tokenizer can be loaded from {name}; put one beside the model with tokenizer.save_pretrained, or "
            "install sentencepiece if all it has is a file of that"
        ) from None


def kind_of(name: str, config: Any) -> str:
    """What the checkpoint's head writes; a head that was not saved would be random, so it is not added."""
    saved = (getattr(config, "architectures", None) or ["no named architecture"])[0]
    for kind, endings in ENDINGS.items():
        if saved.endswith(endings):
            return "translation" if config.is_encoder_decoder else kind
    raise ValueError(
        f"{name} holds {saved}, which writes no text; give an encoder-decoder (ForConditionalGeneration), a language "
        "model (ForCausalLM) or a masked one (ForMaskedLM)"
    )


def find_device(name: str | None) -> torch.device:
    if name is None:
        return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as problem:
        sentence = str(problem).strip().splitlines()[0]
        raise ValueError(f"--device {name} cannot be used ({sentence}); try cpu, or leave it out") from None


@dataclass
class Source:
    """Lines to read, how many bytes of them there are if that is known, and whether somebody types them."""

    lines: Iterator[tuple[str, int]]
    size: int | None = None
    is_typed: bool = False


def open_source(texts: list[str] | None, file: Path | None, open_files: ExitStack) -> Source:
    if texts:
        return Source((text, len(text)) for text in texts)
    if file is not None:
        handle = open_files.enter_context(file.open("rb"))
        return Source(decoded(handle, str(file)), size_of(handle))
    if sys.stdin.isatty():
        complain("type a text and Enter for each result; Ctrl-D ends")
        return Source(decoded(sys.stdin.buffer, "stdin"), is_typed=True)
    return Source(decoded(sys.stdin.buffer, "stdin"), size_of(sys.stdin.buffer))


def decoded(handle: BinaryIO, name: str) -> Iterator[tuple[str, int]]:
    """Each line as text, with its bytes: they tell how far the file is read."""
    for number, line in enumerate(handle, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"line {number} of {name} is not UTF-8; convert the file first, e.g. with iconv") from None
        yield text.rstrip("\r\n"), len(line)


def size_of(handle: BinaryIO) -> int | None:
    """Bytes of a regular file; a pipe does not know."""
    try:
        status = os.fstat(handle.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def check_files(texts: list[str] | None, file: Path | None, out: Path | None) -> None:
    if texts and file is not None:
        raise ValueError(f"texts were given and --file {file} too; give one of them")
    if file is not None and not file.is_file():
        raise FileNotFoundError(f"--file {file} is not a file")
    if out is not None and not out.parent.is_dir():
        raise FileNotFoundError(f"--out {out} is in no folder that exists; make {out.parent} first")
    if file is not None and out is not None and out.exists() and file.samefile(out):
        raise ValueError(f"--file and --out are both {file}; it would be overwritten before it is read")


def write_lines(
    write: Callable[[list[str]], list[list[str]]],
    source: Source,
    target: TextIO,
    writing: Writing,
    note: Callable[[int, int], None],
) -> None:
    """Read, write, and forget, one window after the other: a file of any length takes the same memory."""
    for window in windows(source, writing.batch_size):
        texts = [text for text, _ in window]
        for results in write_window(write, texts, writing):
            target.writelines(f"{one_line(result)}\n" for result in results)
        target.flush()
        note(len(window), sum(size for _, size in window))


def windows(source: Source, batch_size: int) -> Iterator[list[tuple[str, int]]]:
    """One batch first, so that there is something to see soon, then more at a time."""
    batches = 1
    while window := list(islice(source.lines, 1 if source.is_typed else batches * batch_size)):
        yield window
        batches = min(2 * batches, MOST_BATCHES)


def write_window(write: Callable[[list[str]], list[list[str]]], texts: list[str], writing: Writing) -> list[list[str]]:
    """Batches of like length, results in the order of the texts."""
    results = [[""] * writing.num_return_sequences for _ in texts]
    order = [place for place, text in enumerate(texts) if text.strip()]
    order.sort(key=lambda place: -len(texts[place]))
    for start in range(0, len(order), writing.batch_size):
        batch = order[start : start + writing.batch_size]
        for place, result in zip(batch, write([texts[place] for place in batch]), strict=True):
            results[place] = result
    return results


def one_line(text: str) -> str:
    """Line n of the output belongs to line n of the input, so no result may have two."""
    return " ".join(text.splitlines())


@contextmanager
def progress(size: int | None, is_shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A function to tell how many lines and bytes are done: a bar on a terminal, else a sentence now and then."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Notes(size)
        return
    if not is_shown:  # the results themselves are on the screen
        yield lambda lines, count: None
        return
    columns = (TextColumn("{task.fields[lines]:,} lines"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # Lines for stdout must not take the way through rich to stderr. A window may take minutes: the time left is
    # reckoned from all of them.
    how = {"transient": True, "redirect_stdout": False, "speed_estimate_period": 3600}
    with Progress(*columns, console=console, **how) as bar:
        task, lines = bar.add_task("", total=size, lines=0), 0

        def note(more: int, count: int) -> None:
            nonlocal lines
            lines += more
            bar.update(task, advance=count, lines=lines)

        yield note


class Notes:
    """For logs: how far it is, at most once a minute."""

    def __init__(self, size: int | None):
        self.size, self.lines, self.count = size, 0, 0
        self.start = self.last = time.monotonic()

    def __call__(self, lines: int, count: int) -> None:
        self.lines, self.count = self.lines + lines, self.count + count
        now = time.monotonic()
        if now - self.last < SECONDS_BETWEEN_NOTES:
            return
        self.last = now
        sentence = f"{self.lines:,} lines done"
        if self.size:
            left = (now - self.start) * (self.size - self.count) / self.count
            sentence += f", {self.count / self.size:.0%}, about {left / 60:.0f} min left"
        complain(sentence)


def complain(sentence: str) -> None:
    print(f"hf-edu: {sentence}", file=sys.stderr, flush=True)
