"""Arguments of a recipe: data, model and everything that Trainer takes, from a preset and from flags."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import Seq2SeqTrainingArguments

from ..auto import LADDER
from ..cpu_kernels import has_fast_bfloat16, read_choice
from ..data.masking import MASKINGS
from ..data.named_values import named_texts, named_values, word_or_list
from ..tasks import TASKS
from .flags import build_parser, expand_flags, flag_value, unknown_flag
from .presets import load_preset, preset_names
from .teacher_forcing import check_schedule

_OBJECTIVES = [name for name, task in TASKS.items() if "mlm_probability" in task.collator_options]
OF_DATASET = ("dataset_config", "task", "columns", "source", "target", "data_options")  # of this one, not of another
_COLUMNS = ("source", "target", "columns")
_MIXED_PRECISION = ("auto", "no", "bf16", "if_faster")


def _option(default: Any, text: str) -> Any:
    """A field with its text for `--help`."""
    return field(default=default, metadata={"help": text})


@dataclass
class RecipeArguments:
    """Arguments for the data, the tokenizer and the model of a run.

    `kept_settings` are the ends of the names of a preset's model settings that hold with --init-from, too.
    """

    kept_settings: ClassVar[tuple[str, ...]] = ("dropout", "label_smoothing", "regularization", "lock_dropout_masks")

    preset: str | None = _option(None, "Name of a preset (recipes/presets/NAME.yaml); flags override its settings.")
    dataset: str | None = _option(None, "Built-in corpus, file, folder or Hub id of the dataset.")
    dataset_config: str | None = _option(None, "Configuration name of a Hub dataset.")
    task: str | None = _option(None, "Task to train, if the columns of the dataset fit more than one.")
    source: str | None = _option(None, "Column or language to translate from.")
    target: str | None = _option(None, "Column or language to translate to.")
    columns: list[str] | None = _option(None, "Columns to rename, as ours=theirs or ours=position: text=body.")
    data_options: list[str] | None = _option(
        None, "Further arguments of the corpus, as name=value: languages=en,de, unit=paragraph or header=false."
    )
    no_header: bool = _option(False, "The first line of a .csv or .tsv file has no column names.")
    streaming: bool = _option(
        False,
        "Read, tokenise and shuffle the train split during training instead of preparing all of it first; needs "
        "--max_steps. Evaluates and saves every 500 steps unless told otherwise.",
    )
    train_size: int | None = _option(None, "Number of rows of the train split.")
    validation_size: int | None = _option(
        None, "Number of rows of the validation split; taken from the train split if the dataset has none."
    )
    test_size: int | None = _option(
        None, "Number of rows of the test split; taken from the train split if the dataset has none."
    )
    tokenizer: str = _option("bpe", "Type of tokenizer to train: bpe, unigram, wordpiece, word, char or whitespace.")
    vocab_size: int = _option(8_000, "Maximum vocabulary size of the tokenizer.")
    lowercase: bool = _option(False, "Lowercase the texts, and ignore case in the scores.")
    max_length: int = _option(128, "Maximum sequence length in tokens; the block size of language models.")
    size: str | None = _option(
        None,
        "Size of the model as published: tiny, mini, small, base or large (BERT), small, medium, large or xl (GPT-2), "
        "base or big (Transformer). Overrides the sizes of the preset; --model overrides both.",
    )
    model: list[str] | None = _option(None, "Fields of the model's configuration, as name=value.")
    init_from: str | None = _option(None, "Run, checkpoint or Hub id to load weights and tokenizer from.")
    new_weights: bool = _option(False, "With --init-from: load tokenizer and sizes, but initialise the weights.")
    freeze_body: bool = _option(
        False, "With --init-from: train the new head alone; the loaded model keeps its weights, and has no dropout."
    )
    embeddings: str | None = _option(
        None,
        "Word vectors that the embeddings start from, by token: a run, or a file of word2vec, GloVe or gensim.",
    )
    resume: bool = _option(False, "Resume from the last checkpoint in the output folder.")
    overwrite: bool = _option(False, "Delete the run in the output folder first.")
    num_proc: int | None = _option(None, "Number of processes for preprocessing.")
    licence: str | None = _option(
        None, "Licence of the weights for the model card, as the Hub names it: apache-2.0, mit, ..."
    )
    notes: dict = field(default_factory=dict, init=False)  # the preset's facts about its data
    preset_columns: dict = field(default_factory=dict, init=False)  # its source, target, columns: not of --dataset
    words: list = field(default_factory=list, init=False)  # of the tokens, by id: what --embeddings looks up
    recipe: str = field(default="", init=False)  # the recipe's file name
    argv: list = field(default_factory=list, init=False)  # the flags of the command line

    def __post_init__(self) -> None:
        self.columns = {name: word_or_list(value) for name, value in named_texts("columns", self.columns)}
        self.data_options = named_values("data_options", self.data_options)
        self.model = named_values("model", self.model)
        for name in self.model:
            if name == "vocab_size" or name.endswith("_token_id"):
                raise ValueError(
                    f"--model {name} is set by the tokenizer; choose one with --tokenizer and --vocab_size"
                )
        if self.new_weights and self.init_from is None:
            raise ValueError("--new_weights needs --init-from, which names the run with the tokenizer and the sizes")
        if self.freeze_body and (self.init_from is None or self.new_weights):
            raise ValueError("--freeze_body needs --init-from with its weights: a frozen body must know something")
        if self.size is not None and self.init_from is not None:
            raise ValueError(f"--init-from {self.init_from} has its own size; leave out --size {self.size}")
        if self.embeddings is not None and self.init_from is not None:
            raise ValueError(f"--init-from {self.init_from} has its own embeddings; leave out --embeddings")
        if self.resume and self.overwrite:
            raise ValueError("--resume continues a run and --overwrite deletes it; give one of them")

    @property
    def corpus(self) -> dict[str, Any]:
        """Arguments of `load_corpus`: `load_corpus(args.dataset, **args.corpus)`."""
        names = ("task", "source", "target", "columns", "train_size", "validation_size", "test_size")
        values = {name: getattr(self, name) for name in names}
        values |= {"config": self.dataset_config, "streaming": self.streaming or None}
        header = {"header": False} if self.no_header else {}
        return {name: value for name, value in values.items() if value not in (None, {})} | header | self.data_options


@dataclass
class PretrainingArguments(RecipeArguments):
    """Further arguments for pre-training BERT."""

    objective: str = _option(
        "pretraining", "pretraining: masked language modelling and next sentence prediction; masked_lm: only the first."
    )
    masking: str = _option(
        "tokens",
        "What is masked together: tokens (one by one), words (all subwords), phrases (words and whole phrases, ERNIE), "
        "or spans of words (SpanBERT).",
    )
    phrases: str | None = _option(
        None,
        "With --masking phrases: file with a phrase or name a line; by default words of the train split that occur "
        "together more often than by chance.",
    )
    whole_word_mask: bool = _option(False, "Mask all subwords of a word together, as --masking words.")
    mlm_probability: float = _option(0.15, "Fraction of the tokens to predict.")
    repeats: int = _option(
        1, "Number of times each document is split into sentence pairs, at other positions each time."
    )
    split_sentences: bool = _option(False, "Split the rows, which are paragraphs, into sentences first.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective not in _OBJECTIVES:
            raise ValueError(f"objective must be one of {', '.join(_OBJECTIVES)}; got {self.objective!r}")
        if self.masking not in MASKINGS:
            raise ValueError(f"masking must be one of {', '.join(MASKINGS)}; got {self.masking!r}")
        if self.phrases is not None and self.masking != "phrases":
            raise ValueError(f"--phrases is for --masking phrases, got --masking {self.masking}")
        if not 0 < self.mlm_probability < 1:
            raise ValueError(f"mlm_probability must be above 0 and below 1, got {self.mlm_probability}")


@dataclass
class FineTuningArguments(RecipeArguments):
    """Further arguments for fine-tuning BERT."""

    window_stride: int | None = _option(
        None,
        "Classification: read a text that is longer than --max_length in windows that share N tokens, and pool them "
        "(--model window_pooling=mean or max), instead of cutting it.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window_stride is not None and not 0 <= self.window_stride < self.max_length:
            raise ValueError(
                f"window_stride must be at least 0 and below max_length {self.max_length}, got {self.window_stride}"
            )


@dataclass
class WordVectorsArguments(RecipeArguments):
    """Further arguments for word vectors."""

    objective: str = _option(
        "skip_gram",
        "skip_gram: a word predicts its neighbours; cbow: they predict it; glove: co-occurrences.",
    )
    min_count: int = _option(5, "Leave out words that occur less often.")
    sample: float = _option(0.001, "Frequency from which on words are left out at random; 0 keeps all.")
    negatives: int = _option(32, "Negatives that a block of text shares; 0 predicts with a softmax over all words.")
    block_size: int = _option(32, "Length of the blocks, in words, that the texts are cut into.")
    graph: bool = _option(
        False,
        "The dataset is a graph (columns source, target, perhaps weight): its random walks are the texts (node2vec).",
    )
    walks: int = _option(10, "Random walks from each node of a graph.")
    walk_length: int = _option(80, "Nodes of a random walk.")
    return_p: float = _option(1.0, "node2vec's p: the larger, the less a walk turns back.")
    inout_q: float = _option(1.0, "node2vec's q: below 1 a walk explores, above 1 it stays near its start.")
    updates: str = _option(
        "sparse", "sparse: in place, only the vectors of a step's words; autograd: any optimizer, all vectors."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in (("objective", ("skip_gram", "cbow", "glove")), ("updates", ("sparse", "autograd"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {getattr(self, name)!r}")
        if self.min_count < 1:
            raise ValueError(f"min_count must be at least 1, got {self.min_count}")


@dataclass
class FeatureArguments(RecipeArguments):
    """Further arguments for models that take features of others."""

    features: str | None = _option(
        None,
        "Runs whose frozen hidden states join the token embeddings of a classifier or tagger, separated by commas: "
        "word_vectors, recurrent (characters: Flair), bahdanau (CoVe), elmo, gpt, bert. --model feature_mix=sum4 "
        "chooses layers.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features is not None and self.init_from is not None:
            raise ValueError("--features starts a new model, and --init-from has its own features; give one of them")


@dataclass
class CrossViewArguments(FeatureArguments):
    """Further arguments for recurrent models, whose taggers may learn from text without tags."""

    unlabelled: str | None = _option(
        None,
        "Cross-view training of a bidirectional tagger: a dataset whose words have no tags, or whose tags are not "
        "read; with --train_size, the same dataset as --dataset.",
    )
    unlabelled_size: int | None = _option(None, "With --unlabelled: number of its rows.")
    unlabelled_weight: float = _option(1.0, "With --unlabelled: weight of the loss on text without tags.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unlabelled_weight <= 0:
            raise ValueError(f"unlabelled_weight must be above 0, got {self.unlabelled_weight}")
        if self.unlabelled_size is not None and self.unlabelled_size < 1:
            raise ValueError(f"unlabelled_size must be at least 1, got {self.unlabelled_size}")
        if self.unlabelled is None and (self.unlabelled_size is not None or self.unlabelled_weight != 1.0):
            raise ValueError("--unlabelled_size and --unlabelled_weight need --unlabelled, which names the dataset")


@dataclass
class UlmfitArguments(RecipeArguments):
    """Further arguments for the stages before a classifier, whose head is new."""

    kept_settings: ClassVar[tuple[str, ...]] = (*RecipeArguments.kept_settings, "pooling", "classifier_hidden_size")

    general_lm: list[str] | None = _option(
        None, "Options of the general language model, as name=value: dataset=wikitext num_train_epochs=2."
    )
    target_lm: list[str] | None = _option(
        None,
        "Options of its fine-tuning on texts of the task, as name=value; without a dataset of its own it reads the "
        "texts of --dataset.",
    )
    classify_only: bool = _option(
        False, "--init-from is a language model of the task's texts already: train the classifier alone."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.general_lm = _stage_options("general_lm", self.general_lm)
        self.target_lm = _stage_options("target_lm", self.target_lm)
        if self.init_from is None and "dataset" not in self.general_lm:
            raise ValueError(
                "the general language model needs text; give --general_lm dataset=NAME, or a trained one with "
                "--init-from RUN"
            )
        if self.classify_only and self.init_from is None:
            raise ValueError("--classify_only needs --init-from, which names the language model")
        if self.new_weights and not self.classify_only:
            raise ValueError("--new_weights would forget the language models; give --classify_only too")


def _stage_options(name: str, pairs: list[str] | None) -> dict[str, Any]:
    """The options of a stage: those of the preset, then those of the command line, which may have another dataset."""
    options: dict[str, Any] = {}
    for pair in pairs or []:
        new = named_values(name, [pair])
        if "dataset" in new and "dataset" in options:
            options = {key: value for key, value in options.items() if key not in OF_DATASET}
        options |= new
    return options


@dataclass
class DocumentArguments(RecipeArguments):
    """Further arguments for models that read documents."""

    max_sentences: int | None = _option(None, "Maximum number of sentences of a document; the others are cut off.")


@dataclass
class MultiTaskArguments(RecipeArguments):
    """Further arguments for one model of several tasks."""

    task_weights: list[str] | None = _option(None, "Weights of the losses, as name=value; 1 for the other tasks.")
    sampling_alpha: float = _option(
        0.5, "A batch is of a task with probability proportional to size^alpha: 1 as the rows are, 0 all tasks alike."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = named_values("task_weights", self.task_weights)
        self.task_weights = weights
        for name, weight in weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or weight < 0:
                raise ValueError(f"the weight of the task {name} must be a number of at least 0, got {weight}")
        if not 0 <= self.sampling_alpha <= 1:
            raise ValueError(f"sampling_alpha must be between 0 and 1, got {self.sampling_alpha}")


@dataclass
class RunArguments(Seq2SeqTrainingArguments):
    """Trainer's arguments with other defaults, and the training techniques of the papers."""

    output_dir: str | None = _option(None, "Folder of the run; runs/RECIPE-PRESET by default.")
    per_device_train_batch_size: int = _option(64, "Batch size per device for training.")
    per_device_eval_batch_size: int = _option(64, "Batch size per device for evaluation.")
    eval_strategy: str = _option("epoch", "When to evaluate on the validation split: no, steps or epoch.")
    save_strategy: str = _option("epoch", "When to save a checkpoint: no, steps, epoch or best.")
    save_total_limit: int | None = _option(2, "Number of last checkpoints to keep, besides the best one.")
    logging_steps: float = _option(50, "Log the training loss every N steps.")
    report_to: str = _option("none", "Integrations to log to: none, tensorboard, trackio, wandb, ...")
    restore_callback_states_from_checkpoint: bool = _option(
        True, "Restore the states of the callbacks on resume: early stopping, elapsed time."
    )
    seed: int = _option(0, "Random seed for initialisation, data order and dropout.")
    max_tokens: int | None = _option(
        None, "Group rows of similar length into batches of at most N tokens, padding included."
    )
    buffer_size: int = _option(10_000, "With --streaming: number of rows that are read, encoded and shuffled together.")
    average_checkpoints: int = _option(0, "Average the last N checkpoints; kept only if the validation score improves.")
    early_stopping_patience: int = _option(0, "Stop after N evaluations without improvement; 0 disables it.")
    max_minutes: float | None = _option(None, "Stop training after N minutes.")
    mixed_precision: str = _option(
        "auto",
        "bf16, no, auto: bf16 if the GPU supports it, or if_faster: that, and bf16 on a CPU that is faster in it "
        "(measured once per machine).",
    )
    cpu_kernels: str = _option(
        "auto", "auto: use oneDNN for the matrix products that it computes faster than MKL on this CPU; or off."
    )
    num_beams: int = _option(
        5, "Number of beams of the final evaluation; generation_num_beams is for evaluations during training."
    )
    layer_lr_decay: float = _option(
        1.0, "Learning rate of a layer as a fraction of that of the layer above (ULMFiT: 1/2.6)."
    )
    slanted_triangular: float = _option(
        0.0,
        "Slanted triangular learning rates: the fraction of the steps in which the rate rises (ULMFiT: 0.1); it decays "
        "in the others. 0 for the schedule of --lr_scheduler_type.",
    )
    slanted_ratio: float = _option(32.0, "With --slanted_triangular: the highest learning rate divided by the lowest.")
    halve_lr_after: float = _option(
        0.0,
        "Halve the learning rate after N epochs and after each one that follows (Zaremba et al. 2014: 4); 0 for the "
        "schedule of --lr_scheduler_type.",
    )
    teacher_forcing: str | None = _option(
        None,
        "Scheduled sampling: how the probability that a decoder reads the reference's token falls during training: "
        "constant, linear, exponential or inverse_sigmoid. Without it the decoder always reads the reference.",
    )
    teacher_forcing_end: float = _option(0.5, "With --teacher_forcing: the probability at the last step.")
    professor_forcing: float = _option(
        0.0,
        "Professor forcing (recurrent, seq2seq, bahdanau): weight of the loss by which states of a model that reads "
        "its own predictions are to look like those of one that reads the reference; 0 for none.",
    )
    unfreeze_every: float = _option(
        0.0, "Gradual unfreezing: unfreeze one more layer, from the top, every N epochs; 0 trains all layers."
    )
    live: bool = _option(False, "Write live.html into the output folder: a page with the curves, updated as it trains.")
    quiet: bool = _option(False, "Show one line of progress and no tables.")

    def __post_init__(self) -> None:
        self._check_values()
        has_bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported() and not self.use_cpu
        if self.mixed_precision == "if_faster" and not (torch.accelerator.is_available() and not self.use_cpu):
            has_bf16 = has_fast_bfloat16()
        if self.mixed_precision == "bf16" or (self.mixed_precision != "no" and has_bf16 and not self.fp16):
            self.bf16 = True
        if not torch.accelerator.is_available() or self.use_cpu:
            self.use_cpu = True  # without it several processes on CPUs do not find each other
            self.dataloader_pin_memory = False
        self.enable_jit_checkpoint = False  # SIGTERM always saves, after a whole step; Trainer's saves inside of one
        self.logging_nan_inf_filter = False  # a NaN loss stops the run, so it must reach the log
        if self.average_checkpoints:
            self.save_total_limit = max(self.save_total_limit or 0, self.average_checkpoints)
        if self.early_stopping_patience:
            self.load_best_model_at_end = True
        # By default Trainer compares checkpoints by loss, `start_run` by the main score of the task.
        self.is_metric_chosen = self.metric_for_best_model is not None
        super().__post_init__()

    def _check_values(self) -> None:
        if self.mixed_precision not in _MIXED_PRECISION:
            raise ValueError(
                f"mixed_precision must be one of {', '.join(_MIXED_PRECISION)}; got {self.mixed_precision!r}"
            )
        if self.cpu_kernels != "auto":
            read_choice(self.cpu_kernels)
        if self.average_checkpoints < 0 or self.early_stopping_patience < 0 or self.unfreeze_every < 0:
            raise ValueError("average_checkpoints, early_stopping_patience and unfreeze_every must be 0 or more")
        if self.teacher_forcing is not None:
            check_schedule(self.teacher_forcing, self.teacher_forcing_end)
        if self.professor_forcing < 0:
            raise ValueError(f"professor_forcing must be 0 or more, got {self.professor_forcing}")
        if not 0 <= self.slanted_triangular < 1:
            raise ValueError(f"slanted_triangular must be at least 0 and below 1, got {self.slanted_triangular}")
        if self.slanted_ratio < 1:
            raise ValueError(f"slanted_ratio must be at least 1, got {self.slanted_ratio}")
        if self.halve_lr_after < 0:
            raise ValueError(f"halve_lr_after must be 0 or more, got {self.halve_lr_after:g}")
        if self.halve_lr_after and self.slanted_triangular:
            raise ValueError("halve_lr_after and slanted_triangular are both learning rate schedules; give one of them")
        if self.halve_lr_after and self.max_steps > 0:
            raise ValueError("halve_lr_after counts epochs; give --num_train_epochs instead of --max_steps")
        if not 0 < self.layer_lr_decay <= 1:
            raise ValueError(f"layer_lr_decay must be above 0 and at most 1, got {self.layer_lr_decay}")
        if self.max_minutes is not None and self.max_minutes <= 0:
            raise ValueError(f"max_minutes must be above 0, got {self.max_minutes}")


def arguments_class(main: Callable) -> type[RecipeArguments]:
    """The class that a recipe names `Arguments` beside its `main`; RecipeArguments if it names none."""
    return main.__globals__.get("Arguments", RecipeArguments)


def parse_arguments(
    recipe: str, argv: list[str] | None = None, arguments: type[RecipeArguments] = RecipeArguments
) -> tuple[RecipeArguments, RunArguments]:
    """Parse the arguments of a recipe: its preset, overridden by flags.

    Args:
        recipe: The recipe's file; its name without the year is its section in the presets.
        argv: Flags; those of the command line by default.
        arguments: Class of the recipe's own arguments, see `arguments_class`.
    """
    argv = expand_flags(sys.argv[1:] if argv is None else list(argv))
    file, section, preset = Path(recipe), section_of(recipe), flag_value(argv, "preset")
    show_all = "--help-all" in argv or "--help_all" in argv
    parser = build_parser(file, (arguments, RunArguments), show_all)
    if show_all or {"--help", "-h"} & set(argv):
        parser.print_help()
        sys.exit(0)
    settings, notes = load_preset(preset, section) if preset else ({}, {})
    model = settings.pop("model", {})
    _check_settings(settings, preset, (arguments, RunArguments))
    dataset, of_preset = flag_value(argv, "dataset"), {}
    if dataset and "dataset" in settings:
        notes = notes if _is_data_of(preset, settings, dataset) else {}
        of_preset = {name: settings.pop(name) for name in OF_DATASET if name in settings}
    if "--streaming" in argv:  # its only epoch is the whole run
        settings = {"eval_strategy": "steps", "eval_steps": 500, "save_strategy": "steps"} | settings
    parser.set_defaults(**_to_flags(settings), output_dir=f"runs/{section}-{preset or 'run'}")
    args, training_args, unknown = parser.parse_args_into_dataclasses(
        argv, return_remaining_strings=True, look_for_args_file=False
    )
    if unknown:
        raise unknown_flag(unknown[0], parser)
    args.notes, args.recipe, args.argv = notes, file.name, argv
    if not any(getattr(args, name) for name in _COLUMNS):
        args.preset_columns = {name: of_preset[name] for name in _COLUMNS if name in of_preset}
    if args.init_from is not None:  # the sizes are those of the checkpoint
        model = {name: value for name, value in model.items() if name.endswith(args.kept_settings)}
    args.model = model | _size_settings(args.size, section) | args.model
    if args.dataset is None:
        presets = f"give --preset (one of {', '.join(preset_names(section))}) or --dataset"
        raise ValueError(f"the recipe needs data: {notes.get('get_data', 'give --dataset') if preset else presets}")
    if args.streaming:
        _check_streaming(args, training_args)
    if training_args.label_smoothing_factor:  # done inside the model, which never materialises all logits
        args.model["label_smoothing"] = training_args.label_smoothing_factor
        training_args.label_smoothing_factor = 0.0
    return args, training_args


def _size_settings(size: str | None, section: str) -> dict[str, Any]:
    """The fields of `--size` for the rung of a recipe, whose section starts with its name: `bert_finetune`."""
    if size is None:
        return {}
    rungs = [rung for rung in LADDER if f"{section}_".startswith(f"{rung.name}_")]
    if not rungs:
        raise ValueError(f"--size {size} is not known for {section}; give the fields of its model with --model")
    return max(rungs, key=lambda rung: len(rung.name)).config.size_settings(size)


def _check_streaming(args: RecipeArguments, training_args: RunArguments) -> None:
    """Raise an error for what needs the whole train split: its length, its rows in another order, its epochs."""
    if training_args.max_steps <= 0:
        raise ValueError("--streaming needs --max_steps: the length of a stream is unknown, so its epochs are too")
    if training_args.buffer_size < 1:
        raise ValueError(f"buffer_size must be 1 row or more, got {training_args.buffer_size}")
    rejected = {
        "max_tokens": training_args.max_tokens,
        "train_sampling_strategy": training_args.train_sampling_strategy != "random",
        "dataloader_num_workers": training_args.dataloader_num_workers,
        "unfreeze_every": training_args.unfreeze_every,
        "num_proc": args.num_proc,
    }
    for name, value in rejected.items():
        if value:
            raise ValueError(f"--{name} needs the whole train split, which --streaming does not load; leave one out")


def settings_of(args: RecipeArguments, training_args: RunArguments) -> dict[str, Any]:
    """All settings that differ from their defaults, without those that depend on the machine."""
    settings = _changed(args, skip=("resume", "overwrite", "notes", "recipe", "argv", "num_proc", "licence"))
    derived = ("do_eval", "disable_tqdm", "dataloader_pin_memory", "logging_nan_inf_filter", "mixed_precision")
    machine = ("output_dir", "use_cpu", "push_to_hub", "hub_token", "logging_dir", "run_name", "quiet", "live")
    metric = () if training_args.is_metric_chosen else ("metric_for_best_model", "greater_is_better")
    return settings | _changed(training_args, skip=derived + machine + metric)


def section_of(recipe: str) -> str:
    """`recipes/2019_bert_pretrain_accelerate.py` reads the section `bert_pretrain`."""
    return Path(recipe).stem.partition("_")[2].removesuffix("_accelerate")


def _changed(arguments: Any, skip: tuple[str, ...]) -> dict[str, Any]:
    changed = {}
    for each in dataclasses.fields(arguments):
        value = getattr(arguments, each.name)
        default = each.default_factory() if callable(each.default_factory) else each.default
        is_plain = isinstance(value, str | int | float | bool | list | dict) and not isinstance(value, type)
        is_off = value is False and default is None  # Trainer itself sets some unset flags to False
        if each.init and each.name not in skip and is_plain and value not in (default, {}, []) and not is_off:
            changed[each.name] = str(value.value) if hasattr(value, "value") else value
    return changed


def _is_data_of(preset: str | None, settings: dict[str, Any], dataset: str) -> bool:
    """Whether a dataset is a copy of the preset's own, by its name: what was published about that one applies to it."""
    own = (preset, Path(settings["dataset"]).stem, settings.get("dataset_config"))
    return Path(dataset).stem in own


def _check_settings(settings: dict[str, Any], preset: str | None, classes: tuple[type, ...]) -> None:
    known = {each.name for dataclass in classes for each in dataclasses.fields(dataclass)}
    for name in settings:
        if name not in known:
            raise ValueError(f"preset {preset!r} sets {name!r}, which is no option of the recipe")


def _to_flags(settings: dict[str, Any]) -> dict[str, Any]:
    """Convert mappings to lists of name=value, with strings as they are and other values as JSON."""
    return {
        name: [f"{key}={each if isinstance(each, str) else json.dumps(each)}" for key, each in value.items()]
        if isinstance(value, dict)
        else value
        for name, value in settings.items()
    }
