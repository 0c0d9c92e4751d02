"""Files and folders on this machine: parquet, jsonl, csv, tsv, text, CoNLL, TMX and pairs of line-aligned files."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

from .checks import broken_json, causes, check_file
from .columns import language_codes
from .file_readers import CONLL_EXTENSIONS, is_conll, is_squad, read_files
from .notes import note
from .tables import is_table, table_options

_BUILDERS = {
    ".parquet": ("parquet", {}),
    ".jsonl": ("json", {}),
    ".json": ("json", {}),
    ".csv": ("csv", {}),
    ".tsv": ("csv", {"sep": "\t"}),
    ".txt": ("text", {}),
    ".text": ("text", {}),
}
EXTENSIONS = (*_BUILDERS, *CONLL_EXTENSIONS, ".tmx")
TABLES, TEXTS = (".csv", ".tsv"), (".txt", ".text")
_UNITS = ("line", "paragraph", "document")
SPLIT_NAMES = dict.fromkeys(("dev", "valid", "val", "eval"), "validation") | {"training": "train", "testing": "test"}


def looks_local(name_or_path: str) -> bool:
    """Whether a name that is not on disk was meant as a path: a Hub id is `name` or `owner/name`, nothing more."""
    path = Path(name_or_path)
    return path.is_absolute() or name_or_path.startswith((".", "~")) or len(path.parts) > 2 or path.suffix in EXTENSIONS


def load_local(
    path: Path,
    *,
    source: str | None,
    target: str | None,
    config: str | None,
    unit: str,
    encoding: str,
    header: bool | None,
    is_text: bool,
    options: dict[str, Any],
) -> tuple[Any, bool]:
    """The splits at `path`, and whether they are pairs of files, which have `source` and `target` already.

    Args:
        header: Whether the first line of .csv and .tsv files has the names of the columns; None finds out.
        is_text: Read .txt files as running text even if they have columns.
        options: `streaming` and `cache_dir`, as `datasets.load_dataset` takes them.
    """
    if unit not in _UNITS:
        raise ValueError(f"unit must be one of {', '.join(_UNITS)}; got {unit!r}")
    pairs = find_pairs(path, source, target)
    if config is not None and (pairs or not path.is_dir()):
        raise ValueError(
            f"config={config!r} is for Hub datasets and for folders with a dataset card; {path} is neither"
        )
    files = [file for pair in pairs.values() for file in pair] or _files(path)
    texts = [file for file in files if file.suffix not in (".parquet", ".tmx")]
    for file in texts:
        check_file(file, encoding, only_start=options["streaming"])
    own = {} if pairs else _own_files(path, files, encoding, unit, is_text or unit != "line")
    if pairs or own:
        _check_unit(unit, path)
    if own:
        return _load_own(path, own, encoding, options), False
    options = options | ({} if encoding == "utf-8" else {"encoding": encoding})
    if pairs:
        return {split: _load_pair(*pair, options) for split, pair in pairs.items()}, True
    if path.is_dir():
        return _load_folder(path, config, unit, header, options), False
    return _load_file(path, unit, header, is_text, options), False


def _files(path: Path) -> list[Path]:
    """The files at `path` that can be read; an empty text in a folder is no mistake."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.suffix in EXTENSIONS)
    return [file for file in files if file.suffix not in TEXTS or file.stat().st_size]


def find_pairs(path: Path, source: str | None = None, target: str | None = None) -> dict[str, tuple[Path, Path]]:
    """Pairs of files such as train.src and train.tgt or corpus.de and corpus.en: in a folder, or by common prefix."""
    extensions = (source or "src", target or "tgt")
    if source is None and target is None:
        extensions = _moses_extensions(path) or extensions
    if path.is_dir():
        stems = sorted(file.name.rpartition(".")[0] for file in path.glob(f"*.{extensions[0]}"))
        prefixes = {"train" if len(stems) == 1 else _split_of(stem): path / stem for stem in stems if stem}
    else:
        prefixes = {"train": path.with_suffix("") if path.suffix[1:] in extensions else path}
    first, second = extensions
    pairs = {split: (Path(f"{prefix}.{first}"), Path(f"{prefix}.{second}")) for split, prefix in prefixes.items()}
    existing = {split: [file for file in files if file.is_file()] for split, files in pairs.items()}
    for split, files in existing.items():
        if len(files) == 1:
            lacking = next(file for file in pairs[split] if file not in files)
            raise FileNotFoundError(f"{files[0]} has no partner {lacking.name}; put both files in {files[0].parent}")
    return {split: files for split, files in pairs.items() if len(existing[split]) == 2}


def _moses_extensions(path: Path) -> tuple[str, str] | None:
    """Two languages as the extensions of a pair of files; a file that is named itself is the source."""
    if path.is_dir():
        files = [file for file in path.iterdir() if file.is_file()]
        if any(file.suffix in EXTENSIONS for file in files):
            return None
    elif path.parent.is_dir() and path.suffix not in EXTENSIONS:
        stem = path.with_suffix("") if path.is_file() else path
        files = [file for file in path.parent.iterdir() if file.is_file() and file.with_suffix("") == stem]
    else:
        return None
    codes = language_codes(sorted({file.suffix[1:] for file in files}))
    if len(codes) != 2:
        return None
    first, second = reversed(codes) if path.suffix == f".{codes[1]}" else codes
    note(f"{path.name}: source is {first}, target {second}; --source {second} --target {first} for the reverse")
    return first, second


def missing_path(path: Path) -> FileNotFoundError:
    """The error for a path that does not exist; it lists the nearest folder that does."""
    folder = path
    while not folder.exists():
        folder = folder.parent
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    near = difflib.get_close_matches(path.relative_to(folder).parts[0], names, cutoff=0.75)
    if near:
        return FileNotFoundError(
            f"{path} does not exist; did you mean {' or '.join(str(folder / name) for name in near)}?"
        )
    return FileNotFoundError(f"{path} does not exist; {folder} has {_listing(folder)}")


def _listing(folder: Path) -> str:
    names = sorted(file.name for file in folder.iterdir())[:20] if folder.is_dir() else []
    return ", ".join(names) or "nothing"


def _split_of(stem: str) -> str:
    word = next((part for part in stem.replace("-", ".").replace("_", ".").split(".") if part), stem)
    return SPLIT_NAMES.get(word, word)


def _own_files(path: Path, files: list[Path], encoding: str, unit: str, is_text: bool) -> dict[str, list[Path]]:
    """The files at `path` that `datasets` cannot read, by kind; none where only some of a folder are of one kind."""
    kinds = {_kind_of(file, encoding, is_text) for file in files}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None and unit == "line" and path.is_dir() and all(file.suffix in TEXTS for file in files):
        kind = "documents" if len(files) > len({_split_in(file, path) for file in files}) else None
    return {kind: files} if kind else {}


def _kind_of(file: Path, encoding: str, is_text: bool) -> str | None:
    """A key of `file_readers.READERS`; None for what `datasets` reads."""
    if file.suffix in CONLL_EXTENSIONS:
        return "conll"
    if file.suffix in TEXTS and not is_text and is_conll(file, encoding):
        return "conll"
    if file.suffix == ".json" and is_squad(file, encoding):
        return "squad"
    return "tmx" if file.suffix == ".tmx" else None


def _load_own(path: Path, own: dict[str, list[Path]], encoding: str, options: dict[str, Any]) -> dict[str, Any]:
    [(kind, files)] = own.items()
    splits: dict[str, list[Path]] = {}
    for file in files:
        splits.setdefault("train" if len(files) == 1 else _split_in(file, path), []).append(file)
    loaded = {
        split: read_files(kind, splits[split], encoding, options["cache_dir"])
        for split in sorted(splits, key=("train", "validation", "test").index)
    }
    if options["streaming"]:
        return {split: dataset.to_iterable_dataset() for split, dataset in loaded.items()}
    return loaded


def _split_in(file: Path, folder: Path) -> str:
    """The split that starts or ends a file name, as in `en_ewt-ud-dev` or `dev-v2.0`, or names its folder; or train."""
    words = re.split(r"[-_. ]", file.stem.lower())
    words = [words[0], words[-1], *(part.lower() for part in file.relative_to(folder).parts[:-1])]
    found = [SPLIT_NAMES.get(word, word) for word in words]
    return next((word for word in found if word in ("train", "validation", "test")), "train")


def _check_unit(unit: str, path: Path) -> None:
    if unit != "line":
        raise ValueError(f"unit={unit!r} is for text files; a row of {path.name} is a line already")


def _load_folder(folder: Path, config: str | None, unit: str, header: bool | None, options: dict[str, Any]):
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.suffix in _BUILDERS)
    extensions = {file.suffix for file in files}
    if not extensions:
        raise FileNotFoundError(
            f"{folder} has no {', '.join(EXTENSIONS)} file and no .src/.tgt pair; it has {_listing(folder)}"
        )
    if extensions <= set(TEXTS):
        options = options | {"sample_by": unit}
    else:
        if len(extensions) == 1 and files[0].suffix in TABLES:
            options = options | table_options(files[0], header, _encoding(options))
        _check_unit(unit, folder)
    return _read(folder, str(folder), name=config, **options)


def _encoding(options: dict[str, Any]) -> str:
    return options.get("encoding", "utf-8-sig")  # Excel starts its files with a byte order mark


def _load_file(file: Path, unit: str, header: bool | None, is_text: bool, options: dict[str, Any]):
    if file.suffix not in _BUILDERS:
        raise ValueError(
            f"{file.name} has the file extension {file.suffix!r}; use {', '.join(EXTENSIONS)}, or a .src/.tgt pair"
        )
    builder, settings = _BUILDERS[file.suffix]
    if builder == "text" and not is_text and unit == "line" and is_table(file, _encoding(options)):
        builder, settings = _BUILDERS[".tsv"]
    if builder == "csv":
        settings = settings | table_options(file, header, _encoding(options))
    if builder == "text":
        settings = {"sample_by": unit}
    else:
        _check_unit(unit, file)
    return _read(file, builder, data_files={"train": str(file)}, **settings, **options)


def _read(path: Path, builder: str, **options: Any):
    """`datasets.load_dataset`, with one sentence instead of its long errors about files that it cannot read."""
    import datasets
    from pyarrow import ArrowInvalid

    try:
        return datasets.load_dataset(builder, **options)
    except (datasets.exceptions.DatasetGenerationError, ArrowInvalid) as problem:
        chain = causes(problem)
        cause = next((each for each in chain if isinstance(each, datasets.table.CastError)), chain[-1])
        broken = [broken_json(file, _encoding(options)) for file in _files(path) if file.suffix in (".json", ".jsonl")]
        if isinstance(cause, datasets.table.CastError):
            found, first = (", ".join(names) for names in (cause.table_column_names, cause.requested_column_names))
            sentence = f"has files with the columns {found} and with {first}; give all of them the same"
        else:
            first_line = next(filter(None, broken), str(cause).strip().partition("\n")[0])
            sentence = f"cannot be read: {first_line}; is a file truncated?"
        raise ValueError(f"{path} {sentence}") from problem
    except ValueError as problem:
        if "no data" in str(problem):
            raise ValueError(f"{path} has no rows; is a header all that it has?") from problem
        for file in (file for file in _files(path) if file.suffix in (".json", ".jsonl")):
            if place := broken_json(file, _encoding(options)):
                raise ValueError(f"{path} cannot be read: {place}; fix the line, or remove it") from problem
        raise


def _load_pair(source: Path, target: Path, options: dict[str, Any]):
    import datasets

    sides = []
    for name, file in (("source", source), ("target", target)):
        side = datasets.load_dataset("text", data_files={"train": str(file)}, split="train", **options)
        sides.append(side.rename_column("text", name))
    if not options["streaming"] and len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"{source.name} has {len(sides[0])} lines and {target.name} has {len(sides[1])}; the numbers must be equal"
        )
    return datasets.concatenate_datasets(sides, axis=1)
