"""Weights of transformers' own BERT, GPT-2, OpenAI GPT and Marian in our models, and ours in theirs.

`families.py` says what corresponds to what, `mapping.py` carries it out; here models are given, loaded and saved.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoConfig, PreTrainedModel
from transformers.utils import cached_file, logging

from .families import FAMILIES, Family, always
from .mapping import check_names, class_for, convert, family_of, find_class, is_spare

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "source.spm",
    "target.spm",
    "target_vocab.json",
    "chat_template.jinja",
)


def from_transformers(model_or_path: PreTrainedModel | str | os.PathLike, **kwargs) -> PreTrainedModel:
    """Our model with the weights of one of transformers' own, in evaluation mode.

    Args:
        model_or_path: a model, or a folder or Hub id to load; a checkpoint with weights for more than its
            `architectures` says is read as the class that has a place for all of them.
        kwargs: for `from_pretrained`, if there is something to load.
    """
    return convert(given_or_loaded(model_or_path, kwargs), to_ours=True)


def to_transformers(edu_model: PreTrainedModel | str | os.PathLike, **kwargs) -> PreTrainedModel:
    """Transformers' own model for the same task with our weights, in evaluation mode."""
    return convert(given_or_loaded(edu_model, kwargs), to_ours=False)


def given_or_loaded(model: PreTrainedModel | str | os.PathLike, kwargs: dict) -> PreTrainedModel:
    if isinstance(model, str | os.PathLike):
        return load(str(model), **kwargs)
    if kwargs:
        raise ValueError(f"{', '.join(kwargs)} is for loading, but a model was given; give its path or Hub id")
    return model


def load(path: str, **kwargs) -> PreTrainedModel:
    """A checkpoint of either kind as a class that has a place for everything in it, and nothing besides."""
    config = AutoConfig.from_pretrained(path, **kwargs)
    family = family_of(config, to_ours=not is_ours(config))
    names = list(family.classes.values() if is_ours(config) else family.classes)
    named = (config.architectures or names)[0]
    class_for(family, named, to_ours=not is_ours(config))  # or there is no use in loading it
    model, left, empty = try_load(path, family, named, kwargs)
    if not left and not empty:
        return model
    if empty:  # a body may have been saved without its pooler; no other class needs less
        others = [(names[0], {"add_pooling_layer": False})] if all("pooler." in name for name in empty) else []
    else:
        others = [(name, {}) for name in names if name != named]
    for name, extra in others:
        other, *problems = try_load(path, family, name, kwargs | extra)
        if not any(problems):
            return other
    check_names(f"the checkpoint {path}", named, left, empty)


def is_ours(config) -> bool:
    return config.model_type in {family.ours for family in FAMILIES}


def try_load(path: str, family: Family, name: str, kwargs: dict) -> tuple[PreTrainedModel, set[str], set[str]]:
    """The checkpoint as one class, which of its weights were not read, and which had to be made up."""
    with quiet():
        model, info = find_class(name).from_pretrained(path, output_loading_info=True, **kwargs)
    harmless = [pattern for pattern, test in family.spare.items() if test is always]
    left = {key for key in info["unexpected_keys"] if not any(re.fullmatch(pattern, key) for pattern in harmless)}
    weights = model.state_dict()
    return model, left, {key for key in info["missing_keys"] if not is_spare(family, key, weights[key])}


@contextmanager
def quiet() -> Iterator[None]:
    """What transformers would say about missing and unexpected weights is an error of ours, or nothing."""
    verbosity, shows_progress = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shows_progress:
            logging.enable_progress_bar()


@dataclass(frozen=True)
class Conversion:
    """What `convert_checkpoint` did.

    Args:
        parameters: how many numbers the new model has.
        has_tokenizer: whether the source had one, which then came along.
    """

    source_class: str
    destination_class: str
    parameters: int
    has_tokenizer: bool


def convert_checkpoint(source: str, destination: Path) -> Conversion:
    """A checkpoint of one kind as a folder of the other: weights, configurations and tokenizer, or nothing at all.

    Args:
        source: a folder or Hub id; one of our checkpoints becomes transformers', one of transformers' becomes ours.
        destination: a folder that is empty or not there yet.
    """
    source, destination = str(source), Path(destination).resolve()
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise ValueError(f"{destination} is there already and not empty; choose another folder or empty it first")
    model = load(source)
    to_ours = not is_ours(model.config)
    converted = convert(model, to_ours)
    unfinished = destination.with_name(f".{destination.name}.{os.getpid()}.unfinished")
    unfinished.mkdir(parents=True)
    try:
        with quiet():
            converted.save_pretrained(unfinished)
        has_tokenizer = copy_tokenizer(source, unfinished, family_of(model.config, to_ours).tokenizer)
        if destination.exists():
            destination.rmdir()  # not every system renames onto an empty folder
        unfinished.rename(destination)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return Conversion(type(model).__name__, type(converted).__name__, converted.num_parameters(), has_tokenizer)


def copy_tokenizer(source: str, destination: Path, usual_class: str) -> bool:
    """Copy the tokenizer's files, if there are any, and write down its class: our `model_type` does not tell it."""
    found = [cached_file(source, name, _raise_exceptions_for_missing_entries=False) for name in TOKENIZER_FILES]
    for file in filter(None, found):
        shutil.copy(file, destination)
    settings = destination / "tokenizer_config.json"
    known = json.loads(settings.read_text("utf-8")) if settings.exists() else {}
    if any(found) and "tokenizer_class" not in known:
        text = json.dumps({**known, "tokenizer_class": usual_class}, indent=2, ensure_ascii=False)
        settings.write_text(text + "\n", "utf-8")
    return any(found)
