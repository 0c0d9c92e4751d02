"""Built-in corpus `numbers`: digits to words and back, with gold alignment links between each digit and its words.

num2words writes the number. A digit is linked to the words that change when it becomes zero: those of 342 that are
not in 302 are the words of the 4. A word that one digit determines is a *sure* link; conjunctions ("and", "et") and
words that several digits share ("thousand") are *possible* links, as in the gold alignments of Och & Ney 2003,
"A Systematic Comparison of Various Statistical Alignment Models".
"""

from __future__ import annotations

import random
import re
from functools import lru_cache
from itertools import takewhile

# Languages that say the highest digit first, with spaces or hyphens between the words of a number.
LINKED_LANGUAGES = ("en", "es", "fr", "pt", "ro", "id", "pl", "cs", "ru", "uk", "fa")
_CONJUNCTIONS = {"en": {"and"}, "es": {"y"}, "fr": {"et"}, "pt": {"e"}, "ro": {"și", "de"}, "fa": {"و"}}
_DEFAULT_LANGUAGES = ("en", "es", "fr", "pt", "id", "pl", "ru", "fa")
_DIRECTIONS = ("to_words", "to_digits")
_MAX_NUMBER = 999_999_999


def generate(
    sizes: dict[str, int],
    seed: int,
    languages: tuple[str, ...] = _DEFAULT_LANGUAGES,
    direction: str = "to_words",
    maximum: int = 999_999,
) -> dict[str, dict[str, list]]:
    """Rows by split; no number is in two splits, no source has two answers."""
    _check(sizes, languages, direction, maximum)
    rng = random.Random(seed)
    rows, used, answers = {}, set(), {}
    for split, size in sizes.items():
        columns: dict[str, list] = {"source": [], "target": [], "sure": [], "possible": [], "language": []}
        numbers: set[int] = set()
        for number, language in _samples(rng, size, languages, maximum):
            row = None if number in used else make_row(number, language, direction, tagged=len(languages) > 1)
            if row is not None and row["source"] not in answers:
                answers[row["source"]] = row["target"]
                numbers.add(number)
                for name, value in row.items():
                    columns[name].append(value)
            if len(columns["source"]) == size:
                break
        if len(columns["source"]) < size:
            raise ValueError(
                f"numbers found {len(columns['source'])} of {size} rows for {split}; raise maximum or ask for fewer"
            )
        rows[split] = columns
        used |= numbers
    return rows


def make_row(number: int, language: str, direction: str = "to_words", tagged: bool = False) -> dict:
    """One example; `tagged` puts the target language before the digits, as a multilingual translator needs it."""
    digits, words = " ".join(str(number)), " ".join(words_of(number, language))
    sure, possible = links(number, language)
    if direction == "to_digits":
        sure, possible = [sorted([j, i] for i, j in each) for each in (sure, possible)]
        source, target = words, digits
    else:
        shift = int(tagged)  # the tag is a word of the source
        sure, possible = [[[i + shift, j] for i, j in each] for each in (sure, possible)]
        source, target = f"{language} {digits}" if tagged else digits, words
    return {"source": source, "target": target, "sure": sure, "possible": possible, "language": language}


@lru_cache(maxsize=200_000)
def words_of(number: int, language: str) -> tuple[str, ...]:
    """The words of a number, split at spaces, hyphens and commas."""
    from num2words import num2words

    return tuple(re.sub(r"[-,\s]+", " ", num2words(number, lang=language)).split())


def links(number: int, language: str) -> tuple[list[list[int]], list[list[int]]]:
    """Sure and possible links [digit, word]; every word has at least one, a zero that is not spoken has none."""
    digits, words = str(number), words_of(number, language)
    if number == 0:
        return [[0, word] for word in range(len(words))], []
    sure: set[tuple[int, int]] = set()
    possible: set[tuple[int, int]] = set()
    nonzero = [position for position, digit in enumerate(digits) if digit != "0"]
    for digit in nonzero:
        changed, replacement = _changed_words(number, [digit], language)
        for word in changed:
            is_sure = _is_determined(words[word], replacement, language)
            (sure if is_sure else possible).add((digit, word))
    conjunctions = {position for position, word in enumerate(words) if word in _CONJUNCTIONS.get(language, ())}
    linked = {word for _, word in sure} | ({word for _, word in possible} & conjunctions)
    possible |= _shared_links(number, nonzero, language, linked)
    return sorted(map(list, sure)), sorted(map(list, possible))


@lru_cache(maxsize=32)
def _scale_words(language: str) -> dict[str, int]:
    """Words for hundred, thousand and million, in all inflected forms, with the power of ten."""
    powers = {}
    for power in (2, 3, 6):
        for digit in range(1, 10):
            round_words = words_of(digit * 10**power, language)
            next_words = words_of(digit * 10**power + 1, language)
            powers[round_words[-1]] = powers[next_words[len(round_words) - 1]] = power
    return powers


def _is_determined(word: str, replacement: tuple[str, ...], language: str) -> bool:
    """Whether the digit that removes `word` means it: not a conjunction, nor "tysięcy" inflected to "tysiące"."""
    powers = _scale_words(language)
    is_inflected = word in powers and powers[word] in {powers.get(other) for other in replacement}
    return not is_inflected and word not in _CONJUNCTIONS.get(language, ())


def _changed_words(number: int, positions: list[int], language: str) -> tuple[range, tuple[str, ...]]:
    """Positions of the words that change when the digits at `positions` become zero, and their replacement."""
    digits = list(str(number))
    for position in positions:
        digits[position] = "0"
    before = words_of(number, language)
    rest = int("".join(digits))
    after = words_of(rest, language) if rest else ()
    # Higher digits come first and lower digits last: the words between the common start and end have changed.
    end = _common_prefix(before[::-1], after[::-1])
    start = _common_prefix(before[: len(before) - end], after[: len(after) - end])
    return range(start, len(before) - end), after[start : len(after) - end]


def _shared_links(number: int, nonzero: list[int], language: str, linked: set[int]) -> set[tuple[int, int]]:
    """Possible links of the words that no digit determines alone: to the shortest run of digits that removes them."""
    unlinked = set(range(len(words_of(number, language)))) - linked
    shared: set[tuple[int, int]] = set()
    for width in range(2, len(nonzero) + 1):
        for start in range(len(nonzero) - width + 1):
            run = nonzero[start : start + width]
            removed = unlinked & set(_changed_words(number, run, language)[0])
            shared |= {(digit, word) for digit in run for word in removed}
            unlinked -= removed
    return shared


def _common_prefix(left: tuple[str, ...], right: tuple[str, ...]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


def _samples(rng: random.Random, size: int, languages: tuple[str, ...], maximum: int):
    for _ in range(30 * size + 1000):
        # Uniform over the number of digits: uniform numbers would nearly all be long.
        top = min(maximum, 10 ** rng.randint(1, len(str(maximum))) - 1)
        yield rng.randint(0, top), rng.choice(languages)


def _check(sizes: dict[str, int], languages: tuple[str, ...], direction: str, maximum: int) -> None:
    unknown = [language for language in languages if language not in LINKED_LANGUAGES]
    if unknown or not languages:
        raise ValueError(f"numbers has links for the languages {', '.join(LINKED_LANGUAGES)}; got {list(languages)}")
    if direction not in _DIRECTIONS:
        raise ValueError(f"direction must be one of {', '.join(_DIRECTIONS)}; got {direction!r}")
    if not 9 <= maximum <= _MAX_NUMBER:
        raise ValueError(f"maximum must be from 9 to {_MAX_NUMBER}, got {maximum}")
    total, limit = sum(sizes.values()), (maximum + 1) * len(languages) // 2
    if total > limit:
        raise ValueError(f"{total} rows are too many for numbers up to {maximum}: ask for at most {limit}")
