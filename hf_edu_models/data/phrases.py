"""Phrases: words that occur next to each other more often than by chance, to be masked together.

Found as in Mikolov et al. 2013, arXiv:1310.4546, Section 4. Masking whole phrases and names: Sun et al. 2019 (ERNIE),
arXiv:1904.09223, Section 3.2, where a parser and a list of names find them; with counts, as here: Levine et al. 2021
(PMI-Masking), arXiv:2010.01825.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

_WORD = re.compile(r"\w+|[^\w\s]")
Word = tuple[int, ...]  # the token ids of a word


def find_phrases(texts: Iterable[str], min_count: int = 10, threshold: float = 30.0, passes: int = 2) -> list[str]:
    """The phrases of a corpus, the most frequent first; with two passes they have up to four words.

    Two neighbours a b are a phrase if (count(a b) - min_count) N / (count(a) count(b)) is above the threshold, with N
    words in all. Punctuation marks and digits belong to no phrase.
    """
    sentences = [_WORD.findall(text) for text in texts]
    found: dict[str, int] = {}
    for _ in range(passes):
        words = Counter(word for sentence in sentences for word in sentence)
        pairs = Counter(
            (first, second)
            for sentence in sentences
            for first, second in pairwise(sentence)
            if _is_word(first) and _is_word(second)
        )
        total = sum(words.values())
        phrases = {
            pair: count
            for pair, count in pairs.items()
            if (count - min_count) * total > threshold * words[pair[0]] * words[pair[1]]
        }
        found |= {" ".join(pair): count for pair, count in phrases.items()}
        sentences = [list(_join(sentence, phrases)) for sentence in sentences]
    return sorted(found, key=lambda phrase: -found[phrase])


def _is_word(text: str) -> bool:
    return text.replace(" ", "").isalpha()


def _join(sentence: Sequence[str], phrases: dict[tuple[str, str], int]) -> Iterator[str]:
    """The words of a sentence with its phrases as one word each."""
    start = 0
    while start < len(sentence):
        pair = tuple(sentence[start : start + 2])
        yield " ".join(pair) if pair in phrases else sentence[start]
        start += 2 if pair in phrases else 1


class PhraseTable:
    """Looks phrases up in lists of words, which are token ids.

    Args:
        continues: for every token id, whether it continues the word before it.
    """

    def __init__(self, phrases: Iterable[str], tokenizer: Any, continues: Sequence[bool]):
        # A phrase follows another word, so that it has the tokens of the middle of a sentence.
        encoded = tokenizer([f" {phrase}" for phrase in phrases], add_special_tokens=False)["input_ids"]
        self.phrases = {words for words in (words_of(ids, continues) for ids in encoded) if len(words) > 1}
        self.longest = max(map(len, self.phrases), default=1)

    def group(self, words: Sequence[Word]) -> list[int]:
        """The number of words of each unit, the longest phrase first: [1, 2, 1] if the second and third are one."""
        sizes, start = [], 0
        while start < len(words):
            longest = min(self.longest, len(words) - start)
            size = next((n for n in range(longest, 1, -1) if tuple(words[start : start + n]) in self.phrases), 1)
            sizes.append(size)
            start += size
        return sizes


def words_of(ids: Sequence[int], continues: Sequence[bool]) -> tuple[Word, ...]:
    """Token ids as words."""
    words: list[list[int]] = []
    for token in ids:
        if continues[token] and words:
            words[-1].append(token)
        else:
            words.append([token])
    return tuple(map(tuple, words))
