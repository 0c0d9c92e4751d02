"""Arguments, presets, trainers and evaluation that the recipes share."""

from __future__ import annotations

from ..lazy import lazy_names

_HOMES = {
    "DocumentArguments": "arguments",
    "MultiTaskArguments": "arguments",
    "PretrainingArguments": "arguments",
    "RecipeArguments": "arguments",
    "WordVectorsArguments": "arguments",
    "RunArguments": "arguments",
    "parse_arguments": "arguments",
    "RunStopped": "..run_folder",
    "average_weights": "checkpointing",
    "last_checkpoint": "checkpointing",
    "evaluate_split": "evaluation",
    "main_score": "evaluation",
    "translation_scores": "..metrics.scorers",
    "ProfessorForcingTrainer": "professor_forcing",
    "GradualUnfreezing": "fine_tuning",
    "layer_groups": "fine_tuning",
    "configure_malloc": "malloc",
    "keep_freed_memory": "malloc",  # the earlier name of configure_malloc
    "find_recipe": "presets",
    "load_preset": "presets",
    "preset_names": "presets",
    "recipe_files": "presets",
    "MultiTaskTrainer": "multitask",
    "TaskOfRun": "multitask",
    "finish_tasks": "multitask",
    "tasks_for": "multitask",
    "texts_of": "multitask",
    "finish_run": "run",
    "launch": "run",
    "start_run": "run",
    "continued_texts": "samples",
    "filled_masks": "samples",
    "words_from_both_sides": "samples",
    "nearest_words": "samples",
    "corpus_for": "setup",
    "label_settings": "setup",
    "model_for": "setup",
    "pairs_for": "setup",
    "task_of": "setup",
    "token_ids": "setup",
    "tokenizer_for": "setup",
    "log_history": "..run_folder",
    "read_predictions": "..run_folder",
    "read_results": "..run_folder",
    "write_results": "..run_folder",
    "EduSeq2SeqTrainer": "trainers",
    "EduTrainer": "trainers",
    "TruncatedBPTTTrainer": "tbptt",
    "WordVectorsTrainer": "word_vectors",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
