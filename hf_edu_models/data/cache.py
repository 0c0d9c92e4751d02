"""The cache on disk: an entry is named by a hash of its content, is complete or absent, and is rebuilt if damaged."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .checks import causes
from .notes import note

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

_ROWS_PER_UPDATE = 10_000
_Function = TypeVar("_Function", bound=Callable)


def cache_folder(cache_dir: str | os.PathLike | None = None) -> Path:
    """`cache_dir`, or `hf_edu_models` under the cache of `datasets` (HF_DATASETS_CACHE)."""
    if cache_dir is not None:
        return Path(cache_dir).expanduser()
    import datasets

    return Path(datasets.config.HF_DATASETS_CACHE) / "hf_edu_models"


def fingerprint(*parts: Any) -> str:
    """A short hash of anything that JSON can hold, the same in every process."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def code_version(*objects: Any) -> str:
    """A hash of the source of functions, modules or modules by name: changed code never reads an old entry."""
    return fingerprint([inspect.getsource(sys.modules.get(each, each)) for each in objects])


def content_of(dataset: Dataset, columns: list[str]) -> str:
    """A hash of the values in `columns`, independent of the file, slice or process that they come from."""
    digest = hashlib.sha256(json.dumps(columns).encode())
    view = dataset.select_columns(columns).with_format("arrow")
    for table in view.iter(batch_size=_ROWS_PER_UPDATE):
        # Not the Arrow buffers: equal values may be laid out differently in them.
        text = json.dumps([table[name].to_pylist() for name in columns], ensure_ascii=False, default=str)
        digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:24]


def tokenizer_content(tokenizer: PreTrainedTokenizerBase) -> str:
    """A hash of what a tokenizer does, without the padding and truncation state of its last call."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return fingerprint(tokenizer.get_vocab(), repr(tokenizer))
    state = json.loads(backend.to_str())
    state.pop("padding", None)
    state.pop("truncation", None)
    return fingerprint(state, tokenizer.special_tokens_map, tokenizer.padding_side, tokenizer.model_input_names)


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Fill `folder` by `build` unless it exists; safe for several processes, and a failed build leaves nothing."""
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        build(staging)
        os.replace(staging, folder)
    except OSError:
        # Another process may have finished the same entry first: its content is equal by construction.
        if not folder.exists():
            raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return folder


def rebuild_damaged(function: _Function) -> _Function:
    """Decorate a function that reads the cache: an entry that cannot be read is named, deleted and built again."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        deleted: set[Path] = set()
        while True:
            try:
                return function(*arguments, **options)
            except (ValueError, OSError) as error:  # pyarrow's own errors are of these two kinds
                file = _unreadable_file(error)
                entry = None if file is None else _entry_of(file, options.get("cache_dir"))
                if entry is None or entry in deleted:
                    raise
                note(f"{file} in the cache is damaged or truncated; it is deleted and built again")
                deleted.add(entry)
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    return run  # type: ignore[return-value]


def _unreadable_file(error: BaseException) -> Path | None:
    """The Arrow file that could not be read. The errors do not name it, but the functions of `datasets` know it."""
    for each in causes(error):
        trace = each.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_name.endswith("arrow_table_from_file"):
                return Path(trace.tb_frame.f_locals["filename"])
            trace = trace.tb_next
    return None


def _entry_of(file: Path, cache_dir: str | os.PathLike | None) -> Path | None:
    """What to delete so that a file is built again; None for a file outside the cache, which is somebody's data."""
    import datasets

    own = cache_folder(cache_dir)
    if own not in file.parents and Path(datasets.config.HF_DATASETS_CACHE) not in file.parents:
        return None
    kind, *inside = file.relative_to(own).parts if own in file.parents else ("files",)
    if kind == "encoded" or file.name.startswith("cache-"):  # the result of `Dataset.map`
        return file
    return file.parent if kind == "files" else own / kind / inside[0]


def worker_count(num_proc: int | None, rows: int) -> int | None:
    """`num_proc` for `Dataset.map`; None, which starts no process, where there is one worker or fewer rows."""
    return num_proc if num_proc and 1 < num_proc <= rows else None


@rebuild_damaged
def cached_map(
    dataset: Dataset,
    function: Callable,
    *,
    reads: list[str],
    key: tuple,
    cache_dir: str | os.PathLike | None = None,
    num_proc: int | None = None,
    **map_options: Any,
) -> Dataset:
    """`Dataset.map` in batches, cached by content, also for datasets in memory and for stateful tokenizers."""
    entry = fingerprint(content_of(dataset, reads), key)
    folder = cache_folder(cache_dir) / "encoded"
    folder.mkdir(parents=True, exist_ok=True)
    return dataset.map(
        function,
        batched=True,
        num_proc=worker_count(num_proc, len(dataset)),
        cache_file_name=str(folder / f"{entry}.arrow"),
        load_from_cache_file=True,
        new_fingerprint=entry,
        **map_options,
    )
