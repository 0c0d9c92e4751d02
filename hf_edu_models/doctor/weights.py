"""Checks of class names, configuration, initialisation, buffers and tied weights, and of saving and loading them."""

from __future__ import annotations

import copy
import hashlib
from collections import defaultdict
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from .compare import is_close, join_names, make_inputs, predictions
from .report import Finding, check, fail, ok, skipped, warning
from .subject import ModelUnderTest, auto_class_set, nan_filled_memory

_CHANGES_GENERATION = ("mamba", "reformer", "minimax", "xlnet", "rwkv", "xlstm")
_WRITTEN_ON_SAVING = {"transformers_version", "_name_or_path", "architectures", "dtype", "auto_map"}
LOADS = ("build", "post_init", "save")
_DECLARE_TIED = (
    "declare it in _tied_weights_keys, a dict of target to source, and set tie_word_embeddings=True in the config"
)


@check("names", "rename the class, its configuration or its model_type")
def check_class_names(subject: ModelUnderTest) -> Finding:
    if not subject.is_custom:
        return skipped("the class is transformers' own")
    name, config_class = subject.model_class.__name__, type(subject.config)
    words = [word for word in _CHANGES_GENERATION if word in name.lower()]
    if subject.can_generate and words and _name_decides_cache(subject.model_class, words):
        return fail(
            f"generate() takes another code path for a class with {words[0]!r} in its name ({name})",
            f"rename the class so that its name does not contain {words[0]!r}, in upper or lower case",
        )
    if not config_class.model_type:
        return fail(f"{config_class.__name__} has no model_type", 'write `model_type = "your_name"` in its body')
    if config_class not in subject.custom_classes:
        return ok(f"{name} on transformers' own {config_class.__name__}")
    if config_class.__name__ in CONFIG_MAPPING_NAMES.values():
        return fail(
            f"transformers has a {config_class.__name__} already, and registering yours raises an error",
            "rename your configuration class",
        )
    if config_class.model_type in CONFIG_MAPPING_NAMES:
        return fail(
            f"model_type {config_class.model_type!r} belongs to transformers, which loads its own class for it",
            "choose a model_type that AutoConfig does not know",
        )
    return ok("no name that transformers treats specially")


def _name_decides_cache(model_class: type[PreTrainedModel], words: list[str]) -> bool:
    """Whether `generate` goes by the name; a class may override which cache it supports."""
    own = model_class._supports_default_dynamic_cache.__func__
    return own is GenerationMixin._supports_default_dynamic_cache.__func__ or "mamba" in words


@check("tied names", 'write `_tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}`: target and source')
def check_tied_weights_keys(subject: ModelUnderTest) -> Finding:
    modules = [] if subject.in_memory is None else subject.in_memory.modules()
    classes = [subject.model_class, *(type(module) for module in modules if isinstance(module, PreTrainedModel))]
    for each in classes:
        keys = each._tied_weights_keys
        if keys is not None and not isinstance(keys, dict):
            return fail(f"{each.__name__}._tied_weights_keys is a {type(keys).__name__}; transformers 5 needs a dict")
    return ok("declared as a dict" if subject.model_class._tied_weights_keys else "none declared")


@check(
    "build",
    "make sure that the class can be built from its config alone; for a class, --set changes fields of the config",
    ("tied names",),
)
def check_build(subject: ModelUnderTest) -> Finding:
    count = sum(parameter.numel() for parameter in subject.model.parameters())
    return ok(f"{subject.model_class.__name__} with {count:,} parameters")


@check(
    "checkpoint",
    "load it with the class that saved it, or rename the weights; train what is randomly initialised",
    ("build",),
)
def check_checkpoint_keys(subject: ModelUnderTest) -> Finding:
    if subject.source is None:
        return skipped("not a checkpoint")
    if subject.missing:
        return fail(f"the checkpoint lacks {join_names(subject.missing)}: randomly initialised")
    if subject.unexpected:
        return warning(f"the checkpoint has weights that the class does not use: {join_names(subject.unexpected)}")
    return ok("no missing and no unexpected weights")


@check("config", "store every argument under its own name, unchanged, and pass the others on to PreTrainedConfig")
def check_config_round_trip(subject: ModelUnderTest) -> Finding:
    config_class, config = type(subject.config), copy.deepcopy(subject.config)
    try:
        config_class()
    except Exception as error:
        return fail(
            f"{config_class.__name__}() without arguments raises {type(error).__name__}, and saving calls it",
            "give every field of the configuration a default",
        )
    with auto_class_set({config_class: None}):
        config.save_pretrained(subject.folder / "config")
    before, after = config.to_dict(), config_class.from_pretrained(subject.folder / "config").to_dict()
    changed = [name for name in before if name not in _WRITTEN_ON_SAVING and after.get(name) != before[name]]
    if changed:
        return fail(f"{join_names(changed)} has another value after saving and loading config.json")
    return ok(f"all {len(before)} fields are saved and loaded")


@check("post_init", "call self.post_init() as the last line of __init__", ("build",))
def check_post_init(subject: ModelUnderTest) -> Finding:
    if "all_tied_weights_keys" not in vars(subject.model):
        return fail(f"{subject.model_class.__name__}.__init__ does not call self.post_init()")
    return ok("called")


@check(
    "init",
    "initialise it in _init_weights(module) with the functions of transformers.initialization, also raw nn.Parameters",
    ("build", "post_init"),
)
def check_init_weights(subject: ModelUnderTest) -> Finding:
    """With an empty checkpoint, `_init_weights` has to initialise every weight."""
    empty = subject.from_pretrained(None, config=copy.deepcopy(subject.config), state_dict={})
    uninitialised = _uninitialised(empty.state_dict())
    if uninitialised:
        return fail(f"_init_weights does not initialise {join_names(uninitialised)}")
    return ok("_init_weights initialises every weight")


def _uninitialised(weights: dict[str, Tensor]) -> list[str]:
    """Weights that still have a value of `nan_filled_memory`."""

    def has_fill_value(tensor: Tensor) -> bool:
        if tensor.is_floating_point() or tensor.is_complex():
            return bool(tensor.isnan().any())
        return tensor.dtype is not torch.bool and bool((tensor == torch.iinfo(tensor.dtype).max).any())

    return [name for name, tensor in weights.items() if has_fill_value(tensor)]


@check("seed", "draw random weights with torch alone, in _init_weights", ("build",))
def check_seed(subject: ModelUnderTest) -> Finding:
    hashes = []
    for _ in range(2):  # hashes, so that only one of the two models is in memory
        with nan_filled_memory():
            weights = subject.fresh().state_dict()
        hashes.append({name: _hash(tensor) for name, tensor in weights.items()})
        del weights
    changed = [name for name in hashes[0] if hashes[0][name] != hashes[1].get(name)]
    if changed:
        return fail(f"two models built with the same seed differ in {join_names(changed)}")
    return ok("the same seed gives the same weights")


def _hash(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data).hexdigest()


@check(
    "save",
    "store weights as parameters and buffers only, and do not override save_pretrained",
    ("build", "post_init"),
)
def check_save(subject: ModelUnderTest) -> Finding:
    try:
        files = list(subject.saved.glob("*.safetensors"))
    except RuntimeError as error:
        if "shared tensors" not in str(error):
            raise
        groups = [" and ".join(sorted(names)) for names in _shared_names(subject.model)]
        return fail(f"save_pretrained rejects undeclared tied weights: {join_names(groups)}", _DECLARE_TIED)
    return ok("in safetensors") if files else fail("save_pretrained wrote no safetensors file")


@check(
    "new head",
    "write weights in _init_weights only with transformers.initialization: its functions skip loaded weights",
    (*LOADS, "init"),
)
def check_new_head(subject: ModelUnderTest) -> Finding:
    """Load a pre-trained base model into the class with a new head."""
    if subject.model.base_model is subject.model:
        return skipped("the class has no head, or its base_model_prefix names no base model")
    prefix = f"{subject.model_class.base_model_prefix}."
    files = {name: file for name, file in _saved_names(subject).items() if name.startswith(prefix)}
    base = {name: _read_weight(file, name) for name, file in files.items()}
    loaded = subject.from_pretrained(None, config=copy.deepcopy(subject.config), state_dict=base)
    del base
    weights = loaded.state_dict()
    uninitialised = _uninitialised(weights)
    if uninitialised:
        return fail(f"on a loaded base model, {join_names(uninitialised)} is not initialised")
    found = [name for name in files if name in weights]
    lost = [name for name in found if not torch.equal(weights[name].cpu(), _read_weight(files[name], name))]
    if lost:
        return fail(f"loading a base model into the class overwrites {join_names(lost)}")
    return ok("a new head is initialised, and the loaded base model is unchanged")


def _saved_names(subject: ModelUnderTest) -> dict[str, Path]:
    """Every saved weight and its file."""
    names: dict[str, Path] = {}
    for file in sorted(subject.saved.glob("*.safetensors")):
        with safe_open(file, "pt") as weights:
            names |= dict.fromkeys(weights.keys(), file)
    return names


def _read_weight(file: Path, name: str) -> Tensor:
    with safe_open(file, "pt") as weights:
        return weights.get_tensor(name)


@check(
    "buffers",
    "compute it again in _init_weights (init.copy_(module.name, values)), or save it with persistent=True",
    LOADS,
)
def check_buffers(subject: ModelUnderTest) -> Finding:
    fresh = {name: each.clone() for name, each in subject.fresh().named_non_persistent_buffers()}
    on_meta = [name for name, tensor in _plain_tensors(subject.loaded) if tensor.is_meta]
    if on_meta:
        return fail(
            f"{join_names(on_meta)} is a plain tensor and stays on the meta device after from_pretrained",
            "register it with register_buffer(name, tensor, persistent=False) and compute it again in _init_weights",
        )
    buffers = dict(subject.loaded.named_non_persistent_buffers())
    lost = [name for name, buffer in buffers.items() if not torch.equal(buffer, fresh[name].to(buffer))]
    if lost:
        return fail(f"{join_names(lost)} is garbage after from_pretrained: models are built on the meta device")
    return ok(f"{len(buffers)} computed again after loading" if buffers else "no non-persistent buffers")


def _plain_tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Attributes that are tensors but no parameters or buffers."""
    return [
        (f"{name}.{key}".lstrip("."), value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, Tensor)
    ]


@check("ties", _DECLARE_TIED, LOADS)
def check_tied_weights(subject: ModelUnderTest) -> Finding:
    model = subject.model
    declared = model.get_expanded_tied_weights_keys(all_submodels=True)
    for when, each in (("after building", model), ("after saving and loading", subject.loaded)):
        weights = dict(each.named_parameters(remove_duplicate=False)) | dict(each.named_buffers())
        for target, source in declared.items():
            if weights[target] is not weights[source]:
                return fail(f"{target} and {source} are declared as tied but are two weights {when}")
        lost = [names for names in _shared_names(model) if names not in _shared_names(each)]
        if lost:
            return fail(f"{' and '.join(sorted(lost[0]))} share one weight in __init__ but not {when}")
    if getattr(subject.config, "tie_word_embeddings", False) and not declared and _has_untied_embeddings(model):
        return fail("tie_word_embeddings is True, but input and output embeddings are two weights")
    return ok(f"{len(declared)} tied before and after saving" if declared else "none, as configured")


def _has_untied_embeddings(model: PreTrainedModel) -> bool:
    try:
        inputs, outputs = model.get_input_embeddings(), model.get_output_embeddings()
    except NotImplementedError:  # a model of several submodels
        return False
    return inputs is not None and outputs is not None and outputs.weight is not inputs.weight


def _shared_names(model: nn.Module) -> list[set[str]]:
    """Groups of names of the same parameter."""
    groups = defaultdict(set)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups[id(parameter)].add(name)
    return [names for names in groups.values() if len(names) > 1]


@check(
    "save = load",
    "make every weight a parameter or a persistent buffer, and initialise only with transformers.initialization",
    (*LOADS, "forward", "buffers", "ties"),
)
def check_save_load_round_trip(subject: ModelUnderTest) -> Finding:
    before, after = subject.model.state_dict(), subject.loaded.state_dict()
    changed = [name for name in before if name not in after or not torch.equal(before[name], after[name])]
    if changed:
        return fail(f"{join_names(changed)} has other values after saving and loading")
    if not subject.is_text_model:
        return ok("the weights are equal after saving and loading")
    inputs = make_inputs(subject)
    expected, actual = (predictions(model(**inputs)) for model in (subject.model, subject.loaded))
    changed = [name for name in expected if not is_close(actual[name], expected[name])]
    if changed:
        return fail(f"the weights are equal after saving and loading, but {join_names(changed)} differs")
    return ok("weights and outputs are equal after saving and loading")
