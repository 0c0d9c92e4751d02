"""Corpora, tokenizers, collators: what every recipe reads its data with. Names are imported when first used."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "LengthBucketSampler": "bucketing",
    "cache_folder": "cache",
    "DataCollatorForDocuments": "collators",
    "DataCollatorForQuestionAnswering": "collators",
    "collator_for": "collators",
    "TASKS": "columns",
    "BUILTINS": "corpora",
    "builtin_options": "corpora",
    "load_corpus": "corpora",
    "encode_corpus": "encoding",
    "contiguous_streams": "language_modeling",
    "group_into_blocks": "language_modeling",
    "token_stream": "language_modeling",
    "DataCollatorForPreTraining": "masking",
    "build_nsp_pairs": "pretraining",
    "cut_sentences": "pretraining",
    "encode_question_answering": "question_answering",
    "find_answers": "question_answering",
    "show_corpus": "show",
    "KINDS": "tokenization",
    "kind_of": "normalising",
    "normalise": "normalising",
    "train_tokenizer": "tokenization",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"hf_edu_models.data has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
