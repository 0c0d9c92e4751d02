"""Running text for language models: blocks that are shuffled, or contiguous streams for truncated back-propagation.

In a stream, row t of batch k goes on where row t of batch k - 1 stopped, so a recurrent state can be carried over
(Zaremba et al. 2014, arXiv:1409.2329, Section 4.1; Mikolov's truncated back-propagation through time).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .cache import build_once, cache_folder, code_version, content_of, fingerprint, tokenizer_content
from .columns import check_in_memory, read_column
from .row_encoders import IGNORED

ROWS = 1_000


def group_into_blocks(
    corpus: Any,
    tokenizer: Any,
    block_size: int,
    *,
    overlap: int = 0,
    join: str | None = None,
    drop_last: bool = False,
    cache_dir: str | os.PathLike | None = None,
) -> Any:
    """Rows of `input_ids` of `block_size` tokens, cut from the documents one after another.

    Args:
        overlap: How many tokens of the block before each block begins with, for a perplexity that says little of where
            the text was cut. They are read and not guessed again (`labels`): every token of the text but the first is
            guessed once, after so many others or more. Of several splits, `train` has none: it is not for scoring.
        join: What stands between two rows of one document, default `usual_join`; between documents stand the end and
            the start token.
        drop_last: Whether to leave out the last, shorter block. A perplexity needs it.
    """
    _check_count("block_size", block_size, 2)
    _check_count("overlap", overlap, 0)
    if overlap >= block_size:
        raise ValueError(f"an overlap of {overlap} leaves nothing new in a block of {block_size}; take a smaller one")
    if isinstance(corpus, dict):
        same = {"join": join, "drop_last": drop_last, "cache_dir": cache_dir}
        blocks = {}
        for split, rows in corpus.items():
            shared = 0 if split == "train" else overlap
            blocks[split] = group_into_blocks(rows, tokenizer, block_size, overlap=shared, **same)
        return type(corpus)(blocks)

    def cut(tokens: np.ndarray) -> dict[str, Any]:
        starts = range(0, max(len(tokens) - overlap, 1), block_size - overlap)
        blocks = [tokens[start : start + block_size] for start in starts]
        if len(blocks[-1]) < (block_size if drop_last else 2):  # one token alone predicts nothing
            blocks.pop()
        if not blocks:
            raise ValueError(f"{len(tokens)} tokens do not fill one block of {block_size}; take a smaller block_size")
        if not overlap:
            return {"input_ids": blocks}
        seen = np.full(overlap, IGNORED, tokens.dtype)
        return {"input_ids": blocks, "labels": [blocks[0], *(np.append(seen, b[overlap:]) for b in blocks[1:])]}

    return _build(corpus, tokenizer, join, ["blocks", block_size, drop_last, overlap], cut, cache_dir)


def contiguous_streams(
    corpus: Any,
    tokenizer: Any,
    batch_size: int,
    block_size: int,
    *,
    join: str | None = None,
    cache_dir: str | os.PathLike | None = None,
) -> Any:
    """Rows in such an order that batches of `batch_size`, read without shuffling, continue `batch_size` streams.

    `shift_labels` holds the next token of every position, also across the border of a block; transformers' causal loss
    takes it as it is. `labels` is the usual copy of `input_ids`. For `Trainer`, set `remove_unused_columns=False` and
    `train_sampling_strategy="sequential"`.
    """
    _check_count("batch_size", batch_size, 1)
    _check_count("block_size", block_size, 1)

    def cut(tokens: np.ndarray) -> dict[str, Any]:
        steps = (len(tokens) - 1) // batch_size // block_size
        if steps < 1:
            raise ValueError(
                f"{len(tokens)} tokens do not fill {batch_size} streams of {block_size}; "
                "take a smaller batch_size or block_size"
            )
        length = steps * block_size
        inputs = _interleave(tokens, 0, batch_size, length, block_size)
        following = _interleave(tokens, 1, batch_size, length, block_size)
        return {"input_ids": list(inputs), "labels": list(inputs), "shift_labels": list(following)}

    return _build(corpus, tokenizer, join, ["streams", batch_size, block_size], cut, cache_dir)


def usual_join(tokenizer: Any) -> str:
    """A new line where the tokenizer has a token for it, else a space: a row's border is no unknown word."""
    ids = tokenizer("\n", add_special_tokens=False)["input_ids"]
    is_known = "\n" in tokenizer.get_vocab() or (ids and tokenizer.unk_token_id not in ids)
    return "\n" if is_known else " "


def token_stream(dataset: Any, tokenizer: Any, join: str | None = None) -> np.ndarray:
    """All tokens in order; every document stands between the start and the end token."""
    join = usual_join(tokenizer) if join is None else join
    start = _first_known(tokenizer.bos_token_id, tokenizer.cls_token_id)
    end = _first_known(tokenizer.eos_token_id, tokenizer.sep_token_id)
    pieces: list[np.ndarray] = []
    for texts, whole in _texts(dataset, join):
        for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]:
            pieces.append(np.asarray([*start, *ids, *end] if whole else ids, np.int32))
    if not any(map(len, pieces)):
        raise ValueError("the corpus has no text; check its columns and split")
    if "document" not in dataset.column_names:
        pieces = [np.asarray(start, np.int32), *pieces, np.asarray(end, np.int32)]
    return np.concatenate(pieces)


def _texts(dataset: Any, join: str) -> Iterator[tuple[list[str], bool]]:
    """Documents; without a column `document`, the whole text a thousand rows at a time."""
    if "text" not in dataset.column_names:
        raise ValueError(f"a language model reads the column 'text'; the corpus has {', '.join(dataset.column_names)}")
    texts = [text or "" for text in read_column(dataset, "text")]
    if "document" not in dataset.column_names:
        for place in range(0, len(texts), ROWS):
            last = place + ROWS >= len(texts)
            yield [join.join(texts[place : place + ROWS]) + ("" if last else join)], False
        return
    groups: dict[Any, list[str]] = {}
    for document, text in zip(read_column(dataset, "document"), texts, strict=True):
        groups.setdefault(document, []).append(text)
    documents = [join.join(group) for group in groups.values()]
    for place in range(0, len(documents), ROWS):
        yield documents[place : place + ROWS], True


def _interleave(tokens: np.ndarray, shift: int, batch_size: int, length: int, block_size: int) -> np.ndarray:
    streams = np.stack(
        [tokens[row * length + shift : (row + 1) * length + shift] for row in range(batch_size)]
    )  # (B, L)
    blocks = streams.reshape(batch_size, -1, block_size)  # (B, steps, T)
    return blocks.swapaxes(0, 1).reshape(-1, block_size)


def _build(corpus: Any, tokenizer: Any, join: str | None, settings: list, cut: Any, cache_dir: Any) -> Any:
    import datasets

    if isinstance(corpus, dict):
        return type(corpus)(
            {split: _build(dataset, tokenizer, join, settings, cut, cache_dir) for split, dataset in corpus.items()}
        )
    check_in_memory(corpus)
    join = usual_join(tokenizer) if join is None else join
    columns = [name for name in ("document", "text") if name in corpus.column_names]
    version = code_version(sys.modules[__name__])
    key = fingerprint(content_of(corpus, columns), tokenizer_content(tokenizer), join, settings, version)

    def build(folder: Path) -> None:
        rows = cut(token_stream(corpus, tokenizer, join))
        features = datasets.Features({name: datasets.List(datasets.Value("int32")) for name in rows})
        datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(folder))

    return datasets.load_from_disk(str(build_once(cache_folder(cache_dir) / "blocks" / key, build)))


def _first_known(*ids: int | None) -> list[int]:
    return [number for number in ids if number is not None][:1]


def _check_count(name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of {least} or more, got {value!r}")
