"""Applies the tables of `families.py` to two models in memory.

A weight without a counterpart on either side is an error that names it: nothing is dropped or left at its random
initialisation.
"""

import copy
import re
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.utils import logging

from ..auto import LADDER
from .families import FAMILIES, Family, Operation

logger = logging.get_logger(__name__)


def convert(model: PreTrainedModel, to_edu: bool) -> PreTrainedModel:
    """The same model as a class of the other side, in evaluation mode."""
    family = family_of(model.config, to_edu)
    counterpart = counterpart_of(family, type(model).__name__, to_edu)
    _check_allowed_values(family, model, to_edu)
    fields = _edu_config_fields(family, model) if to_edu else _hf_config_fields(family, model)
    if model._supports_sdpa and counterpart._supports_sdpa:
        fields["attn_implementation"] = model.config._attn_implementation
    has_no_pooler = _is_base_model(family, model) and getattr(model, "pooler", 0) is None  # only a BERT has the choice
    extra = {"add_pooling_layer": False} if has_no_pooler else {}
    # hf position tables are set at initialisation and not converted. Forked, so that the user's seed is untouched.
    with torch.random.fork_rng(devices=[]), no_init_weights() if to_edu else nullcontext():
        converted = counterpart(counterpart.config_class(**fields), **extra)
    converted.tie_weights()
    _copy_weights(model, converted.to(model.dtype), family, to_edu)
    if model.can_generate() and converted.can_generate():
        converted.generation_config = copy.deepcopy(model.generation_config)
    return converted.to(model.device).eval()


def family_of(config: PreTrainedConfig, to_edu: bool) -> Family:
    """The family that has the config's `model_type` on the side that is converted from."""
    types = [family.hf_type if to_edu else family.edu_type for family in FAMILIES]
    matches = [family for family, model_type in zip(FAMILIES, types, strict=True) if model_type == config.model_type]
    if not matches:
        choices = ", ".join(sorted(set(types)))
        raise ValueError(f"model_type '{config.model_type}' cannot be converted; these can: {choices}")
    norm_first = getattr(config, "norm_first", None)  # GPT and GPT-2 are one rung, and this is the difference
    return next((family for family in matches if family.constants["norm_first"] == norm_first), matches[0])


def counterpart_of(family: Family, name: str, to_edu: bool) -> type[PreTrainedModel]:
    """The class for the same task on the other side."""
    pairs = family.classes if to_edu else {edu: hf for hf, edu in family.classes.items()}
    if name not in pairs:
        raise ValueError(f"{name} has no counterpart; the classes that have one are {', '.join(pairs)}")
    return model_class_named(pairs[name])


def model_class_named(name: str) -> type[PreTrainedModel]:
    edu = {head.__name__: head for rung in LADDER for head in rung.heads.values()}
    return edu[name] if name in edu else getattr(transformers, name)


def _is_base_model(family: Family, model: PreTrainedModel) -> bool:
    return type(model).__name__ in next(iter(family.classes.items()))


def _check_allowed_values(family: Family, model: PreTrainedModel, to_edu: bool) -> None:
    """Raise if a config field has a value that the other side does not support."""
    if to_edu:
        allowed, other = _resolve(family.hf_allowed, model), family.edu_type
    else:
        constants = {name: (value,) for name, value in _resolve(family.constants, model).items()}
        allowed, other = _resolve(family.edu_allowed, model) | constants, family.hf_type
    for name, values in allowed.items():
        value = getattr(model.config, name, values[0])
        if value not in values:
            choices = " or ".join(repr(choice) for choice in values)
            sentence = f"{type(model).__name__} has {name} {value!r}, but in {other} it is always {choices}"
            _raise_or_warn(sentence, name in family.training_only)


def _resolve(values: dict, model: PreTrainedModel) -> dict:
    return {name: value(model) if callable(value) else value for name, value in values.items()}


def _raise_or_warn(sentence: str, training_only: bool) -> None:
    if not training_only:
        raise ValueError(sentence)
    logger.warning(f"{sentence}; this affects further training only")


def _edu_config_fields(family: Family, model: PreTrainedModel) -> dict:
    """The fields of our config, from an hf model."""
    fields: dict[str, Any] = {}
    first: dict[str, str] = {}
    for hf, edu in family.config_fields.items():
        value = getattr(model.config, hf)
        if fields.setdefault(edu, value) != value:
            sentence = (
                f"{type(model).__name__} has {first[edu]} {fields[edu]!r} and {hf} {value!r}, but {family.edu_type} "
                f"has one {edu} for both"
            )
            _raise_or_warn(sentence, hf in family.training_only)
        first.setdefault(edu, hf)
    for name, names in family.value_names.items():
        fields[name] = names[fields[name]]
    return fields | _resolve(family.constants, model) | _resolve(family.inferred, model)


def _hf_config_fields(family: Family, model: PreTrainedModel) -> dict:
    """The fields of the hf config, from a model of ours."""
    fields = {}
    for hf, edu in family.config_fields.items():
        value = getattr(model.config, edu)
        hf_names = {to: name for name, to in family.value_names.get(edu, {}).items()}
        fields[hf] = hf_names[value] if hf_names else value
    generation = getattr(model, "generation_config", None)  # a base model has none
    return fields | {name: getattr(generation, name, None) for name in family.generation_fields}


def _copy_weights(model: PreTrainedModel, converted: PreTrainedModel, family: Family, to_edu: bool) -> None:
    """Copy every weight of `model` to its counterpart; raise if one is left over on either side."""
    _check_tied_weights(model)
    source, target = _untied_weights(model), _untied_weights(converted)
    used: set[str] = set()
    made: dict[str, Tensor] = {}
    for hf, edu, operation in _name_pairs(family, *((model, converted) if to_edu else (converted, model))):
        before, after = (hf, [edu]) if to_edu else ([edu], hf)
        if not source.keys() - used >= set(before) or not target.keys() - made.keys() >= set(after):
            continue
        tensors = [source[name] for name in before]
        used.update(before)
        results = [operation.to_edu(tensors)] if to_edu else operation.to_hf(tensors[0], len(hf))
        made.update(zip(after, results, strict=True))
    unused, missing = source.keys() - used, target.keys() - made.keys()
    if to_edu:
        unused = {name for name in unused if not is_ignorable(family, name, source[name])}
    else:
        missing = {name for name in missing if not is_ignorable(family, name, target[name])}
    missing |= {name for name, tensor in made.items() if tensor.shape != target[name].shape}
    check_no_weight_lost(type(model).__name__, type(converted).__name__, unused, missing)
    converted.load_state_dict(made, strict=False)


def _untied_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """Each weight once: of tied weights only the source."""
    return {name: tensor for name, tensor in model.state_dict().items() if name not in model.all_tied_weights_keys}


def _check_tied_weights(model: PreTrainedModel) -> None:
    """Raise if two weights differ that the configuration ties."""
    weights = model.state_dict()
    for name, source in model.all_tied_weights_keys.items():
        if not torch.equal(weights[name], weights[source]):
            raise ValueError(
                f"{name} differs from {source}, though the configuration ties them; set tie_word_embeddings to False "
                "or call tie_weights()"
            )


def _name_pairs(family: Family, hf: PreTrainedModel, edu: PreTrainedModel) -> Iterator[tuple[list, str, Operation]]:
    """The rows of the tables for every layer, weight and bias: hf names, edu name, operation."""
    layers = max(edu.config.num_hidden_layers, getattr(edu.config, "decoder_layers", 0))
    prefixes = ("", "") if _is_base_model(family, edu) else (f"{hf.base_model_prefix}.", f"{edu.base_model_prefix}.")
    for rows, (hf_prefix, edu_prefix) in ((family.base_weights, prefixes), (family.head_weights, ("", ""))):
        for row in rows:
            patterns = [row.hf] if isinstance(row.hf, str) else row.hf
            for layer in range(layers if "{n}" in row.edu else 1):
                for part in ("weight", "bias") if "*" in row.edu else ("",):
                    *hf_names, edu_name = (
                        pattern.replace("{n}", str(layer)).replace("*", part) for pattern in (*patterns, row.edu)
                    )
                    yield [hf_prefix + name for name in hf_names], edu_prefix + edu_name, row.operation


def is_ignorable(family: Family, name: str, tensor: Tensor | None = None) -> bool:
    """Whether our model needs no counterpart of an hf weight; without its tensor, by its name alone."""
    for pattern, test in family.ignorable.items():
        if re.fullmatch(pattern, name) and (test is None or (tensor is not None and test(tensor))):
            return True
    return False


def check_no_weight_lost(source: str, target: str, unused: Iterable[str], missing: Iterable[str]) -> None:
    """Raise if a weight would be dropped or left at its random initialisation."""
    problems = []
    if unused:
        problems.append(f"drop {', '.join(sorted(unused))}")
    if missing:
        problems.append(f"randomly initialise {', '.join(sorted(missing))}")
    if problems:
        raise ValueError(f"{source} cannot become {target}: it would {' and '.join(problems)}")
