"""Model cards: the template of a rung, filled in from the folder of a run.

`hf-edu card RUN` writes RUN/README.md and RUN/pictures/loss.png.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard

from ...auto import Rung
from ...checkpoints import Checkpoint, read_checkpoint
from ...redaction import make_values_visible, redact_text
from ...run_folder import write_atomically
from .facts import template_values
from .loss_curve import has_curve, loss_curve_png
from .metadata import make_metadata

CARD, _LOSS_CURVE = "README.md", "pictures/loss.png"
_CHECKSUM = re.compile(r"\n<!-- hf-edu card ([0-9a-f]{16}) -->\n*\Z")


def make_card(
    run: str | os.PathLike | Checkpoint,
    *,
    repo_id: str | None = None,
    licence: str | None = None,
    space: str | None = None,
    **metadata: Any,
) -> ModelCard:
    """The card of a run, or a shorter one for a folder with only a model; writes no file.

    Args:
        repo_id: Repository on the Hub; the code on the card then loads from there.
        licence: Licence of the weights; default the one of the run.
        space: Space with the lab of the run; default the one that it was published as.
        metadata: Fields of `ModelCardData` that replace those of the run; None changes nothing.
    """
    checkpoint = run if isinstance(run, Checkpoint) else read_checkpoint(run)
    if licence is not None:
        checkpoint = replace(checkpoint, results=checkpoint.results | {"licence": licence})
    checkpoint = _make_visible(checkpoint)
    title = (repo_id or checkpoint.folder.resolve().name).rpartition("/")[2]
    card = ModelCard.from_template(
        make_metadata(checkpoint, title, **metadata),
        template_str=read_template(checkpoint.rung),
        run=template_values(checkpoint, title, repo_id, space),
        config=checkpoint.rung.config.from_dict(checkpoint.config),  # with its defaults
    )
    # One empty line between paragraphs, whichever parts the template left out.
    card.text = redact_text(re.sub(r"\n\s*\n(?:[ \t]*\n)+", "\n\n", card.text)).strip("\n") + "\n"
    card.text += f"\n<!-- hf-edu card {_digest(str(card))} -->\n"  # shows later whether the card was edited
    return card


def _make_visible(checkpoint: Checkpoint) -> Checkpoint:
    results, text = make_values_visible(checkpoint.results), checkpoint.results.get("attention_of")
    if text is not None:
        results["attention_of"] = text  # part of a command, which is left out if it has such characters
    return replace(checkpoint, results=results, settings=make_values_visible(checkpoint.settings))


def write_card(
    run: str | os.PathLike,
    *,
    out: str | os.PathLike | None = None,
    repo_id: str | None = None,
    licence: str | None = None,
    force: bool = False,
) -> Path:
    """Write the card to `out`, by default README.md of the run, and the loss curve into the run."""
    checkpoint = read_checkpoint(run)
    file = checkpoint.folder / CARD if out is None else Path(out)
    if file.exists() and not force and not _is_unedited(file):
        raise ValueError(f"{file} was written or changed by hand; move it elsewhere, or overwrite it with --force")
    files = card_files(checkpoint, force=True, repo_id=repo_id, licence=licence)
    write_atomically(file, files.pop(CARD))
    write_files(checkpoint.folder, files)
    return file


def card_files(checkpoint: Checkpoint, force: bool = False, **options: Any) -> dict[str, bytes]:
    """A new card and its loss curve, by file name; none if the card was edited by hand, unless `force`.

    Args:
        options: Arguments of `make_card`.
    """
    file = checkpoint.folder / CARD
    if file.is_file() and not force and not _is_unedited(file):
        return {}
    files = {CARD: str(make_card(checkpoint, **options)).encode()}
    if has_curve(checkpoint.history):
        files[_LOSS_CURVE] = loss_curve_png(checkpoint.history, checkpoint.results.get("main_score"))
    return files


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        write_atomically(folder / name, content)


def read_template(rung: Rung) -> str:
    """The macros of a rung, followed by the layout of all cards."""
    file = _templates_folder() / f"{rung.year}_{rung.name}.md"
    if not file.is_file():
        raise FileNotFoundError(f"{rung.name} has no card template; write hub_cards/{file.name}")
    return file.read_text("utf-8") + file.with_name("shared.md").read_text("utf-8")


def _templates_folder() -> Path:
    """`hub_cards`: inside an installed package, or beside it in a clone."""
    package = Path(__file__).parents[2]
    inside = package / "hub_cards"
    return inside if inside.is_dir() else package.parent / "hub_cards"


def _is_unedited(file: Path) -> bool:
    """Whether a card was generated and not edited since: only then it may be replaced."""
    text = file.read_text("utf-8", errors="replace").replace("\r\n", "\n")
    checksum = _CHECKSUM.search(text)
    return checksum is not None and checksum.group(1) == _digest(text[: checksum.start()])


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip("\n").encode()).hexdigest()[:16]
