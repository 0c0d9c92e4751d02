"""Batches: transformers' own collators where they do the job, ours for documents, one function to choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForMultipleChoice,
    DataCollatorForSeq2Seq,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
)

from .masking import DataCollatorForPreTraining


@dataclass
class DataCollatorForDocuments:
    """Documents as (document, sentence, word): pads to the longest sentence and the longest document."""

    tokenizer: PreTrainedTokenizerBase
    return_tensors: str = "pt"

    def __call__(self, features: list[dict[str, Any]], return_tensors: str | None = None) -> dict[str, Any]:
        documents = [feature["input_ids"] for feature in features]
        most = max(len(document) for document in documents)
        longest = max(len(sentence) for document in documents for sentence in document)
        size = (len(documents), most, longest)
        input_ids = torch.full(size, self.tokenizer.pad_token_id)  # (B, N, T)
        attention_mask = torch.zeros(size, dtype=torch.long)  # (B, N, T)
        for row, document in enumerate(documents):
            for place, sentence in enumerate(document):
                input_ids[row, place, : len(sentence)] = torch.as_tensor(sentence)
                attention_mask[row, place, : len(sentence)] = 1
        batch = {"input_ids": input_ids, "attention_mask": attention_mask}
        if "labels" in features[0]:
            batch["labels"] = torch.tensor([feature["labels"] for feature in features])
        kind = return_tensors or self.return_tensors
        return batch if kind == "pt" else {name: value.numpy() for name, value in batch.items()}


@dataclass
class DataCollatorForTexts(DataCollatorForLanguageModeling):
    """Guesses every token but the first, or, where rows have `labels` of their own, those that they name."""

    mlm: bool = False

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        has_labels = "labels" in examples[0]
        return DataCollatorForSeq2Seq(self.tokenizer)(examples) if has_labels else super().torch_call(examples)


@dataclass
class DataCollatorForQuestionAnswering(DataCollatorWithPadding):
    """Pads windows and leaves out what leads back to the text, which is not for the model."""

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        back = ("example_id", "offset_mapping")
        return super().__call__([{k: v for k, v in feature.items() if k not in back} for feature in features])


COLLATORS = {
    "translation": DataCollatorForSeq2Seq,
    "alignment": DataCollatorForSeq2Seq,
    "classification": DataCollatorWithPadding,
    "token_classification": DataCollatorForTokenClassification,
    "multiple_choice": DataCollatorForMultipleChoice,
    "documents": DataCollatorForDocuments,
    "question_answering": DataCollatorForQuestionAnswering,
    "language_modeling": DataCollatorForTexts,
    "masked_lm": DataCollatorForPreTraining,
    "pretraining": DataCollatorForPreTraining,
}


def collator_for(task: str, tokenizer: PreTrainedTokenizerBase, **options: Any) -> Any:
    """The collator that `Trainer` takes for a task; `options` are the collator's own."""
    if task not in COLLATORS:
        raise ValueError(f"task must be one of {', '.join(COLLATORS)}; got {task!r}")
    return COLLATORS[task](tokenizer=tokenizer, **options)
