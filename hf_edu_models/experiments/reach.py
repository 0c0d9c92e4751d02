"""How far back a model sees, and what it makes of what it sees.

`reach` replaces one token of a text and compares the predictions after it. The change is the total variation distance
between the two predicted distributions: 0 where the replaced token does not matter, 1 where it decides.
`losses_by_context` predicts the same tokens from longer and longer contexts; the effective context length of a model
(after Dai et al. 2019, Section 4.4; Khandelwal et al. 2018, arXiv:1805.04623) is the longest one that still helps.

Shapes: N texts, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from ..data.language_modeling import token_stream
from ..explain.inference import evaluation_mode
from ..plotting import add_caption, colour, log_axis, new_figure


def token_texts(tokenizer: Any, texts: list[str], length: int, count: int) -> Tensor:
    """(N, T), pieces of equal length of the texts, one behind the other."""
    ids: list[int] = []
    for text in texts:
        ids += tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) >= length * count:
            break
    rows = min(count, len(ids) // length)
    if rows < 2:
        raise ValueError(
            f"the texts have {len(ids)} tokens, fewer than two pieces of {length}; give a smaller --length or more text"
        )
    return torch.tensor(ids[: rows * length]).view(rows, length)


def reach(model: Any, input_ids: Tensor) -> np.ndarray:
    """(T,), the mean change of the prediction by distance: 1 is the token right after the one that is replaced.

    The first token of each text becomes the first one of another text; where both are the same, the text is left out.
    """
    if not type(model).__name__.endswith(("ForCausalLM", "ForMaskedLM", "ForPreTraining", "LMHeadModel")):
        raise ValueError(f"{type(model).__name__} predicts no tokens of the text that it reads; give a language model")
    replaced = input_ids.clone()
    replaced[:, 0] = input_ids[:, 0].roll(1)
    differs = replaced[:, 0] != input_ids[:, 0]
    if not differs.any():
        raise ValueError("all texts begin with the same token, so none can be replaced; give other texts")
    with evaluation_mode(model):
        before, after = (_predictions(model, each[differs].to(model.device)) for each in (input_ids, replaced))
    return (before - after).abs().sum(-1).mean(0).double().cpu().numpy() / 2


def token_windows(tokenizer: Any, corpus: Any, length: int, count: int) -> Tensor:
    """(N, T), pieces of equal length at equal distances in a corpus, joined as for training; they may overlap."""
    ids = torch.from_numpy(token_stream(corpus, tokenizer)).long()
    if len(ids) <= length:
        raise ValueError(f"the texts have {len(ids)} tokens, too few for a context of {length - 1}; give more text")
    windows = ids.unfold(0, length, 1)
    return windows[torch.linspace(0, len(windows) - 1, min(count, len(windows))).long()]


def losses_by_context(
    model: Any, input_ids: Tensor, contexts: Sequence[int], segment: int | None = None, batch_size: int = 64
) -> np.ndarray:
    """(contexts,), the mean loss of the last token of each text (N, T), given as many tokens before it.

    Args:
        segment: Read the context in segments of so many tokens, each with the memory of those before, as Transformer-XL
            was trained; by default in one piece.
    """
    if not type(model).__name__.endswith(("ForCausalLM", "LMHeadModel")):
        raise ValueError(f"{type(model).__name__} does not predict the next token; give a language model")
    losses = []
    with evaluation_mode(model):
        for length in contexts:
            parts = [
                _last_loss(model, rows[:, -length - 1 :].to(model.device), segment or length)
                for rows in input_ids.split(batch_size)
            ]
            losses.append(float(torch.cat(parts).mean()))
    return np.array(losses)


def _last_loss(model: Any, rows: Tensor, segment: int) -> Tensor:
    context, labels = rows[:, :-1], rows[:, -1]
    first = context.shape[1] % segment  # the last segment is whole
    pieces = [piece for piece in (context[:, :first], *context[:, first:].split(segment, dim=1)) if piece.shape[1]]
    options: dict[str, Any] = {} if len(pieces) == 1 else {"use_cache": True}
    for piece in pieces:
        outputs = model(input_ids=piece, **options)
        options["past_key_values"] = outputs.get("past_key_values")
    return F.cross_entropy(outputs.logits[:, -1].float(), labels, reduction="none")


def effective_context(contexts: Sequence[int], losses: np.ndarray, gain: float = 0.01) -> int:
    """The longest context whose perplexity is lower than that of the one before it, by this share of it."""
    gains = -np.diff(losses)  # of the logarithm of the perplexity
    return max((contexts[place + 1] for place in range(len(gains)) if gains[place] > gain), default=contexts[0])


def draw_contexts(contexts: Sequence[int], losses: Mapping[str, np.ndarray], about: str) -> Figure:
    """One line for each model; a dot where its effective context ends."""
    figure, axis = new_figure(8, 4.6)
    for number, (name, values) in enumerate(losses.items()):
        lengths, perplexities = contexts[: len(values)], np.exp(values)
        axis.plot(lengths, perplexities, color=colour(number), label=name)
        ends = effective_context(lengths, values)
        axis.plot(ends, perplexities[list(lengths).index(ends)], "o", color=colour(number))
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    for formatted in (axis.xaxis.set_major_formatter, axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
        formatted("{x:.0f}")
    axis.set(title="What a longer context is worth", xlabel="context (tokens)", ylabel="perplexity")
    axis.legend(frameon=False, fontsize=9)
    add_caption(figure, about)
    return figure


def _predictions(model: Any, input_ids: Tensor) -> Tensor:
    outputs = model(input_ids=input_ids)
    logits = outputs.logits if "logits" in outputs else outputs.prediction_logits
    return logits.float().softmax(-1)


def draw_reach(changes: Mapping[str, np.ndarray], about: str) -> Figure:
    """One line for each model; a line ends where nothing changes any more."""
    figure, axis = new_figure(8, 4.6)
    for number, (name, change) in enumerate(changes.items()):
        shown = np.where(change > 0, change, np.nan)
        # A later line may cover an earlier one.
        axis.plot(
            range(1, len(change) + 1), shown, color=colour(number), label=name, linewidth=max(2.0, 5.5 - 1.5 * number)
        )
    log_axis(axis, np.concatenate(list(changes.values())))
    axis.set(title="How far back a model sees", xlabel="distance from the replaced token (tokens)")
    axis.set_ylabel("change of the prediction (total variation)")
    axis.legend(frameon=False, fontsize=9)
    add_caption(figure, about)
    return figure
