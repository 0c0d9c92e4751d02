"""Score a checkpoint on the data of its run or on other data (`hf-edu evaluate`)."""

from __future__ import annotations

import inspect
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, default_data_collator

from ..checkpoints import load_with_head
from ..data.collators import collator_for
from ..data.corpora import load_corpus
from ..data.encoding import encode_corpus
from ..data.language_modeling import contiguous_streams, group_into_blocks
from ..data.pretraining import build_nsp_pairs
from ..data.series import make_windows
from ..metrics.compute import preprocess_logits_for
from ..models.configuration_recurrent import EduRecurrentConfig
from ..models.configuration_transformer_xl import EduTransformerXLConfig
from ..precision import set_precision
from ..redaction import clean_value
from ..run_folder import RESULTS, read_phrases, read_results, read_settings
from ..tasks import TASKS, task_of_class
from .arguments import RecipeArguments, RunArguments
from .evaluation import Scored, evaluate_split
from .setup import task_of
from .tbptt import TruncatedBPTTTrainer
from .trainers import EduSeq2SeqTrainer, EduTrainer

_DATA_SETTINGS = (
    "dataset", "dataset_config", "task", "source", "target", "columns", "data_options", "no_header",
    "train_size", "validation_size", "test_size", "lowercase", "max_length",
)  # fmt: skip


_CUTS_TEXTS = ("language_modeling", "masked_lm", "bidirectional_lm", "pretraining")


@dataclass
class EvaluationRequest:
    """Which checkpoint to score, on which data.

    Args:
        dataset: another dataset than the run's own; `columns` maps its columns.
        options: `num_beams`, `batch_size`, `max_length` and `lowercase` override the run's settings; `cpu`; `dtype`;
            `int8`.
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


def score_checkpoint(request: EvaluationRequest) -> Scored:
    """Load a checkpoint and score it on a split; without a dataset, on the data of its run."""
    model, tokenizer = load_with_head(request.checkpoint, request.trust_remote_code)
    task = _task_of_model(model, request.checkpoint)
    dtype, int8 = request.options.get("dtype"), request.options.get("int8", False)
    model = set_precision(model, dtype, int8, TASKS[task].generates)
    args = arguments_for(request)
    corpus = _load_split(request, args, task)
    encoded = _encode(task, corpus, model, tokenizer, args, request)
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer_for(task, model, tokenizer, request, folder)
        options: dict[str, Any] = {}
        if TASKS[task].generates:
            beams = request.options.get("num_beams") or read_settings(request.checkpoint).get("num_beams", 5)
            options = {"num_beams": beams, "lowercase": args.lowercase, "max_new_tokens": args.max_length}
        return evaluate_split(trainer, task, encoded, corpus, tokenizer, **options)


def read_batch(request: EvaluationRequest) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The model of a checkpoint, and one labelled batch of the first `limit` examples of a split."""
    model, tokenizer = load_with_head(request.checkpoint, request.trust_remote_code)
    task = _task_of_model(model, request.checkpoint)
    args = arguments_for(request)
    cuts_texts = task in _CUTS_TEXTS  # an example is not a row
    corpus = _load_split(replace(request, limit=None) if cuts_texts else request, args, task)
    encoded = _encode(task, corpus, model, tokenizer, args, request)
    collate = default_data_collator if reads_streams(task, model) else collator_of(task, tokenizer, request)
    batch = collate([encoded[row] for row in range(min(request.limit or len(encoded), len(encoded)))])
    known = inspect.signature(model.forward).parameters
    return model, {name: value.to(model.device) for name, value in batch.items() if name in known}


def _task_of_model(model: PreTrainedModel, name: str) -> str:
    """The task of a run, or the one that a model's head is for."""
    if (Path(name) / RESULTS).is_file():
        return read_results(name)["task"]
    task = task_of_class(type(model).__name__)
    if task is None or TASKS[task].scorer is None:
        raise ValueError(f"{name} holds {type(model).__name__}, which has no head to score; give a model with one")
    return task


def arguments_for(request: EvaluationRequest) -> RecipeArguments:
    """The data settings of the run, overridden by those of the request."""
    settings = read_settings(request.checkpoint)
    kept = {name: settings[name] for name in _DATA_SETTINGS if name in settings}
    if request.dataset is not None and _is_same_dataset(request.dataset, kept.get("dataset")):
        kept["dataset"] = request.dataset  # the run's own data, moved
    elif request.dataset is not None:
        kept = {name: kept[name] for name in ("lowercase", "max_length", "source", "target") if name in kept}
        kept["dataset"] = request.dataset
    if "dataset" not in kept:
        raise ValueError(f"{request.checkpoint} names no dataset; give --dataset")
    overrides = {"source": request.source, "target": request.target, "columns": request.columns or None}
    overrides |= {name: request.options.get(name) for name in ("max_length", "lowercase")}
    kept |= {name: value for name, value in overrides.items() if value is not None}
    pairs = {name: kept.pop(name, {}) for name in ("columns", "data_options")}
    args = RecipeArguments(**kept)
    args.columns, args.data_options = pairs["columns"], pairs["data_options"]
    return args


def _is_same_dataset(dataset: str, own: str | None) -> bool:
    return own is not None and clean_value(dataset) == clean_value(own)


def _load_split(request: EvaluationRequest, args: RecipeArguments, task: str) -> Any:
    corpus = load_corpus(args.dataset, **args.corpus)
    if request.split not in corpus:
        raise ValueError(f"{args.dataset} has no split {request.split!r}; it has {', '.join(corpus)}")
    rows = corpus[request.split]
    found = task_of({"train": rows})
    accepted = task if TASKS[task].columns else "language_modeling"  # a task without columns of its own reads texts
    if found != accepted and not (TASKS[found].generates and TASKS[task].generates):
        raise ValueError(f"{args.dataset} is for {found}, but {request.checkpoint} was trained for {task}")
    return rows if request.limit is None else rows.select(range(min(request.limit, len(rows))))


def _batch_size(request: EvaluationRequest) -> int:
    """The batch size of the run: streams and masks depend on it."""
    return request.options.get("batch_size") or read_settings(request.checkpoint).get("per_device_eval_batch_size", 64)


def reads_streams(task: str, model: Any) -> bool:
    """Whether a hidden state or memory is carried from one block to the next."""
    carried = (EduRecurrentConfig.model_type, EduTransformerXLConfig.model_type)
    return task == "language_modeling" and model.config.model_type in carried


def _encode(
    task: str, corpus: Any, model: Any, tokenizer: Any, args: RecipeArguments, request: EvaluationRequest
) -> Any:
    """Encode the split as the recipe of its task does."""
    if reads_streams(task, model):
        return contiguous_streams(corpus, tokenizer, _batch_size(request), args.max_length)
    if task in ("language_modeling", "masked_lm", "bidirectional_lm"):
        overlap = args.max_length // 2 if task == "language_modeling" else 0
        return group_into_blocks(corpus, tokenizer, args.max_length, overlap=overlap)
    if task == "pretraining":
        split_sentences = read_settings(request.checkpoint).get("split_sentences", False)
        return build_nsp_pairs(corpus, tokenizer, max_length=args.max_length, split_sentences=split_sentences)
    if task == "time_series":
        return make_windows(corpus, model.config)
    settings = read_settings(request.checkpoint)
    options = {name: settings[name] for name in TASKS[task].encoder_options if name in settings}
    if task == "question_answering":
        options["stride"] = args.max_length // 3
    length = None if TASKS[task].values else args.max_length
    return encode_corpus(corpus, tokenizer, task=task, max_length=length, **options)


def collator_of(task: str, tokenizer: Any, request: EvaluationRequest) -> Any:
    """The collator with the masking options of the run."""
    settings = read_settings(request.checkpoint)
    options = {name: settings[name] for name in TASKS[task].collator_options if name in settings}
    if options.get("masking") == "phrases":
        options["phrases"] = read_phrases(request.checkpoint)
    return collator_for(task, tokenizer, **options)


def _trainer_for(task: str, model: Any, tokenizer: Any, request: EvaluationRequest, folder: str) -> Any:
    """A trainer for prediction only."""
    is_stream = reads_streams(task, model)
    arguments = RunArguments(
        output_dir=folder,
        eval_strategy="no",
        per_device_eval_batch_size=_batch_size(request),
        predict_with_generate=TASKS[task].generates,
        label_names=list(TASKS[task].targets),
        use_cpu=bool(request.options.get("cpu")),
    )
    trainer_class = TruncatedBPTTTrainer if is_stream else EduSeq2SeqTrainer if TASKS[task].generates else EduTrainer
    return trainer_class(
        model=model,
        args=arguments,
        data_collator=default_data_collator if is_stream else collator_of(task, tokenizer, request),
        processing_class=tokenizer,
        preprocess_logits_for_metrics=None if is_stream else preprocess_logits_for(task),
    )
