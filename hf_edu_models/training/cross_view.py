"""Cross-view training: a tagger learns from text without tags, by making parts of itself agree with the whole.

Clark et al. 2018, arXiv:1809.08370. The primary module p(y | x) reads both directions. Auxiliary modules p_j see less:
the forward or the backward state at a word, or only the words before it (`future`) or behind it (`past`). On labelled
text the tagger learns as usual; on unlabelled text

    L_CVT = sum_j KL(p(y | x) || p_j(y | x)),  the mean over words,

where the primary prediction is a fixed target. The gradient reaches the shared embeddings and the first layer.
Differs from the paper: both losses are of every step instead of every other one; the cells and sizes are the recipe's.

Shapes: B batch, T length, D hidden size, N number of tags.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.columns import read_column
from ..data.corpora import load_corpus
from ..data.row_encoders import encode_token_classification
from .arguments import CrossViewArguments
from .trainers import EduTrainer

_FILE = "cross_view.pt"
_WORD = re.compile(r"\w+(?:[-'.]\w+)*|[^\w\s]")


class AuxiliaryModules(nn.Module):
    """Four small networks, each of which predicts the tags from its own view of the first layer's states."""

    views = ("forwards", "backwards", "future", "past")

    def __init__(self, hidden_size: int, num_labels: int):
        super().__init__()
        self.networks = nn.ModuleDict(
            {
                name: nn.Sequential(nn.Linear(hidden_size, hidden_size), nn.ReLU(), nn.Linear(hidden_size, num_labels))
                for name in self.views
            }
        )

    def forward(self, states: Tensor, is_word: Tensor) -> dict[str, Tensor]:
        """Logits (B, T, N) of each view at the first token of each word, where `is_word` (B, T).

        Args:
            states: (B, T, 2D), the forward direction first.
        """
        ahead, back = states.chunk(2, dim=-1)  # each (B, T, D)
        behind = F.pad(back, (0, 0, 0, 1)).take_along_dim(_next_words(is_word)[..., None], dim=1)
        inputs = {
            "forwards": ahead,
            "backwards": back,
            "future": F.pad(ahead[:, :-1], (0, 0, 1, 0)),  # the state before the word
            "past": behind,  # the state at the next word
        }
        return {name: self.networks[name](inputs[name]) for name in self.views}


def _next_words(is_word: Tensor) -> Tensor:
    """For each position, where the next word begins (B, T); T if there is none."""
    length = is_word.shape[1]
    starts = torch.arange(length, device=is_word.device).where(is_word, length)
    at_or_after = F.pad(starts, (0, 1), value=length).flip(1).cummin(dim=1).values.flip(1)
    return at_or_after[:, 1:]


def cross_view_loss(primary: Tensor, auxiliary: dict[str, Tensor], is_word: Tensor) -> Tensor:
    """L_CVT of logits (B, T, N) at the words, `is_word` (B, T); the primary logits get no gradient."""
    target = primary.detach()[is_word].log_softmax(dim=-1)
    losses = [
        F.kl_div(logits[is_word].log_softmax(dim=-1), target, reduction="batchmean", log_target=True)
        for logits in auxiliary.values()
    ]
    return torch.stack(losses).sum()


class CrossViewTrainer(EduTrainer):
    """Trains a bidirectional recurrent tagger on labelled rows, and on a batch of unlabelled ones in each step.

    The auxiliary modules are in the checkpoints and not in the final model.

    Args:
        unlabelled: encoded rows; their `labels` are -100 where no word begins, and otherwise are not read.
        weight: of the loss on unlabelled text.
    """

    def __init__(self, *args: Any, unlabelled: Any, weight: float = 1.0, **kwargs: Any):
        super().__init__(*args, **kwargs)
        config = self.model.config
        if self.args.world_size > 1:
            raise ValueError(
                f"cross-view training runs in one process, but there are {self.args.world_size}; start one"
            )
        if not getattr(config, "bidirectional", False):
            raise ValueError("cross-view training compares two directions; give --model bidirectional=true")
        self.unlabelled, self.weight = unlabelled, weight
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.args.seed)
            self.auxiliary = AuxiliaryModules(config.hidden_size, config.num_labels).to(self.args.device)
        self.unlabelled_loss, self._drawn = 0.0, (-1, 0)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """The auxiliary modules follow the schedule of the head."""
        is_new = self.optimizer is None
        optimizer = super().create_optimizer(*args, **kwargs)
        if is_new:
            parameters = list(self.auxiliary.parameters())
            optimizer.add_param_group({"params": parameters, "lr": self.args.learning_rate, "weight_decay": 0.0})
        return optimizer

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if model.training:
            batch = self._draw_batch(len(inputs["input_ids"]))
            if self._drawn[1] == 0:  # Trainer sets the gradients of the model alone to zero
                self.auxiliary.zero_grad()
            own = self.loss_on_unlabelled(batch)
            self.unlabelled_loss = own.item()
            # Trainer divides the loss over accumulated batches only if the model does not.
            parts = self.current_gradient_accumulation_steps if self.model_accepts_loss_kwargs else 1
            loss = loss + self.weight * own / parts
        return (loss, outputs) if return_outputs else loss

    def loss_on_unlabelled(self, batch: dict[str, Tensor]) -> Tensor:
        is_word = batch.pop("labels") != -100
        self.model.eval()  # the target is made without dropout
        with torch.no_grad():
            target = self.model(**batch).logits
        self.model.train()
        hidden_states = self.model.model(**batch, output_hidden_states=True, return_dict=True).hidden_states
        states = self.model.dropout(hidden_states[1])  # of the first layer
        return cross_view_loss(target, self.auxiliary(states, is_word), is_word)

    def _draw_batch(self, size: int) -> dict[str, Tensor]:
        """Random rows that depend on the seed and the number of the batch: a resumed run draws the same."""
        step = self.state.global_step
        self._drawn = (step, self._drawn[1] + 1 if self._drawn[0] == step else 0)
        rows = np.random.default_rng([self.args.seed, *self._drawn]).integers(len(self.unlabelled), size=size)
        batch = self.data_collator([self.unlabelled[int(row)] for row in rows])
        return self._prepare_inputs(dict(batch))

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        super().log(logs | {"unlabelled_loss": self.unlabelled_loss} if "loss" in logs else logs, start_time)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        torch.save(self.auxiliary.state_dict(), Path(output_dir) / _FILE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            file = Path(checkpoint) / _FILE
            if not file.is_file():
                raise ValueError(
                    f"{checkpoint} has no {_FILE}: it is not of cross-view training; choose another folder"
                )
            self.auxiliary.load_state_dict(torch.load(file, map_location=self.args.device, weights_only=True))
        super()._load_optimizer_and_scheduler(checkpoint)


def unlabelled_rows(args: CrossViewArguments, tokenizer: Any) -> Any:
    """The encoded rows of `--unlabelled`: the train split of a dataset, whose tags are not read if it has some."""
    import datasets

    corpus = _load(str(args.unlabelled), args)
    if "train" not in corpus:
        raise ValueError(f"--unlabelled {args.unlabelled} has no train split: {', '.join(corpus)}")
    train = corpus["train"]
    if "tokens" in train.column_names:
        rows = read_column(train, "tokens")
    else:
        rows = [_WORD.findall(text) for text in read_column(train, "text")]
    rows = [row for row in rows if row][: args.unlabelled_size]
    if not rows:
        raise ValueError(f"--unlabelled {args.unlabelled} has no row with a word")
    columns = {"tokens": rows, "tags": [[0] * len(row) for row in rows]}
    return datasets.Dataset.from_dict(encode_token_classification(columns, tokenizer, args.max_length))


def _load(name: str, args: CrossViewArguments) -> Any:
    """Tagged data with the columns of the run's own data, or texts."""
    own = {name: value for name, value in args.corpus.items() if name in ("columns", "config", "task")}
    try:
        return load_corpus(name, **(own | {"task": "token_classification"}))
    except (ValueError, TypeError):
        return load_corpus(name, task="language_modeling")


def cross_view_options(args: CrossViewArguments, tokenizer: Any) -> dict[str, Any]:
    """What `CrossViewTrainer` takes beside the arguments of `EduTrainer`."""
    return {"unlabelled": unlabelled_rows(args, tokenizer), "weight": args.unlabelled_weight}
