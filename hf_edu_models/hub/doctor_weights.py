"""Checks of what a model is made of: its names, configuration, first weights, buffers, ties, and its way to disk."""

from __future__ import annotations

import copy
import hashlib
from collections import defaultdict
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel, set_seed
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from .doctor_compare import predictions, same, several, write_inputs
from .doctor_patient import Patient, marked_memory, no_code
from .doctor_report import Verdict, fail, ok, skipped, warning

CHANGES_GENERATION = ("mamba", "reformer", "minimax", "xlnet", "rwkv", "xlstm")
WRITTEN_ON_SAVING = {"transformers_version", "_name_or_path", "architectures", "dtype", "auto_map"}


def check_names(patient: Patient) -> Verdict:
    if patient.is_transformers_own:
        return skipped("the class is transformers' own")
    name, config_class = patient.model_class.__name__, type(patient.config)
    words = [word for word in CHANGES_GENERATION if word in name.lower()]
    if patient.generates and words and overrides_nothing(patient.model_class, words):
        return fail(
            f"generate() takes another path for a class with {words[0]!r} in its name ({name})",
            f"rename the class so that its name has no {words[0]!r}, whatever the case of the letters",
        )
    if not config_class.model_type:
        return fail(f"{config_class.__name__} has no model_type", 'write `model_type = "your_name"` in its body')
    if config_class.__module__.startswith("transformers."):
        return ok(f"{name} on transformers' own {config_class.__name__}")
    if config_class.__name__ in CONFIG_MAPPING_NAMES.values():
        return fail(
            f"transformers has a {config_class.__name__} already, and registering yours will raise",
            "rename your configuration class",
        )
    if config_class.model_type in CONFIG_MAPPING_NAMES:
        return fail(
            f"model_type {config_class.model_type!r} belongs to transformers, which will load its own class",
            "choose a model_type that AutoConfig does not know",
        )
    return ok("no name that transformers treats in its own way")


def overrides_nothing(model_class: type, words: list[str]) -> bool:
    """Whether the name decides; a class may have said for itself which cache it takes."""
    own = model_class._supports_default_dynamic_cache.__func__
    return own is GenerationMixin._supports_default_dynamic_cache.__func__ or "mamba" in words


def check_tied_names(patient: Patient) -> Verdict:
    classes = [patient.model_class]
    if patient.model is not None:
        classes += [type(module) for module in patient.model.modules() if isinstance(module, PreTrainedModel)]
    for each in classes:
        declared = each._tied_weights_keys
        if declared is not None and not isinstance(declared, dict):
            return fail(
                f"{each.__name__}._tied_weights_keys is a {type(declared).__name__}; transformers 5 needs a dict"
            )
    return ok("declared as a dict" if patient.model_class._tied_weights_keys else "none declared")


def check_build(patient: Patient) -> Verdict:
    patient.build()
    count = sum(parameter.numel() for parameter in patient.model.parameters())
    return ok(f"{patient.model_class.__name__} with {count:,} parameters")


def check_checkpoint(patient: Patient) -> Verdict:
    if patient.source is None:
        return skipped("not a checkpoint")
    if patient.missing:
        return fail(f"the checkpoint lacks {several(patient.missing)}, which were drawn at random")
    if patient.unexpected:
        return warning(f"the checkpoint has weights that the class has no place for: {several(patient.unexpected)}")
    return ok("every weight was found, and none was left over")


def check_config(patient: Patient) -> Verdict:
    config_class = type(patient.config)
    folder = patient.workplace / "config"
    config = copy.deepcopy(patient.config)
    try:
        config_class()
    except Exception as error:
        return fail(
            f"{config_class.__name__}() without arguments raises {type(error).__name__}, and saving calls it so",
            "give every field of the configuration a default",
        )
    with no_code(config_class):
        config.save_pretrained(folder)
    before, after = config.to_dict(), config_class.from_pretrained(folder).to_dict()
    changed = [name for name in before if name not in WRITTEN_ON_SAVING and after.get(name) != before[name]]
    if changed:
        return fail(f"{several(changed)} came back from config.json with another value")
    return ok(f"all {len(before)} fields come back from config.json")


def check_post_init(patient: Patient) -> Verdict:
    if "all_tied_weights_keys" not in vars(patient.model):
        return fail(f"{patient.model_class.__name__}.__init__ does not call self.post_init()")
    return ok("called")


def check_init(patient: Patient) -> Verdict:
    """With an empty checkpoint every weight must come from `_init_weights`."""
    empty = patient.from_pretrained(None, config=copy.deepcopy(patient.config), state_dict={})
    forgotten = [name for name, tensor in empty.state_dict().items() if is_unwritten(tensor)]
    if forgotten:
        return fail(f"_init_weights leaves {several(forgotten)} as whatever was in memory")
    return ok("_init_weights reaches every weight")


def is_unwritten(tensor: Tensor) -> bool:
    """Whether memory marked as new is still there."""
    if tensor.is_floating_point() or tensor.is_complex():
        return bool(tensor.isnan().any())
    return tensor.dtype is not torch.bool and bool((tensor == torch.iinfo(tensor.dtype).max).any())


def check_seed(patient: Patient) -> Verdict:
    prints = []
    for _ in range(2):
        set_seed(0)
        with marked_memory():
            built = patient.model_class(copy.deepcopy(patient.config))
        prints.append({name: fingerprint(tensor) for name, tensor in built.state_dict().items()})
        del built
    changed = [name for name in prints[0] if prints[0][name] != prints[1].get(name)]
    if changed:
        return fail(f"two models built with the same seed differ in {several(changed)}")
    return ok("the same seed gives the same weights")


def fingerprint(tensor: Tensor) -> str:
    """Stands for the tensor, so that two models need not be in memory at once."""
    bytes_of = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(bytes_of.numpy()).hexdigest()


def check_new_head(patient: Patient) -> Verdict:
    """A pre-trained body under a head that the checkpoint does not have."""
    if patient.model.base_model is patient.model:
        return skipped("the class has no head, or its base_model_prefix names no body")
    prefix = f"{patient.model_class.base_model_prefix}."
    files = {name: file for name, file in saved_names(patient).items() if name.startswith(prefix)}
    body = {name: read_weight(file, name) for name, file in files.items()}
    loaded = patient.from_pretrained(None, config=copy.deepcopy(patient.config), state_dict=body)
    del body
    weights = loaded.state_dict()
    forgotten = [name for name, tensor in weights.items() if is_unwritten(tensor)]
    if forgotten:
        return fail(f"on a body that was loaded, {several(forgotten)} are left as whatever was in memory")
    found = [name for name in files if name in weights]
    lost = [name for name in found if not torch.equal(weights[name].cpu(), read_weight(files[name], name))]
    if lost:
        return fail(f"loading a body into the class overwrites {several(lost)}")
    return ok("a new head starts fresh on a loaded body")


def saved_names(patient: Patient) -> dict[str, Path]:
    """Every weight on disk, and the file that has it."""
    names = {}
    for file in sorted(patient.saved.glob("*.safetensors")):
        with safe_open(file, "pt") as weights:
            names |= dict.fromkeys(weights.keys(), file)
    return names


def read_weight(file: Path, name: str) -> Tensor:
    with safe_open(file, "pt") as weights:
        return weights.get_tensor(name)


def check_buffers(patient: Patient) -> Verdict:
    fresh = {name: each.clone() for name, each in patient.fresh().named_non_persistent_buffers()}
    stranded = [name for name, tensor in plain_tensors(patient.loaded) if tensor.is_meta]
    if stranded:
        return fail(
            f"{several(stranded)} is a plain tensor and stays on the meta device after from_pretrained",
            "hold it with register_buffer(name, tensor, persistent=False) and compute it again in _init_weights",
        )
    found = dict(patient.loaded.named_non_persistent_buffers())
    lost = [name for name, buffer in found.items() if not torch.equal(buffer, fresh[name].to(buffer))]
    if lost:
        return fail(f"{several(lost)} is garbage after from_pretrained: models are built on the meta device")
    return ok(f"{len(found)} rebuilt after loading" if found else "none that is not saved")


def plain_tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Tensors that are attributes and nothing more."""
    return [
        (f"{name}.{key}".lstrip("."), value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, Tensor)
    ]


def check_ties(patient: Patient) -> Verdict:
    model = patient.model
    declared = model.get_expanded_tied_weights_keys(all_submodels=True)
    for when, each in (("after building", model), ("after saving and loading", patient.loaded)):
        parameters = dict(each.named_parameters(remove_duplicate=False)) | dict(each.named_buffers())
        for target, source in declared.items():
            if parameters[target] is not parameters[source]:
                return fail(f"{target} and {source} are declared as tied but are two weights {when}")
        lost = [names for names in shared_names(model) if names not in shared_names(each)]
        if lost:
            return fail(f"{' and '.join(sorted(lost[0]))} share one weight in __init__ but not {when}")
    says_tied = getattr(patient.config, "tie_word_embeddings", False)
    if says_tied and not declared and has_two_embeddings(model):
        return fail("tie_word_embeddings is True, but input and output embeddings are two weights")
    return ok(f"{len(declared)} shared before and after saving" if declared else "none, and none is asked for")


def has_two_embeddings(model: PreTrainedModel) -> bool:
    try:
        first, last = model.get_input_embeddings(), model.get_output_embeddings()
    except NotImplementedError:  # a model of several parts
        return False
    return first is not None and last is not None and last.weight is not first.weight


def shared_names(model: nn.Module) -> list[set[str]]:
    """Groups of names that stand for one parameter."""
    groups = defaultdict(set)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups[id(parameter)].add(name)
    return [names for names in groups.values() if len(names) > 1]


def check_save(patient: Patient) -> Verdict:
    try:
        files = list(patient.saved.glob("*.safetensors"))
    except RuntimeError as error:
        if "shared tensors" not in str(error):
            raise
        groups = [" and ".join(sorted(names)) for names in shared_names(patient.model)]
        return fail(
            f"save_pretrained refuses weights that are tied but not declared: {several(groups)}",
            "declare them in _tied_weights_keys, a dict of tied to source, with tie_word_embeddings=True in the config",
        )
    return ok("in safetensors") if files else fail("save_pretrained wrote no safetensors file")


def check_save_and_load(patient: Patient) -> Verdict:
    loaded = patient.loaded
    before, after = patient.model.state_dict(), loaded.state_dict()
    changed = [name for name in before if name not in after or not torch.equal(before[name], after[name])]
    if changed:
        return fail(f"{several(changed)} came back from disk with other values")
    if not patient.reads_text:
        return ok("the weights come back from disk")
    inputs = write_inputs(patient)
    with torch.no_grad():
        expected, found = (predictions(model(**inputs)) for model in (patient.model, loaded))
    changed = [name for name in expected if not same(found[name], expected[name])]
    if changed:
        return fail(f"the weights came back from disk, but {several(changed)} changed")
    return ok("weights and outputs come back from disk")
