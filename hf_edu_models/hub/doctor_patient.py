"""Who comes to the doctor: a checkpoint, a class built small, or a model in hand."""

from __future__ import annotations

import copy
import importlib
import inspect
import os
import random
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy
import torch
import transformers
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from .convert import quiet

# Small enough for a second on any machine. 24 can be split into 1, 2, 3 or 4 heads.
HIDDEN, HEADS = 24, 4
SMALL = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim"), HIDDEN),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), HEADS),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), HEADS),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "ffn_dim", "n_inner"), 40),
    **dict.fromkeys(("embedding_size", "embedding_dim", "word_embed_proj_dim"), 20),
    **dict.fromkeys(("vocab_size", "decoder_vocab_size"), 53),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), 64),
}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}


@dataclass
class Patient:
    """One model and what the checks need of it.

    At most one further copy of its weights is in memory at any time, and one on disk.

    Args:
        name: what the user gave.
        source: the folder or Hub id it came from, if it is a checkpoint.
        model: None until it is built or loaded.
        missing, unexpected: weights that the checkpoint lacks, and those that the class has no place for.
        workplace: a folder for the checks, gone afterwards.
    """

    name: str
    model_class: type[PreTrainedModel]
    config: PreTrainedConfig
    workplace: Path
    source: str | None = None
    trust_remote_code: bool = False
    model: PreTrainedModel | None = None
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    def build(self) -> PreTrainedModel:
        """The model of a class or a checkpoint; one that was given is there already."""
        if self.model is None and self.source is None:
            self.model = stir(self.fresh())
        elif self.model is None:
            # Small differences are what the checks look for, and half precision would drown them.
            kwargs = {"dtype": torch.float32, "trust_remote_code": self.trust_remote_code, "output_loading_info": True}
            self.model, info = self.model_class.from_pretrained(self.source, **kwargs)
            self.missing, self.unexpected = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
        self.model.eval()
        return self.model

    def fresh(self) -> PreTrainedModel:
        """The same class built anew in memory, with no checkpoint."""
        torch.manual_seed(0)
        return self.model_class(copy.deepcopy(self.config)).eval()

    def from_pretrained(self, *args, **kwargs) -> PreTrainedModel:
        """Load as a user would, where memory that nobody wrote to shows as NaN."""
        attention = getattr(self.model.config, "_attn_implementation", None)
        if attention is not None:
            kwargs["attn_implementation"] = attention
        with marked_memory():
            loaded = self.model_class.from_pretrained(*args, **kwargs)
        return loaded.to(self.model.device).eval()

    @cached_property
    def saved(self) -> Path:
        """The model on disk, without its code: whether that can travel is a question of its own."""
        folder = self.workplace / "saved"
        with no_code(self.model_class, type(self.config)):
            self.model.save_pretrained(folder)
        return folder

    @cached_property
    def loaded(self) -> PreTrainedModel:
        """The model back from disk: one further copy, until `drop_copy`."""
        return self.from_pretrained(self.saved)

    def drop_copy(self) -> None:
        self.__dict__.pop("loaded", None)

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.model_class.forward).parameters)

    def takes(self, name: str) -> bool:
        return name in self.parameters

    @property
    def takes_anything(self) -> bool:
        return any(each.kind is inspect.Parameter.VAR_KEYWORD for each in self.parameters.values())

    @property
    def is_encoder_decoder(self) -> bool:
        return bool(getattr(self.config, "is_encoder_decoder", False))

    @property
    def generates(self) -> bool:
        return self.model_class.can_generate()

    @property
    def is_decoder_only(self) -> bool:
        """A language model that reads from left to right."""
        return self.generates and not self.is_encoder_decoder

    @property
    def reads_text(self) -> bool:
        needs_more = self.takes("pixel_values") and not self.generates
        return self.model_class.main_input_name == "input_ids" and self.takes("input_ids") and not needs_more

    @property
    def is_transformers_own(self) -> bool:
        return self.model_class.__module__.startswith("transformers.")


def admit(given: Any, workplace: Path, trust_remote_code: bool, settings: dict | None) -> Patient:
    """Find out what was given; a wrong argument is a ValueError, a sick model is not."""
    if isinstance(given, PreTrainedModel):
        refuse_settings(settings, "a model in hand")
        return Patient(type(given).__name__, type(given), given.config, workplace, model=given)
    if isinstance(given, type):
        return patient_of_class(given.__name__, given, workplace, settings)
    given = str(given)
    if names_a_class(given):
        return patient_of_class(given, import_class(given), workplace, settings)
    refuse_settings(settings, "a checkpoint")
    return patient_of_checkpoint(given, workplace, trust_remote_code)


def refuse_settings(settings: dict | None, what: str) -> None:
    if settings:
        names = ", ".join(settings)
        raise ValueError(f"settings ({names}) are for a class that is built small; {what} has its own configuration")


def names_a_class(given: str) -> bool:
    if Path(given).exists():
        return False
    return bool(re.fullmatch(r"[A-Za-z_][\w.]*:\w+|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\.[A-Z]\w*", given))


def import_class(given: str) -> type:
    """`package.module:Class` or `package.module.Class`, also from the folder where the user stands."""
    module_name, _, name = given.partition(":") if ":" in given else given.rpartition(".")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ValueError(f"{module_name} cannot be imported ({one_line(error)}); give package.module:Class") from error
    if not hasattr(module, name):
        raise ValueError(f"{module_name} has no class {name}; check its spelling")
    return getattr(module, name)


def patient_of_class(name: str, model_class: Any, workplace: Path, settings: dict | None) -> Patient:
    if not (isinstance(model_class, type) and issubclass(model_class, PreTrainedModel)):
        raise ValueError(f"{name} is no PreTrainedModel; give a model class, a checkpoint folder or a Hub id")
    if model_class.config_class is None:
        raise ValueError(f"{name} has no config_class; write `config_class = YourConfig` in its body")
    config = small_config(model_class.config_class, settings or {})
    return Patient(name, model_class, config, workplace)


def small_config(config_class: type[PreTrainedConfig], settings: dict) -> PreTrainedConfig:
    """The class's own defaults with the usual sizes made small, and what the user set."""
    try:
        usual = config_class()
        unknown = [name for name in settings if not hasattr(usual, name)]
        if unknown:
            raise ValueError(f"it has no field {', '.join(unknown)}")
        return config_class(**small_sizes(usual.to_dict()) | settings)
    except Exception as error:
        given = ", ".join(f"{name}={value}" for name, value in settings.items()) or "small sizes"
        raise ValueError(f"{config_class.__name__} refuses {given} ({one_line(error)}); set its fields anew") from error


def small_sizes(usual: dict) -> dict:
    """What to change in a configuration with these values."""
    is_count = {name for name, value in usual.items() if isinstance(value, int) and not isinstance(value, bool)}
    sizes = {name: min(usual[name], SMALL[name]) for name in SMALL if name in is_count}
    heads = sizes.get("num_attention_heads", HEADS)
    if "num_key_value_heads" in is_count:
        sizes["num_key_value_heads"] = heads if usual["num_key_value_heads"] == usual["num_attention_heads"] else 1
    sizes |= {name: HIDDEN // heads for name in ("head_dim", "d_kv") if name in is_count}
    vocabulary = sizes.get("vocab_size", SMALL["vocab_size"])
    for name, value in usual.items():
        if name.endswith("_token_id") and isinstance(value, int) and value >= vocabulary:
            sizes[name] = TOKENS.get(name, TOKENS["eos_token_id"])
    # Batches of generation and classification need padding, and a decoder needs a first word.
    wanted = ["pad_token_id"] + ["decoder_start_token_id"] * bool(usual.get("is_encoder_decoder"))
    return sizes | {name: TOKENS[name] for name in wanted if usual.get(name) is None}


def patient_of_checkpoint(source: str, workplace: Path, trust_remote_code: bool) -> Patient:
    looks_local = source.startswith((".", "/", "~")) or source.count("/") > 1
    if looks_local and not Path(source).expanduser().is_dir():
        raise FileNotFoundError(f"{source} is no folder; give a checkpoint folder, a Hub id or package.module:Class")
    source = str(Path(source).expanduser()) if looks_local else source
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=trust_remote_code)
        model_class = class_of_checkpoint(source, config, trust_remote_code)
    except Exception as error:
        brings_code = any(words in str(error) for words in ("trust_remote_code", "model type", "not known here"))
        hint = "; it brings its own code: if you trust that, add --trust-remote-code"
        hint = hint if brings_code and not trust_remote_code else ""
        raise ValueError(f"{source} cannot be read as a checkpoint ({one_line(error)}){hint}") from error
    return Patient(source, model_class, config, workplace, source, trust_remote_code)


def class_of_checkpoint(source: str, config: PreTrainedConfig, trust_remote_code: bool) -> type[PreTrainedModel]:
    """The class that `architectures` names: registered with transformers, its own, or in the checkpoint's code."""
    name = (config.architectures or [""])[0]
    for auto_name in (name for name in vars(transformers.models.auto) if name.startswith("AutoModel")):
        mapping = getattr(getattr(transformers, auto_name, None), "_model_mapping", None)
        found = mapping.get(type(config), None) if mapping is not None else None
        for model_class in found if isinstance(found, tuple) else [found]:
            if model_class is not None and model_class.__name__ == name:
                return model_class
    entries = getattr(config, "auto_map", None) or {}
    for entry in entries.values():
        if trust_remote_code and isinstance(entry, str) and entry.rpartition(".")[2] == name:
            return get_class_from_dynamic_module(entry, source)
    if hasattr(transformers, name):
        return getattr(transformers, name)
    raise ValueError(f"its config.json names the architecture {name!r}, which is not known here")


def stir(model: PreTrainedModel) -> PreTrainedModel:
    """Larger weights, all different: at the usual start a fault changes too little to be seen."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.numel():
                noise = torch.empty_like(parameter).uniform_(-0.5, 0.5)
                largest = parameter.abs().amax()
                parameter.copy_(parameter + 0.2 * largest * noise if largest >= 0.2 else noise)
    return model


def one_line(error: BaseException) -> str:
    """An exception in one line that fits a table."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"


@contextmanager
def marked_memory() -> Iterator[None]:
    """New memory holds NaN (or the largest integer) until somebody writes to it, as torch does when deterministic."""
    enabled, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fills = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warns)
        torch.utils.deterministic.fill_uninitialized_memory = fills


@contextmanager
def no_code(*classes: type) -> Iterator[None]:
    """Saving does not copy the code of these classes."""
    before = {each: each._auto_class for each in classes if "_auto_class" in vars(each)}
    for each in classes:
        each._auto_class = None
    try:
        yield
    finally:
        for each in classes:
            if each in before:
                each._auto_class = before[each]
            else:
                del each._auto_class


@contextmanager
def undisturbed(model: PreTrainedModel | None) -> Iterator[None]:
    """Leave no trace: messages, random numbers, and a given model's mode and configuration stay as they were."""
    modes = {} if model is None else {module: module.training for module in model.modules()}
    settings = {} if model is None else dict(vars(model.config))
    dice = random.getstate(), numpy.random.get_state()
    with quiet(), warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            random.setstate(dice[0])
            numpy.random.set_state(dice[1])
            for module, mode in modes.items():
                module.training = mode
            if model is not None:
                vars(model.config).clear()
                vars(model.config).update(settings)
