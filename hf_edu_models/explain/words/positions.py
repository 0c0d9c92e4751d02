"""Position embeddings of a model, and their dot products.

For sinusoids (Vaswani et al. 2017, arXiv:1706.03762, Section 3.5) the dot product of positions p and q is the sum of
cos(w (p - q)) over the frequencies w, so it depends on their distance alone. Learned embeddings need not have this
property; the figure shows how near they come.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ...models.blocks_positions import SinusoidalPositions
from ...plotting import COLOURS, INK, new_figure

# The last part of the module's name, in transformers' models and in ours.
_MODULE_NAMES = ("positions", "embed_positions", "position_embeddings", "position_embedding", "positions_embed", "wpe")


def position_vectors(model_or_size: Any, length: int, layout: str = "interleaved") -> np.ndarray:
    """(length, size), the position embeddings from position 0 on.

    Args:
        model_or_size: A model, for its own embeddings, or an even number, for sinusoids of that size.
        layout: Of sinusoids for a size: sines and cosines alternate (`interleaved`), or all sines first (`halves`).
    """
    if length < 1:
        raise ValueError(f"length must be at least 1, got {length}")
    if isinstance(model_or_size, int):
        return _sinusoids(model_or_size, length, layout)
    module, limit = _position_module(model_or_size), count_positions(model_or_size)
    if length > limit:
        raise ValueError(f"the model has {limit} positions, got length {length}; ask for fewer")
    if not isinstance(module, nn.Embedding):
        device = next(model_or_size.parameters()).device
        return _to_array(module(torch.arange(length, device=device)))
    first = _first_row(module)
    return _to_array(module.weight[first : first + length])


def count_positions(model: Any) -> float:
    """The size of a model's position embedding table; infinity for sinusoids."""
    module = _position_module(model)
    return module.num_embeddings - _first_row(module) if isinstance(module, nn.Embedding) else float("inf")


def _sinusoids(size: int, length: int, layout: str) -> np.ndarray:
    if size < 2 or size % 2:
        raise ValueError(f"size {size} must be even and at least 2: every sine has a cosine")
    if layout not in ("interleaved", "halves"):
        raise ValueError(f"layout must be interleaved or halves, got {layout!r}")
    return _to_array(SinusoidalPositions(size, layout)(torch.arange(length)))


def position_products(vectors: np.ndarray) -> np.ndarray:
    """(length, length), the dot product of every two positions."""
    return vectors @ vectors.T


def _position_module(model: Any) -> nn.Module:
    """The first module with position embeddings; in an encoder-decoder, the encoder's."""
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in _MODULE_NAMES:
            return module
    raise ValueError(
        f"{type(model).__name__} has no position embeddings: a recurrent model reads in order and needs none; "
        "give a Transformer, GPT or BERT, or a size"
    )


def _first_row(table: Any) -> int:
    """The row of position 0: some models reserve the first rows for padding."""
    if hasattr(table, "offset"):
        return table.offset
    # RoBERTa's positions start after its padding row; Marian's computed table has a padding row but does not skip it.
    is_learned = table.weight.requires_grad
    return 0 if table.padding_idx is None or not is_learned else table.padding_idx + 1


def _to_array(vectors: torch.Tensor) -> np.ndarray:
    return vectors.detach().double().cpu().numpy()


def draw_positions(vectors: np.ndarray, title: str = "") -> Any:
    """The embeddings, one row for each position; their dot products; and three rows of these as curves."""
    size = vectors.shape[1]
    products = position_products(vectors)
    figure, (left, middle, right) = new_figure(15, 4.4, columns=3, width_ratios=(1.9, 1, 1))
    for axis in (left, middle):
        axis.grid(False)
    limit = np.abs(vectors).max()
    # Blue to red through white is readable with any colour vision, and white is zero.
    image = left.imshow(vectors, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    left.set(xlabel=f"dimension (of {size})", ylabel="position", title="position embeddings")
    figure.colorbar(image, ax=left, shrink=0.8)
    image = middle.imshow(products, cmap="cividis", interpolation="nearest")
    middle.set(xlabel="position", ylabel="position", title="dot product of two positions")
    figure.colorbar(image, ax=middle, shrink=0.8)
    _draw_products(right, products)
    if title:
        figure.suptitle(title, color=INK)
    return figure


def _draw_products(axis: Any, products: np.ndarray) -> None:
    """Three rows of the products by distance: they lie on one curve if only the distance matters."""
    length = len(products)
    styles = ("-", "--", ":")
    for number, position in enumerate(sorted({0, length // 2, length - 1})):
        style = {"color": COLOURS[number], "linestyle": styles[number], "label": f"position {position}"}
        axis.plot(np.arange(length) - position, products[position], **style)
    axis.set(xlabel="distance to the other position", ylabel="dot product", title="dot product by distance")
    axis.legend(frameon=False, fontsize=9)
