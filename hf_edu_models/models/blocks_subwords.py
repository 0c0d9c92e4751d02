"""Character n-grams: a word is the sum of its parts, so that a word never seen has a vector, too.

Paper: Bojanowski, Grave, Joulin & Mikolov 2017, "Enriching Word Vectors with Subword Information", TACL 5, Section 3.2.
The n-grams share a table of `num_buckets` vectors by their hash, fastText's own: files of fastText and gensim agree.

Shapes: V vocabulary, D size of a vector.
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_FNV_OFFSET, _FNV_PRIME = 2166136261, 16777619  # of the 32-bit FNV-1a hash


def hash_ngram(ngram: str, num_buckets: int) -> int:
    """FNV-1a over the bytes, each extended with its sign as in fastText."""
    value = _FNV_OFFSET
    for byte in ngram.encode():
        value ^= byte if byte < 128 else byte | 0xFFFFFF00
        value = value * _FNV_PRIME % 2**32
    return value % num_buckets


def ngrams_of(word: str, shortest: int = 3, longest: int = 6) -> list[str]:
    """The n-grams of a word between < and >: "where" has <wh, whe, her, ere, re> and longer ones."""
    marked = f"<{word}>"
    return [
        marked[start : start + size]
        for start in range(len(marked))
        for size in range(shortest, longest + 1)
        if start + size <= len(marked) and not (size == 1 and marked[start] in "<>")
    ]


def subword_table(words: Iterable[str | None], config) -> tuple[Tensor, Tensor]:
    """The buckets of all n-grams of all words in a row, and where each word's start; None stands for no n-grams."""
    sizes = config.min_ngram, config.max_ngram
    ids, starts = [], [0]
    for word in words:
        ids += [] if word is None else [hash_ngram(each, config.num_buckets) for each in ngrams_of(word, *sizes)]
        starts.append(len(ids))
    return torch.tensor(ids, dtype=torch.int64), torch.tensor(starts, dtype=torch.int64)


class SubwordEmbedding(nn.Embedding):
    """The mean of a word's own vector and of the vectors of its n-grams.

    As in fastText, each of them gets the whole gradient of the word, as if it were their sum.
    """

    ngram_ids: Tensor
    ngram_starts: Tensor

    def __init__(self, config):
        super().__init__(config.vocab_size, config.hidden_size)
        self.ngrams = nn.Embedding(config.num_buckets, config.hidden_size)
        self.register_buffer("ngram_ids", torch.zeros(config.num_ngrams, dtype=torch.int64))
        self.register_buffer("ngram_starts", torch.zeros(config.vocab_size + 1, dtype=torch.int64))

    def set_words(self, ngram_ids: Tensor, ngram_starts: Tensor) -> None:
        """Take what `subword_table` returns for the words of the vocabulary."""
        self.ngram_ids.copy_(ngram_ids)
        self.ngram_starts.copy_(ngram_starts)

    def forward(self, input_ids: Tensor) -> Tensor:
        ids, starts, counts = self.parts_of(input_ids.flatten())
        sums = super().forward(input_ids.flatten()) + F.embedding_bag(ids, self.ngrams.weight, starts, mode="sum")
        means = sums / (1 + counts)[:, None]
        return (sums + (means - sums).detach()).view(*input_ids.shape, -1)

    def parts_of(self, input_ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The buckets of the n-grams of some words in a row, where each word's start, and how many each has."""
        last = self.ngram_starts.shape[0] - 2
        rows = input_ids.clamp(max=last)  # what resizing has added has no n-grams
        first = self.ngram_starts[rows]
        counts = (self.ngram_starts[rows + 1] - first) * (input_ids <= last)
        ends = counts.cumsum(0)
        shifts = (first - ends + counts).repeat_interleave(counts)
        places = torch.arange(shifts.shape[0], device=shifts.device) + shifts
        return self.ngram_ids[places], ends - counts, counts

    def vector_of(self, word: str, config) -> Tensor:
        """The vector of a word that is not in the vocabulary: the mean over its n-grams."""
        ids, _ = subword_table([word], config)
        if not len(ids):
            raise ValueError(f"{word!r} has no n-gram of {config.min_ngram} to {config.max_ngram} characters")
        return self.ngrams(ids.to(self.weight.device)).mean(dim=0)
