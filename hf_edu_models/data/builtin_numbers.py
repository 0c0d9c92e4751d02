"""Built-in task `numbers`: digits to words and back, with the gold links between each digit and its words.

num2words writes the number. The links come from asking what changes when a digit becomes zero: the words that
disappear from `words(342)` on the way to `words(302)` are the words of the 4. A word that a digit decides is a
*sure* link; joining words ("and", "et") and words that a whole group shares ("thousand") are *possible* links, as
in the alignment gold of Och & Ney 2003, "A Systematic Comparison of Various Statistical Alignment Models".
"""

from __future__ import annotations

import random
import re
from functools import lru_cache

# Languages that write the highest digit first and set spaces or hyphens between the words of a number.
LANGUAGES = ("en", "es", "fr", "pt", "ro", "id", "pl", "cs", "ru", "uk", "fa")
JOINING_WORDS = {"en": {"and"}, "es": {"y"}, "fr": {"et"}, "pt": {"e"}, "ro": {"și", "de"}, "fa": {"و"}}
DEFAULT_LANGUAGES = ("en", "es", "fr", "pt", "id", "pl", "ru", "fa")
DIRECTIONS = ("to_words", "to_digits")
HIGHEST = 999_999_999


def generate(
    sizes: dict[str, int],
    seed: int,
    languages: tuple[str, ...] = DEFAULT_LANGUAGES,
    direction: str = "to_words",
    maximum: int = 999_999,
) -> dict[str, dict[str, list]]:
    """Rows by split; no number is in two splits, no source has two answers."""
    _check(sizes, languages, direction, maximum)
    rng = random.Random(seed)
    rows, used, answers = {}, set(), {}
    for split, size in sizes.items():
        columns = {"source": [], "target": [], "sure": [], "possible": [], "language": []}
        here: set[int] = set()
        for number, language in _draws(rng, size, languages, maximum):
            row = None if number in used else make_row(number, language, direction, tagged=len(languages) > 1)
            if row is not None and row["source"] not in answers:
                answers[row["source"]] = row["target"]
                here.add(number)
                for name, value in row.items():
                    columns[name].append(value)
            if len(columns["source"]) == size:
                break
        _check_enough(split, len(columns["source"]), size)
        rows[split] = columns
        used |= here
    return rows


def make_row(number: int, language: str, direction: str = "to_words", tagged: bool = False) -> dict:
    """One example; `tagged` puts the wanted language before the digits, which say nothing about it."""
    digits = list(str(number))
    words = words_of(number, language)
    sure, possible = links(number, language)
    if direction == "to_digits":
        sure, possible = [_turned(each) for each in (sure, possible)]
        source, target = words, digits
    else:
        shift = int(tagged)
        sure, possible = [[[i + shift, j] for i, j in each] for each in (sure, possible)]
        source, target = [language] * shift + digits, words
    return {
        "source": " ".join(source),
        "target": " ".join(target),
        "sure": sure,
        "possible": possible,
        "language": language,
    }


@lru_cache(maxsize=200_000)
def words_of(number: int, language: str) -> tuple[str, ...]:
    """The words of a number, hyphens and commas read as spaces."""
    from num2words import num2words

    return tuple(re.sub(r"[-,\s]+", " ", num2words(number, lang=language)).split())


def links(number: int, language: str) -> tuple[list[list[int]], list[list[int]]]:
    """Sure and possible links of digit i and word j; every word has at least one, a silent zero has none."""
    digits, words = str(number), words_of(number, language)
    if number == 0:
        return [[0, position] for position in range(len(words))], []
    sure, possible = set(), set()
    spoken = [place for place, digit in enumerate(digits) if digit != "0"]
    for place in spoken:
        changed, instead = _changed(number, [place], language)
        for position in changed:
            decided = _is_decided(words[position], instead, language)
            (sure if decided else possible).add((place, position))
    joining = {position for position, word in enumerate(words) if word in JOINING_WORDS.get(language, ())}
    linked = {position for _, position in sure} | ({position for _, position in possible} & joining)
    possible |= _shared(number, spoken, language, linked)
    return sorted(map(list, sure)), sorted(map(list, possible))


@lru_cache(maxsize=32)
def scale_words(language: str) -> dict[str, int]:
    """Words for powers of ten from a hundred up, in all their forms, with the power."""
    powers = {}
    for power in (2, 3, 6):
        for digit in range(1, 10):
            plain = words_of(digit * 10**power, language)
            followed = words_of(digit * 10**power + 1, language)
            powers[plain[-1]] = powers[followed[len(plain) - 1]] = power
    return powers


def _is_decided(word: str, instead: tuple[str, ...], language: str) -> bool:
    """Whether a digit that removes `word` means it: not a joining word, nor "tysięcy" that only turns "tysiące"."""
    powers = scale_words(language)
    only_bent = word in powers and powers[word] in {powers.get(other) for other in instead}
    return not only_bent and word not in JOINING_WORDS.get(language, ())


def _changed(number: int, places: list[int], language: str) -> tuple[range, tuple[str, ...]]:
    """Positions of the words that go when the digits at `places` become zero, and the words said instead."""
    digits = list(str(number))
    for place in places:
        digits[place] = "0"
    before = words_of(number, language)
    rest = int("".join(digits))
    after = words_of(rest, language) if rest else ()
    # The lower digits stand at the end and the higher ones at the start: what is left in the middle has changed.
    end = _common(before[::-1], after[::-1])
    start = _common(before[: len(before) - end], after[: len(after) - end])
    return range(start, len(before) - end), after[start : len(after) - end]


def _shared(number: int, spoken: list[int], language: str, linked: set[int]) -> set[tuple[int, int]]:
    """Possible links of the words that no digit decides alone: of the smallest run of digits that removes them."""
    open_words = set(range(len(words_of(number, language)))) - linked
    found: set[tuple[int, int]] = set()
    for width in range(2, len(spoken) + 1):
        for start in range(len(spoken) - width + 1):
            run = spoken[start : start + width]
            gone = open_words & set(_changed(number, run, language)[0])
            found |= {(place, position) for place in run for position in gone}
            open_words -= gone
    return found


def _common(left: tuple[str, ...], right: tuple[str, ...]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _turned(pairs: list[list[int]]) -> list[list[int]]:
    return sorted([j, i] for i, j in pairs)


def _draws(rng: random.Random, size: int, languages: tuple[str, ...], maximum: int):
    for _ in range(30 * size + 1000):
        # Every length is as likely as every other: uniform numbers would nearly all be long.
        top = min(maximum, 10 ** rng.randint(1, len(str(maximum))) - 1)
        yield rng.randint(0, top), rng.choice(languages)


def _check(sizes: dict[str, int], languages: tuple[str, ...], direction: str, maximum: int) -> None:
    unknown = [language for language in languages if language not in LANGUAGES]
    if unknown or not languages:
        raise ValueError(f"numbers has links for the languages {', '.join(LANGUAGES)}; got {list(languages)}")
    if direction not in DIRECTIONS:
        raise ValueError(f"direction must be one of {', '.join(DIRECTIONS)}; got {direction!r}")
    if not 9 <= maximum <= HIGHEST:
        raise ValueError(f"maximum must be from 9 to {HIGHEST}, got {maximum}")
    wanted, there = sum(sizes.values()), (maximum + 1) * len(languages)
    if wanted > there // 2:
        raise ValueError(f"{wanted} rows are too many for numbers up to {maximum}: ask for at most {there // 2}")


def _check_enough(split: str, found: int, size: int) -> None:
    if found < size:
        raise ValueError(f"numbers found only {found} of {size} rows for {split}; raise maximum or ask for fewer rows")
