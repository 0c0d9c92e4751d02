"""Files and folders on this machine: parquet, jsonl, csv, tsv, text, and pairs of line-by-line files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BUILDERS = {
    ".parquet": ("parquet", {}),
    ".jsonl": ("json", {}),
    ".json": ("json", {}),
    ".csv": ("csv", {}),
    ".tsv": ("csv", {"sep": "\t"}),
    ".txt": ("text", {}),
    ".text": ("text", {}),
}
UNITS = ("line", "paragraph", "document")
SPLIT_NAMES = {"dev": "validation", "valid": "validation", "val": "validation", "eval": "validation"}


def looks_local(name_or_path: str) -> bool:
    """Whether a name that is not on disk was meant as a path: a Hub id is `name` or `owner/name`, nothing more."""
    path = Path(name_or_path)
    return path.is_absolute() or name_or_path.startswith((".", "~")) or len(path.parts) > 2 or path.suffix in BUILDERS


def load_local(
    path: Path, *, source: str | None, target: str | None, config: str | None, unit: str, options: dict[str, Any]
) -> tuple[Any, bool]:
    """The splits found at `path`, and whether they are line pairs that already have `source` and `target`.

    Args:
        options: `streaming` and `cache_dir`, as `datasets.load_dataset` takes them.
    """
    if unit not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)}; got {unit!r}")
    endings = (source or "src", target or "tgt")
    pairs = find_pairs(path, endings)
    if config is not None and (pairs or not path.is_dir()):
        raise ValueError(
            f"config={config!r} is for Hub data sets and for folders with a data set card; {path} is neither"
        )
    if pairs:
        _check_unit(unit, "line", path)
        return {split: _load_pair(*files, options) for split, files in pairs.items()}, True
    if path.is_dir():
        return _load_folder(path, config, unit, options), False
    return _load_file(path, unit, options), False


def find_pairs(path: Path, endings: tuple[str, str]) -> dict[str, tuple[Path, Path]]:
    """Pairs such as train.src and train.tgt: in a folder by split, or by their common prefix."""
    if path.is_dir():
        stems = sorted(each.name.rpartition(".")[0] for each in path.glob(f"*.{endings[0]}"))
        prefixes = {_split_of(stem): path / stem for stem in stems if stem}
    else:
        prefixes = {"train": path.with_suffix("") if path.suffix[1:] in endings else path}
    pairs = {split: tuple(Path(f"{prefix}.{ending}") for ending in endings) for split, prefix in prefixes.items()}
    there = {split: [file for file in files if file.is_file()] for split, files in pairs.items()}
    for split, files in there.items():
        if len(files) == 1:
            lacking = next(file for file in pairs[split] if file not in files)
            raise FileNotFoundError(f"{files[0]} has no partner {lacking.name}; put both files in {files[0].parent}")
    return {split: files for split, files in pairs.items() if len(there[split]) == 2}


def missing_path(path: Path) -> FileNotFoundError:
    """What there is instead, in the nearest folder that exists."""
    folder = path
    while not folder.exists():
        folder = folder.parent
    names = sorted(each.name for each in folder.iterdir())[:20] if folder.is_dir() else []
    return FileNotFoundError(f"{path} does not exist; {folder} has {', '.join(names) or 'nothing'}")


def _split_of(stem: str) -> str:
    word = next((part for part in stem.replace("-", ".").replace("_", ".").split(".") if part), stem)
    return SPLIT_NAMES.get(word, word)


def _check_unit(unit: str, allowed: str, path: Path) -> None:
    if unit != allowed:
        raise ValueError(f"unit={unit!r} is for text files; a row of {path.name} is a {allowed} already")


def _load_folder(folder: Path, config: str | None, unit: str, options: dict[str, Any]):
    kinds = {file.suffix for file in folder.rglob("*") if file.is_file()} & BUILDERS.keys()
    if not kinds:
        names = ", ".join(sorted(file.name for file in folder.iterdir())[:20]) or "nothing"
        raise FileNotFoundError(f"{folder} has no {', '.join(BUILDERS)} file and no .src/.tgt pair; it has {names}")
    if kinds <= {".txt", ".text"}:
        return _read(folder, str(folder), name=config, sample_by=unit, **options)
    _check_unit(unit, "line", folder)
    return _read(folder, str(folder), name=config, **options)


def _load_file(file: Path, unit: str, options: dict[str, Any]):
    if file.suffix not in BUILDERS:
        raise ValueError(
            f"{file.name} has the ending {file.suffix!r}; allowed are {', '.join(BUILDERS)}, or a .src/.tgt pair"
        )
    builder, settings = BUILDERS[file.suffix]
    if builder == "text":
        settings = {"sample_by": unit}
    else:
        _check_unit(unit, "line", file)
    return _read(file, builder, data_files={"train": str(file)}, **settings, **options)


def _read(path: Path, builder: str, **options: Any):
    """`datasets.load_dataset`, with one sentence where it has a page about files that it cannot read."""
    import datasets
    from pyarrow import ArrowInvalid

    try:
        return datasets.load_dataset(builder, **options)
    except (datasets.exceptions.DatasetGenerationError, ArrowInvalid) as problem:
        cause = problem.__cause__ or problem
        if isinstance(cause, datasets.table.CastError):
            found, first = (", ".join(names) for names in (cause.table_column_names, cause.requested_column_names))
            sentence = f"has files with the columns {found} and with {first}; give all of them the same"
        else:
            first_line = str(cause).strip().partition("\n")[0]
            sentence = f"cannot be read: {first_line}; is a file of it cut off?"
        raise ValueError(f"{path} {sentence}") from problem


def _load_pair(source: Path, target: Path, options: dict[str, Any]):
    import datasets

    sides = []
    for name, file in (("source", source), ("target", target)):
        side = datasets.load_dataset("text", data_files={"train": str(file)}, split="train", **options)
        sides.append(side.rename_column("text", name))
    if not options["streaming"] and len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"{source.name} has {len(sides[0])} lines and {target.name} has {len(sides[1])}; they must be as many"
        )
    return datasets.concatenate_datasets(sides, axis=1)
