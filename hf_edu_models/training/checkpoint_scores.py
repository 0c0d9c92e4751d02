"""Score a checkpoint again, or on other data: what `hf-edu evaluate` does."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, default_data_collator

from ..data.collators import collator_for
from ..data.corpora import load_corpus
from ..data.encoding import encode_corpus
from ..data.language_modeling import contiguous_streams, group_into_blocks
from ..data.pretraining import build_nsp_pairs
from ..metrics.trainer import compute_metrics_for, preprocess_logits_for
from ..models.configuration_recurrent import EduRecurrentConfig
from .arguments import RecipeArguments, RunArguments
from .evaluation import Scored, evaluate_split
from .run import public_name
from .run_folder import RESULTS, read_results, read_settings
from .starting import task_of
from .streams import TruncatedBPTTTrainer
from .trainers import EduSeq2SeqTrainer, EduTrainer

# The last part of an architecture's name, and the task that it is for.
TASK_OF_HEAD = {
    "ForConditionalGeneration": "translation",
    "MTModel": "translation",
    "ForCausalLM": "language_modeling",
    "LMHeadModel": "language_modeling",
    "ForSequenceClassification": "classification",
    "ForTokenClassification": "token_classification",
    "ForQuestionAnswering": "question_answering",
    "ForMultipleChoice": "multiple_choice",
    "ForPreTraining": "pretraining",
    "ForMaskedLM": "masked_lm",
}
SETTINGS_OF_DATA = (
    "dataset", "dataset_config", "task", "source", "target", "columns", "data_options", "train_size", "validation_size",
    "test_size", "lowercase", "max_length",
)  # fmt: skip


@dataclass
class Checkup:
    """What to score a checkpoint on.

    Args:
        dataset: other data than the run's own; `columns` is for it.
        options: `num_beams`, `batch_size`, `max_length`, `lowercase`: the run's own unless given; `cpu`.
    """

    checkpoint: str
    dataset: str | None = None
    split: str = "test"
    source: str | None = None
    target: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    limit: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    trust_remote_code: bool = False


def score_checkpoint(checkup: Checkup) -> Scored:
    """Load a checkpoint and score it on a split; a run knows its own data, any other checkpoint must be told."""
    model, tokenizer = load_checkpoint(checkup.checkpoint, checkup.trust_remote_code)
    task = task_of_model(model, checkup.checkpoint)
    args = arguments_for(checkup)
    corpus = corpus_of(checkup, args, task)
    encoded = encode(task, corpus, model, tokenizer, args, checkup)
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_for(task, model, tokenizer, corpus, encoded, checkup, folder)
        options = {}
        if task == "translation":
            given = checkup.options
            options = {"num_beams": given.get("num_beams") or read_settings(checkup.checkpoint).get("num_beams", 5)}
            options |= {"lowercase": args.lowercase, "max_new_tokens": args.max_length}
        return evaluate_split(trainer, task, encoded, corpus, tokenizer, **options)


def load_checkpoint(name: str, trust_remote_code: bool = False) -> tuple[PreTrainedModel, Any]:
    """The model with the head that it was saved with, and its tokenizer."""
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)
    except OSError as problem:
        raise FileNotFoundError(
            f"{name} is no folder with a model, and no model on the Hub that can be reached; give a run or a checkpoint"
        ) from problem
    architecture = (config.architectures or ["?"])[0]
    auto_names = getattr(config, "auto_map", None) or {}
    auto = next((auto for auto, path in auto_names.items() if path.endswith(f".{architecture}")), None)
    kind = getattr(transformers, auto or architecture, None)
    if kind is None:
        raise ValueError(f"{name} is a {architecture}, which neither transformers nor this package has")
    options = {"trust_remote_code": trust_remote_code} if auto else {}
    return kind.from_pretrained(name, **options), AutoTokenizer.from_pretrained(name)


def task_of_model(model: PreTrainedModel, name: str) -> str:
    """The task of a run, or the one that a model's head is for."""
    if (Path(name) / RESULTS).is_file():
        return read_results(name)["task"]
    architecture = type(model).__name__
    for ending, task in TASK_OF_HEAD.items():
        if architecture.endswith(ending):
            return task
    raise ValueError(f"{name} is a {architecture}, which has no head to score; give one that has learnt a task")


def arguments_for(checkup: Checkup) -> RecipeArguments:
    """The run's own data settings, with what was asked for over them."""
    settings = read_settings(checkup.checkpoint)
    kept = {name: settings[name] for name in SETTINGS_OF_DATA if name in settings}
    if checkup.dataset is not None and _is_the_same(checkup.dataset, kept.get("dataset")):
        kept["dataset"] = checkup.dataset  # the run's own data, in another place
    elif checkup.dataset is not None:
        kept = {name: kept[name] for name in ("lowercase", "max_length", "source", "target") if name in kept}
        kept["dataset"] = checkup.dataset
    if "dataset" not in kept:
        raise ValueError(f"{checkup.checkpoint} does not say what data it is for; give --dataset")
    given = {"source": checkup.source, "target": checkup.target, "columns": checkup.columns or None}
    given |= {name: checkup.options.get(name) for name in ("max_length", "lowercase")}
    kept |= {name: value for name, value in given.items() if value is not None}
    pairs = {name: kept.pop(name, {}) for name in ("columns", "data_options")}
    args = RecipeArguments(**kept)
    args.columns, args.data_options = pairs["columns"], pairs["data_options"]
    return args


def _is_the_same(given: str, own: str | None) -> bool:
    return own is not None and public_name(given) == public_name(own)


def corpus_of(checkup: Checkup, args: RecipeArguments, task: str) -> Any:
    corpus = load_corpus(args.dataset, **args.corpus)
    if checkup.split not in corpus:
        raise ValueError(f"{args.dataset} has no split {checkup.split!r}; it has {', '.join(corpus)}")
    rows = corpus[checkup.split]
    found = task_of({"train": rows})
    fits = {task, *(("language_modeling",) if task in ("pretraining", "masked_lm") else ())}
    if found not in fits and {found, task} != {"alignment", "translation"}:
        raise ValueError(f"{args.dataset} is for {found}, but {checkup.checkpoint} has learnt {task}")
    return rows if checkup.limit is None else rows.select(range(min(checkup.limit, len(rows))))


def batch_size_of(checkup: Checkup) -> int:
    """The run's own: streams and masks depend on it."""
    return checkup.options.get("batch_size") or read_settings(checkup.checkpoint).get("per_device_eval_batch_size", 64)


def reads_streams(task: str, model: Any) -> bool:
    """Whether the state at the end of a block is carried into the next one."""
    return task == "language_modeling" and model.config.model_type == EduRecurrentConfig.model_type


def encode(task: str, corpus: Any, model: Any, tokenizer: Any, args: RecipeArguments, checkup: Checkup) -> Any:
    """The split as the recipe of its task reads it."""
    if reads_streams(task, model):
        return contiguous_streams(corpus, tokenizer, batch_size_of(checkup), args.max_length)
    if task in ("language_modeling", "masked_lm"):
        overlap = args.max_length // 2 if task == "language_modeling" else 0
        return group_into_blocks(corpus, tokenizer, args.max_length, overlap=overlap)
    if task == "pretraining":
        is_cut = read_settings(checkup.checkpoint).get("split_sentences", False)
        return build_nsp_pairs(corpus, tokenizer, max_length=args.max_length, split_sentences=is_cut)
    options = {"stride": args.max_length // 3} if task == "question_answering" else {}
    return encode_corpus(corpus, tokenizer, task=task, max_length=args.max_length, **options)


def collator_of(task: str, tokenizer: Any, checkup: Checkup) -> Any:
    """As many words are hidden as in the run, and in its way."""
    hiding = ("mlm_probability", "whole_word_mask") if task in ("pretraining", "masked_lm") else ()
    settings = read_settings(checkup.checkpoint)
    return collator_for(task, tokenizer, **{name: settings[name] for name in hiding if name in settings})


def trainer_for(task: str, model: Any, tokenizer: Any, corpus: Any, encoded: Any, checkup: Checkup, folder: str) -> Any:
    """A trainer that will only predict."""
    is_stream = reads_streams(task, model)
    arguments = RunArguments(
        output_dir=folder,
        eval_strategy="no",
        per_device_eval_batch_size=batch_size_of(checkup),
        predict_with_generate=task == "translation",
        label_names=["labels", "next_sentence_label"] if task == "pretraining" else None,
        use_cpu=bool(checkup.options.get("cpu")),
    )
    kind = TruncatedBPTTTrainer if is_stream else EduSeq2SeqTrainer if task == "translation" else EduTrainer
    scores = {}
    if task == "token_classification":
        scores = {"tag_names": list(model.config.id2label.values())}
    if task == "question_answering":
        scores = {"windows": encoded, "examples": corpus}
    return kind(
        model=model,
        args=arguments,
        data_collator=default_data_collator if is_stream else collator_of(task, tokenizer, checkup),
        processing_class=tokenizer,
        compute_metrics=None if task == "translation" else compute_metrics_for(task, tokenizer, **scores),
        preprocess_logits_for_metrics=None if is_stream else preprocess_logits_for(task),
    )
