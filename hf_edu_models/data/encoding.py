"""`encode_corpus`: a corpus to token ids and labels, by the encoder of its task, in parallel, cached."""

from __future__ import annotations

import inspect
import os
from typing import Any

from ..tasks import TASKS
from .cache import cached_map, code_version, tokenizer_content
from .columns import by_split, is_stream, label_names, plan_columns
from .language_modeling import group_into_blocks
from .streaming import StreamedExamples


@by_split
def encode_corpus(
    corpus: Any,
    tokenizer: Any,
    *,
    task: str | None = None,
    max_length: int | None = None,
    num_proc: int | None = None,
    cache_dir: str | os.PathLike | None = None,
    **options: Any,
) -> Any:
    """Token ids and labels for every split; of a stream `StreamedExamples`, which are encoded while they are read.

    Args:
        task: A row of `tasks.TASKS`; by default the task that fits the columns.
        max_length: Maximum sequence length; for language modeling the block size.
        options: Options of the encoder: `stride`, `target_tokenizer`, `label_all_subwords`, `max_sentences`, `join`.
    """
    task = task or plan_columns(corpus.column_names).task
    if task == "language_modeling":
        return group_into_blocks(corpus, tokenizer, max_length or 128, cache_dir=cache_dir, **options)
    arguments = {"tokenizer": tokenizer} | _arguments(task, corpus, max_length, options)
    encoder = TASKS[task].code("encoder")
    map_options = {"fn_kwargs": arguments, "remove_columns": corpus.column_names}
    if is_stream(corpus):
        return StreamedExamples(corpus, lambda chunk, seed: encoder(chunk[:], **arguments))
    content = {
        name: tokenizer_content(each) if hasattr(each, "get_vocab") else each for name, each in arguments.items()
    }
    return cached_map(
        corpus,
        encoder,
        reads=[name for name in TASKS[task].inputs if name in corpus.column_names],
        key=(task, content, code_version(inspect.getmodule(encoder))),
        cache_dir=cache_dir,
        num_proc=num_proc,
        **map_options,
    )


def _arguments(task: str, corpus: Any, max_length: int | None, options: dict[str, Any]) -> dict[str, Any]:
    known = [name for name, row in TASKS.items() if row.encoder]
    if task not in known:
        raise ValueError(f"task must be one of {', '.join([*known, 'language_modeling'])}; got {task!r}")
    parameters = inspect.signature(TASKS[task].code("encoder")).parameters
    allowed = [name for name in parameters if name not in ("batch", "tokenizer")]
    for option in options:
        if option not in allowed:
            raise TypeError(f"encoding for {task} has no option {option!r}; it takes {', '.join(allowed)}")
    arguments = dict(options) if max_length is None else {"max_length": max_length} | options
    return _from_features(task, corpus) | arguments


def _from_features(task: str, corpus: Any) -> dict[str, Any]:
    """What an encoder needs to know of lists of labels: the number of classes, or the names of the tags."""
    column = TASKS[task].label_column
    if column is None or task == "documents" or not hasattr((corpus.features or {}).get(column), "feature"):
        return {}
    names = label_names(corpus, column)
    if names is None:
        return {}
    return {"num_labels": len(names)} if column == "label" else {"tag_names": names}
