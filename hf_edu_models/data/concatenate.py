"""Several corpora as one: `wikitext+speeches+news` has the rows of all three, split by split."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from .columns import read_column
from .local_files import looks_local


def is_concatenation(name: str) -> bool:
    """Whether a name is several names with + between them; a file or folder may have a + in its own name."""
    return "+" in name and not os.path.exists(os.path.expanduser(name))


def concatenate_corpora(name: str, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows of all parts by split; a split that only some parts have is made of those.

    Two parts may both have a document called "1": documents get the number of their part as a prefix. The column
    `corpus` holds that number too; next sentence prediction needs it, or the style alone would tell the two classes.
    """
    import datasets

    _check_columns(name, parts)
    splits: dict[str, list] = {}
    for number, part in enumerate(parts):
        for split, dataset in part.items():
            splits.setdefault(split, []).append(_number_documents(dataset, number))
    return {
        # Arrow has two string types; all parts take those of the first.
        split: datasets.concatenate_datasets([dataset.cast(found[0].features) for dataset in found])
        for split, found in splits.items()
    }


def _number_documents(dataset: Any, number: int) -> Any:
    import datasets

    if "document" not in dataset.column_names:
        return dataset
    names = [f"{number}:{document}" for document in read_column(dataset, "document")]
    dataset = dataset.remove_columns("document").add_column("document", names, feature=datasets.Value("string"))
    return dataset.add_column("corpus", [number] * len(names), feature=datasets.Value("int32"))


def _check_columns(name: str, parts: Sequence[Mapping[str, Any]]) -> None:
    columns = [sorted(next(iter(part.values())).column_names) for part in parts]
    for title, found in zip(name.split("+"), columns, strict=True):
        if found != columns[0]:
            shown = os.path.basename(title) if looks_local(title) else title
            raise ValueError(
                f"{shown} has the columns {', '.join(found)}, but the first {', '.join(columns[0])}; concatenate "
                "corpora of one task, or choose it with --task"
            )
