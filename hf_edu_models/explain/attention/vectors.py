"""Queries and keys behind the attention weights, recorded by forward hooks on the projection layers.

Supported are our own attention and the projections of transformers' BERT, GPT-2 and Marian families. The recorded
vectors are returned only if softmax(query · key x scaling) equals the model's weights, which fails for rotary positions
and for scores with a bias.

Shapes: L layers, H heads, Q queries, S keys, K size of one head, D hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# Names of an attention module's projections, and what the parts of their outputs are.
_PROJECTIONS: tuple[dict[str, tuple[str, ...]], ...] = (
    {"qkv_proj": ("query", "key", "value")},  # ours, self-attention
    {"q_proj": ("query",), "kv_proj": ("key", "value")},  # ours, cross-attention
    {"q_proj": ("query",), "k_proj": ("key",)},  # Marian, BART
    {"query": ("query",), "key": ("key",)},  # BERT
    {"c_attn": ("query", "key", "value")},  # GPT-2
)


@dataclass(frozen=True, eq=False)
class Vectors:
    """The queries and keys of an attention map.

    Args:
        queries: (L, H, Q, K), float32.
        keys: (L, H, S, K), float32.
        scaling: (L,), the factor of the dot product of a query and a key.
    """

    queries: np.ndarray
    keys: np.ndarray
    scaling: np.ndarray

    def scores(self) -> np.ndarray:
        """(L, H, Q, S), before the mask and the softmax."""
        return self.queries @ self.keys.swapaxes(-2, -1) * self.scaling[:, None, None, None]

    def weights(self, mask: np.ndarray) -> np.ndarray:
        """(L, H, Q, S): the softmax of the scores over the keys where `mask` is True."""
        scores = np.where(mask, self.scores(), -np.inf)
        exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return exponentials / exponentials.sum(axis=-1, keepdims=True)


class VectorRecorder:
    """Context manager that records what a model's attention layers project, by kind of attention."""

    def __init__(self, model: Any):
        found = ((name, module, _projections_of(module)) for name, module in model.named_modules())
        self._modules = [(name, module, projections) for name, module, projections in found if projections]
        self._recorded: dict[tuple[str, str], np.ndarray] = {}
        self._hooks: list[Any] = []

    def __enter__(self) -> VectorRecorder:
        for name, module, projections in self._modules:
            for projection, parts in projections.items():
                hook = getattr(module, projection).register_forward_hook(self._record(name, parts))
                self._hooks.append(hook)
        return self

    def __exit__(self, *error: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _record(self, name: str, parts: tuple[str, ...]) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            for part, states in zip(parts, output.chunk(len(parts), dim=-1), strict=True):
                self._recorded[name, part] = states[0].float().cpu().numpy()  # (T, D)

        return hook

    def vectors(self, kind: str, weights: np.ndarray) -> Vectors | None:
        """The vectors of one kind of attention, if they give its weights (L, H, Q, S)."""
        modules = [(name, module) for name, module, _ in self._modules if _kind_of(name) == kind]
        if len(modules) != len(weights) or any((name, "key") not in self._recorded for name, _ in modules):
            return None
        heads = weights.shape[1]
        queries = np.stack([_split_heads(self._recorded[name, "query"], heads) for name, _ in modules])
        keys = np.stack([_split_heads(self._recorded[name, "key"], heads) for name, _ in modules])
        scaling = [getattr(module, "scaling", queries.shape[-1] ** -0.5) for _, module in modules]
        vectors = Vectors(queries, keys, np.array(scaling, dtype=np.float32))
        if queries.shape[2] != weights.shape[2] or keys.shape[2] != weights.shape[3]:
            return None
        return vectors if np.allclose(vectors.weights(weights > 0), weights, atol=1e-4) else None


def _projections_of(module: Any) -> dict[str, tuple[str, ...]] | None:
    children = dict(module.named_children())
    return next((projections for projections in _PROJECTIONS if set(projections) <= set(children)), None)


def _kind_of(name: str) -> str:
    """The kind of attention of a module, by its name in the model."""
    if "cross" in name or "encoder_attn" in name:
        return "cross"
    if name.startswith("decoder."):
        return "decoder"
    return "encoder" if name.startswith("encoder.layers.") else "self"


def _split_heads(states: np.ndarray, heads: int) -> np.ndarray:
    """From (T, D) to (H, T, K)."""
    return states.reshape(len(states), heads, -1).swapaxes(0, 1)
