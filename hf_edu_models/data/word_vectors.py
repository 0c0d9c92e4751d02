"""Text for word vectors: rows of words, their counts, blocks with windows and negatives, and co-occurrences (GloVe)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .cache import build_once, cache_folder, cached_map, code_version, content_of, fingerprint, tokenizer_content
from .columns import by_split

_TABLE_SIZE = 2**20  # entries of the table that negatives are drawn from
_ROWS_AT_ONCE = 200  # rows whose pairs are counted together
_SPACE_MARKS = "▁Ġ"


def plain_words(tokenizer: Any) -> list[str | None]:
    """The text of each token without the mark of a space, by id; None for special tokens."""
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    special = {*tokenizer.all_special_ids}
    return [None if n in special else token.lstrip(_SPACE_MARKS) or token for n, token in enumerate(tokens)]


@by_split
def encode_words(
    corpus: Any,
    tokenizer: Any,
    max_length: int,
    *,
    num_proc: int | None = None,
    cache_dir: str | os.PathLike | None = None,
) -> Any:
    """Rows of at most `max_length` token ids (`input_ids`), without special tokens; unknown words are left out.

    Texts in a row that are of one document are joined.
    """
    if "text" not in corpus.column_names:
        raise ValueError(f"word vectors read the column 'text'; the corpus has {', '.join(corpus.column_names)}")
    skipped = np.array(sorted({*tokenizer.all_special_ids}))

    def encode(rows: dict[str, list]) -> dict[str, list]:
        texts = [text or "" for text in rows["text"]]
        documents = rows.get("document") or range(len(texts))
        pieces: list[Any] = []
        known: list[Any] = []
        for number, ids in enumerate(tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]):
            row = np.asarray(ids, np.int32)
            known.append(row[~np.isin(row, skipped)])
            if number + 1 == len(texts) or documents[number + 1] != documents[number]:
                words, known = np.concatenate(known), []
                pieces += [words[start : start + max_length] for start in range(0, len(words), max_length)]
        return {"input_ids": [piece for piece in pieces if len(piece) > 1]}  # a word alone has no context

    encoded = cached_map(
        corpus,
        encode,
        reads=[name for name in ("document", "text") if name in corpus.column_names],
        key=(tokenizer_content(tokenizer), max_length, code_version(__name__)),
        cache_dir=cache_dir,
        num_proc=num_proc,
        remove_columns=corpus.column_names,
    )
    if not len(encoded):
        raise ValueError("no text has two known words; lower --min_count, or give more text")
    return encoded.with_format("numpy")


def count_words(rows: Any, vocab_size: int) -> np.ndarray:
    """How often each token occurs."""
    counts: Any = np.zeros(vocab_size, np.int64)
    for batch in rows.iter(batch_size=_ROWS_AT_ONCE):
        counts += np.bincount(np.concatenate([np.asarray(ids) for ids in batch["input_ids"]]), minlength=vocab_size)
    return counts


class WordRows:
    """The rows of a dataset without its overhead for each: views of one array."""

    def __init__(self, dataset: Any):
        columns = dataset.with_format("arrow")[:].column("input_ids").combine_chunks()
        self.words, self.starts = columns.flatten().to_numpy(), columns.offsets.to_numpy() - columns.offsets[0].as_py()

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return {"input_ids": self.words[self.starts[index] : self.starts[index + 1]]}


@dataclass
class DataCollatorForWordVectors:
    """Blocks of `block_size` tokens from rows of any length, with everything that is random about word vectors.

    Frequent words are left out (Mikolov et al. 2013b, Section 2.3; the probability is that of word2vec's code), each
    position draws a window of 1 to `window_size`, and each block its negatives, in proportion to count^0.75
    (Section 2.2). A block belongs to one row; what is left of it is padding.

    Args:
        counts: of each token, by id.
        sample: frequency from which on words are left out; 0 keeps all.
        negatives: number of negatives of a block; 0 for the softmax over all words.
        in_order: keep the blocks in the order of the rows.
    """

    tokenizer: Any
    counts: np.ndarray
    window_size: int = 5
    negatives: int = 32
    sample: float = 1e-3
    block_size: int = 32
    in_order: bool = False
    top_share: float = field(init=False, repr=False)  # of the most frequent word among those that stay
    keep: torch.Tensor = field(init=False, repr=False)
    table: torch.Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("window_size", "block_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.sample < 0 or self.negatives < 0:
            raise ValueError(f"sample and negatives must be 0 or more, got {self.sample} and {self.negatives}")
        counts = np.asarray(self.counts, np.float64)
        if not counts.any():
            raise ValueError("counts are all zero; count the words of the train split with count_words")
        threshold = self.sample * counts.sum() / np.maximum(counts, 1)
        kept = np.minimum(np.sqrt(threshold) + threshold, 1.0) if self.sample else np.ones_like(counts)
        self.keep = torch.from_numpy(kept).float()
        self.top_share = float((counts * kept).max() / (counts * kept).sum())
        shares = np.cumsum(counts**0.75)
        places = (np.arange(max(_TABLE_SIZE, 8 * len(counts))) + 0.5) / max(_TABLE_SIZE, 8 * len(counts))
        self.table = torch.from_numpy(np.searchsorted(shares, places * shares[-1])).int()

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        rows = [np.asarray(feature["input_ids"]) for feature in features]
        ids = torch.from_numpy(np.concatenate(rows)).long()
        lengths = torch.tensor([len(row) for row in rows])
        if self.sample:
            # `take`, `masked_select` and `index_select`: on a CPU several times as fast as indexing.
            kept = torch.rand(len(ids)) < self.keep.take(ids)
            totals = torch.cat([torch.zeros(1, dtype=torch.long), kept.cumsum(0)])
            ends = lengths.cumsum(0)
            ids, lengths = ids.masked_select(kept), totals.take(ends) - totals.take(ends - lengths)
        blocks, mask = self._cut(ids, lengths)
        sizes = torch.randint(1, self.window_size + 1, blocks.shape)
        batch = {"input_ids": blocks, "labels": blocks.masked_fill(~mask, -100), "window_sizes": sizes}
        if self.negatives:
            draws = torch.randint(len(self.table), (len(blocks), self.negatives))
            batch["negative_ids"] = self.table.take(draws).long()
        if not bool(mask.all()):
            batch["attention_mask"] = mask.long()
        return batch

    def _cut(self, ids: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Blocks of ids and their masks, in random order; a word that is left alone in a block is dropped."""
        size = self.block_size
        per_row = (lengths + size - 2) // size  # one word beyond a whole block starts no other
        first = (per_row.cumsum(0) - per_row).repeat_interleave(lengths)
        place = torch.arange(len(ids)) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        fits = place < (per_row * size).repeat_interleave(lengths)
        blocks = torch.full((max(int(per_row.sum()), 1) * size,), self.tokenizer.pad_token_id or 0)
        mask = torch.zeros_like(blocks, dtype=torch.bool)
        target = (first * size + place).masked_select(fits)
        blocks.index_copy_(0, target, ids.masked_select(fits))
        mask.index_fill_(0, target, True)
        blocks, mask = blocks.view(-1, size), mask.view(-1, size)
        if not per_row.any():  # the words left out were all that these rows had
            mask[0, 0] = True
        order = torch.arange(len(blocks)) if self.in_order else torch.randperm(len(blocks))
        return blocks.index_select(0, order), mask.index_select(0, order)


@dataclass
class DataCollatorForPairs:
    """Batches of co-occurrences for GloVe: rows of `input_ids`, `labels` and `counts` of equal length."""

    tokenizer: Any = None

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        longest = max(len(feature["counts"]) for feature in features)
        batch = {}
        for name, fill, dtype in (("input_ids", 0, np.int64), ("labels", -100, np.int64), ("counts", 1, np.float32)):
            rows: Any = np.full((len(features), longest), fill, dtype)
            for row, feature in zip(rows, features, strict=True):
                row[: len(feature[name])] = feature[name]
            batch[name] = torch.from_numpy(rows)
        return batch


def count_pairs(
    rows: Any, vocab_size: int, window_size: int, *, row_size: int = 4096, cache_dir: str | os.PathLike | None = None
) -> Any:
    """How often each two words occur within a window, a pair at distance d counting 1/d (Pennington et al. 2014, 4.2).

    Returns a dataset of rows of pairs, shuffled: `input_ids` and `labels` are the words, `counts` their X_ij.
    """
    import datasets
    from scipy.sparse import coo_matrix, csr_matrix

    key = fingerprint(content_of(rows, ["input_ids"]), vocab_size, window_size, row_size, code_version(__name__))

    def build(folder: Path) -> None:
        total = csr_matrix((vocab_size, vocab_size), dtype=np.float64)
        for left, right, weights in _near_pairs(rows, window_size):
            total = total + coo_matrix((weights, (left, right)), shape=total.shape).tocsr()
        pairs = (total + total.T).tocoo()
        order = np.random.default_rng(0).permutation(pairs.nnz)
        columns = {"input_ids": pairs.row[order], "labels": pairs.col[order], "counts": pairs.data[order]}
        starts = range(0, len(order), row_size)
        types = {"input_ids": "int32", "labels": "int32", "counts": "float32"}
        features = datasets.Features({name: datasets.List(datasets.Value(kind)) for name, kind in types.items()})
        chunks = {name: [values[start : start + row_size] for start in starts] for name, values in columns.items()}
        datasets.Dataset.from_dict(chunks, features=features).save_to_disk(str(folder))

    folder = build_once(cache_folder(cache_dir) / "pairs" / key, build)
    return datasets.load_from_disk(str(folder)).with_format("numpy")


def _near_pairs(rows: Any, window_size: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Each two words at most `window_size` apart, the left one first, and 1 / distance."""
    for batch in rows.iter(batch_size=_ROWS_AT_ONCE):
        texts = [np.asarray(ids) for ids in batch["input_ids"]]
        words = np.concatenate(texts)
        row_of: Any = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        found = []
        for distance in range(1, min(window_size, len(words) - 1) + 1):
            same = row_of[:-distance] == row_of[distance:]
            left, right = words[:-distance][same], words[distance:][same]
            found.append((left, right, np.full(len(left), 1 / distance)))
        yield tuple(np.concatenate(column) for column in zip(*found, strict=True))
