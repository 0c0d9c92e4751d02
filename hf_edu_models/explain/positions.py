"""What a model adds to say where a word stands, and how alike two places are to it.

Sines and cosines (Vaswani et al. 2017, arXiv:1706.03762, Section 3.5): the product of two places' vectors is
the sum of cos(w (p - q)) over the frequencies w, so it depends on their distance alone. A table that is learnt owes
nobody such a law, which is what makes its picture worth a look.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ..models.modeling_transformer import SinusoidalPositions
from .figure_style import COLOURS, INK, new_figure

# What models of transformers and of this ladder call the module, at the end of its path.
NAMES = ("positions", "embed_positions", "position_embeddings", "position_embedding", "positions_embed", "wpe")


def position_vectors(model_or_size: Any, length: int, layout: str = "interleaved") -> np.ndarray:
    """(length, size), the vector of every place from 0 on.

    Args:
        model_or_size: a model, for its own vectors, or an even number, for sinusoids of that size.
        layout: of sinusoids for a size: sines and cosines in turn (`interleaved`), or all sines first (`halves`).
    """
    if length < 1:
        raise ValueError(f"length must be at least 1, got {length}")
    if isinstance(model_or_size, int):
        return sinusoids(model_or_size, length, layout)
    module, limit = position_module(model_or_size), count_positions(model_or_size)
    if length > limit:
        raise ValueError(f"the model has {limit} positions, got length {length}; ask for fewer")
    if not isinstance(module, nn.Embedding):
        device = next(model_or_size.parameters()).device
        return as_array(module(torch.arange(length, device=device)))
    first = first_row(module)
    return as_array(module.weight[first : first + length])


def count_positions(model: Any) -> float:
    """How many positions a model's table has; infinity where they are computed."""
    module = position_module(model)
    return module.num_embeddings - first_row(module) if isinstance(module, nn.Embedding) else float("inf")


def sinusoids(size: int, length: int, layout: str = "interleaved") -> np.ndarray:
    if size < 2 or size % 2:
        raise ValueError(f"size {size} must be even and at least 2: every sine has a cosine")
    if layout not in ("interleaved", "halves"):
        raise ValueError(f"layout must be interleaved or halves, got {layout!r}")
    return as_array(SinusoidalPositions(size, layout)(torch.arange(length)))


def position_products(vectors: np.ndarray) -> np.ndarray:
    """(length, length), the dot product of every place's vector with every other's."""
    return vectors @ vectors.T


def position_module(model: Any) -> nn.Module:
    """The first module that gives positions their vectors; in an encoder and decoder, the encoder's."""
    for path, module in model.named_modules():
        if path.rpartition(".")[2] in NAMES:
            return module
    raise ValueError(
        f"{type(model).__name__} adds no vectors for positions: a recurrent model knows the order by reading in it; "
        "give a Transformer, GPT or BERT, or a size"
    )


def first_row(table: nn.Embedding) -> int:
    """Where a table's first place is: some models keep its first rows for padding."""
    if hasattr(table, "offset"):
        return table.offset
    # RoBERTa counts from behind its padding row; Marian's computed table names such a row too, but does not skip it.
    is_learnt = table.weight.requires_grad
    return 0 if table.padding_idx is None or not is_learnt else table.padding_idx + 1


def as_array(vectors: torch.Tensor) -> np.ndarray:
    return vectors.detach().double().cpu().numpy()


def draw_positions(vectors: np.ndarray, title: str = "") -> Any:
    """The vectors, one row a place; their products; and three rows of these as curves."""
    size = vectors.shape[1]
    products = position_products(vectors)
    figure, (left, middle, right) = new_figure(15, 4.4, columns=3, width_ratios=(1.9, 1, 1))
    for axis in (left, middle):
        axis.grid(False)
    limit = np.abs(vectors).max()
    # Blue to red through white is told apart with any colour vision, and white is zero.
    image = left.imshow(vectors, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    left.set(xlabel=f"dimension (of {size})", ylabel="position", title="vector of each position")
    figure.colorbar(image, ax=left, shrink=0.8)
    image = middle.imshow(products, cmap="cividis", interpolation="nearest")
    middle.set(xlabel="position", ylabel="position", title="dot product of two positions")
    figure.colorbar(image, ax=middle, shrink=0.8)
    draw_profiles(right, products)
    if title:
        figure.suptitle(title, color=INK)
    return figure


def draw_profiles(axis: Any, products: np.ndarray) -> None:
    """Rows of the products against the distance: one curve where distance is all that counts, several where not."""
    length = len(products)
    styles = ("-", "--", ":")
    for number, place in enumerate(sorted({0, length // 2, length - 1})):
        distance = np.arange(length) - place
        axis.plot(distance, products[place], color=COLOURS[number], linestyle=styles[number], label=f"position {place}")
    axis.set(xlabel="distance to the other position", ylabel="dot product", title="three rows of it")
    axis.legend(frameon=False, fontsize=9)
