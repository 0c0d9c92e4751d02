"""Long time lags: RNN, GRU and LSTM on the tasks of Hochreiter & Schmidhuber 1997 and the delayed copy of Henaff 2016.

Every batch is new, as in the paper. A trial is successful as soon as at most 13 of the last 2,000 sequences were wrong,
each judged before the model was trained on it; 2,560 new ones are judged afterwards. (The paper stops at 13 of 2,000 in
Section 5.5, at none in Sections 5.4 and 5.6; it asks for none of 256 in Tasks 3a and 3c, for less than 6 of 256 in Task
3b, whose noise may turn one class into the other, and in all three for a small mean error, as we do.) What "wrong"
means is the paper's.

Differs from the paper: batches and Adam instead of single sequences and gradient descent, full backpropagation through
time, one hidden size for all cells, softmax outputs for classes; the LSTM has a forget gate (Gers et al. 2000). Gates
start as the lag needs them: the biases of forget and update gates are log(lag), those of input gates -log(lag) (chrono
initialisation of Tallec & Ollivier 2018, arXiv:1804.11188, here with one value for all units).

Shapes: B batch, T time steps, I inputs, D hidden size, O outputs.
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
from torch import Tensor, nn

from ..data.builtin import long_time_lags as tasks
from ..data.builtin import two_sequences
from ..data.builtin.long_time_lags import PAD, Sequences
from ..models.blocks_recurrent import RecurrentLayer, init_uniformly
from .sweep import Variant

CELLS = ("rnn", "gru", "lstm")
_WINDOW, _TEST_SIZE = 2_000, 2_560
_SAMPLERS = vars(tasks) | vars(two_sequences)


@dataclass(frozen=True)
class LagTask:
    """One task: its sequences, its sizes and settings.

    Args:
        corpus: name of the built-in corpus with the same sequences.
        sample: the function of `data/builtin` that draws them; it gets `options`.
        inputs, outputs: number of inputs and outputs of the model at each step.
        lag: steps between what is to be remembered and the output, at least.
        answer: `last`: a class at the end; `number`: a number at the end; `each`: one of the allowed symbols at each
            step; `next`: the next symbol at each step, of which `judged` counts; `copy`: several symbols at the end.
        tolerance: a sequence is correct if the absolute errors of its outputs are below it (`each` and `copy`: if the
            right symbols are the most active).
        judged: which steps of `next` must be correct: `all` or the `last`.
        wrong_at_most: wrong sequences of the last 2,000 in a successful trial.
        mean_error: largest mean error of the last 2,000 in a successful trial.
        is_direct: the outputs see the inputs of their step, too, as in Experiments 2a and 2b of the paper.
        input_gate_bias: where input gates of an LSTM start; default -log(lag).
        direct_first: number of sequences that only the direct connections learn from, at `direct_learning_rate`; the
            recurrent layer joins when the error has stopped decreasing (Section 4, abuse problem, solution 1).
        max_sequences: a trial that needs more has failed.
    """

    corpus: str
    sample: str
    inputs: int
    outputs: int
    lag: int
    answer: str
    tolerance: float = 0.5
    judged: str = "all"
    wrong_at_most: int = 13
    mean_error: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    is_direct: bool = False
    input_gate_bias: float | None = None
    direct_first: int = 0
    direct_learning_rate: float = 0.1
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
_AGAIN: dict[str, Any] = {
    "corpus": "first_again",
    "sample": "sample_first_again",
    "inputs": 101,
    "outputs": 101,
    "lag": 100,
    "answer": "next",
    "tolerance": 0.25,
    "is_direct": True,
    "max_sequences": 60_000,
}
_TWO: dict[str, Any] = {
    "corpus": "two_sequences",
    "sample": "sample_two_sequences",
    "inputs": 1,
    "outputs": 1,
    "lag": 100,
    "answer": "number",
    "tolerance": 0.2,
    "max_sequences": 60_000,
}
LAG_TASKS = {
    "reber": LagTask("reber", "sample_reber", 7, 7, 9, "each", max_sequences=60_000),
    "lag 100, regular": LagTask(
        **_AGAIN | {"max_sequences": 30_000}, direct_first=8_000, batch_size=16, learning_rate=0.003
    ),
    "lag 100, random": LagTask(
        **_AGAIN, judged="last", options={"regular": False}, batch_size=32, input_gate_bias=-2.5
    ),
    "lag 100, noise": LagTask(**_LAGS, lag=100, options={"lag": 100}),
    "lag 1,000, noise": LagTask(**_LAGS, lag=1000, options={"lag": 1000}),
    "two sequences": LagTask(**_TWO, mean_error=0.01),
    "two sequences, noise": LagTask(**_TWO, options={"variant": "b"}, wrong_at_most=39, mean_error=0.04),
    "two sequences, noisy targets": LagTask(**_TWO | {"tolerance": 0.1}, options={"variant": "c"}, mean_error=0.015),
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

    def __init__(
        self,
        cell: str,
        inputs: int,
        hidden_size: int,
        outputs: int,
        lag: int,
        is_direct: bool = False,
        input_gate_bias: float | None = None,
    ):
        super().__init__()
        self.num_inputs, self.is_direct = inputs, is_direct
        self.layer = RecurrentLayer(cell, inputs, hidden_size)
        self.readout = nn.Linear(hidden_size + inputs * is_direct, outputs)
        for module in self.modules():
            init_uniformly(module, hidden_size**-0.5, math.log(lag))
        gates = self.layer.forward_cell.input_bias.detach().split(hidden_size)  # they share memory with the parameter
        if cell == "lstm":
            gates[0].fill_(-math.log(lag) if input_gate_bias is None else input_gate_bias)
        if cell == "gru":
            gates[1].fill_(math.log(lag))  # update gate

    def forward(self, inputs: Tensor, is_recurrent: bool = True) -> Tensor:
        if not inputs.is_floating_point():
            # Padding is read as the first symbol, after the last output that counts.
            inputs = F.one_hot(inputs.clamp(min=0), self.num_inputs).float()  # (B, T, I)
        if is_recurrent:
            hidden_states, *_ = self.layer(inputs, None, "fused")
        else:
            hidden_states = inputs.new_zeros(*inputs.shape[:2], self.layer.forward_cell.hidden_size)  # (B, T, D)
        if self.is_direct:
            hidden_states = torch.cat([hidden_states, inputs], dim=-1)  # (B, T, D + I)
        return self.readout(hidden_states)  # (B, T, O)


def loss_and_errors(task: LagTask, outputs: Tensor, drawn: Sequences) -> tuple[Tensor, Tensor]:
    """The loss of a batch, and each sequence's error as the paper defines it: correct below the task's tolerance."""
    targets = torch.as_tensor(drawn.targets)
    if task.answer in ("each", "next", "copy"):
        loss = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=PAD)
        if task.answer == "copy":
            return loss, (outputs.argmax(-1) != targets)[:, -task.options["length"] :].any(1).float()
        if task.answer == "next":
            judged = slice(-1, None) if task.judged == "last" else slice(None)
            wanted = F.one_hot(targets[:, judged], task.outputs)  # (B, T, O)
            return loss, (outputs[:, judged].softmax(-1) - wanted).abs().amax((1, 2))
        allowed = torch.as_tensor(drawn.allowed)
        least = outputs.masked_fill(~allowed, torch.inf).amin(-1)  # (B, T)
        most = outputs.masked_fill(allowed, -torch.inf).amax(-1)  # (B, T)
        return loss, (~(least > most) & (targets != PAD)).any(1).float()
    last = outputs[torch.arange(len(outputs)), torch.as_tensor(drawn.lengths) - 1]  # (B, O)
    if task.answer == "number":
        answers, expected = last.squeeze(-1), targets if drawn.expected is None else torch.as_tensor(drawn.expected)
        return F.mse_loss(answers, targets.float()), (answers - expected).abs()
    return F.cross_entropy(last, targets), (last.softmax(-1) - F.one_hot(targets, task.outputs)).abs().amax(1)


def draw(task: LagTask, rng: np.random.Generator, count: int) -> tuple[Tensor, Sequences]:
    drawn = _SAMPLERS[task.sample](rng, count, **task.options)
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
        sizes = task.inputs, task.hidden_size, task.outputs
        model = SequenceReader(cell, *sizes, task.lag, task.is_direct, task.input_gate_bias)
    optimizer = torch.optim.Adam(model.parameters(), lr=task.learning_rate)
    recent = torch.zeros(0)
    seen, is_solved = 0, False
    while seen < task.max_sequences and not is_solved:
        inputs, drawn = draw(task, rng, task.batch_size)
        is_recurrent = seen >= task.direct_first
        optimizer.param_groups[0]["lr"] = task.learning_rate if is_recurrent else task.direct_learning_rate
        loss, errors = loss_and_errors(task, model(inputs, is_recurrent), drawn)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen += task.batch_size
        recent = torch.cat([recent, errors.detach()])[-_WINDOW:]
        is_solved = len(recent) == _WINDOW and is_successful(task, recent)
        if seen // task.batch_size % 25 == 0:
            wrong = is_wrong(task, recent).float().mean().item()
            progress(f"{seen:,} sequences: {wrong:.1%} of the last {len(recent):,} wrong")
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
        wrong += int(is_wrong(task, loss_and_errors(task, model(inputs), drawn)[1]).sum())
    return wrong


def is_wrong(task: LagTask, errors: Tensor) -> Tensor:
    """Which sequences are wrong; those of a diverged model, whose errors are NaN, are."""
    return ~(errors < task.tolerance)


def is_successful(task: LagTask, errors: Tensor) -> bool:
    """Whether the errors of the last sequences end a trial."""
    is_near = task.mean_error is None or errors.mean().item() < task.mean_error
    return is_near and int(is_wrong(task, errors).sum()) <= task.wrong_at_most
