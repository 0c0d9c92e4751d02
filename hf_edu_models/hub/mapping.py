"""The tables of `families.py` carried out on two models in memory.

Nothing is lost or made up on the way: a weight without a place, or a place without a weight, ends the conversion with
its name.
"""

import copy
import re
from collections.abc import Iterable, Iterator
from contextlib import nullcontext

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.utils import logging

from ..auto import LADDER
from .families import FAMILIES, Family, Limit, Transform

logger = logging.get_logger(__name__)


def convert(model: PreTrainedModel, to_ours: bool) -> PreTrainedModel:
    """The same model on the other side."""
    family = family_of(model.config, to_ours)
    counterpart = class_for(family, type(model).__name__, to_ours)
    check_limits(family, model, to_ours)
    settings = our_settings(family, model) if to_ours else their_settings(family, model)
    if model._supports_sdpa and counterpart._supports_sdpa:
        settings["attn_implementation"] = model.config._attn_implementation
    config = counterpart.config_class(**settings)
    extra = {"add_pooling_layer": False} if is_body(family, model) and lacks_pooler(model) else {}
    converted = build_empty(counterpart, config, extra, to_ours)
    fill(converted.to(model.dtype), model, family, to_ours)
    if model.can_generate() and converted.can_generate():
        converted.generation_config = copy.deepcopy(model.generation_config)
    return converted.to(model.device).eval()


def build_empty(model_class: type[PreTrainedModel], config, extra: dict, is_ours: bool) -> PreTrainedModel:
    """A model to be filled; ours keeps nothing of how it starts, theirs its tables of positions."""
    with torch.random.fork_rng(devices=[]), no_init_weights() if is_ours else nullcontext():  # nobody's seed notices
        model = model_class(config, **extra)
    model.tie_weights()
    return model


def family_of(config, to_ours: bool) -> Family:
    """The family on whose left or right side a configuration stands."""
    known = [family for family in FAMILIES if config.model_type == (family.theirs if to_ours else family.ours)]
    if not known:
        choices = sorted({family.theirs if to_ours else family.ours for family in FAMILIES})
        raise ValueError(f"model_type '{config.model_type}' cannot be converted; these can: {', '.join(choices)}")
    order = getattr(config, "norm_first", None)  # the two GPTs are one rung, and this is the difference
    return next((family for family in known if family.fixed["norm_first"] == order), known[0])


def class_for(family: Family, name: str, to_ours: bool) -> type[PreTrainedModel]:
    """The class for the same task on the other side."""
    pairs = family.classes if to_ours else {ours: theirs for theirs, ours in family.classes.items()}
    if name not in pairs:
        raise ValueError(f"{name} has no counterpart; the classes that have one are {', '.join(pairs)}")
    return find_class(pairs[name])


def find_class(name: str) -> type[PreTrainedModel]:
    ours = {head.__name__: head for rung in LADDER for head in rung.heads.values()}
    return ours[name] if name in ours else getattr(transformers, name)


def is_body(family: Family, model: PreTrainedModel) -> bool:
    return type(model).__name__ in next(iter(family.classes.items()))


def lacks_pooler(model: PreTrainedModel) -> bool:
    """Whether a BERT was built without its pooler; the other one is then built without, too."""
    return getattr(model, "pooler", 0) is None


def check_limits(family: Family, model: PreTrainedModel, to_ours: bool) -> None:
    """Refuse what the other side cannot do, by the name of the setting."""
    limits = family.theirs_limits if to_ours else family.ours_limits
    if not to_ours:
        limits += tuple(Limit(name, (resolve(value, model.config),)) for name, value in family.fixed.items())
    for limit in limits:
        allowed = resolve(limit.allowed, model.config)
        value = getattr(model.config, limit.setting, allowed[0])
        if value in allowed or limit.only_for not in ("", type(model).__name__):
            continue
        choices = " or ".join(repr(choice) for choice in allowed)
        report(
            f"{type(model).__name__} has {limit.setting} {value!r}, but in {family.ours if to_ours else family.theirs} "
            f"it is always {choices}",
            limit.only_trains,
        )


def resolve(value, config):
    return value(config) if callable(value) else value


def report(sentence: str, only_trains: bool) -> None:
    """An error, or a warning if only further training would notice."""
    if not only_trains:
        raise ValueError(sentence)
    logger.warning(f"{sentence}; this changes further training only")


def our_settings(family: Family, model: PreTrainedModel) -> dict:
    """Our configuration's fields from their model."""
    theirs, taken = model.config, {}
    for setting in family.settings:
        value = setting.to_ours(getattr(theirs, setting.theirs))
        first = taken.setdefault(setting.ours, (setting.theirs, value))
        if first[1] != value:
            report(
                f"{type(model).__name__} has {first[0]} {first[1]!r} and {setting.theirs} {value!r}, but {family.ours} "
                f"has one {setting.ours} for both",
                setting.only_trains,
            )
    settings = {name: value for name, (_, value) in taken.items()}
    settings |= {name: resolve(value, theirs) for name, value in family.fixed.items()}
    return settings | {name: find(model) for name, find in family.found.items()}


def their_settings(family: Family, model: PreTrainedModel) -> dict:
    """Their configuration's fields from our model."""
    settings = {setting.theirs: setting.to_theirs(getattr(model.config, setting.ours)) for setting in family.settings}
    generation = getattr(model, "generation_config", None)  # a body has none
    return settings | {name: getattr(generation, name, None) for name in family.generation}


def fill(converted: PreTrainedModel, model: PreTrainedModel, family: Family, to_ours: bool) -> None:
    """Put every weight of `model` in its place, or stop with the names of those that have none."""
    check_ties(model)
    source, wanted = own_weights(model), own_weights(converted)
    used, found = set(), {}
    for theirs, ours, transform in name_pairs(family, *((model, converted) if to_ours else (converted, model))):
        before, after = (theirs, [ours]) if to_ours else ([ours], theirs)
        if not source.keys() - used >= set(before) or not wanted.keys() - found.keys() >= set(after):
            continue
        tensors = [source[name] for name in before]
        made = [transform.to_ours(tensors)] if to_ours else transform.to_theirs(tensors[0], len(theirs))
        used.update(before)
        found.update(zip(after, made, strict=True))
    left, empty = source.keys() - used, wanted.keys() - found.keys()
    if to_ours:
        left = {name for name in left if not is_spare(family, name, source[name])}
    else:
        empty = {name for name in empty if not is_spare(family, name, wanted[name])}
    empty |= {name for name, tensor in found.items() if tensor.shape != wanted[name].shape}
    check_names(type(model).__name__, type(converted).__name__, left, empty)
    converted.load_state_dict(found, strict=False)


def own_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """A model's weights, each once: of what is tied, only what the others are tied to."""
    return {name: tensor for name, tensor in model.state_dict().items() if name not in model.all_tied_weights_keys}


def check_ties(model: PreTrainedModel) -> None:
    """Refuse a model with two weights where the configuration says that they are one."""
    weights = model.state_dict()
    for name, origin in model.all_tied_weights_keys.items():
        if not torch.equal(weights[name], weights[origin]):
            raise ValueError(
                f"{name} differs from {origin}, though the configuration ties them; set tie_word_embeddings to False "
                "or call tie_weights()"
            )


def name_pairs(
    family: Family, theirs: PreTrainedModel, ours: PreTrainedModel
) -> Iterator[tuple[list[str], str, Transform]]:
    """The tables written out: their names, our name, and how one becomes the other."""
    layers = max(ours.config.num_hidden_layers, getattr(ours.config, "decoder_layers", 0))
    prefixes = ("", "") if is_body(family, ours) else (f"{theirs.base_model_prefix}.", f"{ours.base_model_prefix}.")
    for rows, (their_prefix, our_prefix) in ((family.body, prefixes), (family.heads, ("", ""))):
        for row in rows:
            patterns = [row.theirs] if isinstance(row.theirs, str) else row.theirs
            for number in range(layers if "{n}" in row.ours else 1):
                for part in ("weight", "bias") if "*" in row.ours else ("",):
                    *names, ours_name = (
                        pattern.replace("{n}", str(number)).replace("*", part) for pattern in (*patterns, row.ours)
                    )
                    yield [their_prefix + name for name in names], our_prefix + ours_name, row.transform


def is_spare(family: Family, name: str, tensor: Tensor) -> bool:
    """Whether a weight of theirs holds nothing that we do not compute ourselves."""
    return any(re.fullmatch(pattern, name) and test(tensor) for pattern, test in family.spare.items())


def check_names(source: str, destination: str, left: Iterable[str], empty: Iterable[str]) -> None:
    """Refuse to lose a weight or to make one up."""
    problems = []
    if left:
        problems.append(f"lose {', '.join(sorted(left))}")
    if empty:
        problems.append(f"make up {', '.join(sorted(empty))}")
    if problems:
        raise ValueError(f"{source} cannot become {destination}: it would {' and '.join(problems)}")
