"""Words as vectors: the neighbours of a word in a model's table, and one word in several contexts.

A table gives a word one vector wherever it stands. The states above it know the sentence: the same word gets a vector
for each, the more so the higher the layer.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .figure_style import INK, new_figure
from .states import check_layer, layer_states
from .tokens import readable_tokens
from .words import Encoded, membership


@dataclass(frozen=True)
class Neighbour:
    """A token of the vocabulary, its text for people, and its cosine with the word."""

    token: str
    text: str
    similarity: float


@dataclass(frozen=True)
class Neighbours:
    """The tokens that spell a word, and the tokens nearest to it; a word of several tokens has their mean vector."""

    word: str
    tokens: list[str]
    neighbours: list[Neighbour]


@dataclass(frozen=True)
class Contexts:
    """One word in several places.

    Args:
        sentences: one for each place, so twice the same where the word is in it twice.
        vectors: (places, size).
    """

    word: str
    sentences: list[str]
    vectors: np.ndarray

    @property
    def similarities(self) -> np.ndarray:
        """(places, places), the cosine of every two vectors."""
        return cosines(self.vectors, self.vectors)


def nearest(model: Any, tokenizer: Any, word: str, k: int = 10) -> Neighbours:
    """The `k` tokens whose vectors in the model's input table have the greatest cosine with the word's."""
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    table = input_table(model, tokenizer)
    ids = ids_of_word(tokenizer, word)
    similarities = cosines(table[ids].mean(axis=0, keepdims=True), table)[0]
    # The word itself, special tokens and rows that no token has (tables are padded to round sizes) are no neighbours.
    similarities[[*ids, *tokenizer.all_special_ids]] = -np.inf
    similarities[len(tokenizer) :] = -np.inf
    best = [number for number in np.argsort(-similarities, kind="stable")[:k] if np.isfinite(similarities[number])]
    tokens = tokenizer.convert_ids_to_tokens([int(number) for number in best])
    texts = [readable_tokens(tokenizer, [int(number)]).labels[0] for number in best]
    found = [Neighbour(*each) for each in zip(tokens, texts, similarities[best].tolist(), strict=True)]
    return Neighbours(word, tokenizer.convert_ids_to_tokens(ids), found)


def in_contexts(
    model: Any, tokenizer: Any, word: str, sentences: Sequence[str], layer: int | str = -1, batch_size: int = 32
) -> Contexts:
    """The vector of a word at each of its places in the sentences; the mean over its tokens where it has several.

    Args:
        word: found as a whole word, upper or lower case.
        layer: states of this layer, 0 the embeddings with their positions; or "static", the table alone.
    """
    places = [(sentence, span) for sentence in sentences for span in find_word(word, sentence)]
    encoded = [encode_span(tokenizer, sentence, span) for sentence, span in places]
    table = input_table(model, tokenizer)
    if layer == "static":
        vectors = [mean_over_tokens(table[each.input_ids], each) for each in encoded]
        return Contexts(word, [sentence for sentence, _ in places], np.stack(vectors))
    found: list[Any] = [None] * len(encoded)
    for index, states in layer_states(model, encoded, batch_size):
        chosen = states[check_layer(layer, len(states))].double().numpy()
        found[index] = mean_over_tokens(chosen, encoded[index])
    return Contexts(word, [sentence for sentence, _ in places], np.stack(found))


def find_word(word: str, sentence: str) -> list[tuple[int, int]]:
    spans = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", sentence, re.IGNORECASE)]
    if not word.strip() or not spans:
        raise ValueError(f"the word {word!r} is not in the sentence {sentence!r}; give sentences that have it")
    return spans


def encode_span(tokenizer: Any, sentence: str, span: tuple[int, int]) -> Encoded:
    """A sentence with one word in it marked."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"{type(tokenizer).__name__} does not say where its tokens stand; use a fast tokenizer (tokenizer.json)"
        )
    encoded = tokenizer(sentence, return_offsets_mapping=True)
    belongs = membership(encoded["offset_mapping"], [span])
    if not belongs.any():
        raise ValueError(f"the tokenizer leaves out {sentence[slice(*span)]!r} of {sentence!r}; choose another word")
    return Encoded(encoded["input_ids"], [sentence[slice(*span)]], belongs)


def mean_over_tokens(states: np.ndarray, encoded: Encoded) -> np.ndarray:
    belongs = encoded.membership[:, 0] > 0
    return states[belongs].mean(axis=0)


def input_table(model: Any, tokenizer: Any) -> np.ndarray:
    """(vocabulary, size), the vectors that words are looked up in."""
    table = model.get_input_embeddings().weight.detach().double().cpu().numpy()
    if len(tokenizer) > len(table):
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} tokens and the model {len(table)} vectors; "
            "take both from the same checkpoint"
        )
    return table


def ids_of_word(tokenizer: Any, word: str) -> list[int]:
    """The tokens of a word as it stands inside a text; other cases are tried for one that is not known as written."""
    if not word.strip() or len(word.split()) > 1:
        raise ValueError(f"give one word without spaces, got {word!r}")
    word = word.strip()
    for form in dict.fromkeys((word, word.lower(), word.capitalize(), word.upper())):
        # With the space before it, byte-level tokenizers spell the word as they do in the middle of a text.
        spellings = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (f" {form}", form)]
        spellings = [trim_spaces(tokenizer, ids) for ids in spellings]
        spellings = [ids for ids in spellings if ids and tokenizer.unk_token_id not in ids]
        if spellings:
            return min(spellings, key=len)
    raise ValueError(f"the tokenizer does not know the word {word!r}{suggestion(tokenizer, word)}")


def trim_spaces(tokenizer: Any, ids: list[int]) -> list[int]:
    """Without a token at the front that is nothing but the space before the word, where the word has others."""
    while (
        len(ids) > 1
        and not tokenizer.decode(ids[:1]).strip()
        and tokenizer.decode(ids[1:]).strip() == (tokenizer.decode(ids).strip())
    ):
        ids = ids[1:]
    return ids


def suggestion(tokenizer: Any, word: str) -> str:
    vocabulary = {readable_tokens(tokenizer, [number]).labels[0] for number in tokenizer.get_vocab().values()}
    close = difflib.get_close_matches(word, sorted(vocabulary), n=3)
    return f"; it knows {', '.join(close)}" if close else "; choose a word of its vocabulary"


def cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The cosine of every row of one with every row of the other; a vector of zeros is like nothing."""
    return unit(left) @ unit(right).T


def unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(float).tiny)


def draw_contexts(contexts: Contexts, title: str = "") -> Any:
    """How alike the vectors of one word are, each place against each."""
    from .alignment_pictures import plain

    count = len(contexts.sentences)
    labels = [short(sentence, contexts.word) for sentence in plain(contexts.sentences)]
    figure, axis = new_figure(2.5 + 0.08 * max(map(len, labels)) + 0.6 * count, 1.3 + 0.6 * count)
    axis.grid(False)
    axis.spines[:].set_visible(False)
    image = axis.imshow(contexts.similarities, cmap="cividis", vmin=-1, vmax=1)
    axis.set_xticks(range(count), [str(number + 1) for number in range(count)])
    axis.set_yticks(range(count), [f"{label}  {number + 1}" for number, label in enumerate(labels)])
    for row in range(count):
        for column in range(count):
            value = contexts.similarities[row, column]
            axis.text(
                column, row, f"{value:.2f}", ha="center", va="center", fontsize=9, color=INK if value > 0.2 else "white"
            )
    figure.colorbar(image, ax=axis, label="cosine", shrink=0.8)
    axis.set_title(title or f"'{contexts.word}' in {count} contexts")
    return figure


def short(sentence: str, word: str, around: int = 28) -> str:
    """The sentence, or where it is long the part around the word."""
    if len(sentence) <= 2 * around:
        return sentence
    start = max(0, sentence.lower().find(word.lower()) - around)
    end = start + 2 * around
    return ("…" if start else "") + sentence[start:end] + ("…" if end < len(sentence) else "")
