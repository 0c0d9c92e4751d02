"""Word embeddings: nearest neighbours in a model's embedding table, and one word in several contexts.

The embedding table has one vector for a word, whatever the sentence. Hidden states depend on the sentence: the same
word gets a different vector in each, the more so in higher layers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...plotting import INK, escape_dollars, new_figure
from ..hidden_states import check_layer, layer_states
from ..tokens import readable_tokens
from ..word_tokens import Encoded, encode_span


@dataclass(frozen=True)
class Neighbour:
    """A token of the vocabulary, its readable text, and its cosine similarity with the word."""

    token: str
    text: str
    similarity: float


@dataclass(frozen=True)
class Neighbours:
    """The tokens of a word, and the tokens nearest to it; a word of several tokens has their mean vector."""

    word: str
    tokens: list[str]
    neighbours: list[Neighbour]


@dataclass(frozen=True)
class Contexts:
    """The vectors of one word in several sentences.

    Args:
        sentences: One for each occurrence: a sentence with the word twice is listed twice.
        vectors: (occurrences, size).
    """

    word: str
    sentences: list[str]
    vectors: np.ndarray

    @property
    def similarities(self) -> np.ndarray:
        """(occurrences, occurrences), the cosine similarity of every two vectors."""
        return _cosines(self.vectors, self.vectors)


def nearest(model: Any, tokenizer: Any, word: str, k: int = 10) -> Neighbours:
    """The `k` tokens with the largest cosine similarity to a word in the model's input embeddings."""
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    table = embedding_table(model, tokenizer)
    ids = _word_to_ids(tokenizer, word)
    similarities = _cosines(table[ids].mean(axis=0, keepdims=True), table)[0]
    # Neither the word itself, nor special tokens, nor rows beyond the vocabulary (tables are padded to round sizes).
    similarities[[*ids, *tokenizer.all_special_ids]] = -np.inf
    similarities[len(tokenizer) :] = -np.inf
    best = [int(i) for i in np.argsort(-similarities, kind="stable")[:k] if np.isfinite(similarities[i])]
    tokens = tokenizer.convert_ids_to_tokens(best)
    texts = [readable_tokens(tokenizer, [i]).labels[0] for i in best]
    found = [Neighbour(*each) for each in zip(tokens, texts, similarities[best].tolist(), strict=True)]
    return Neighbours(word, tokenizer.convert_ids_to_tokens(ids), found)


def in_contexts(
    model: Any, tokenizer: Any, word: str, sentences: Sequence[str], layer: int | str = -1, batch_size: int = 32
) -> Contexts:
    """The vector of every occurrence of a word in the sentences: the mean over its tokens.

    Args:
        word: Matched as a whole word, upper or lower case.
        layer: Hidden states of this layer, 0 the embeddings with their positions; or "static", the embedding table.
    """
    occurrences = [(sentence, span) for sentence in sentences for span in _find_word(word, sentence)]
    encoded = [encode_span(tokenizer, sentence, span) for sentence, span in occurrences]
    table = embedding_table(model, tokenizer)
    vectors: list[Any] = [None] * len(encoded)
    if layer == "static":
        vectors = [mean_over_word(table[each.input_ids], each) for each in encoded]
    else:
        for index, states in layer_states(model, encoded, batch_size):
            layer_of_states = states[check_layer(layer, len(states))].double().numpy()
            vectors[index] = mean_over_word(layer_of_states, encoded[index])
    return Contexts(word, [sentence for sentence, _ in occurrences], np.stack(vectors))


def _find_word(word: str, sentence: str) -> list[tuple[int, int]]:
    spans = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", sentence, re.IGNORECASE)]
    if not word.strip() or not spans:
        raise ValueError(f"the word {word!r} is not in the sentence {sentence!r}; give sentences that contain it")
    return spans


def mean_over_word(states: np.ndarray, encoded: Encoded) -> np.ndarray:
    """The mean of the states (..., tokens, size) over the tokens of the first word."""
    return states[..., encoded.membership[:, 0] > 0, :].mean(axis=-2)


def embedding_table(model: Any, tokenizer: Any) -> np.ndarray:
    """(vocabulary, size), the model's input embeddings."""
    embeddings = model.get_input_embeddings()
    count = len(embeddings.weight) if hasattr(embeddings, "weight") else model.config.vocab_size
    with torch.no_grad():  # called, not read: a word may be the sum of its n-grams, or made of its characters
        vectors = embeddings(torch.arange(count, device=model.device))
    table = vectors.double().cpu().numpy()
    if len(tokenizer) > len(table):
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} tokens and the model {len(table)} embeddings; "
            "load both from the same checkpoint"
        )
    return table


def _word_to_ids(tokenizer: Any, word: str) -> list[int]:
    """The token ids of a word inside a text; other capitalisations are tried if the word is unknown as written."""
    if not word.strip() or len(word.split()) > 1:
        raise ValueError(f"give one word without spaces, got {word!r}")
    word = word.strip()
    for form in dict.fromkeys((word, word.lower(), word.capitalize(), word.upper())):
        # With a space before it, byte-level tokenizers encode the word as in the middle of a text.
        encodings = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (f" {form}", form)]
        encodings = [_strip_space_tokens(tokenizer, ids) for ids in encodings]
        encodings = [ids for ids in encodings if ids and tokenizer.unk_token_id not in ids]
        if encodings:
            return min(encodings, key=len)
    vocabulary = {readable_tokens(tokenizer, [i]).labels[0] for i in tokenizer.get_vocab().values()}
    close = difflib.get_close_matches(word, sorted(vocabulary), n=3)
    suggestion = f"it knows {', '.join(close)}" if close else "choose a word of its vocabulary"
    raise ValueError(f"the tokenizer does not know the word {word!r}; {suggestion}")


def _strip_space_tokens(tokenizer: Any, ids: list[int]) -> list[int]:
    """Drop leading tokens that only hold the space before the word."""
    while (
        len(ids) > 1
        and not tokenizer.decode(ids[:1]).strip()
        and tokenizer.decode(ids[1:]).strip() == tokenizer.decode(ids).strip()
    ):
        ids = ids[1:]
    return ids


def _cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The cosine of every row of `left` with every row of `right`; 0 for a zero vector."""
    tiny = np.finfo(float).tiny
    left, right = (each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), tiny) for each in (left, right))
    return left @ right.T


def draw_contexts(contexts: Contexts, title: str = "") -> Any:
    """Cosine similarities of one word's vectors in several sentences."""
    count = len(contexts.sentences)
    labels = [_shorten(sentence, contexts.word) for sentence in escape_dollars(contexts.sentences)]
    figure, axis = new_figure(2.5 + 0.08 * max(map(len, labels)) + 0.6 * count, 1.3 + 0.6 * count)
    axis.grid(False)
    axis.spines[:].set_visible(False)
    similarities = contexts.similarities
    image = axis.imshow(similarities, cmap="cividis", vmin=-1, vmax=1)
    axis.set_xticks(range(count), [str(number + 1) for number in range(count)])
    axis.set_yticks(range(count), [f"{label}  {number + 1}" for number, label in enumerate(labels)])
    for (row, column), value in np.ndenumerate(similarities):
        style = {"ha": "center", "va": "center", "fontsize": 9, "color": INK if value > 0.2 else "white"}
        axis.text(column, row, f"{value:.2f}", **style)
    figure.colorbar(image, ax=axis, label="cosine similarity", shrink=0.8)
    axis.set_title(title or f"'{contexts.word}' in {count} contexts")
    return figure


def _shorten(sentence: str, word: str, around: int = 28) -> str:
    """The sentence, or the part of a long one around the word."""
    if len(sentence) <= 2 * around:
        return sentence
    start = max(0, sentence.lower().find(word.lower()) - around)
    end = start + 2 * around
    return ("…" if start else "") + sentence[start:end] + ("…" if end < len(sentence) else "")
