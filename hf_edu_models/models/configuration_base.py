# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""What all configurations share."""

import difflib
import math
import sys
import warnings
from collections.abc import Iterable
from dataclasses import fields
from typing import ClassVar

# `strict` checks field types; taken from where transformers itself uses it, so that torch and transformers suffice.
from transformers.configuration_utils import GenerationConfig, PreTrainedConfig, strict

_IMPLEMENTATIONS = ("eager", "fused")
_CELL_TYPES = ("rnn", "gru", "lstm")
_HEAD_AGGREGATIONS = ("project", "concat", "mean")
_PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")
_TASKS_OF_HEADS = ("classification", "token_classification")  # those that one model may have together
_COMMON_ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu", "tanh")  # known without an import of torch
_LARGEST_DEPTH, _LARGEST_SIZE, _LARGEST_MATRIX = 2**12, 2**28, 10**11  # beyond every model there is
_TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id")
# Keyword arguments that are no field of a configuration, but that transformers reads or writes.
_TRANSFORMERS_SETTINGS = {
    "attn_implementation",
    "auto_map",
    "custom_pipelines",
    "experts_implementation",
    "model_type",
    "name_or_path",
    "num_labels",
    "output_attentions",
    "per_layer_config",
    "quantization_config",
    "tokenizer_class",
    "torch_dtype",
}


def check_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} '{value}' is not known; choose one of {', '.join(allowed)}")


def _check_number(name: str, value: float) -> None:
    """Reject a number that no model can be built with; by the name of its field."""
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    if name.endswith(("dropout", "label_smoothing")) and not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value}")
    if name.endswith(("initializer_range", "_weight")) and value < 0:
        raise ValueError(f"{name} must be at least 0, got {value}")
    if name.endswith("_eps") and value <= 0:
        raise ValueError(f"{name} must be above 0, got {value}")
    is_depth = name.startswith(("num_hidden", "num_attention")) or name.endswith("_layers")
    if is_depth or name.endswith("_size") or name.startswith("max_position"):
        limit = _LARGEST_DEPTH if is_depth else _LARGEST_SIZE
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
        if value > limit:
            raise ValueError(f"{name} must be at most {limit}, got {value}")


def _check_matrix(config) -> None:
    """Reject sizes that make a matrix which no machine holds, before memory is asked for."""
    sizes = {name: value for name, value in vars(config).items() if name.endswith("_size") and value is not None}
    largest, second = sorted([*sizes.values(), sizes.get("hidden_size", 1)])[-2:][::-1]
    if largest * second > _LARGEST_MATRIX:
        raise ValueError(
            f"a matrix of {largest} by {second} is above {_LARGEST_MATRIX} weights; choose smaller sizes than "
            + ", ".join(f"{name} {value}" for name, value in sizes.items())
        )


def _check_token_ids(config) -> None:
    """Reject special tokens outside the vocabulary."""
    _check_number("vocab_size", config.vocab_size)
    for name in (*_TOKEN_IDS, "decoder_start_token_id"):
        ids = getattr(config, name, None)
        for token_id in ids if isinstance(ids, list) else [ids]:
            if token_id is not None and not 0 <= token_id < config.vocab_size:
                raise ValueError(
                    f"{name} {token_id} is outside the vocabulary; choose 0 to {config.vocab_size - 1}, or None"
                )


def check_recurrent(config) -> None:
    check_choice("cell_type", getattr(config, "cell_type", "lstm"), _CELL_TYPES)
    check_choice("recurrent_implementation", config.recurrent_implementation, _IMPLEMENTATIONS)
    if config.forget_gate_bias < 0 and config.transformers_version is None:
        bias = config.forget_gate_bias
        warnings.warn(f"forget_gate_bias {bias} is negative: the cell state fades from the first step", stacklevel=2)


def check_tied_sizes(config, name: str, size: int) -> None:
    if config.tie_word_embeddings and config.embedding_size != size:
        raise ValueError(
            f"tied embeddings need embedding_size {config.embedding_size} equal to {name} {size}; "
            "set them equal or tie_word_embeddings to False"
        )


def unknown_setting(config_class: type, name: str) -> str:
    """A sentence about a setting that a configuration does not have, with those that are spelt like it."""
    close = difflib.get_close_matches(name, [field.name for field in fields(config_class)])
    suggestion = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"{config_class.__name__} has no setting {name!r}{suggestion}"


def check_heads(config) -> None:
    if config.hidden_size % config.num_attention_heads:
        raise ValueError(
            f"hidden_size {config.hidden_size} cannot be split into {config.num_attention_heads} equal heads; "
            "choose a multiple"
        )
    check_choice("head_aggregation", getattr(config, "head_aggregation", "project"), _HEAD_AGGREGATIONS)


def check_task(name: str, task: dict) -> None:
    """Reject a row of `tasks`, the heads of a model that has several."""
    if not name.isidentifier():
        raise ValueError(f"the task {name!r} needs another name: letters, digits and _, and no digit at the start")
    if not {"task", "labels"} <= set(task) <= {"task", "labels", "problem_type", "weight"}:
        raise ValueError(
            f"the task {name} has {', '.join(task) or 'no fields'}; give task and labels, and problem_type and weight "
            "if they differ from the defaults"
        )
    check_choice(f"task of {name}:", task["task"], _TASKS_OF_HEADS)
    if task.get("problem_type") is not None:
        check_choice(f"problem_type of {name}:", task["problem_type"], _PROBLEM_TYPES)
    if not task["labels"] and (task["labels"] is not None or task["task"] == "token_classification"):
        raise ValueError(f"the task {name} has the labels {task['labels']}; give the names of its classes")
    weight = task.get("weight", 1.0)
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"the weight of the task {name} must be at least 0 and finite, got {weight}")


def warn_of_other_ids(config, tokenizer) -> None:
    """Warn if a model and a tokenizer disagree about special tokens: such a model may never stop generating."""
    pairs = {name: (getattr(config, name, None), getattr(tokenizer, name, None)) for name in _TOKEN_IDS}
    differences = [
        f"{name} is {ours} in the config and {theirs} in the tokenizer"
        for name, (ours, theirs) in pairs.items()
        if ours is not None and theirs is not None and theirs not in (ours if isinstance(ours, list) else [ours])
    ]
    if differences:
        hint = f"build the config with {type(config).__name__}.for_tokenizer(tokenizer), or set its ids"
        warnings.warn(f"{', '.join(differences)}; {hint}", stacklevel=3)


def add_class_names(config_class) -> None:
    """Add a rung's class names to transformers' name tables (`MODEL_FOR_CAUSAL_LM_MAPPING_NAMES`, ...).

    `AutoModel.register` does not. Trainer shifts labels under label smoothing, and lm-eval chooses how to run a model,
    by these names. Configurations do not import torch, so nothing is added before the Auto classes are imported.
    """
    modeling_auto = sys.modules.get("transformers.models.auto.modeling_auto")
    for auto_name, class_name in getattr(config_class, "heads", {}).items():
        auto_class = getattr(modeling_auto, auto_name, None)  # None while transformers itself is being imported
        if auto_class is not None:
            auto_class._model_mapping._model_mapping[config_class.model_type] = class_name


def tensor_parallel_plan(*stacks: str, cross_attention: tuple[str, ...] = ()) -> dict[str, str]:
    """How `tp_plan="auto"` and vLLM split the linear layers of a Transformer over processes.

    Queries, keys and values are one product that is cut afterwards, so its output is gathered; W^O stays whole.

    Args:
        stacks: module names of the stacks of layers; those of `cross_attention` attend over a source, too.
    """
    plan = {}
    for stack in stacks:
        plan[f"{stack}.*.self_attention.qkv_proj"] = "colwise_gather_output"
        plan[f"{stack}.*.feed_forward.inner_proj"] = "colwise"
        plan[f"{stack}.*.feed_forward.outer_proj"] = "rowwise"
    for stack in cross_attention:
        plan[f"{stack}.*.cross_attention.q_proj"] = "colwise_gather_output"
        plan[f"{stack}.*.cross_attention.kv_proj"] = "colwise_gather_output"
    return plan


def pipeline_parallel_plan(embeddings: str) -> dict[str, tuple[list[str], list[str]]]:
    """Inputs and outputs of the parts that vLLM puts on different devices, in their order."""
    return {
        embeddings: (["input_ids"], ["inputs_embeds"]),
        "layers": (["hidden_states", "attention_mask"], ["hidden_states"]),
        "final_norm": (["hidden_states"], ["hidden_states"]),
    }


def layer_sizes(layers: int, hidden_size: int, heads: int) -> dict[str, int]:
    """The fields that make the size of a Transformer; feed-forward networks are four times as wide as the layers."""
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden_size,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden_size,
    }


@strict
class EduConfig(PreTrainedConfig):
    """Writes every head of the model family into `auto_map`, not only the one that is saved."""

    heads: ClassVar[dict[str, str]] = {}  # Auto class -> our class
    heads_without_auto_class: ClassVar[tuple[str, ...]] = ()  # transformers has none for what they do
    sizes: ClassVar[dict[str, dict]] = {}  # name of a published size -> its fields
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "encoder_last_hidden_state"]

    vocab_size: int = 10_000
    # The ids of `data.train_tokenizer`, whose id 1 is the unknown token; `for_tokenizer` takes them from any tokenizer.
    pad_token_id: int | None = 0
    bos_token_id: int | None = 2
    eos_token_id: int | list[int] | None = 3
    tie_word_embeddings: bool = False
    use_cache: bool = True
    dropout: float | int = 0.0

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.transformers_version is None:  # not loaded from a file, which may hold what other programs need
            self.warn_of_unknown(kwargs)
            _check_token_ids(self)
        stem = self.model_type.removeprefix("edu_")
        self.auto_map = {"AutoConfig": f"configuration_{stem}.{type(self).__name__}"}
        self.auto_map |= {auto: f"modeling_{stem}.{name}" for auto, name in self.heads.items()}
        add_class_names(type(self))

    @classmethod
    def for_tokenizer(cls, tokenizer, **settings) -> "EduConfig":
        """A configuration with the vocabulary size and the special token ids of a tokenizer.

        Args:
            settings: the other fields; they take precedence.
        """
        ids = {name: getattr(tokenizer, name) for name in _TOKEN_IDS}
        if any(field.name == "decoder_start_token_id" for field in fields(cls)):
            ids["decoder_start_token_id"] = ids["pad_token_id" if ids["bos_token_id"] is None else "bos_token_id"]
        return cls(**{"vocab_size": len(tokenizer)} | ids | settings)

    @classmethod
    def of_size(cls, size: str, **settings) -> "EduConfig":
        """A configuration of a published size, by its name in `sizes`.

        Args:
            settings: the other fields; they take precedence.
        """
        return cls(**cls.size_settings(size) | settings)

    @classmethod
    def size_settings(cls, size: str) -> dict:
        """The fields of a published size."""
        if not cls.sizes:
            raise ValueError(f"{cls.__name__} has no sizes by name, got size {size!r}; set its fields instead")
        check_choice("size", size, cls.sizes)
        return dict(cls.sizes[size])

    def warn_of_unknown(self, names: Iterable[str]) -> None:
        """Warn of keyword arguments that are kept, as transformers keeps them, but that no model reads."""
        caller, level = sys._getframe(), 1
        while caller.f_back is not None and caller.f_locals.get("self") is self:  # up to the line that builds it
            caller, level = caller.f_back, level + 1
        for name in set(names) - _TRANSFORMERS_SETTINGS - set(GenerationConfig._get_default_generation_params()):
            if not name.startswith("_"):
                warnings.warn(f"ignored: {unknown_setting(type(self), name)}", stacklevel=level)

    def validate_architecture(self):
        for name, value in vars(self).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                _check_number(name, value)
        _check_matrix(self)
        if self.problem_type is not None:
            check_choice("problem_type", self.problem_type, _PROBLEM_TYPES)
        if self.num_labels < 1:
            raise ValueError(f"num_labels must be at least 1, got {self.num_labels}")
        if getattr(self, "hidden_act", "relu") not in _COMMON_ACTIVATIONS:
            from transformers.activations import ACT2FN  # needs torch

            check_choice("hidden_act", self.hidden_act, ACT2FN)
