"""The queries and keys behind the weights, caught by hooks on the layers that project them.

Known are our own attention and the projections of transformers' BERT, GPT-2 and Marian families. What was caught is
kept only if softmax(query · key x scaling) gives the model's weights back: with rotated or biased scores it does not.

Shapes: L layers, H heads, Q queries, S keys, K size of one head, D hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# How an attention module names its projections, and which parts of their outputs are the queries and the keys.
PROJECTIONS = (
    {"qkv_proj": ("query", "key", "value")},  # ours, over the same sequence
    {"q_proj": ("query",), "kv_proj": ("key", "value")},  # ours, over another
    {"q_proj": ("query",), "k_proj": ("key",)},  # Marian, BART
    {"query": ("query",), "key": ("key",)},  # BERT
    {"c_attn": ("query", "key", "value")},  # GPT-2
)


@dataclass(frozen=True, eq=False)
class Vectors:
    """What the scores of a map are made of.

    Args:
        queries: (L, H, Q, K), float32.
        keys: (L, H, S, K), float32.
        scaling: (L,); a score is the sum of query x key over K, times this.
    """

    queries: np.ndarray
    keys: np.ndarray
    scaling: np.ndarray

    def scores(self) -> np.ndarray:
        """(L, H, Q, S), before the mask and the softmax."""
        return self.queries @ self.keys.swapaxes(-2, -1) * self.scaling[:, None, None, None]

    def weights(self, seen: np.ndarray) -> np.ndarray:
        """(L, H, Q, S): the softmax of the scores over the keys that may be seen, True in `seen`."""
        scores = np.where(seen, self.scores(), -np.inf)
        exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return exponentials / exponentials.sum(axis=-1, keepdims=True)


class Recorder:
    """While it is entered, notes what a model's attention projects; afterwards sorts it by kind of attention."""

    def __init__(self, model: Any):
        self.modules = [(name, module, parts) for name, module in model.named_modules() if (parts := parts_of(module))]
        self.caught: dict[tuple[str, str], Any] = {}
        self.hooks: list[Any] = []

    def __enter__(self) -> Recorder:
        for name, module, parts in self.modules:
            for projection, roles in parts.items():
                catch = self.catcher(name, roles)
                self.hooks.append(getattr(module, projection).register_forward_hook(catch))
        return self

    def __exit__(self, *problem: object) -> None:
        for hook in self.hooks:
            hook.remove()

    def catcher(self, name: str, roles: tuple[str, ...]) -> Any:
        def catch(module: Any, inputs: Any, output: Any) -> None:
            for role, part in zip(roles, output.chunk(len(roles), dim=-1), strict=True):
                self.caught[name, role] = part[0].float().cpu().numpy()  # (T, D)

        return catch

    def vectors(self, kind: str, weights: np.ndarray) -> Vectors | None:
        """The vectors of one kind of attention, if they explain its weights (L, H, Q, S)."""
        modules = [(name, module) for name, module, _ in self.modules if kind_of(name) == kind]
        if len(modules) != len(weights) or any((name, "key") not in self.caught for name, _ in modules):
            return None
        heads = weights.shape[1]
        queries = np.stack([split(self.caught[name, "query"], heads) for name, _ in modules])
        keys = np.stack([split(self.caught[name, "key"], heads) for name, _ in modules])
        scaling = [getattr(module, "scaling", queries.shape[-1] ** -0.5) for _, module in modules]
        vectors = Vectors(queries, keys, np.array(scaling, dtype=np.float32))
        if queries.shape[2] != weights.shape[2] or keys.shape[2] != weights.shape[3]:
            return None
        return vectors if np.allclose(vectors.weights(weights > 0), weights, atol=1e-4) else None


def parts_of(module: Any) -> dict[str, tuple[str, ...]] | None:
    children = dict(module.named_children())
    return next((parts for parts in PROJECTIONS if set(parts) <= set(children)), None)


def kind_of(name: str) -> str:
    """The kind of attention that a module does, by its name in the model."""
    if "cross" in name or "encoder_attn" in name:
        return "cross"
    if name.startswith("decoder."):
        return "decoder"
    return "encoder" if name.startswith("encoder.layers.") else "self"


def split(states: np.ndarray, heads: int) -> np.ndarray:
    """From (T, D) to (H, T, K)."""
    return states.reshape(len(states), heads, -1).swapaxes(0, 1)
