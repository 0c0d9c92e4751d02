"""How well a model predicts each token of a text: surprisal, perplexity, and the difference between two models.

The surprisal of a token is -log2 p(w_t | w_<t), in bits; with a source p(w_t | w_<t, source). The product of all p is
the probability of the text, and its perplexity 2 to the mean surprisal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from ...plotting import add_caption, colour, escape_dollars, new_figure
from ..inference import evaluation_mode
from ..tokens import readable_tokens


@dataclass(frozen=True, eq=False)
class Surprisal:
    """The tokens of one text as one model predicts them.

    Args:
        tokens: The T tokens that are predicted.
        log_probabilities: (T, V), natural logarithms of the whole distribution before each token.
        ids: (T,), the ids of the tokens.
    """

    tokens: list[str]
    log_probabilities: np.ndarray
    ids: np.ndarray

    @property
    def bits(self) -> np.ndarray:
        """(T,), the surprisal of each token."""
        return -self.log_probabilities[np.arange(len(self.ids)), self.ids] / np.log(2)

    @property
    def perplexity(self) -> float:
        return float(2 ** self.bits.mean())

    def best(self, tokenizer: Any, count: int = 3) -> list[list[str]]:
        """The most probable tokens at each position."""
        order = np.argsort(-self.log_probabilities, axis=-1)[:, :count]
        return [[readable_tokens(tokenizer, [int(token)]).labels[0] for token in row] for row in order]


def surprisal(model: Any, tokenizer: Any, text: str, source: str | None = None) -> Surprisal:
    """Read a text with a language model, or a target with an encoder-decoder and its source."""
    if not model.can_generate():
        raise ValueError(
            f"{type(model).__name__} does not predict the next token; give a language model or a translator"
        )
    is_translator = model.config.is_encoder_decoder
    if is_translator != (source is not None):
        need = "needs --source, the text to translate" if is_translator else "reads no source; leave it out"
        raise ValueError(f"{type(model).__name__} {need}")
    with evaluation_mode(model):
        if is_translator:
            inputs = tokenizer(source, return_tensors="pt").to(model.device)
            ids = torch.tensor([tokenizer(text_target=text)["input_ids"]], device=model.device)
            logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=ids).logits
        else:
            ids = torch.tensor([tokenizer(text)["input_ids"]], device=model.device)
            logits, ids = model(input_ids=ids).logits[:, :-1], ids[:, 1:]
    if not ids.shape[1]:
        raise ValueError("the text has too few tokens; nothing before its first token predicts it")
    found = ids[0].tolist()
    log_probabilities = logits[0].double().log_softmax(-1).cpu().numpy()
    return Surprisal(list(readable_tokens(tokenizer, found).labels), log_probabilities, np.array(found))


@dataclass(frozen=True, eq=False)
class Divergence:
    """The difference between two models at each token: KL(p || q) and KL(q || p), in bits."""

    tokens: list[str]
    forward: np.ndarray
    backward: np.ndarray


def compare(first: Surprisal, second: Surprisal) -> Divergence:
    """The Kullback-Leibler divergence of two next-token distributions; the models must share a vocabulary."""
    same_size = first.log_probabilities.shape == second.log_probabilities.shape
    if not same_size or not np.array_equal(first.ids, second.ids):
        raise ValueError(
            "the models read the text as different tokens, so their distributions cannot be compared; train both with "
            "the same tokenizer (--init-from), or use `hf-edu explain surprisal`"
        )
    p, q = first.log_probabilities, second.log_probabilities
    forward, backward = ((np.exp(a) * (a - b)).sum(-1) / np.log(2) for a, b in ((p, q), (q, p)))
    return Divergence(first.tokens, forward, backward)


def draw_surprisal(found: Sequence[tuple[str, Surprisal]]) -> Figure:
    """One panel of bars for each model."""
    longest = max(len(each.tokens) for _, each in found)
    figure, axes = new_figure(max(6.0, 0.4 * longest + 1.5), 2.2 * len(found), rows=len(found), sharey=True)
    for number, (axis, (name, each)) in enumerate(zip(np.ravel(axes), found, strict=True)):
        axis.bar(range(len(each.tokens)), each.bits, color=colour(number))
        axis.set_xticks(range(len(each.tokens)), escape_dollars(each.tokens), rotation=60, ha="right", fontsize=8)
        axis.set(title=f"{name}: perplexity {each.perplexity:.1f} a token", ylabel="bits")
    add_caption(figure, "Surprisal: -log2 of the probability that the model gave to the token before it read it.")
    return figure


def draw_divergence(names: tuple[str, str], found: Divergence) -> Figure:
    figure, axis = new_figure(max(6.0, 0.45 * len(found.tokens) + 1.5), 3.0)
    positions = np.arange(len(found.tokens))
    for number, (values, label) in enumerate(
        ((found.forward, f"KL({names[0]} || {names[1]})"), (found.backward, f"KL({names[1]} || {names[0]})"))
    ):
        axis.bar(positions + 0.4 * number - 0.2, values, width=0.4, color=colour(number), label=label)
    axis.set_xticks(positions, escape_dollars(found.tokens), rotation=60, ha="right", fontsize=8)
    axis.set(ylabel="bits", title="How much the next-token distributions differ")
    axis.legend(fontsize=8)
    return figure
