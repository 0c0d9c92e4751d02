"""Built-in corpora: generated on this machine, no download.

To add one, write a module here with `generate(sizes, seed, **options)`, which returns the columns of its task by split
(`{"train": {"source": [...], "target": [...]}}`), and add a row to `BUILTINS`.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cache import build_once, cache_folder, code_version, fingerprint
from ..labels import name_labels
from ..map_columns import fixed_features
from . import curves, dates, long_time_lags, numbers, seasons, sequences, stories, two_sequences

if TYPE_CHECKING:
    from datasets import DatasetDict


@dataclass(frozen=True)
class Builtin:
    """A generated corpus.

    Args:
        generate: Returns the columns by split; its parameters after `sizes` and `seed` are the corpus's options.
        sizes: Default number of rows of train, validation and test.
        description: What the rows are, as the model card says it.
        library: The package whose version changes the rows.
    """

    generate: Callable[..., dict[str, dict[str, list]]]
    sizes: tuple[int, int, int]
    description: str
    library: str | None = None


_LAGS = (10_000, 500, 500)
BUILTINS = {
    "dates": Builtin(dates.generate, (20_000, 1_000, 1_000), "dates as people write them, and in ISO form", "babel"),
    "numbers": Builtin(numbers.generate, (10_000, 500, 500), "numbers in digits and in words", "num2words"),
    "reverse": Builtin(sequences.generate_reverse, (10_000, 500, 500), "symbols, and the same symbols reversed"),
    "copy": Builtin(sequences.generate_copy, (10_000, 500, 500), "symbols, and the same symbols again"),
    "curve": Builtin(curves.generate, (200, 50, 200), "points of a function with noise"),
    "seasons": Builtin(seasons.generate, (3_000, 500, 500), "a time series that depends on values of known lags"),
    "stories": Builtin(stories.generate, (2_000, 100, 100), "short stories from a small grammar"),
    "reber": Builtin(long_time_lags.generate_reber, (256, 0, 256), "strings of the embedded Reber grammar"),
    "first_again": Builtin(long_time_lags.generate_first_again, _LAGS, "symbols, of which the last is the first again"),
    "long_lags": Builtin(long_time_lags.generate_long_lags, _LAGS, "symbols, of which the second one is asked for"),
    "two_sequences": Builtin(
        two_sequences.generate_two_sequences, _LAGS, "numbers, of which the first ones tell the class"
    ),
    "adding": Builtin(long_time_lags.generate_adding, _LAGS, "numbers, two of them marked, and their scaled sum"),
    "multiplication": Builtin(
        long_time_lags.generate_multiplication, _LAGS, "numbers, two of them marked, and their product"
    ),
    "temporal_order": Builtin(
        long_time_lags.generate_temporal_order, _LAGS, "symbols, and the order of the X and Y among them"
    ),
    "delayed_copy": Builtin(
        long_time_lags.generate_delayed_copy, _LAGS, "symbols, blanks, and the same symbols after a delimiter"
    ),
}


def builtin_options(name: str) -> dict[str, Any]:
    """The options of a built-in corpus with their defaults: the parameters of `generate` but `sizes` and `seed`."""
    parameters = inspect.signature(BUILTINS[name].generate).parameters
    return {option: each.default for option, each in parameters.items() if option not in ("sizes", "seed")}


def load_builtin(
    name: str, sizes: dict[str, int | None], seed: int, cache_dir: str | os.PathLike | None, options: dict[str, Any]
) -> DatasetDict:
    """Generate a built-in corpus, or load it from the cache; a size of None is the default, 0 leaves the split out."""
    import datasets

    builtin, settings = BUILTINS[name], builtin_options(name)
    for option, value in options.items():
        if option not in settings:
            raise TypeError(f"{name} has no option {option!r}; it takes {', '.join(settings)}")
        settings[option] = tuple(value) if isinstance(value, list) else value
    defaults = zip(sizes.items(), builtin.sizes, strict=True)
    counts = {split: default if size is None else size for (split, size), default in defaults}
    counts = {split: count for split, count in counts.items() if count}
    if not counts:
        raise ValueError(f"every split of {name} has the size 0; ask for one row at least")
    version = builtin.library and importlib.metadata.version(builtin.library)
    key = fingerprint(name, counts, seed, settings, version, code_version(inspect.getmodule(builtin.generate)))

    def build(folder: Path) -> None:
        _as_datasets(builtin.generate(counts, seed, **settings)).save_to_disk(str(folder))

    return datasets.load_from_disk(str(build_once(cache_folder(cache_dir) / name / key, build)))


def _as_datasets(rows: dict[str, dict[str, list]]) -> DatasetDict:
    import datasets

    corpus = {}
    for split, columns in rows.items():
        dataset = datasets.Dataset.from_dict(columns)
        fixed = {name: feature for name, feature in fixed_features().items() if name in columns}
        corpus[split] = dataset.cast(datasets.Features(dataset.features | fixed))
    return datasets.DatasetDict(name_labels(corpus, None, streaming=False))
