"""What a model reads: subwords, ids, positions, segments; the embeddings that are summed; one draw of BERT's masking.

And how a byte pair encoding (BPE) makes its subwords: the merges of the tokenizer, applied one by one (Sennrich et al.
2016, arXiv:1508.07909, Section 3.2). Shapes: T tokens, D hidden size.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from ...plotting import add_caption, escape_dollars, new_figure
from ..tokens import readable_tokens

_SEGMENT_NAMES = ("token_type_embeddings", "segment_embeddings")


@dataclass(frozen=True)
class Merge:
    """One step of a byte pair encoding: the pair that is merged, its rank among the merges, the symbols after it."""

    pair: tuple[str, str]
    rank: int
    symbols: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ModelInput:
    """One text, or a pair, as a model reads it.

    Args:
        tokens, ids, segments: T each.
        masked: the T ids after one draw of masking; None without a mask token.
        labels: T, the id that is to be predicted there, or -100.
        embeddings: (T, D) by name: word, position, segment, those that the model has, and their sum.
        merges: each word and its merges; empty unless the tokenizer is a byte pair encoding.
    """

    tokens: list[str]
    ids: list[int]
    segments: list[int]
    masked: list[int] | None = None
    labels: list[int] | None = None
    embeddings: dict[str, np.ndarray] = field(default_factory=dict)
    merges: list[tuple[str, list[Merge]]] = field(default_factory=list)

    def masked_tokens(self, tokenizer: Any) -> list[str]:
        """What masking made of each token; empty where nothing is predicted."""
        if self.masked is None or self.labels is None:
            return [""] * len(self.ids)
        shown = readable_tokens(tokenizer, self.masked).labels
        kinds = {True: "stays", False: "random"}
        return [
            "" if label == -100 else "[MASK]" if new == tokenizer.mask_token_id else f"{token} ({kinds[new == label]})"
            for label, new, token in zip(self.labels, self.masked, shown, strict=True)
        ]

    def rows(self, tokenizer: Any) -> list[dict[str, Any]]:
        """One row for each token: its norms are those of its embeddings."""
        rows = []
        for position, masked in enumerate(self.masked_tokens(tokenizer)):
            row = {"position": position, "token": self.tokens[position], "id": self.ids[position]}
            row |= {"segment": self.segments[position], "masked": masked}
            rows.append(
                row | {f"{name}_norm": float(np.linalg.norm(e[position])) for name, e in self.embeddings.items()}
            )
        return rows


def model_input(
    tokenizer: Any,
    text: str,
    pair: str | None = None,
    model: Any = None,
    mlm_probability: float = 0.15,
    seed: int = 0,
) -> ModelInput:
    """Encode a text or a pair, mask it once, and look its embeddings up if there is a model."""
    if not text.strip():
        raise ValueError("the text is empty; give at least one word")
    if not 0 < mlm_probability <= 1:
        raise ValueError(f"mlm_probability must be above 0 and at most 1, got {mlm_probability}")
    encoded = tokenizer(text, pair, return_token_type_ids=True)
    ids = list(encoded["input_ids"])
    segments = list(encoded.get("token_type_ids") or [0] * len(ids))
    masked, labels = _mask(tokenizer, ids, mlm_probability, seed)
    return ModelInput(
        tokens=list(readable_tokens(tokenizer, ids).labels),
        ids=ids,
        segments=segments,
        masked=masked,
        labels=labels,
        embeddings={} if model is None else _embeddings(model, ids, segments),
        merges=[each for part in (text, pair) if part for each in byte_pair_merges(tokenizer, part)],
    )


def _mask(tokenizer: Any, ids: list[int], probability: float, seed: int) -> tuple[list[int] | None, list[int] | None]:
    if tokenizer.mask_token_id is None:
        return None, None
    from ...data.masking import DataCollatorForPreTraining

    collator = DataCollatorForPreTraining(tokenizer, mlm_probability=probability, seed=seed)
    batch = collator([{"input_ids": ids}])
    return batch["input_ids"][0].tolist(), batch["labels"][0].tolist()


@torch.no_grad()
def _embeddings(model: Any, ids: list[int], segments: list[int]) -> dict[str, np.ndarray]:
    """(T, D) by name. Those of the encoder, where there is one."""
    from .positions import count_positions, position_vectors

    table = model.get_input_embeddings()
    device = table.weight.device
    found = {"word": table(torch.tensor(ids, device=device)).float().cpu().numpy()}
    if getattr(model.config, "scale_embeddings", False):  # Vaswani et al. 2017, Section 3.4
        found["word"] = found["word"] * found["word"].shape[1] ** 0.5
    try:
        limit = count_positions(model)
    except ValueError:  # a recurrent model reads in order
        limit = 0
    if limit and len(ids) > limit:
        raise ValueError(f"the text has {len(ids)} tokens, and the model has {limit} positions; give a shorter text")
    if limit:
        found["position"] = position_vectors(model, len(ids))
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in _SEGMENT_NAMES:
            found["segment"] = module(torch.tensor(segments, device=device)).float().cpu().numpy()
            break
    return found | ({"sum": sum(found.values())} if len(found) > 1 else {})


def byte_pair_merges(tokenizer: Any, text: str) -> list[tuple[str, list[Merge]]]:
    """Each word of a text, cut into symbols, and the merges of the tokenizer in the order in which they are applied."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return []
    model = json.loads(backend.to_str())["model"]
    if model["type"] != "BPE":
        return []
    pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    words = [text] if backend.pre_tokenizer is None else [w for w, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    prefix, suffix = model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or ""
    return [(word, _merge_word(word, ranks, prefix, suffix)) for word in words]


def _merge_word(word: str, ranks: dict[tuple, int], prefix: str, suffix: str) -> list[Merge]:
    symbols = [character if place == 0 else prefix + character for place, character in enumerate(word)]
    symbols[-1] += suffix
    steps: list[Merge] = []
    while len(symbols) > 1:
        pairs = list(pairwise(symbols))
        place = min(range(len(pairs)), key=lambda at: ranks.get(pairs[at], len(ranks)))
        if pairs[place] not in ranks:
            break
        pair = pairs[place]
        symbols[place : place + 2] = [pair[0] + pair[1].removeprefix(prefix)]
        steps.append(Merge(pair, ranks[pair], tuple(symbols)))
    return steps


def draw_input(found: ModelInput, title: str, dimensions: int = 32) -> Figure:
    """A heat map of each embedding, tokens by dimensions: those above add up to the last."""
    count, length = len(found.embeddings), len(found.tokens)
    figure, axes = new_figure(max(6.0, 0.55 * length + 1.5), 1.9 * count + 0.8, rows=count, sharex=True)
    limit = max(np.abs(values[:, :dimensions]).max() for values in found.embeddings.values())
    panels: list[Any] = list(np.ravel(axes))
    for axis, (name, values) in zip(panels, found.embeddings.items(), strict=True):
        table = values[:, :dimensions].T
        image = axis.imshow(table, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
        axis.set(title=f"= {name}" if name == "sum" else f"{name} embedding", ylabel="dimension")
        axis.title.set_fontsize(9)
        axis.grid(False)
        figure.colorbar(image, ax=axis, pad=0.01)
    lines = [escape_dollars(found.tokens), [str(i) for i in found.ids], [str(i) for i in found.segments]]
    labels = ["\n".join(parts) for parts in zip(*lines, strict=True)]
    panels[-1].set_xticks(range(length), labels, fontsize=7)
    figure.suptitle(title, fontsize=11)
    size = next(iter(found.embeddings.values())).shape[1]
    about = f"The first {min(dimensions, size)} of {size} dimensions, before layer norm and dropout."
    add_caption(figure, f"{about} Below each token: its id and segment.")
    return figure
