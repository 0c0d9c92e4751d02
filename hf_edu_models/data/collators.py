"""Collators: ours where transformers has none, and `collator_for`, which chooses by task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
)

from ..tasks import find_task
from .masking import DataCollatorForPreTraining as DataCollatorForPreTraining
from .word_vectors import DataCollatorForPairs as DataCollatorForPairs
from .word_vectors import DataCollatorForWordVectors as DataCollatorForWordVectors


@dataclass
class DataCollatorForDocuments:
    """Batches of documents, (B, N, T): pads to the longest sentence and to the document with most sentences."""

    tokenizer: PreTrainedTokenizerBase
    return_tensors: str = "pt"

    def __call__(self, features: list[dict[str, Any]], return_tensors: str | None = None) -> dict[str, Any]:
        documents = [feature["input_ids"] for feature in features]
        sentences = max(len(document) for document in documents)
        tokens = max(len(sentence) for document in documents for sentence in document)
        size = (len(documents), sentences, tokens)
        input_ids = torch.full(size, self.tokenizer.pad_token_id)  # (B, N, T)
        attention_mask = torch.zeros(size, dtype=torch.long)  # (B, N, T)
        for row, document in enumerate(documents):
            for number, sentence in enumerate(document):
                input_ids[row, number, : len(sentence)] = torch.as_tensor(sentence)
                attention_mask[row, number, : len(sentence)] = 1
        batch = {"input_ids": input_ids, "attention_mask": attention_mask}
        if "token_type_ids" in features[0]:
            batch["token_type_ids"] = token_types = torch.zeros_like(input_ids)
            for row, feature in enumerate(features):
                for number, types in enumerate(feature["token_type_ids"]):
                    token_types[row, number, : len(types)] = torch.as_tensor(types)
        if "labels" in features[0]:
            batch["labels"] = torch.tensor([feature["labels"] for feature in features])
        is_torch = (return_tensors or self.return_tensors) == "pt"
        return batch if is_torch else {name: value.numpy() for name, value in batch.items()}


@dataclass
class DataCollatorForWindows(DataCollatorWithPadding):
    """Batches of texts; of texts that are lists of windows, (B, W, T)."""

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        first = features[0]["input_ids"]
        if len(first) and hasattr(first[0], "__len__"):
            return DataCollatorForDocuments(self.tokenizer, self.return_tensors)(features)
        return super().__call__(features)


@dataclass
class DataCollatorForTexts(DataCollatorForLanguageModeling):
    """Labels are the input ids, or the rows' own `labels` where they have some."""

    mlm: bool = False

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        has_labels = "labels" in examples[0]
        return DataCollatorForSeq2Seq(self.tokenizer)(examples) if has_labels else super().torch_call(examples)


@dataclass
class DataCollatorForQuestionAnswering(DataCollatorWithPadding):
    """Pads windows and drops the columns that map a window back to its text, which the model does not take."""

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        dropped = ("example_id", "offset_mapping")
        return super().__call__([{k: v for k, v in feature.items() if k not in dropped} for feature in features])


@dataclass
class DataCollatorForValues:
    """Batches of real numbers, as float32; `memory_ids` are numbers of rows."""

    tokenizer: None = None  # there is none; `collator_for` names it for every collator

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        batch = {}
        for name in features[0]:
            dtype = torch.long if name.endswith("_ids") else torch.float32
            batch[name] = torch.tensor(np.asarray([feature[name] for feature in features]), dtype=dtype)
        return batch


def collator_for(task: str, tokenizer: PreTrainedTokenizerBase | None = None, **options: Any) -> Any:
    """The collator that `Trainer` takes for a task; `options` are the collator's own."""
    return find_task(task, "collator").code("collator")(tokenizer=tokenizer, **options)
