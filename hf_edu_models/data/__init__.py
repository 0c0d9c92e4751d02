"""Corpora, tokenizers, collators: what every recipe reads its data with. Names are imported when first used."""

from __future__ import annotations

from ..lazy import lazy_names

_HOMES = {
    "LengthBucketSampler": "bucketing",
    "cache_folder": "cache",
    "DataCollatorForDocuments": "collators",
    "DataCollatorForPairs": "word_vectors",
    "DataCollatorForQuestionAnswering": "collators",
    "DataCollatorForWordVectors": "word_vectors",
    "collator_for": "collators",
    "TASKS": "..tasks",
    "BUILTINS": "builtin",
    "builtin_options": "builtin",
    "load_corpus": "corpora",
    "load_splits": "corpora",
    "load_treebank": "corpora",
    "encode_corpus": "encoding",
    "contiguous_streams": "language_modeling",
    "group_into_blocks": "language_modeling",
    "token_stream": "language_modeling",
    "DataCollatorForPreTraining": "masking",
    "TaskBatchSampler": "multitask",
    "TaskCollator": "multitask",
    "TaskRows": "multitask",
    "build_nsp_pairs": "pretraining",
    "cut_sentences": "sentences",
    "fit_scale": "series",
    "make_windows": "series",
    "spellings": "spelling",
    "read_graph": "graphs",
    "count_pairs": "word_vectors",
    "count_words": "word_vectors",
    "encode_words": "word_vectors",
    "plain_words": "word_vectors",
    "encode_question_answering": "question_answering",
    "find_answers": "question_answering",
    "show_corpus": "..cli.data",
    "KINDS": "tokenization",
    "kind_of": "normalization",
    "normalise": "normalization",
    "train_tokenizer": "tokenization",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
