"""Several corpora as one: `wikitext+speeches+news` is their rows one after another, split by split."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from .columns import read_column
from .local_files import looks_local


def is_joined(name: str) -> bool:
    """Whether a name is several names with + between them; a file or folder may have a + in its own name."""
    return "+" in name and not os.path.exists(os.path.expanduser(name))


def join_corpora(name: str, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows of all parts by split; a split that only some parts have is made of those.

    Documents stay apart, for two parts may both have a document called "1", and know the number of their part: the
    column `corpus`, without which next sentences are told by style alone.
    """
    import datasets

    _check_columns(name, parts)
    joined: dict[str, list] = {}
    for place, part in enumerate(parts):
        for split, dataset in part.items():
            joined.setdefault(split, []).append(_with_own_documents(dataset, place))
    return {
        # Parquet files know two kinds of string; one of them is enough.
        split: datasets.concatenate_datasets([dataset.cast(found[0].features) for dataset in found])
        for split, found in joined.items()
    }


def _with_own_documents(dataset: Any, place: int) -> Any:
    import datasets

    if "document" not in dataset.column_names:
        return dataset
    names = [f"{place}:{document}" for document in read_column(dataset, "document")]
    dataset = dataset.remove_columns("document").add_column("document", names, feature=datasets.Value("string"))
    return dataset.add_column("corpus", [place] * len(names), feature=datasets.Value("int32"))


def _check_columns(name: str, parts: Sequence[Mapping[str, Any]]) -> None:
    columns = [sorted(next(iter(part.values())).column_names) for part in parts]
    for title, found in zip(name.split("+"), columns, strict=True):
        if found != columns[0]:
            shown = os.path.basename(title) if looks_local(title) else title
            raise ValueError(
                f"{shown} has the columns {', '.join(found)}, but the first {', '.join(columns[0])}; join "
                "corpora of one task, or say which with --task"
            )
