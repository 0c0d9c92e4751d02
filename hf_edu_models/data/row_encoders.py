"""Text to token ids and labels, for the tasks where each row of the corpus is one row of the dataset."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .labels import IGNORE_INDEX


def encode_translation(
    batch: dict[str, list], tokenizer: Any, max_length: int | None = None, target_tokenizer: Any = None
) -> dict[str, list]:
    """`input_ids` of the source, `labels` of the target; `target_tokenizer` where the vocabularies differ."""
    options = _truncation(max_length)
    if target_tokenizer is None:
        return dict(tokenizer(batch["source"], text_target=batch["target"], **options))
    encoded = tokenizer(batch["source"], **options)
    encoded["labels"] = target_tokenizer(text_target=batch["target"], **options)["input_ids"]
    return dict(encoded)


def encode_classification(
    batch: dict[str, list],
    tokenizer: Any,
    max_length: int | None = None,
    num_labels: int | None = None,
    window_stride: int | None = None,
) -> dict[str, list]:
    """Texts or pairs with `labels`: a class, a number, or, with `num_labels`, a multi-hot vector.

    With `window_stride` a row has a list of windows of at most `max_length` tokens, which overlap by that many.
    """
    if window_stride is None:
        encoded = dict(tokenizer(batch["text"], batch.get("text_pair"), **_truncation(max_length)))
    else:
        encoded = _windows(batch["text"], batch.get("text_pair"), tokenizer, max_length, window_stride)
    if "label" not in batch:
        return encoded
    if num_labels is None:
        return encoded | {"labels": batch["label"]}
    multi_hot = [[float(number in set(row)) for number in range(num_labels)] for row in batch["label"]]
    return encoded | {"labels": multi_hot}


def encode_token_classification(
    batch: dict[str, list],
    tokenizer: Any,
    max_length: int | None = None,
    label_all_subwords: bool = False,
    tag_names: list[str] | None = None,
) -> dict[str, list]:
    """Words and tags as subwords and `labels`: the first subword has the tag, the others -100 or the inside tag."""
    encoded = tokenizer(batch["tokens"], is_split_into_words=True, **_truncation(max_length))
    inside = inside_tags(tag_names) if label_all_subwords and tag_names else None
    labels = [
        align_tags(encoded.word_ids(row), tags, inside, label_all_subwords) for row, tags in enumerate(batch["tags"])
    ]
    return dict(encoded) | {"labels": labels}


def align_tags(
    word_ids: list[int | None], tags: list[int], inside: dict[int, int] | None, label_all: bool
) -> list[int]:
    """A label for every subword; -100 for special tokens and, unless `label_all`, for all but the first of a word."""
    labels, previous = [], None
    for word in word_ids:
        if word is None:
            labels.append(IGNORE_INDEX)
        elif word != previous:
            labels.append(tags[word])
        else:
            labels.append((inside or {}).get(tags[word], tags[word]) if label_all else IGNORE_INDEX)
        previous = word
    return labels


def inside_tags(names: list[str]) -> dict[int, int]:
    """B-x to I-x, where that tag exists: the second subword of a word does not begin another entity."""
    ids = {name: number for number, name in enumerate(names)}
    return {ids[name]: ids["I-" + name[2:]] for name in names if name[:2] == "B-" and "I-" + name[2:] in ids}


def encode_multiple_choice(batch: dict[str, list], tokenizer: Any, max_length: int | None = None) -> dict[str, list]:
    """Each context paired with each of its choices: lists of `input_ids`, and the correct one as `labels`."""
    counts = [len(choices) for choices in batch["choices"]]
    contexts = [context for context, count in zip(batch["context"], counts, strict=True) for _ in range(count)]
    choices = [choice for choices in batch["choices"] for choice in choices]
    flat = tokenizer(contexts, choices, **_truncation(max_length))
    rows = {name: _unflatten(values, counts) for name, values in flat.items()}
    return rows | ({"labels": batch["label"]} if "label" in batch else {})


def encode_documents(
    batch: dict[str, list], tokenizer: Any, max_length: int | None = None, max_sentences: int | None = None
) -> dict[str, list]:
    """Documents as lists of sentences of token ids, for hierarchical models."""
    documents = [[text for text in row if text and not text.isspace()] for row in batch["sentences"]]
    for number, document in enumerate(documents):
        if not document:
            raise ValueError(f"document {number} of this batch has no sentence with a word; remove it from the corpus")
    documents = [document[:max_sentences] for document in documents]
    counts = [len(document) for document in documents]
    flat = tokenizer([text for document in documents for text in document], **_truncation(max_length))
    rows = {name: _unflatten(values, counts) for name, values in flat.items() if name != "token_type_ids"}
    return rows | ({"labels": batch["label"]} if "label" in batch else {})


def encode_regression(batch: dict[str, list], tokenizer: None = None) -> dict[str, list]:
    """`input_values` of the features, and `labels` of the value."""
    return {"input_values": batch["features"]} | ({"labels": batch["value"]} if "value" in batch else {})


def _unflatten(values: list, counts: list[int]) -> list[list]:
    rows, start = [], 0
    for count in counts:
        rows.append(values[start : start + count])
        start += count
    return rows


def _windows(
    texts: list[str], pairs: list[str] | None, tokenizer: Any, max_length: int | None, stride: int
) -> dict[str, list]:
    """Lists of windows of each text; the second text of a pair is in all of them, of at most half their length."""
    if max_length is None:
        raise ValueError("window_stride needs max_length, the length of a window")
    length = max_length - tokenizer.num_special_tokens_to_add(pair=pairs is not None)
    # Each window must have at least one token that the window before did not have.
    longest_pair = min(length // 2, length - stride - 1) if pairs else 0
    if stride < 0 or length - longest_pair - stride < 1 or (pairs and longest_pair < 1):
        raise ValueError(f"max_length {max_length} has no room for a window_stride of {stride}; use a smaller one")
    if pairs is not None:
        pairs = truncate_texts(pairs, tokenizer, longest_pair)
    encoded = tokenizer(
        texts, pairs, truncation="only_first", max_length=max_length, stride=stride, return_overflowing_tokens=True
    )
    counts = Counter(encoded.pop("overflow_to_sample_mapping"))
    return {name: _unflatten(values, [counts[row] for row in range(len(texts))]) for name, values in encoded.items()}


def truncate_texts(texts: list[str], tokenizer: Any, longest: int) -> list[str]:
    """Texts of at most `longest` tokens."""
    texts = [text.strip() for text in texts]
    encoded = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ends = [offsets[longest - 1][1] if len(offsets) > longest else None for offsets in encoded["offset_mapping"]]
    return [text[:end] for text, end in zip(texts, ends, strict=True)]


def _truncation(max_length: int | None) -> dict[str, Any]:
    return {} if max_length is None else {"truncation": True, "max_length": max_length}
