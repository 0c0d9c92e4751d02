"""`encode_corpus`: a corpus and a tokenizer to what a model of its task takes, in batches, in parallel, cached."""

from __future__ import annotations

import inspect
import os
from typing import Any

from . import question_answering, row_encoders
from .cache import cached_map, code_version, tokenizer_content
from .columns import TASKS, plan_columns
from .language_modeling import group_into_blocks

ENCODERS = {
    "translation": row_encoders.encode_translation,
    "alignment": row_encoders.encode_translation,
    "classification": row_encoders.encode_classification,
    "token_classification": row_encoders.encode_token_classification,
    "multiple_choice": row_encoders.encode_multiple_choice,
    "documents": row_encoders.encode_documents,
    "question_answering": question_answering.encode_question_answering,
}
READS = {
    "translation": ("source", "target"),
    "alignment": ("source", "target"),
    "classification": ("text", "text_pair", "label"),
}


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
    """Token ids and labels for every split.

    Args:
        task: One of the tasks of `columns.py`; default by the columns.
        max_length: Longest sequence; for language modeling the size of a block.
        options: What the encoder takes: `stride`, `target_tokenizer`, `label_all_pieces`, `max_sentences`, `join`.
    """
    if isinstance(corpus, dict):
        each = {"task": task, "max_length": max_length, "num_proc": num_proc, "cache_dir": cache_dir}
        encoded = {split: encode_corpus(data, tokenizer, **each, **options) for split, data in corpus.items()}
        return type(corpus)(encoded)
    task = task or plan_columns(corpus.column_names).task
    if task == "language_modeling":
        return group_into_blocks(corpus, tokenizer, max_length or 128, cache_dir=cache_dir, **options)
    arguments = _arguments(task, corpus, max_length, options)
    encoder = ENCODERS[task]
    reads = [name for name in READS.get(task, TASKS[task]) if name in corpus.column_names]
    if not hasattr(corpus, "_fingerprint"):  # a stream is encoded as it is read
        return corpus.map(
            encoder, batched=True, remove_columns=corpus.column_names, fn_kwargs={"tokenizer": tokenizer} | arguments
        )
    written = {
        name: tokenizer_content(value) if hasattr(value, "get_vocab") else value for name, value in arguments.items()
    }
    return cached_map(
        corpus,
        encoder,
        reads=reads,
        key=(task, tokenizer_content(tokenizer), written, code_version(inspect.getmodule(encoder))),
        cache_dir=cache_dir,
        num_proc=num_proc,
        fn_kwargs={"tokenizer": tokenizer} | arguments,
        remove_columns=corpus.column_names,
    )


def _arguments(task: str, corpus: Any, max_length: int | None, options: dict[str, Any]) -> dict[str, Any]:
    if task not in ENCODERS:
        raise ValueError(f"task must be one of {', '.join([*ENCODERS, 'language_modeling'])}; got {task!r}")
    allowed = [name for name in inspect.signature(ENCODERS[task]).parameters if name not in ("batch", "tokenizer")]
    for option in options:
        if option not in allowed:
            raise TypeError(f"encoding for {task} has no option {option!r}; it takes {', '.join(allowed)}")
    arguments = dict(options) if max_length is None else {"max_length": max_length} | options
    return _from_features(task, corpus.features) | arguments


def _from_features(task: str, features: Any) -> dict[str, Any]:
    """What the labels' types tell an encoder."""
    inner = getattr((features or {}).get("tags" if task == "token_classification" else "label"), "feature", None)
    names = getattr(inner, "names", None)
    if names is None or task not in ("classification", "token_classification"):
        return {}
    return {"num_labels": len(names)} if task == "classification" else {"tag_names": names}
