"""Running text for language models: blocks that are shuffled, or contiguous streams for truncated BPTT.

In a stream, row i of batch k continues row i of batch k - 1, so that the recurrent state can be carried over
(Zaremba et al. 2014, arXiv:1409.2329, Section 4.1; Mikolov's truncated back-propagation through time).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .cache import build_once, cache_folder, code_version, content_of, fingerprint, rebuild_damaged, tokenizer_content
from .columns import by_split, is_stream, read_column
from .labels import IGNORE_INDEX
from .streaming import SmallChunkError, StreamedExamples

_ROWS_AT_ONCE = 1_000


@rebuild_damaged
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
    """Concatenate the documents and split them into blocks of `block_size` tokens (`input_ids`).

    Of a stream: `StreamedExamples`, whose chunks are split into blocks while they are read.

    Args:
        overlap: Number of tokens that a block repeats from the block before, as context for a perplexity that depends
            less on the block borders. Their label is -100: every token of the text but the first is scored once, with
            at least `overlap` tokens of context. The split `train` has no overlap.
        join: Separator between two rows of one document, default a newline, or a space where the tokenizer has no
            newline. Documents are separated by the end and start tokens.
        drop_last: Whether to drop the last block if it is shorter. Keep it for a perplexity.
    """
    _check_count("block_size", block_size, 2)
    _check_count("overlap", overlap, 0)
    if overlap >= block_size:
        raise ValueError(f"an overlap of {overlap} leaves no new token in a block of {block_size}; use a smaller one")
    if isinstance(corpus, dict):
        options: dict[str, Any] = {"join": join, "drop_last": drop_last, "cache_dir": cache_dir}
        overlaps = {split: 0 if split == "train" else overlap for split in corpus}
        return type(corpus)(
            {
                split: group_into_blocks(rows, tokenizer, block_size, overlap=overlaps[split], **options)
                for split, rows in corpus.items()
            }
        )

    def split(tokens: np.ndarray) -> dict[str, Any]:
        starts = range(0, max(len(tokens) - overlap, 1), block_size - overlap)
        blocks = [tokens[start : start + block_size] for start in starts]
        if len(blocks[-1]) < (block_size if drop_last else 2):  # one token alone predicts nothing
            blocks.pop()
        if not blocks:
            raise SmallChunkError(
                f"{len(tokens)} tokens do not fill one block of {block_size}; use a smaller block_size"
            )
        if not overlap:
            return {"input_ids": blocks}
        ignored = np.full(overlap, IGNORE_INDEX, tokens.dtype)
        labels = [blocks[0], *(np.append(ignored, block[overlap:]) for block in blocks[1:])]
        return {"input_ids": blocks, "labels": labels}

    return _build(corpus, tokenizer, join, ["blocks", block_size, drop_last, overlap], split, cache_dir)


@rebuild_damaged
@by_split
def contiguous_streams(
    corpus: Any,
    tokenizer: Any,
    batch_size: int,
    block_size: int,
    *,
    join: str | None = None,
    cache_dir: str | os.PathLike | None = None,
) -> Any:
    """Blocks in an order in which batches of `batch_size`, read without shuffling, continue `batch_size` streams.

    `shift_labels` holds the next token of every position, also across block borders; transformers' causal loss uses it
    instead of shifting `labels`, which are a copy of `input_ids`. With `Trainer`, set `remove_unused_columns=False`
    and `train_sampling_strategy="sequential"`. Of a stream: `StreamedExamples`; the streams start anew in each chunk.
    """
    _check_count("batch_size", batch_size, 1)
    _check_count("block_size", block_size, 1)

    def split(tokens: np.ndarray) -> dict[str, Any]:
        steps = (len(tokens) - 1) // batch_size // block_size
        if steps < 1:
            raise SmallChunkError(
                f"{len(tokens)} tokens do not fill {batch_size} streams of {block_size}; "
                "use a smaller batch_size or block_size"
            )
        size = batch_size * steps * block_size
        inputs, next_tokens = (
            tokens[shift : size + shift].reshape(batch_size, steps, block_size).swapaxes(0, 1).reshape(-1, block_size)
            for shift in (0, 1)
        )  # (steps * B, T)
        return {"input_ids": list(inputs), "labels": list(inputs), "shift_labels": list(next_tokens)}

    return _build(corpus, tokenizer, join, ["streams", batch_size, block_size], split, cache_dir)


def _default_join(tokenizer: Any) -> str:
    """A newline if the tokenizer has a token for it, else a space: the separator must not be an unknown token."""
    ids = tokenizer("\n", add_special_tokens=False)["input_ids"]
    is_known = "\n" in tokenizer.get_vocab() or (ids and tokenizer.unk_token_id not in ids)
    return "\n" if is_known else " "


def token_stream(dataset: Any, tokenizer: Any, join: str | None = None) -> np.ndarray:
    """All token ids in order; every document, or the whole text, is between a start and an end token."""
    join = _default_join(tokenizer) if join is None else join
    start = _first_known(tokenizer.bos_token_id, tokenizer.cls_token_id)
    end = _first_known(tokenizer.eos_token_id, tokenizer.sep_token_id)
    chunks = [
        np.asarray([*start, *ids, *end] if is_document else ids, np.int32)
        for texts, is_document in _texts(dataset, join)
        for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    ]
    if not any(map(len, chunks)):
        raise SmallChunkError("the corpus has no text; check its columns and split")
    if "document" not in dataset.column_names:
        chunks = [np.asarray(start, np.int32), *chunks, np.asarray(end, np.int32)]
    return np.concatenate(chunks)


def _texts(dataset: Any, join: str) -> Iterator[tuple[list[str], bool]]:
    """Batches of documents and True; without a column `document`, the text in chunks of rows and False."""
    if "text" not in dataset.column_names:
        raise ValueError(f"a language model reads the column 'text'; the corpus has {', '.join(dataset.column_names)}")
    texts = [text or "" for text in read_column(dataset, "text")]
    if "document" not in dataset.column_names:
        for start in range(0, len(texts), _ROWS_AT_ONCE):
            is_last = start + _ROWS_AT_ONCE >= len(texts)
            yield [join.join(texts[start : start + _ROWS_AT_ONCE]) + ("" if is_last else join)], False
        return
    groups: dict[Any, list[str]] = {}
    for document, text in zip(read_column(dataset, "document"), texts, strict=True):
        groups.setdefault(document, []).append(text)
    documents = [join.join(group) for group in groups.values()]
    for start in range(0, len(documents), _ROWS_AT_ONCE):
        yield documents[start : start + _ROWS_AT_ONCE], True


def _build(corpus: Any, tokenizer: Any, join: str | None, settings: list, split: Any, cache_dir: Any) -> Any:
    import datasets

    join = _default_join(tokenizer) if join is None else join
    columns = [name for name in ("document", "text") if name in corpus.column_names]
    if is_stream(corpus):
        is_shuffled = settings[0] == "blocks"  # a stream continues from block to block
        return _build_lazily(corpus.select_columns(columns), tokenizer, join, split, is_shuffled)
    content = content_of(corpus, columns), tokenizer_content(tokenizer)
    key = fingerprint(*content, join, settings, code_version(__name__))

    def build(folder: Path) -> None:
        rows = split(token_stream(corpus, tokenizer, join))
        features = datasets.Features({name: datasets.List(datasets.Value("int32")) for name in rows})
        datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(folder))

    return datasets.load_from_disk(str(build_once(cache_folder(cache_dir) / "blocks" / key, build)))


def _build_lazily(corpus: Any, tokenizer: Any, join: str, split: Any, is_shuffled: bool) -> StreamedExamples:
    def encode(chunk: Any, seed: int) -> dict[str, list]:
        rows = split(token_stream(chunk, tokenizer, join))
        return {name: [ids.tolist() for ids in column] for name, column in rows.items()}

    return StreamedExamples(corpus, encode, is_shuffled)


def _first_known(*ids: int | None) -> list[int]:
    return [token_id for token_id in ids if token_id is not None][:1]


def _check_count(name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of {least} or more, got {value!r}")
