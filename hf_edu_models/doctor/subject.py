"""The model under test: a checkpoint, a class built with a small configuration, or a model in memory."""

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
from transformers import PreTrainedConfig, PreTrainedModel, set_seed
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from ..checkpoints import load_config, quiet

# Small enough for a second on any machine. 24 is divisible by 1, 2, 3 and 4 heads.
HIDDEN_SIZE, NUM_HEADS = 24, 4
SMALL = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim"), HIDDEN_SIZE),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), NUM_HEADS),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), NUM_HEADS),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "ffn_dim", "n_inner"), 40),
    **dict.fromkeys(("embedding_size", "embedding_dim", "word_embed_proj_dim"), 20),
    **dict.fromkeys(("vocab_size", "decoder_vocab_size"), 53),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), 64),
}
_TOKEN_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}


@dataclass
class ModelUnderTest:
    """A model with what the checks need; at most one copy of its weights is in memory at any time, and one on disk.

    Args:
        name: the argument of the user.
        folder: temporary folder for the checks.
        source: the folder or Hub id of a checkpoint.
        in_memory: the model that the user passed in, if any.
        missing, unexpected: weights that the checkpoint lacks, and those that the class does not have.
    """

    name: str
    model_class: type[PreTrainedModel]
    config: PreTrainedConfig
    folder: Path
    source: str | None = None
    trust_remote_code: bool = False
    in_memory: PreTrainedModel | None = None
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    @cached_property
    @torch.enable_grad()
    def model(self) -> PreTrainedModel:
        """The model in memory, the checkpoint, or the class with random weights; in evaluation mode."""
        if self.in_memory is not None:
            return self.in_memory.eval()
        if self.source is None:
            return _randomise_weights(self.fresh())
        # The checks look for small differences, which half precision would hide.
        kwargs = {"dtype": torch.float32, "trust_remote_code": self.trust_remote_code, "output_loading_info": True}
        model, info = self.model_class.from_pretrained(self.source, **kwargs)
        self.missing, self.unexpected = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
        return model.eval()

    @torch.enable_grad()
    def fresh(self) -> PreTrainedModel:
        """A new model of the same class and configuration, always with the same seed."""
        set_seed(0)
        return self.model_class(copy.deepcopy(self.config)).eval()

    @torch.enable_grad()
    def from_pretrained(self, *args, **kwargs) -> PreTrainedModel:
        """Load as a user would; uninitialised memory is NaN."""
        attention = getattr(self.model.config, "_attn_implementation", None)
        if attention is not None:
            kwargs["attn_implementation"] = attention
        with nan_filled_memory():
            loaded = self.model_class.from_pretrained(*args, **kwargs)
        return loaded.to(self.model.device).eval()

    @cached_property
    def saved(self) -> Path:
        """The folder of the saved model, without its code: whether that is portable is another check."""
        folder = self.folder / "saved"
        with auto_class_set({self.model_class: None, type(self.config): None}):
            self.model.save_pretrained(folder)
        return folder

    @cached_property
    def loaded(self) -> PreTrainedModel:
        """The model after saving and loading: a copy in memory, until `drop_copy`."""
        return self.from_pretrained(self.saved)

    def drop_copy(self) -> None:
        self.__dict__.pop("loaded", None)

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.model_class.forward).parameters)

    def accepts(self, name: str) -> bool:
        """Whether `forward` has a parameter of this name."""
        return name in self.parameters

    @property
    def accepts_kwargs(self) -> bool:
        return any(each.kind is inspect.Parameter.VAR_KEYWORD for each in self.parameters.values())

    @property
    def is_encoder_decoder(self) -> bool:
        return bool(getattr(self.config, "is_encoder_decoder", False))

    @property
    def can_generate(self) -> bool:
        return self.model_class.can_generate()

    @property
    def is_decoder_only(self) -> bool:
        return self.can_generate and not self.is_encoder_decoder

    @property
    def is_text_model(self) -> bool:
        needs_images = self.accepts("pixel_values") and not self.can_generate
        return self.model_class.main_input_name == "input_ids" and self.accepts("input_ids") and not needs_images

    @property
    def custom_classes(self) -> list[type]:
        """Of the model class and its config class, those that are not transformers' own."""
        classes = (self.model_class, type(self.config))
        return [each for each in classes if not each.__module__.startswith("transformers.")]

    @property
    def is_custom(self) -> bool:
        return self.model_class in self.custom_classes


def load_subject(target: Any, folder: Path, trust_remote_code: bool, settings: dict | None) -> ModelUnderTest:
    """The model that an argument stands for; a wrong argument is a ValueError, a broken model is not."""
    if not isinstance(target, PreTrainedModel | type):
        target = str(target)
        if _is_class_name(target):
            return _subject_of_class(target, _import_class(target), folder, settings)
    if isinstance(target, type):
        return _subject_of_class(target.__name__, target, folder, settings)
    if settings:
        raise ValueError(
            f"settings ({', '.join(settings)}) are for a class that is built with a small config; "
            f"{'a checkpoint' if isinstance(target, str) else 'a model in memory'} has its own config"
        )
    if isinstance(target, str):
        return _subject_of_checkpoint(target, folder, trust_remote_code)
    return ModelUnderTest(type(target).__name__, type(target), target.config, folder, in_memory=target)


def is_checkpoint(target: Any) -> bool:
    """Whether an argument is a folder or a Hub id, not a class, its name or a model."""
    return isinstance(target, str | os.PathLike) and not _is_class_name(str(target))


def _is_class_name(target: str) -> bool:
    is_dotted = re.fullmatch(r"[A-Za-z_][\w.]*:\w+|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\.[A-Z]\w*", target)
    return bool(is_dotted) and not Path(target).exists()


def _import_class(target: str) -> type:
    """`package.module:Class` or `package.module.Class`, also from the current folder."""
    module_name, _, name = target.partition(":") if ":" in target else target.rpartition(".")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ValueError(f"{module_name} cannot be imported ({summarise(error)}); give package.module:Class") from error
    if not hasattr(module, name):
        raise ValueError(f"{module_name} has no class {name}; check its spelling")
    return getattr(module, name)


def _subject_of_class(name: str, model_class: Any, folder: Path, settings: dict | None) -> ModelUnderTest:
    is_model_class = isinstance(model_class, type) and issubclass(model_class, PreTrainedModel)
    if not is_model_class:
        raise ValueError(f"{name} is not a PreTrainedModel; give a model class, a checkpoint folder or a Hub id")
    if model_class.config_class is None:
        raise ValueError(f"{name} has no config_class; write `config_class = YourConfig` in its body")
    return ModelUnderTest(name, model_class, small_config(model_class.config_class, settings or {}), folder)


def small_config(config_class: type[PreTrainedConfig], settings: dict) -> PreTrainedConfig:
    """The default configuration with small sizes and the user's settings."""
    try:
        default = config_class()
        unknown = [name for name in settings if not hasattr(default, name)]
        if unknown:
            raise ValueError(f"it has no field {', '.join(unknown)}")
        return config_class(**_small_sizes(default.to_dict()) | settings)
    except Exception as error:
        values = ", ".join(f"{name}={value}" for name, value in settings.items()) or "small sizes"
        raise ValueError(
            f"{config_class.__name__} rejects {values} ({summarise(error)}); set its fields with --set name=value"
        ) from error


def _small_sizes(default: dict) -> dict:
    """The fields to change in a configuration with these values."""
    is_count = {name for name, value in default.items() if isinstance(value, int) and not isinstance(value, bool)}
    sizes = {name: min(default[name], SMALL[name]) for name in SMALL if name in is_count}
    heads = sizes.get("num_attention_heads", NUM_HEADS)
    if "num_key_value_heads" in is_count:
        sizes["num_key_value_heads"] = heads if default["num_key_value_heads"] == default["num_attention_heads"] else 1
    sizes |= {name: HIDDEN_SIZE // heads for name in ("head_dim", "d_kv") if name in is_count}
    vocab_size = sizes.get("vocab_size", SMALL["vocab_size"])
    for name, value in default.items():
        if name.endswith("_token_id") and isinstance(value, int) and value >= vocab_size:
            sizes[name] = _TOKEN_IDS.get(name, _TOKEN_IDS["eos_token_id"])
    # Batched generation and classification need a padding token, and a decoder needs a start token.
    required = ["pad_token_id"] + ["decoder_start_token_id"] * bool(default.get("is_encoder_decoder"))
    return sizes | {name: _TOKEN_IDS[name] for name in required if default.get(name) is None}


def _subject_of_checkpoint(source: str, folder: Path, trust_remote_code: bool) -> ModelUnderTest:
    source = os.path.expanduser(source)
    try:
        config = load_config(source, trust_remote_code)
        model_class = _class_of_checkpoint(source, config, trust_remote_code)
    except FileNotFoundError:
        raise
    except Exception as error:
        has_code = any(text in str(error) for text in ("trust_remote_code", "model type", "unknown architecture"))
        hint = "; it has its own code: if you trust it, add --trust-remote-code"
        hint = hint if has_code and not trust_remote_code else ""
        raise ValueError(f"{source} cannot be loaded as a checkpoint ({summarise(error)}){hint}") from error
    return ModelUnderTest(source, model_class, config, folder, source, trust_remote_code)


def _class_of_checkpoint(source: str, config: PreTrainedConfig, trust_remote_code: bool) -> type[PreTrainedModel]:
    """The class that `architectures` names: of an Auto class, in the checkpoint's code, or transformers' own."""
    name = (config.architectures or [""])[0]
    for auto_name in (name for name in vars(transformers.models.auto) if name.startswith("AutoModel")):
        mapping = getattr(getattr(transformers, auto_name, None), "_model_mapping", None)
        found = mapping.get(type(config), None) if mapping is not None else None
        for model_class in found if isinstance(found, tuple) else [found]:
            if model_class is not None and model_class.__name__ == name:
                return model_class
    for entry in (getattr(config, "auto_map", None) or {}).values():
        if trust_remote_code and isinstance(entry, str) and entry.rpartition(".")[2] == name:
            return get_class_from_dynamic_module(entry, source)
    if hasattr(transformers, name):
        return getattr(transformers, name)
    raise ValueError(f"config.json names an unknown architecture, {name!r}")


@torch.no_grad()
def _randomise_weights(model: PreTrainedModel) -> PreTrainedModel:
    """Larger random weights: with a usual initialisation a bug changes the outputs too little to be seen."""
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.numel():
            noise = torch.empty_like(parameter).uniform_(-0.5, 0.5)
            largest = parameter.abs().amax()
            parameter.copy_(parameter + 0.2 * largest * noise if largest >= 0.2 else noise)
    return model


def summarise(error: BaseException) -> str:
    """The type of an exception and the first line of its message, at most 200 characters."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"


@contextmanager
def nan_filled_memory() -> Iterator[None]:
    """New memory holds NaN (or the largest integer) until it is written, as torch does in deterministic mode."""
    enabled, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    deterministic: Any = torch.utils.deterministic
    fills = deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warns)
        deterministic.fill_uninitialized_memory = fills


@contextmanager
def auto_class_set(names: dict[Any, str | None]) -> Iterator[None]:
    """As if `register_for_auto_class` had been called with these names; with None, saving copies no code."""
    before = {each: each._auto_class for each in names if "_auto_class" in vars(each)}
    for each, name in names.items():
        each._auto_class = name
    try:
        yield
    finally:
        for each in names:
            if each in before:
                each._auto_class = before[each]
            else:
                del each._auto_class


@contextmanager
def preserve_state(model: PreTrainedModel | None) -> Iterator[None]:
    """Silence messages; restore random states, and the mode and configuration of a model that the user passed in."""
    modes = {} if model is None else {module: module.training for module in model.modules()}
    config = {} if model is None else dict(vars(model.config))
    if config.get("auto_map"):
        config["auto_map"] = dict(config["auto_map"])  # saving with code changes it in place
    random_states = random.getstate(), numpy.random.get_state()
    with quiet(), warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            random.setstate(random_states[0])
            numpy.random.set_state(random_states[1])
            for module, mode in modes.items():
                module.training = mode
            if model is not None:
                vars(model.config).clear()
                vars(model.config).update(config)
