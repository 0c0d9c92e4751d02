"""The recurrent models as `Stepper`s: the search calls the layers directly, without cache objects and model outputs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .blocks_cache import RecurrentCache
from .blocks_generation import is_as_written
from .blocks_losses import is_plain_linear
from .blocks_packed_linear import Function, can_keep, can_pack, read_linear
from .blocks_recurrent import State
from .blocks_search import Stepper


class PlainSteps:
    """A model's own layers, where `blocks_fast_recurrent.py` has no form of them.

    Args:
        advance: from embeddings (rows, 1, E), states and source to features of the softmax layer and new states.
        source: what `advance` needs of each row besides, such as encoder outputs.
    """

    def __init__(self, advance: Callable, source: dict | None = None):
        self.advance, self.source = advance, source or {}

    def __call__(self, embeddings: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        features, states = self.advance(embeddings[:, None], states, **self.source)
        return features[:, -1], states

    def keep(self, rows: Tensor) -> None:
        self.source = {name: _select_rows(value, rows) for name, value in self.source.items()}


class RecurrentStepper(Stepper):
    """A model whose past is one state for each layer.

    Args:
        steps: from embeddings (rows, E) and states to features of the softmax layer and new states.
        states: with a row for each sentence or for each beam.
        prompts: token ids (N, P) to be read.
        logits: (N, V), if the prompts have been read.
        seen_tokens: how many tokens the states have read.
    """

    def __init__(
        self,
        steps: Any,
        states: list[State],
        embed_tokens: nn.Module,
        lm_head: nn.Module,
        prompts: Tensor,
        num_beams: int,
        logits: Tensor | None = None,
        seen_tokens: int = 0,
    ):
        self.steps, self.states, self.beams, self.seen_tokens = steps, states, num_beams, seen_tokens
        self.prompts, self.logits = prompts, logits
        self.embed_tokens = embed_tokens.forward if is_as_written(embed_tokens) else embed_tokens
        self.lm_head = _read_head(lm_head, num_beams * len(prompts))
        if len(states[0][0]) < num_beams * len(prompts):
            self.select(torch.arange(len(prompts), device=prompts.device).repeat_interleave(num_beams))

    def first_logits(self) -> Tensor:
        if self.logits is not None:
            return self.logits
        for tokens in self.prompts.repeat_interleave(self.beams, dim=0).unbind(dim=1):
            logits = self.step(tokens)
        return logits[:: self.beams]

    def step(self, tokens: Tensor) -> Tensor:
        features, self.states = self.steps(self.embed_tokens(tokens), self.states)
        self.seen_tokens += 1
        return self.lm_head(features)

    def reorder(self, parents: Tensor) -> None:
        if self.beams > 1:
            first = torch.arange(len(parents), device=parents.device)[:, None] * self.beams
            self.select((first + parents).flatten())

    def keep(self, sentences: Tensor) -> None:
        rows = (sentences[:, None] * self.beams + torch.arange(self.beams, device=sentences.device)).flatten()
        self.select(rows)
        self.steps.keep(rows)

    def select(self, rows: Tensor) -> None:
        """Take these rows of the states; the source is the same for all beams of a sentence."""
        self.states = [tuple(part.index_select(0, rows) for part in state) for state in self.states]

    def cache(self) -> RecurrentCache:
        cache = RecurrentCache()
        for layer, state in enumerate(self.states):
            cache.write(layer, state, self.seen_tokens)
        return cache


def _read_head(lm_head: nn.Module, rows: int) -> Function:
    """The softmax layer, which has most of the weights that a step reads, in the layout for so many rows."""
    if not (is_plain_linear(lm_head) and is_as_written(lm_head)):
        return lm_head
    return read_linear(lm_head, rows if can_pack([lm_head], rows) else 0, can_keep([lm_head]))


def _select_rows(value, rows: Tensor):
    """Rows of a tensor, or of all tensors in a model output that have a batch."""
    if isinstance(value, Tensor):
        return value.index_select(0, rows)
    if hasattr(value, "items"):
        parts = {name: _select_rows(part, rows) for name, part in value.items() if isinstance(part, Tensor)}
        return type(value)(**dict(value) | parts)
    return value
