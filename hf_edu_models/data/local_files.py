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
    path: Path, *, source: str | None, target: str | None, config: str | None, unit: str, streaming: bool
) -> tuple[Any, bool]:
    """The splits found at `path`, and whether they are line pairs that already have `source` and `target`."""
    if unit not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)}; got {unit!r}")
    endings = (source or "src", target or "tgt")
    pairs = find_pairs(path, endings)
    if pairs:
        return {split: _load_pair(*files, streaming) for split, files in pairs.items()}, True
    if path.is_dir():
        return _load_folder(path, config, unit, streaming), False
    return _load_file(path, unit, streaming), False


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


def _load_folder(folder: Path, config: str | None, unit: str, streaming: bool):
    import datasets

    kinds = {file.suffix for file in folder.rglob("*") if file.is_file()} & BUILDERS.keys()
    if not kinds:
        names = ", ".join(sorted(file.name for file in folder.iterdir())[:20]) or "nothing"
        raise FileNotFoundError(f"{folder} has no {', '.join(BUILDERS)} file and no .src/.tgt pair; it has {names}")
    options = {"sample_by": unit} if kinds <= {".txt", ".text"} else {}
    return datasets.load_dataset(str(folder), name=config, streaming=streaming, **options)


def _load_file(file: Path, unit: str, streaming: bool):
    import datasets

    if file.suffix not in BUILDERS:
        raise ValueError(
            f"{file.name} has the ending {file.suffix!r}; allowed are {', '.join(BUILDERS)}, or a .src/.tgt pair"
        )
    builder, options = BUILDERS[file.suffix]
    if builder == "text":
        options = {"sample_by": unit}
    return datasets.load_dataset(builder, data_files={"train": str(file)}, streaming=streaming, **options)


def _load_pair(source: Path, target: Path, streaming: bool):
    import datasets

    sides = [
        datasets.load_dataset("text", data_files={"train": str(file)}, split="train", streaming=streaming).rename_column(
            "text", name
        )
        for name, file in (("source", source), ("target", target))
    ]
    if not streaming and len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"{source.name} has {len(sides[0])} lines and {target.name} has {len(sides[1])}; a pair needs as many of each"
        )
    return datasets.concatenate_datasets(sides, axis=1)
