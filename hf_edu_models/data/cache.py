"""What was made once is kept: every cache entry is named by its content and appears whole or not at all."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

ROWS_A_HASH = 10_000


def cache_folder(cache_dir: str | os.PathLike | None = None) -> Path:
    """Where entries live: `cache_dir`, else `hf_edu_models` under the cache of `datasets` (HF_DATASETS_CACHE)."""
    if cache_dir is not None:
        return Path(cache_dir).expanduser()
    import datasets

    return Path(datasets.config.HF_DATASETS_CACHE) / "hf_edu_models"


def fingerprint(*parts: Any) -> str:
    """A short hash of anything that JSON can hold, the same in every process."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def code_version(*objects: Any) -> str:
    """A hash of the source of modules or functions, so that changed code never meets an old entry."""
    return fingerprint([inspect.getsource(each) for each in objects])


def content_of(dataset: Dataset, columns: list[str]) -> str:
    """A hash of the values in `columns`, whatever file, slice or process they came from."""
    digest = hashlib.sha256(json.dumps(columns).encode())
    view = dataset.select_columns(columns).with_format("arrow")
    for table in view.iter(batch_size=ROWS_A_HASH):
        # Not the buffers of arrow: the same values lie in them in many ways.
        text = json.dumps([table[name].to_pylist() for name in columns], ensure_ascii=False, default=str)
        digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:24]


def tokenizer_content(tokenizer: PreTrainedTokenizerBase) -> str:
    """A hash of what a tokenizer does; the padding and truncation that its last call left behind do not count."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return fingerprint(tokenizer.get_vocab(), repr(tokenizer))
    state = json.loads(backend.to_str())
    state.pop("padding", None)
    state.pop("truncation", None)
    return fingerprint(state, tokenizer.special_tokens_map, tokenizer.padding_side, tokenizer.model_input_names)


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Fill `folder` by `build` unless it is there; two processes at once are harmless, a broken run leaves nothing."""
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        build(workshop)
        _move_into_place(workshop, folder)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return folder


def _move_into_place(workshop: Path, folder: Path) -> None:
    try:
        os.replace(workshop, folder)
    except OSError:
        # Another process finished the same entry first: its content is equal by construction.
        if not folder.exists():
            raise


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
    """`dataset.map` in batches, found again by content even for data in memory and by tokenizers that keep state."""
    entry = fingerprint(content_of(dataset, reads), key)
    folder = cache_folder(cache_dir) / "encoded"
    folder.mkdir(parents=True, exist_ok=True)
    return dataset.map(
        function,
        batched=True,
        num_proc=num_proc if num_proc and num_proc > 1 and len(dataset) >= num_proc else None,
        cache_file_name=str(folder / f"{entry}.arrow"),
        load_from_cache_file=True,
        new_fingerprint=entry,
        **map_options,
    )
