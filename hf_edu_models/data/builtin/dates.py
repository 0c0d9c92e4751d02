"""Built-in corpus `dates`: translate a date as people write it, in many languages, to its ISO form.

The formats and names are the Unicode locale data (CLDR) that babel ships. A string such as 03/04/2021 means different
days in different countries; every string is therefore parsed with *every* format of *every* language, and used only
when all of them agree.
"""

from __future__ import annotations

import datetime
import random
import re
from dataclasses import dataclass
from functools import lru_cache

LOCALES = tuple("en_US en_GB de fr es pt it ru el ja zh ko ar he hi tr fi vi".split())  # noqa: SIM905
_STYLES = ("full", "long", "medium", "short")
_SKELETONS = ("yMd", "yMEd", "yMMMd", "yMMMEd", "yMMMMd", "yMMMMEd", "yMMMEEEEd")
FIRST_YEAR, LAST_YEAR = 1900, 2099


@dataclass(frozen=True)
class DateFormat:
    """A date format of one language, and the regular expression that parses it."""

    language: str
    pattern: str
    expression: re.Pattern
    months: dict[str, int]
    weekdays: dict[str, int]

    def format(self, day: datetime.date) -> str:
        from babel.dates import format_date

        return format_date(day, self.pattern, locale=self.language)

    def parse(self, text: str) -> datetime.date | None:
        """The day that `text` means in this format, or None; 04 and 4 are the same, whichever the format writes."""
        match = self.expression.fullmatch(text)
        if match is None:
            return None
        fields = match.groupdict()
        month = fields["month"]
        try:
            day = datetime.date(int(fields["year"]), self.months.get(month) or int(month), int(fields["day"]))
        except ValueError:
            return None
        weekday = fields.get("weekday")
        return day if weekday is None or self.weekdays[weekday] == day.weekday() else None


def generate(sizes: dict[str, int], seed: int, languages: tuple[str, ...] = LOCALES) -> dict[str, dict[str, list]]:
    """Rows by split; no day is in two splits, no source string twice."""
    _check_languages(languages)
    rng = random.Random(seed)
    formats = formats_of(tuple(languages))
    days = _all_days()
    rng.shuffle(days)
    days_of = _days_by_split(days, sizes)
    return {split: _rows(days_of[split], sizes[split], formats, rng, split) for split in sizes}


def _check_languages(languages: tuple[str, ...]) -> None:
    from babel import Locale, UnknownLocaleError

    if not languages:
        raise ValueError("languages is empty; give at least one locale that babel knows, such as 'en_US' or 'de'")
    for language in languages:
        try:
            Locale.parse(language)
        except (UnknownLocaleError, ValueError):
            raise ValueError(
                f"dates has no language {language!r}; use a locale of babel, such as {', '.join(LOCALES)}"
            ) from None


@lru_cache(maxsize=8)
def formats_of(languages: tuple[str, ...]) -> tuple[DateFormat, ...]:
    """All date formats of the languages, without duplicates."""
    formats = {}
    for language in languages:
        for pattern in _patterns(language):
            compiled = _compile(language, pattern)
            if compiled is not None:
                formats[language, pattern] = compiled
    return tuple(formats.values())


def readings(text: str, formats: tuple[DateFormat, ...]) -> set[datetime.date]:
    """Every day that `text` may mean under any of `formats`."""
    return {day for each in formats if (day := each.parse(text)) is not None}


def _patterns(language: str) -> list[str]:
    from babel import Locale

    locale = Locale.parse(language)
    patterns = [locale.date_formats[style].pattern for style in _STYLES]
    patterns += [locale.datetime_skeletons[name].pattern for name in _SKELETONS if name in locale.datetime_skeletons]
    # Two-digit years are ambiguous: all years are written with four digits.
    return list(dict.fromkeys(re.sub(r"y+", "y", pattern) for pattern in patterns))


def _compile(language: str, pattern: str) -> DateFormat | None:
    from babel.dates import get_day_names, get_era_names, get_month_names, tokenize_pattern

    expression, months, weekdays = [], {}, {}
    for kind, token in tokenize_pattern(pattern):
        if kind == "chars":
            expression.append(re.escape(token))
            continue
        field, width = token
        if field in "ML" and width > 2:
            names = get_month_names({3: "abbreviated", 4: "wide"}[width], _context(field), language)
            months.update({name: number for number, name in names.items()})
            expression.append(f"(?P<month>{_any_of(names.values())})")
        elif field in "Ec":
            names = get_day_names("wide" if width == 4 else "abbreviated", _context(field), language)
            weekdays.update({name: number for number, name in names.items()})
            expression.append(f"(?P<weekday>{_any_of(names.values())})")
        elif field == "G":
            expression.append(f"(?:{_any_of(get_era_names('abbreviated', language).values())})")
        elif field in "dMLy":
            name = {"d": "day", "y": "year"}.get(field, "month")
            expression.append(f"(?P<{name}>{r'[0-9]{4}' if field == 'y' else '[0-9]{1,2}'})")
        else:
            return None  # a field that a date does not have, such as the hour
    return DateFormat(language, pattern, re.compile("".join(expression)), months, weekdays)


def _context(field: str) -> str:
    return "stand-alone" if field in "Lc" else "format"


def _any_of(names) -> str:
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True))


def _all_days() -> list[datetime.date]:
    first = datetime.date(FIRST_YEAR, 1, 1).toordinal()
    last = datetime.date(LAST_YEAR, 12, 31).toordinal()
    return [datetime.date.fromordinal(number) for number in range(first, last + 1)]


def _days_by_split(days: list[datetime.date], sizes: dict[str, int]) -> dict[str, list[datetime.date]]:
    total, start, days_of = sum(sizes.values()), 0, {}
    for split, size in sizes.items():
        end = start + max(1, len(days) * size // total)
        days_of[split] = days[start:end]
        start = end
    return days_of


def _rows(days: list, size: int, formats: tuple[DateFormat, ...], rng: random.Random, split: str) -> dict[str, list]:
    # At most half of all strings: sampling the last ones without repetition would take too long.
    available = len(days) * len(formats) // 2
    if size > available:
        raise ValueError(f"dates has only {available} strings for {split}, not {size}; ask for fewer or add languages")
    seen: dict[str, tuple[str, str]] = {}
    for _ in range(20 * size + 1000):
        day, chosen = rng.choice(days), rng.choice(formats)
        text = chosen.format(day)
        if text not in seen and len(readings(text, formats)) == 1:
            seen[text] = (day.isoformat(), chosen.language)
        if len(seen) == size:
            break
    if len(seen) < size:
        raise ValueError(
            f"dates has only {len(seen)} different strings for {split}, not {size}; ask for fewer or add languages"
        )
    targets, languages = zip(*seen.values(), strict=True)
    return {"source": list(seen), "target": list(targets), "language": list(languages)}
