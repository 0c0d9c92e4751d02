"""Which layer holds what: one probe for several tasks, on a learnt mix of the layers (Tenney et al. 2019, Section 3).

A probe reads the scalar mix of the layers 0 to l. How much the score rises with each layer gives the *expected layer*
of a task (cumulative scoring); the weights of the mix of all layers give its *center of gravity*.

Differs from the paper: a probe reads the state of a word's first token, not a span, and is linear; each dimension of a
layer is standardised, so that weights compare.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...models.blocks_layer_mix import ScalarMix
from ...plotting import INK, add_caption, colour, new_figure
from ..inference import with_progress
from .linear import baselines, collect_states, label_names, split_rows, write_probes

_OUTSIDE = "O"  # the tag of words outside of chunks and entities


@dataclass(frozen=True)
class TaskLayers:
    """How a task is spread over the layers, the embeddings as layer 0.

    Args:
        scores: of the probes on the layers 0 to l, for each l.
        weights: of each layer, in the probe on all of them.
        baseline: the score of each word's most frequent training label.
        metric: accuracy; or, if words are outside of what is tagged, the F1 of the other tags.
    """

    name: str
    scores: list[float]
    weights: list[float]
    baseline: float
    metric: str
    train_words: int
    test_words: int

    @property
    def gains(self) -> list[float]:
        """How much each layer adds to the score, from layer 1 on."""
        return [after - before for before, after in pairwise(self.scores)]

    @property
    def expected_layer(self) -> float:
        """The mean layer, weighted by what each adds; not a number if all together add nothing."""
        total = sum(self.gains)
        return sum(number * gain for number, gain in enumerate(self.gains, 1)) / total if total > 0 else float("nan")

    @property
    def center_of_gravity(self) -> float:
        """The mean layer, weighted by the scalar mix."""
        return sum(number * weight for number, weight in enumerate(self.weights))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"expected_layer": self.expected_layer, "center_of_gravity": self.center_of_gravity}


def probe_tasks(
    model: Any,
    tokenizer: Any,
    tasks: Mapping[str, Any],
    *,
    train_size: int = 1_000,
    test_size: int = 500,
    epochs: int = 20,
    seed: int = 0,
    batch_size: int = 32,
    progress: bool = False,
) -> list[TaskLayers]:
    """Probe the layers of a model for each task: a corpus, or rows, with `tokens` and `tags` (None: no label)."""
    found = []
    for name, corpus in with_progress(tasks.items(), "probing tasks", len(tasks), progress):
        train_rows, test_rows = split_rows(corpus, train_size, test_size, seed)
        names, label_ids = label_names(corpus, [*train_rows, *test_rows])
        train = collect_states(model, tokenizer, train_rows, label_ids, batch_size)
        test = collect_states(model, tokenizer, test_rows, label_ids, batch_size)
        if len(set(train.labels.tolist())) < 2 or not len(test.labels):
            raise ValueError(f"{name}: a probe needs two different labels to train on, and labelled words to test on")
        metric = "F1" if _OUTSIDE in names else "accuracy"
        outside = names.index(_OUTSIDE) if _OUTSIDE in names else None
        mean, scale = (getattr(train.states, each)(axis=1, keepdims=True) for each in ("mean", "std"))
        states, new = (torch.from_numpy((each - mean) / (scale + 1e-6)).float() for each in (train.states, test.states))
        scores, weights = [], [1.0]
        for count in range(1, len(states) + 1):
            options = {"classes": len(names), "epochs": epochs, "seed": seed}
            predictions, weights = _fit_mix(states[:count], train.labels, new[:count], **options)
            scores.append(_score(test.labels, predictions, outside))
        guessed = baselines(train, test)[2]
        sizes = len(train.labels), len(test.labels)
        found.append(TaskLayers(name, scores, weights, _score(test.labels, guessed, outside), metric, *sizes))
    return found


class _MixProbe(nn.Module):
    def __init__(self, layers: int, size: int, classes: int):
        super().__init__()
        self.mix, self.classify = ScalarMix(layers), nn.Linear(size, classes)

    def forward(self, states: Tensor) -> Tensor:
        return self.classify(self.mix(states.unbind(0)))


def _fit_mix(
    states: Tensor, labels: np.ndarray, new_states: Tensor, classes: int, epochs: int, seed: int, batch_size: int = 128
) -> tuple[np.ndarray, list[float]]:
    """The predictions of a probe on a mix of the states (layers, words, size), and the weights of the layers."""
    generator, rng_state = torch.Generator().manual_seed(seed), torch.get_rng_state()
    torch.manual_seed(seed)
    probe = _MixProbe(len(states), states.shape[-1], classes)
    torch.set_rng_state(rng_state)
    optimizer, targets = torch.optim.Adam(probe.parameters(), lr=0.01), torch.from_numpy(labels)
    steps = epochs * -(-len(targets) // batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(targets), generator=generator).split(batch_size):
            loss = nn.functional.cross_entropy(probe(states[:, rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        return probe(new_states).argmax(dim=-1).numpy(), probe.mix.weights().tolist()


def _score(labels: np.ndarray, predictions: np.ndarray, outside: int | None) -> float:
    from sklearn.metrics import f1_score

    if outside is None:
        return float((labels == predictions).mean())
    inside = sorted({*labels.tolist(), *predictions.tolist()} - {outside})
    return float(f1_score(labels, predictions, labels=inside, average="micro", zero_division=0)) if inside else 0.0


def senses_as_tags(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sentences with the sense of one word, at `position`, as rows where only this word has a tag."""
    found = []
    for row in rows:
        tokens = row["sentence"].split()
        tags: list[Any] = [None] * len(tokens)
        tags[row["position"]] = row["sense"]
        found.append({"tokens": tokens, "tags": tags})
    return found


def draw_tasks(found: Sequence[TaskLayers], title: str = "") -> Any:
    """For each task the weights of the layers and what each adds to the score, with the two means."""
    figure, axes = new_figure(7.5, 1.0 + 1.45 * len(found), rows=len(found), sharex=True)
    for number, (axis, task) in enumerate(zip(np.atleast_1d(axes), found, strict=True)):
        layers = np.arange(len(task.scores))
        gains = np.array([0.0, *task.gains])
        gains = gains / max(np.abs(gains).sum(), 1e-12)
        axis.bar(layers - 0.18, task.weights, width=0.34, color=colour(number), label="weight in the mix")
        style = {"facecolor": "none", "edgecolor": INK, "linewidth": 1.1}
        axis.bar(layers + 0.18, gains, width=0.34, **style, label="gain in score, normalised")
        texts = [f"center of gravity {task.center_of_gravity:.2f}"]
        texts += [f"expected layer {task.expected_layer:.2f}"] if np.isfinite(task.expected_layer) else []
        score = f"{task.metric} {100 * task.scores[0]:.1f} to {100 * task.scores[-1]:.1f}"
        axis.set_title(f"{task.name}: {score}; {', '.join(texts)}", loc="left", fontsize=9.5)
        axis.axhline(0, color=INK, linewidth=0.8)
        axis.grid(False, axis="x")
        axis.set_ylim(min(-0.05, gains.min() - 0.05), max(1.0, max(task.weights) + 0.05))
    last = np.atleast_1d(axes)[-1]
    last.set(xlabel="layer (0: embeddings)", xticks=layers)
    np.atleast_1d(axes)[0].legend(loc="upper right", frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11)
    least, most = (f"{size(task.train_words for task in found):,}" for size in (min, max))
    add_caption(figure, f"{least} to {most} training words; the first score is that of the embeddings alone")
    return figure


def save_tasks(found: Sequence[TaskLayers], path: str | os.PathLike, title: str = "") -> Path:
    """Write the numbers as .json, or a picture as .png or .svg."""
    return write_probes(path, [task.to_dict() for task in found], lambda: draw_tasks(found, title))
