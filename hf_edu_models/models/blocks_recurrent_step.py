"""The recurrent models as `Stepper`s: the search calls the layers directly, without cache objects and model outputs."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .blocks_cache import RecurrentCache
from .blocks_generation import is_as_written
from .blocks_losses import is_plain_linear
from .blocks_packed_linear import Function, can_keep, can_pack, read_linear
from .blocks_recurrent import State
from .blocks_search import Stepper


class RecurrentStepper(Stepper):
    """A model whose past is one state for each layer.

    Args:
        logits: (N, V), after the prompt.
        cache: the states after the prompt, with a row for each sentence or for each beam.
        advance: from embeddings (rows, 1, E), states and source to the features of the softmax layer and new states.
        source: what `advance` needs of each row besides, such as encoder outputs.
    """

    def __init__(
        self,
        logits: Tensor,
        cache: RecurrentCache,
        num_beams: int,
        embed_tokens: nn.Module,
        advance: Callable,
        lm_head: nn.Module,
        source: dict | None = None,
    ):
        self.logits, self.beams = logits, num_beams
        self.states: list[State] = [cache.state(layer) or () for layer in range(len(cache))]
        self.seen_tokens = cache.get_seq_length()
        self.embed_tokens, self.advance = embed_tokens, advance
        self.lm_head = _read_head(lm_head, num_beams * len(logits))
        self.source = source or {}
        if len(self.states[0][0]) < num_beams * len(logits):
            self.select(torch.arange(len(logits), device=logits.device).repeat_interleave(num_beams), None)

    def first_logits(self) -> Tensor:
        return self.logits

    def step(self, tokens: Tensor) -> Tensor:
        features, self.states = self.advance(self.embed_tokens(tokens)[:, None], self.states, **self.source)
        self.seen_tokens += 1
        return self.lm_head(features[:, -1])

    def reorder(self, parents: Tensor) -> None:
        if self.beams > 1:
            self.select(self.rows_of(parents), None)

    def rows_of(self, parents: Tensor) -> Tensor:
        first = torch.arange(len(parents), device=parents.device)[:, None] * self.beams
        return (first + parents).flatten()

    def keep(self, sentences: Tensor) -> None:
        rows = (sentences[:, None] * self.beams + torch.arange(self.beams, device=sentences.device)).flatten()
        self.select(rows, rows)

    def select(self, rows: Tensor, source_rows: Tensor | None) -> None:
        """Take these rows of the states; and of the source, which beams of one sentence share."""
        self.states = [tuple(part.index_select(0, rows) for part in state) for state in self.states]
        if source_rows is not None:
            self.source = {name: _select_rows(value, source_rows) for name, value in self.source.items()}

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
