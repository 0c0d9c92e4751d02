"""Model cards: a rung's template, filled from the folder of a run.

`hf-edu card RUN` writes RUN/README.md and RUN/pictures/loss.png.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from dataclasses import replace
from pathlib import Path

from huggingface_hub import ModelCard

from ..auto import Rung
from .card_facts import facts
from .card_metadata import metadata
from .checkpoint import Checkpoint, read_checkpoint
from .loss_picture import draw_loss, has_curve
from .privacy import without_secrets

CARD, LOSS_PICTURE = "README.md", Path("pictures") / "loss.png"
MARK = re.compile(r"\n<!-- hf-edu card ([0-9a-f]{16}) -->\n*\Z")


def make_card(
    run: str | os.PathLike | Checkpoint,
    *,
    repo_id: str | None = None,
    licence: str | None = None,
) -> ModelCard:
    """The card of a run, or a shorter one for a folder that only holds a model; writes nothing.

    Args:
        repo_id: Where it goes on the Hub, which the code on the card then names.
        licence: Of the weights; default what the run says.
    """
    checkpoint = run if isinstance(run, Checkpoint) else read_checkpoint(run)
    if licence is not None:
        checkpoint = replace(checkpoint, results=checkpoint.results | {"licence": licence})
    title = (repo_id or checkpoint.folder.resolve().name).rpartition("/")[2]
    card = ModelCard.from_template(
        metadata(checkpoint, title),
        template_str=template_of(checkpoint.rung),
        run=facts(checkpoint, title, repo_id),
        config=checkpoint.rung.config.from_dict(checkpoint.config),  # with its defaults
    )
    card.text = without_secrets(_tidy(card.text))
    return signed(card)


def write_card(
    run: str | os.PathLike,
    *,
    out: str | os.PathLike | None = None,
    repo_id: str | None = None,
    licence: str | None = None,
    force: bool = False,
) -> Path:
    """Write the card, as README.md of the run unless `out` says otherwise, and the picture of the loss into the run."""
    checkpoint = read_checkpoint(run)
    file = checkpoint.folder / CARD if out is None else Path(out)
    if file.exists() and not force and not is_ours(file):
        raise ValueError(f"{file} was written or changed by somebody; keep it elsewhere, or overwrite it with --force")
    card = make_card(checkpoint, repo_id=repo_id, licence=licence)
    made = made_for(card, checkpoint)
    keep(file.parent, {file.name: made.pop(CARD)})
    keep(checkpoint.folder, made)
    return file


def made_for(card: ModelCard | None, checkpoint: Checkpoint) -> dict[str, bytes]:
    """The card and the picture that belongs to it, as they go into the folder and to the Hub."""
    if card is None:
        return {}
    made = {CARD: str(card).encode()}
    if has_curve(checkpoint.history):
        stream = io.BytesIO()
        draw_loss(checkpoint.history, checkpoint.results.get("main_score")).savefig(stream, format="png", dpi=150)
        made[LOSS_PICTURE.as_posix()] = stream.getvalue()
    return made


def keep(folder: Path, made: dict[str, bytes]) -> None:
    """Put what was made into the folder, each file whole or not at all."""
    for name, content in made.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{file.name}-{os.getpid()}")
        try:
            draft.write_bytes(content)
            os.replace(draft, file)
        finally:
            draft.unlink(missing_ok=True)


def template_of(rung: Rung) -> str:
    """What all cards share, and then the rung's own."""
    name = f"{rung.number:02}_{rung.stem}.md"
    file = templates_folder() / name
    if not file.is_file():
        raise FileNotFoundError(f"{rung.stem} has no card; write hub_cards/{name}")
    return (file.parent / "shared.md").read_text("utf-8") + file.read_text("utf-8")


def templates_folder() -> Path:
    """Where the templates are: inside an installed package, or beside it in a source tree."""
    package = Path(__file__).parent.parent
    for folder in (package / "hub_cards", package.parent / "hub_cards"):
        if (folder / "shared.md").is_file():
            return folder
    raise FileNotFoundError(f"no hub_cards beside {package}; install the package again, or clone its repository")


def signed(card: ModelCard) -> ModelCard:
    """The card with a hidden line at its end, by which a card that nobody has touched is known again."""
    card.text = MARK.sub("", card.text).rstrip("\n") + "\n"
    card.text += f"\n<!-- hf-edu card {_digest(str(card))} -->\n"
    return card


def is_ours(file: Path) -> bool:
    """Whether a card was made here and is as it was made: only then may it be made anew."""
    text = file.read_text("utf-8", errors="replace").replace("\r\n", "\n")
    mark = MARK.search(text)
    return mark is not None and mark.group(1) == _digest(text[: mark.start()])


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip("\n").encode()).hexdigest()[:16]


def _tidy(text: str) -> str:
    """One empty line between paragraphs, whatever parts were left out."""
    return re.sub(r"\n\s*\n(?:[ \t]*\n)+", "\n\n", text).strip("\n") + "\n"
