"""What a recipe may be told: its data, its model, and everything that Trainer takes, from a preset and from flags."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import HfArgumentParser, Seq2SeqTrainingArguments

from ..data.named_values import named_texts, named_values
from .presets import load_preset, preset_names

OBJECTIVES = ("pretraining", "masked_lm")
MIXED_PRECISION = ("auto", "no", "bf16")


def option(default: Any, text: str, **more: Any) -> Any:
    """A field with a line for `--help`."""
    return field(default=default, metadata={"help": text, **more})


@dataclass
class RecipeArguments:
    """The data, the tokenizer and the model of a run."""

    preset: str | None = option(None, "Named settings (recipes/presets/NAME.yaml); every flag given wins over them.")
    dataset: str | None = option(None, "A built-in task, a file or folder, or a Hub id.")
    dataset_config: str | None = option(None, "The configuration of a Hub data set.")
    task: str | None = option(None, "The task, where the data's columns fit more than one.")
    source: str | None = option(None, "The column or language to translate from.")
    target: str | None = option(None, "The column or language to translate to.")
    columns: list[str] | None = option(None, "Our column name and the data's, as ours=theirs.")
    data_options: list[str] | None = option(
        None, "More for the corpus, as name=value: languages=en,de or unit=paragraph."
    )
    train_size: int | None = option(None, "Rows of the train split.")
    validation_size: int | None = option(None, "Rows of the validation split; cut from train where there is none.")
    test_size: int | None = option(None, "Rows of the test split; cut from train where there is none.")
    tokenizer: str = option("bpe", "What a token is: bpe, unigram, wordpiece, word or char.")
    vocab_size: int = option(8_000, "Most tokens in the vocabulary.")
    lowercase: bool = option(False, "Lower-case the texts, and score them without case.")
    max_length: int = option(128, "Longest sequence in tokens; for language models the size of a block.")
    model: list[str] | None = option(None, "Settings of the model's configuration, as name=value.")
    init_from: str | None = option(None, "A run, checkpoint or Hub id whose weights and tokenizer to start from.")
    new_weights: bool = option(False, "With --init-from: its tokenizer and sizes, but none of its weights.")
    resume: bool = option(False, "Go on from the last checkpoint in the output folder.")
    overwrite: bool = option(False, "Throw away the run that is in the output folder.")
    num_proc: int | None = option(None, "Processes that prepare the data.")
    licence: str | None = option(
        None, "Licence of the weights, for the card, as the Hub names it: apache-2.0, mit, ..."
    )
    notes: dict = field(default_factory=dict, init=False)  # what the preset tells about its data
    recipe: str = field(default="", init=False)  # the file's name
    given: list = field(default_factory=list, init=False)  # the flags of the command line

    def __post_init__(self) -> None:
        self.columns = dict(named_texts("columns", self.columns))
        self.data_options = named_values("data_options", self.data_options)
        self.model = named_values("model", self.model)
        for name in self.model:
            if name == "vocab_size" or name.endswith("_token_id"):
                raise ValueError(f"--model {name} is the tokenizer's to say; --tokenizer and --vocab_size choose it")
        if self.new_weights and self.init_from is None:
            raise ValueError("--new_weights takes tokenizer and sizes from another run; say which with --init-from")
        if self.resume and self.overwrite:
            raise ValueError("--resume goes on with a run and --overwrite throws it away; give one of them")

    @property
    def corpus(self) -> dict[str, Any]:
        """What `load_corpus` takes: `load_corpus(args.dataset, **args.corpus)`."""
        named = ("task", "source", "target", "columns", "train_size", "validation_size", "test_size")
        given = {name: getattr(self, name) for name in named} | {"config": self.dataset_config}
        return {name: value for name, value in given.items() if value not in (None, {})} | self.data_options


@dataclass
class PretrainingArguments(RecipeArguments):
    """What BERT is pre-trained on, beside the data."""

    objective: str = option("pretraining", "pretraining: masked words and next sentences; masked_lm: words alone.")
    whole_word_mask: bool = option(False, "Mask all pieces of a word together.")
    mlm_probability: float = option(0.15, "Share of the tokens to predict.")
    repeats: int = option(1, "How many times each document is cut into pairs, each time elsewhere.")
    split_sentences: bool = option(False, "Rows are paragraphs: cut them into sentences first.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective not in OBJECTIVES:
            raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}; got {self.objective!r}")
        if not 0 < self.mlm_probability < 1:
            raise ValueError(f"mlm_probability must be above 0 and below 1, got {self.mlm_probability}")


@dataclass
class RunArguments(Seq2SeqTrainingArguments):
    """Trainer's arguments with this project's defaults, and what the papers add to them."""

    output_dir: str | None = option(None, "Where the run goes; runs/RECIPE-PRESET unless given.")
    per_device_train_batch_size: int = option(64, "Rows in a batch on each device.")
    per_device_eval_batch_size: int = option(64, "Rows in a batch of evaluation on each device.")
    eval_strategy: str = option("epoch", "When to score the validation split: no, steps or epoch.")
    save_strategy: str = option("epoch", "When to write a checkpoint: no, steps, epoch or best.")
    save_total_limit: int | None = option(2, "How many checkpoints to keep, beside the best one.")
    logging_steps: float = option(50, "Write the loss every so many steps.")
    report_to: str = option("none", "Where else to log: none, tensorboard, trackio, wandb, ...")
    restore_callback_states_from_checkpoint: bool = option(True, "Resume the patience and the clock as well.")
    seed: int = option(0, "Of the first weights, the order of the data and the dropout.")
    max_tokens: int | None = option(None, "Batches of like length with at most so many tokens, padding counted.")
    average_checkpoints: int = option(0, "At the end, average so many last checkpoints, if validation likes it.")
    early_stopping_patience: int = option(0, "Stop after so many evaluations without a better score; 0 never.")
    max_minutes: float | None = option(None, "Stop after so many minutes of training, wherever it is.")
    mixed_precision: str = option("auto", "bf16, no, or auto: bf16 where the GPU has it.")
    num_beams: int = option(5, "Beams of the translations at the end; generation_num_beams is for those in between.")
    layer_lr_decay: float = option(1.0, "Learning rate of a layer as a part of the one above (ULMFiT: 1/2.6).")
    unfreeze_every: float = option(0.0, "Unfreeze one more layer from the top every so many epochs; 0 starts with all.")

    quiet: bool = option(False, "Show one line of progress and no tables.")

    def __post_init__(self) -> None:
        if self.mixed_precision not in MIXED_PRECISION:
            raise ValueError(
                f"mixed_precision must be one of {', '.join(MIXED_PRECISION)}; got {self.mixed_precision!r}"
            )
        has_bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported() and not self.use_cpu
        if self.mixed_precision == "bf16" or (self.mixed_precision == "auto" and has_bf16 and not self.fp16):
            self.bf16 = True
        if not torch.accelerator.is_available() or self.use_cpu:
            self.use_cpu = True  # or several processes without a GPU would not find each other
            self.dataloader_pin_memory = False  # nothing to copy to
        self.logging_nan_inf_filter = False  # a loss that is no number ends the run: nobody should average over it
        if self.average_checkpoints:
            self.save_total_limit = max(self.save_total_limit or 0, self.average_checkpoints)
        if self.early_stopping_patience:
            self.load_best_model_at_end = True
        self._check()
        # Trainer compares checkpoints by their loss where nobody said by what; a task knows a better score.
        self.is_score_given = self.metric_for_best_model is not None
        super().__post_init__()

    def _check(self) -> None:
        if self.average_checkpoints < 0 or self.early_stopping_patience < 0 or self.unfreeze_every < 0:
            raise ValueError("average_checkpoints, early_stopping_patience and unfreeze_every must be 0 or more")
        if not 0 < self.layer_lr_decay <= 1:
            raise ValueError(f"layer_lr_decay must be above 0 and at most 1, got {self.layer_lr_decay}")
        if self.max_minutes is not None and self.max_minutes <= 0:
            raise ValueError(f"max_minutes must be above 0, got {self.max_minutes}")


def parse_arguments(
    recipe: str, argv: list[str] | None = None, arguments: type[RecipeArguments] = RecipeArguments
) -> tuple[RecipeArguments, RunArguments]:
    """The arguments of a recipe: its preset's, with the command line's over them.

    Args:
        recipe: the recipe's file; its name without the number is its section in the presets.
        argv: instead of the command line's.
        arguments: the recipe's own kind, where it has options that others have not.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    section = section_of(recipe)
    parser = HfArgumentParser(
        (arguments, RunArguments), prog=Path(recipe).name, description=_first_lines(recipe), allow_abbrev=False
    )
    parser.error = _refuse
    preset = _given(argv, "preset")
    settings, notes = load_preset(preset, section) if preset else ({}, {})
    model = settings.pop("model", {})
    _check_settings(settings, preset, (arguments, RunArguments))
    if _given(argv, "dataset"):
        settings.pop("dataset_config", None)  # it belongs to the preset's own data
    parser.set_defaults(**_as_flags(settings), output_dir=f"runs/{section}-{preset or 'run'}")
    *parsed, unknown = parser.parse_args_into_dataclasses(argv, return_remaining_strings=True, look_for_args_file=False)
    if unknown:
        raise ValueError(f"{Path(recipe).name} has no option {unknown[0]!r}; --help lists them all")
    args, training_args = parsed
    args.notes, args.recipe, args.given = notes, Path(recipe).name, argv
    if args.init_from is not None:  # a preset's sizes are those of a new model; how to train it is no size
        model = {name: value for name, value in model.items() if name.endswith(("dropout", "label_smoothing"))}
    args.model = model | args.model
    if args.dataset is None:
        allowed = ", ".join(preset_names(section))
        wanted = f"give --preset (one of {allowed}) or --dataset" if preset is None else notes.get("get_data")
        raise ValueError(f"{Path(recipe).name} needs data: {wanted or 'give --dataset'}")
    if training_args.label_smoothing_factor:  # ours is inside the model, which never holds all logits
        args.model["label_smoothing"] = training_args.label_smoothing_factor
        training_args.label_smoothing_factor = 0.0
    return args, training_args


def settings_of(args: RecipeArguments, training_args: RunArguments) -> dict[str, Any]:
    """Every setting that is not at its default, for people and for comparing runs; nothing of this machine."""
    settings = _changed(args, skip=("resume", "overwrite", "notes", "recipe", "given", "num_proc", "licence"))
    derived = ("do_eval", "disable_tqdm", "dataloader_pin_memory", "logging_nan_inf_filter", "mixed_precision")
    machine = ("output_dir", "use_cpu", "push_to_hub", "hub_token", "logging_dir", "run_name", "quiet")
    found = () if training_args.is_score_given else ("metric_for_best_model", "greater_is_better")
    return settings | _changed(training_args, skip=derived + machine + found)


def section_of(recipe: str) -> str:
    """`recipes/07a_bert_pretrain_accelerate.py` reads the section `bert_pretrain`."""
    return Path(recipe).stem.partition("_")[2].removesuffix("_accelerate")


def _changed(arguments: Any, skip: tuple[str, ...]) -> dict[str, Any]:
    changed = {}
    for each in dataclasses.fields(arguments):
        value = getattr(arguments, each.name)
        default = each.default_factory() if callable(each.default_factory) else each.default
        is_plain = isinstance(value, str | int | float | bool | list | dict) and not isinstance(value, type)
        is_off = value is False and default is None  # Trainer turns a switch off that nobody has touched
        if each.init and each.name not in skip and is_plain and value not in (default, {}, []) and not is_off:
            changed[each.name] = str(value.value) if hasattr(value, "value") else value
    return changed


def _given(argv: list[str], name: str) -> str | None:
    """What the command line gives for an option, before it is parsed."""
    for place, word in enumerate(argv):
        if word == f"--{name}" and place + 1 < len(argv):
            return argv[place + 1]
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
    return None


def _refuse(message: str) -> None:
    """What argparse has to say, as a sentence like every other, without two pages of usage before it."""
    raise ValueError(f"{message}; --help lists all options")


def _check_settings(settings: dict[str, Any], preset: str | None, kinds: tuple[type, ...]) -> None:
    known = {each.name for kind in kinds for each in dataclasses.fields(kind)}
    for name in settings:
        if name not in known:
            raise ValueError(f"preset {preset!r} sets {name!r}, which no recipe has")


def _as_flags(settings: dict[str, Any]) -> dict[str, Any]:
    """Mappings as the lists of name=value that the flags take."""
    return {
        name: [f"{key}={_as_flag(each)}" for key, each in value.items()] if isinstance(value, dict) else value
        for name, value in settings.items()
    }


def _as_flag(value: Any) -> str:
    """A word as it is typed; anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _first_lines(recipe: str) -> str:
    """The recipe's own docstring, which says what it teaches and how to run it."""
    file = Path(recipe)
    return file.read_text("utf-8").split('"""')[1] if file.is_file() else ""
