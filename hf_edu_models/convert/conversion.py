"""Loads transformers' own BERT, GPT-2, OpenAI GPT and Marian weights into our models, and ours into theirs.

`families.py` is the table of what corresponds to what, `mapping.py` applies it; this file loads and saves.
"""

import json
import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import cached_file

from ..checkpoints import explain_missing, load_model, quiet
from .families import FAMILIES, Family
from .mapping import check_no_weight_lost, convert, counterpart_of, family_of, is_ignorable, model_class_named
from .to_ctranslate2 import require_ctranslate2, save_ctranslate2
from .word_vectors import FORMATS, model_of, read_vectors, save_static_embedding, vectors_of

_TOKENIZER_FILES = """
    tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json chat_template.jinja
    vocab.txt vocab.json merges.txt source.spm target.spm target_vocab.json
"""


TARGETS = ("ctranslate2", *FORMATS, "sentence-transformers")


def from_transformers(model_or_path: PreTrainedModel | str | os.PathLike, **kwargs) -> PreTrainedModel:
    """Our model with the weights of one of transformers' own, in evaluation mode.

    Args:
        model_or_path: a model, or a folder or Hub id to load. A checkpoint with more weights than the class in its
            `architectures` has is loaded as the class that has them all.
        kwargs: passed to `from_pretrained` when a checkpoint is loaded.
    """
    return convert(_load_if_path(model_or_path, kwargs), to_edu=True)


def to_transformers(edu_model: PreTrainedModel | str | os.PathLike, **kwargs) -> PreTrainedModel:
    """Transformers' own model for the same task with our weights, in evaluation mode."""
    return convert(_load_if_path(edu_model, kwargs), to_edu=False)


def _load_if_path(model: PreTrainedModel | str | os.PathLike, kwargs: dict) -> PreTrainedModel:
    if isinstance(model, str | os.PathLike):
        return _load(str(model), **kwargs)
    if kwargs:
        raise ValueError(f"{', '.join(kwargs)} is for loading, but a model was given; give its path or Hub id")
    return model


def _load(path: str, **kwargs) -> PreTrainedModel:
    """A checkpoint of either side, as the class that has exactly the weights in it."""
    with explain_missing(path):
        config = AutoConfig.from_pretrained(path, **kwargs)
    to_edu = not _is_edu(config)
    family = family_of(config, to_edu)
    names = list(family.classes if to_edu else family.classes.values())
    architecture = (config.architectures or names)[0]
    counterpart_of(family, architecture, to_edu)  # raises before the weights are loaded
    model, unused, missing = _load_as(architecture, path, family, kwargs)
    if not unused and not missing:
        return model
    if missing:  # a base model may have been saved without its pooler; no other class has fewer weights
        others = [(names[0], {"add_pooling_layer": False})] if all("pooler." in name for name in missing) else []
    else:
        others = [(name, {}) for name in names if name != architecture]
    for name, extra in others:
        other, *problems = _load_as(name, path, family, kwargs | extra)
        if not any(problems):
            return other
    check_no_weight_lost(f"the checkpoint {path}", architecture, unused, missing)  # raises: one of the two is not empty


def _is_edu(config: PreTrainedConfig) -> bool:
    return config.model_type in {family.edu_type for family in FAMILIES}


def _load_as(name: str, path: str, family: Family, kwargs: dict) -> tuple[PreTrainedModel, set[str], set[str]]:
    """The checkpoint as one class, the unused weights of the checkpoint, and those that it lacks."""
    with quiet():
        model, info = model_class_named(name).from_pretrained(path, output_loading_info=True, **kwargs)
    weights = model.state_dict()
    unused = {key for key in info["unexpected_keys"] if not is_ignorable(family, key)}
    return model, unused, {key for key in info["missing_keys"] if not is_ignorable(family, key, weights[key])}


@dataclass(frozen=True)
class Conversion:
    """What `convert_checkpoint` did.

    Args:
        parameters: number of parameters of the new model.
        has_tokenizer: whether the source has a tokenizer, which is then copied.
    """

    source_class: str
    destination_class: str
    parameters: int
    has_tokenizer: bool


def convert_checkpoint(source: str, destination: Path, to: str | None = None) -> Conversion:
    """Save a checkpoint of one side as a checkpoint of the other: weights, configs and tokenizer, or nothing at all.

    Args:
        source: a folder or Hub id; one of our checkpoints becomes transformers', one of transformers' becomes ours.
        destination: a folder that is empty or does not exist.
        to: `ctranslate2` for a checkpoint of CTranslate2; `word2vec`, `word2vec-binary` or `gensim` for a file with the
            vectors of its tokens; `sentence-transformers` for static embeddings. A file of vectors becomes our model.
    """
    source, destination = str(source), Path(destination).resolve()
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise ValueError(f"{destination} exists and is not empty; choose another folder or empty it first")
    savers = {None: _save_other_side, "ctranslate2": _save_for_engine, "sentence-transformers": _save_static}
    if to in FORMATS:
        return _save_vectors(source, destination, to)
    save = partial(_save_words if Path(source).is_file() else savers[to], source)
    unfinished = destination.with_name(f".{destination.name}.{os.getpid()}.unfinished")
    unfinished.mkdir(parents=True)
    try:
        done = save(unfinished)
        if destination.exists():
            destination.rmdir()  # not every system renames onto an empty folder
        unfinished.rename(destination)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return done


def _save_other_side(source: str, folder: Path) -> Conversion:
    model = _load(source)
    to_edu = not _is_edu(model.config)
    converted = convert(model, to_edu)
    with quiet():
        converted.save_pretrained(folder)
    has_tokenizer = _copy_tokenizer(source, folder, family_of(model.config, to_edu).tokenizer_class)
    return Conversion(type(model).__name__, type(converted).__name__, converted.num_parameters(), has_tokenizer)


def _save_vectors(source: str, file: Path, to: str) -> Conversion:
    model, tokenizer = load_model(source)
    found = vectors_of(model, tokenizer)
    FORMATS[to](found, file)
    return Conversion(type(model).__name__, f"{to} ({len(found.words):,} words)", found.vectors.size, True)


def _save_words(source: str, folder: Path) -> Conversion:
    found = read_vectors(source)
    model, tokenizer = model_of(found)
    with quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return Conversion(f"{len(found.words):,} words", type(model).__name__, model.num_parameters(), True)


def _save_static(source: str, folder: Path) -> Conversion:
    model, tokenizer = load_model(source)
    save_static_embedding(model, tokenizer, folder)
    size = model.get_input_embeddings().weight.shape[1] * len(tokenizer)
    return Conversion(type(model).__name__, "sentence_transformers.StaticEmbedding", size, True)


def _save_for_engine(source: str, folder: Path) -> Conversion:
    require_ctranslate2()
    model, tokenizer = load_model(source)
    loader = save_ctranslate2(model, tokenizer, folder)
    return Conversion(type(model).__name__, f"ctranslate2.{loader}", model.num_parameters(), True)


def _copy_tokenizer(source: str, destination: Path, default_class: str) -> bool:
    """Copy the tokenizer's files, if any, and name its class, which cannot be derived from our `model_type`."""
    names = _TOKENIZER_FILES.split()
    files = [cached_file(source, name, _raise_exceptions_for_missing_entries=False) for name in names]
    for file in filter(None, files):
        shutil.copy(file, destination)
    config_file = destination / "tokenizer_config.json"
    config = json.loads(config_file.read_text("utf-8")) if config_file.exists() else {}
    if any(files) and "tokenizer_class" not in config:
        text = json.dumps({**config, "tokenizer_class": default_class}, indent=2, ensure_ascii=False)
        config_file.write_text(text + "\n", "utf-8")
    return any(files)
