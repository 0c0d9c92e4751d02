"""What recipes share: arguments and presets, trainers whose runs survive, scores at the end."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "PretrainingArguments": "arguments",
    "RecipeArguments": "arguments",
    "RunArguments": "arguments",
    "parse_arguments": "arguments",
    "RunStopped": "checkpoints",
    "average_weights": "checkpoints",
    "last_checkpoint": "checkpoints",
    "evaluate_split": "evaluation",
    "main_score": "evaluation",
    "translation_scores": "evaluation",
    "GradualUnfreezing": "fine_tuning",
    "layer_groups": "fine_tuning",
    "keep_freed_memory": "memory",
    "find_recipe": "presets",
    "load_preset": "presets",
    "preset_names": "presets",
    "recipe_files": "presets",
    "finish_run": "run",
    "launch": "run",
    "start_run": "run",
    "continued_texts": "samples",
    "filled_masks": "samples",
    "corpus_for": "starting",
    "label_settings": "starting",
    "model_for": "starting",
    "pairs_for": "starting",
    "task_of": "starting",
    "token_ids": "starting",
    "tokenizer_for": "starting",
    "log_history": "run_folder",
    "read_predictions": "run_folder",
    "read_results": "run_folder",
    "write_results": "run_folder",
    "EduSeq2SeqTrainer": "trainers",
    "EduTrainer": "trainers",
    "TruncatedBPTTTrainer": "streams",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"hf_edu_models.training has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
