"""Texts coloured by the attention of the classifier that pools them: `hf-edu explain text`.

A hierarchical model has a weight for each word in its sentence and for each sentence; a recurrent classifier with
attention one weight for each word, for each label if every label has a query of its own.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from ..tokens import readable_tokens

_LEVELS = 20  # shades, as many as the style sheet has
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-{digest}'">
<title>{title}</title>
<style>{style}</style>
<h1>{title}</h1>
<p class="quiet">{model}. A word is darker the larger its weight; the number before a sentence is the sentence's weight.
Point at a word to read its weight.</p>
{sections}
</html>
"""


@dataclass(frozen=True)
class TextWeights:
    """The words of a text and their weights, for one label.

    Args:
        probability: of the label, between 0 and 1.
        sentences: for each sentence its words, each with its weight.
        sentence_weights: the weight of each sentence; None if the model reads the text as one sequence.
    """

    label: str
    probability: float
    sentences: tuple[tuple[tuple[str, float], ...], ...]
    sentence_weights: tuple[float, ...] | None = None

    def shades(self) -> list[list[int]]:
        """A shade from 0 to 20 for each word.

        As in Yang et al. 2016, a word in a sentence without weight stays pale: sqrt(alpha_i) alpha_it, relative to the
        largest.
        """
        factors = [math.sqrt(weight) for weight in self.sentence_weights or [1.0] * len(self.sentences)]
        products = [
            [factor * weight for _, weight in words] for factor, words in zip(factors, self.sentences, strict=True)
        ]
        largest = max((product for row in products for product in row), default=0.0) or 1.0
        return [[round(_LEVELS * product / largest) for product in row] for row in products]


def text_weights(predictor: Any, text: str, labels: Sequence[str] = ()) -> list[TextWeights]:
    """The weights for each of `labels`; by default for the labels that the model predicts.

    Args:
        predictor: a classifier of texts or documents, from `prediction.load_predictor`.
    """
    model = predictor.model
    if getattr(model.config, "pooling", None) not in ("attention", "label_attention"):
        raise ValueError(
            f"{type(model).__name__} does not pool its tokens by attention; train the hierarchical recipe, or the "
            "recurrent one with --model pooling=attention"
        )
    row = predictor.row(text)
    if not row:
        raise ValueError("the text is empty; it needs at least one word")
    prediction = predictor([row])[0]
    labels = labels or prediction.get("labels", [prediction.get("label")]) or list(prediction["probabilities"])[:1]
    known = model.config.label2id
    for label in labels:
        if label not in known:
            raise ValueError(f"the model has no label {label!r}; it has {', '.join(known)}")
    batch = {name: values.to(model.device) for name, values in predictor.collate([row]).items()}
    with torch.no_grad():
        attentions = model(**batch, output_attentions=True).attentions
    input_ids = batch["input_ids"][0]  # (N, T) or (T,)
    made = []
    for label in labels:
        weights, sentence_weights = _weights_for(model.config, attentions, known[label])
        rows = zip(input_ids.reshape(-1, input_ids.shape[-1]), weights, strict=True)
        sentences = tuple(_merge(predictor.tokenizer, ids.tolist(), each.tolist()) for ids, each in rows)
        made.append(TextWeights(label, prediction["probabilities"][label], sentences, sentence_weights))
    return made


def _weights_for(config: Any, attentions: Sequence[torch.Tensor], label: int) -> tuple[torch.Tensor, Any]:
    """Weights (N, T) of the words, and those of the sentences if the model reads documents."""
    if attentions[0].ndim == 3:
        words, sentences = attentions
        return words[0].float().cpu(), tuple(sentences[0].tolist())
    queries = attentions[-1][0, :, 0].float().cpu()  # (Q, T)
    is_own = config.pooling == "label_attention"
    return queries[label : label + 1] if is_own else queries.mean(dim=0, keepdim=True), None


def _merge(tokenizer: Any, ids: list[int], weights: list[float]) -> tuple[tuple[str, float], ...]:
    """Words with the sum of the weights of their subwords, without special tokens and padding."""
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    tokens = readable_tokens(tokenizer, ids)
    totals = [0.0] * len(tokens.word_labels)
    is_special = [False] * len(totals)
    for token, word, weight in zip(ids, tokens.word_ids, weights, strict=True):
        totals[word] += weight
        is_special[word] |= token in special
    words = zip(tokens.word_labels, totals, is_special, strict=True)
    return tuple((label, weight) for label, weight, hidden in words if not hidden)


def write_text_page(weights: Sequence[TextWeights], path: str | Path, model_name: str) -> Path:
    """One HTML file with a coloured copy of the text for each label; it needs no network and runs no script."""
    style = resources.files(__package__).joinpath("assets", "text.css").read_text(encoding="utf-8")
    words = [word for sentence in weights[0].sentences for word, _ in sentence]
    parts = {
        "digest": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        "title": html.escape(" ".join(words[:8]) + (" …" if len(words) > 8 else "")),
        "style": style,
        "model": html.escape(model_name),
        "sections": "\n".join(_section(each) for each in weights),
    }
    path = Path(path)
    path.write_text(_PAGE.format(**parts), encoding="utf-8")
    return path


def _section(weights: TextWeights) -> str:
    lines = [f'<section><h2>{html.escape(weights.label)} <span class="quiet">{weights.probability:.1%}</span></h2>']
    for number, (sentence, shades) in enumerate(zip(weights.sentences, weights.shades(), strict=True)):
        bar = ""
        if weights.sentence_weights is not None:
            share = weights.sentence_weights[number]
            bar = f'<span class="sentence s{round(_LEVELS * share)}">{share:.0%}</span>'
        words = " ".join(
            f'<span class="w{shade}" title="{weight:.3f}">{html.escape(word)}</span>'
            for (word, weight), shade in zip(sentence, shades, strict=True)
        )
        lines.append(f'<p dir="auto">{bar}{words}</p>')
    return "\n".join([*lines, "</section>"])
