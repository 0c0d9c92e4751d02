"""Long time lags: RNN, GRU and LSTM on the tasks of Hochreiter & Schmidhuber 1997 and the delayed copy of Henaff 2016.

Every batch is new, as in the paper. A trial is successful as soon as at most 13 of the last 2,000 sequences were wrong,
each judged before the model was trained on it; 2,560 new ones are judged afterwards. (The paper stops at 13 of 2,000 in
Section 5.5 and at none in Sections 5.4 and 5.6.) What "wrong" means is the paper's.

Differs from the paper: batches and Adam instead of single sequences and gradient descent, full backpropagation through
time, one hidden size for all cells, softmax outputs for classes; the LSTM has a forget gate (Gers et al. 2000). Gates
start as the lag needs them: the biases of forget and update gates are log(lag), those of input gates -log(lag) (chrono
initialisation of Tallec & Ollivier 2018, arXiv:1804.11188, here with one value for all units).

Shapes: B batch, T time steps, I inputs, O outputs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from ..data.builtin import long_time_lags as tasks
from ..data.builtin.long_time_lags import PAD, Sequences
from ..models.blocks_recurrent import RecurrentLayer, init_uniformly
from ..plotting import GREY, INK, add_caption, colour, new_figure
from .published import PUBLISHED
from .sweep import Variant

CELLS = ("rnn", "gru", "lstm")
_WINDOW, _WRONG_AT_MOST, _TEST_SIZE = 2_000, 13, 2_560


@dataclass(frozen=True)
class LagTask:
    """One task: its sequences, its sizes and settings.

    Args:
        corpus: name of the built-in corpus with the same sequences.
        sample: the function of `data/builtin/long_time_lags.py` that draws them, and its options.
        inputs, outputs: number of inputs and outputs of the model at each step.
        lag: steps between what is to be remembered and the output, at least.
        answer: `last`: a class at the end; `number`: a number at the end; `each`: one of the allowed symbols at each
            step; `copy`: several symbols at the end.
        tolerance: largest absolute error of an output that counts as correct.
        max_sequences: a trial that needs more has failed.
    """

    corpus: str
    sample: str
    inputs: int
    outputs: int
    lag: int
    answer: str
    tolerance: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    hidden_size: int = 16
    batch_size: int = 64
    learning_rate: float = 0.01
    max_sequences: int = 100_000


_LAGS: dict[str, Any] = {
    "corpus": "long_lags",
    "sample": "sample_long_lags",
    "inputs": 104,
    "outputs": 2,
    "answer": "last",
    "tolerance": 0.2,
    "learning_rate": 0.003,
    "max_sequences": 30_000,
}
LAG_TASKS = {
    "reber": LagTask("reber", "sample_reber", 7, 7, 9, "each", max_sequences=60_000),
    "lag 100, noise": LagTask(**_LAGS, lag=100, options={"lag": 100}),
    "lag 1,000, noise": LagTask(**_LAGS, lag=1000, options={"lag": 1000}),
    "adding": LagTask("adding", "sample_adding", 2, 1, 50, "number", 0.04),
    "multiplication": LagTask(
        "multiplication", "sample_multiplication", 2, 1, 50, "number", 0.04, max_sequences=200_000
    ),
    "temporal order": LagTask("temporal_order", "sample_temporal_order", 8, 4, 30, "last", 0.3),
    "delayed copy": LagTask(
        "delayed_copy", "sample_delayed_copy", 10, 10, 10, "copy", options={"delay": 10, "length": 3}, hidden_size=64
    ),
}


def lag_variants(names: Sequence[str] = (), cells: Sequence[str] = CELLS, quick: bool = False) -> list[Variant]:
    """One variant for each task and cell; by default all of them."""
    for given, known in ((names, LAG_TASKS), (cells, CELLS)):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not one of {', '.join(repr(name) for name in known)}")
    chosen = {name: LAG_TASKS[name] for name in names or LAG_TASKS}
    if quick:
        chosen = {name: replace(task, max_sequences=2 * task.batch_size) for name, task in chosen.items()}
    return [
        Variant(f"{name}, {cell}", {"task": asdict(task), "cell": cell})
        for name, task in chosen.items()
        for cell in cells
    ]


class SequenceReader(nn.Module):
    """One recurrent layer and one linear layer, for symbols (one-hot) or numbers."""

    def __init__(self, cell: str, inputs: int, hidden_size: int, outputs: int, lag: int):
        super().__init__()
        self.num_inputs = inputs
        self.layer = RecurrentLayer(cell, inputs, hidden_size)
        self.readout = nn.Linear(hidden_size, outputs)
        for module in self.modules():
            init_uniformly(module, hidden_size**-0.5, math.log(lag))
        gates = self.layer.forward_cell.input_bias.detach().split(hidden_size)  # they share memory with the parameter
        if cell == "lstm":
            gates[0].fill_(-math.log(lag))  # input gate
        if cell == "gru":
            gates[1].fill_(math.log(lag))  # update gate

    def forward(self, inputs: Tensor) -> Tensor:
        if not inputs.is_floating_point():
            # Padding is read as the first symbol, after the last output that counts.
            inputs = F.one_hot(inputs.clamp(min=0), self.num_inputs).float()  # (B, T, I)
        hidden_states, *_ = self.layer(inputs, None, "fused")
        return self.readout(hidden_states)  # (B, T, O)


def loss_and_correct(task: LagTask, outputs: Tensor, drawn: Sequences) -> tuple[Tensor, Tensor]:
    """The loss of a batch, and whether each sequence is correct, as the paper defines it for the task."""
    targets = torch.as_tensor(drawn.targets)
    if task.answer in ("each", "copy"):
        loss = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=PAD)
        if task.answer == "copy":
            length = task.options["length"]
            return loss, (outputs.argmax(-1) == targets)[:, -length:].all(1)
        allowed = torch.as_tensor(drawn.allowed)
        least = outputs.masked_fill(~allowed, torch.inf).amin(-1)  # (B, T)
        most = outputs.masked_fill(allowed, -torch.inf).amax(-1)  # (B, T)
        return loss, ((least > most) | (targets == PAD)).all(1)
    last = outputs[torch.arange(len(outputs)), torch.as_tensor(drawn.lengths) - 1]  # (B, O)
    if task.answer == "number":
        answers = last.squeeze(-1)
        return F.mse_loss(answers, targets.float()), (answers - targets).abs() < task.tolerance
    errors = (last.softmax(-1) - F.one_hot(targets, task.outputs)).abs()  # (B, O)
    return F.cross_entropy(last, targets), (errors < task.tolerance).all(1)


def draw(task: LagTask, rng: np.random.Generator, count: int) -> tuple[Tensor, Sequences]:
    drawn = getattr(tasks, task.sample)(rng, count, **task.options)
    inputs = torch.as_tensor(drawn.inputs)
    return inputs.float() if inputs.is_floating_point() else inputs, drawn


def train_reader(
    settings: dict[str, Any], seed: int, folder: Path, progress: Callable[[str], None] = lambda line: None
) -> dict[str, float]:
    """One trial: 1 or 0 for success, the sequences it needed, wrong ones of 2,560 and seconds."""
    task, cell = LagTask(**settings["task"]), settings["cell"]
    started = time.process_time()
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SequenceReader(cell, task.inputs, task.hidden_size, task.outputs, task.lag)
    optimizer = torch.optim.Adam(model.parameters(), lr=task.learning_rate)
    recent = torch.zeros(0, dtype=torch.bool)
    seen, is_solved = 0, False
    while seen < task.max_sequences and not is_solved:
        inputs, drawn = draw(task, rng, task.batch_size)
        loss, correct = loss_and_correct(task, model(inputs), drawn)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen += task.batch_size
        recent = torch.cat([recent, correct])[-_WINDOW:]
        is_solved = len(recent) == _WINDOW and int((~recent).sum()) <= _WRONG_AT_MOST
        if seen // task.batch_size % 25 == 0:
            progress(f"{seen:,} sequences: {1 - recent.float().mean().item():.1%} of the last {len(recent):,} wrong")
    return {
        "success": int(is_solved),
        "sequences": seen,
        "wrong_of_2560": _count_wrong(model, task, rng),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "seconds": round(time.process_time() - started, 1),
    }


@torch.no_grad()
def _count_wrong(model: SequenceReader, task: LagTask, rng: np.random.Generator) -> int:
    wrong = 0
    for _ in range(_TEST_SIZE // 256):
        inputs, drawn = draw(task, rng, 256)
        wrong += int((~loss_and_correct(task, model(inputs), drawn)[1]).sum())
    return wrong


def draw_long_time_lags(rows: Sequence[dict[str, Any]]) -> Figure:
    """Success rate and sequences needed by task and cell; the paper's numbers of sequences in grey."""
    names = list(dict.fromkeys(row["task"] for row in rows))
    cells = [cell for cell in CELLS if any(row["cell"] == cell for row in rows)]
    published = PUBLISHED["long-time-lags"]
    figure, (left, right) = new_figure(12, 1.6 + 0.62 * len(names), columns=2, sharey=True, width_ratios=[1, 1.4])
    height = 0.8 / len(cells)
    for number, cell in enumerate(cells):
        for place, name in enumerate(names):
            trials = [row for row in rows if row["task"] == name and row["cell"] == cell]
            solved = [row["sequences"] for row in trials if row["success"]]
            y = place + (number - (len(cells) - 1) / 2) * height
            label = {"label": cell} if place == 0 else {}
            left.barh(y, 100 * len(solved) / max(len(trials), 1), 0.9 * height, color=colour(number), **label)
            left.text(101, y, f"{len(solved)}/{len(trials)}", va="center", fontsize=7.5, color=INK)
            if solved:
                right.plot(solved, [y] * len(solved), "o", color=colour(number), markersize=5, alpha=0.8)
            else:
                most = max(row["sequences"] for row in trials)
                right.text(1.12 * most, y, f"> {most:,}", va="center", fontsize=7.5, color=colour(number))
    for place, name in enumerate(names):
        if name in published.rows:
            needed = published.rows[name][0]
            right.plot([needed] * 2, [place - 0.45, place + 0.45], color=GREY, linewidth=2)
            right.text(needed * 1.06, place - 0.44, f"{needed:,.0f}", fontsize=7, color=GREY, va="center")
    left.set(xlim=(0, 115), xlabel="successful trials, %", yticks=range(len(names)), yticklabels=names)
    left.legend(frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(cells))
    left.invert_yaxis()
    right.set_xscale("log")
    right.set_xlabel("sequences until success: each trial a point")
    right.set_title(f"grey: {published.source}", fontsize=9, color=GREY)
    add_caption(
        figure,
        f"Success: at most {_WRONG_AT_MOST} of the last {_WINDOW:,} sequences wrong. {published.note}",
    )
    return figure
