"""Kinds of recurrent networks by how many inputs and outputs they have (Karpathy 2015), with our heads of each kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from ..auto import LADDER, Rung
from ..plotting import INK, add_caption, colour, new_figure
from .attention_lessons import Lesson


@dataclass(frozen=True)
class RNNType:
    """One kind of network.

    Args:
        auto_class: the Auto class of our heads of this kind.
        reads, writes: whether each time step has an input and an output.
        field: what the configuration of such a rung has: `cell_type` if it is recurrent.
        feeds_back: whether each output is the next input.
    """

    name: str
    example: str
    auto_class: str
    reads: tuple[bool, ...]
    writes: tuple[bool, ...]
    field: str = "cell_type"
    feeds_back: bool = False

    def heads(self) -> list[tuple[Rung, str]]:
        """The rungs of the ladder that have such a head, and its class name."""
        chosen = [rung for rung in LADDER if hasattr(rung.config, self.field) and self.auto_class in rung.config.heads]
        return [(rung, rung.config.heads[self.auto_class]) for rung in chosen]


_ALL = (True, True, True)
TYPES = (
    RNNType("one to one", "a window → the next word", "AutoModelForCausalLM", (True,), (True,), field="window_size"),
    RNNType(
        "one to many",
        "a first word → a text: generate()",
        "AutoModelForCausalLM",
        (True, False, False),
        _ALL,
        feeds_back=True,
    ),
    RNNType("many to one", "a text → its class", "AutoModelForSequenceClassification", _ALL, (False, False, True)),
    RNNType("many to many, aligned", "words → their tags", "AutoModelForTokenClassification", _ALL, _ALL),
    RNNType(
        "many to many, encoder-decoder",
        "a sentence → its translation",
        "AutoModelForSeq2SeqLM",
        (True, True, True, False, False),
        (False, False, False, True, True),
        feeds_back=True,
    ),
)


def rnn_types() -> Lesson:
    """Boxes and arrows of each kind, and the rungs and heads of the ladder that are of this kind."""
    figure, axes = new_figure(17, 4.4, columns=len(TYPES), width_ratios=[1 + len(each.reads) for each in TYPES])
    rows = []
    for axis, each in zip(axes, TYPES, strict=True):
        _draw(axis, each)
        counts = {"inputs": sum(each.reads), "steps": len(each.reads), "outputs": sum(each.writes)}
        rows += [{"type": each.name} | counts | {"rung": rung.name, "head": head} for rung, head in each.heads()]
    add_caption(
        figure, "Orange: inputs; blue: hidden states; green: outputs; dotted: an output is the input of the next step."
    )
    return Lesson(figure, rows)


def _draw(axis: Any, kind: RNNType) -> None:
    steps = len(kind.reads)
    for step, (reads, writes) in enumerate(zip(kind.reads, kind.writes, strict=True)):
        _draw_box(axis, step, 1, "h", colour(0))
        if reads:
            _draw_box(axis, step, 0, "x", colour(1))
            _draw_arrow(axis, (step, 0.25), (step, 0.75))
        if writes:
            _draw_box(axis, step, 2, "y", colour(2))
            _draw_arrow(axis, (step, 1.25), (step, 1.75))
        if step + 1 < steps:
            _draw_arrow(axis, (step + 0.25, 1), (step + 0.75, 1))
            if kind.feeds_back and writes:
                _draw_arrow(axis, (step + 0.25, 1.85), (step + 0.8, 1.25), linestyle=":")
    names = "\n".join(head for _, head in kind.heads())
    axis.text((steps - 1) / 2, -0.5, f"{kind.example}\n\n{names}", ha="center", va="top", fontsize=8.5, color=INK)
    axis.set(title=kind.name.replace(", ", ",\n"), xlim=(-0.8, steps - 0.2), ylim=(-1.4, 2.3))
    axis.axis("off")


def _draw_box(axis: Any, step: int, level: int, label: str, face: str) -> None:
    corner = (step - 0.2, level - 0.2)
    axis.add_patch(FancyBboxPatch(corner, 0.4, 0.4, boxstyle="round,pad=0.04", facecolor=face, edgecolor="none"))
    axis.text(step, level, label, ha="center", va="center", color="white", fontsize=11)


def _draw_arrow(axis: Any, start: tuple[float, float], end: tuple[float, float], linestyle: str = "-") -> None:
    axis.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=INK, linestyle=linestyle, linewidth=1)
    )
