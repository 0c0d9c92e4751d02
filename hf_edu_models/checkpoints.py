"""Checkpoints: load a run, a folder or a Hub id with one clear error, and read what a folder holds.

`load_model`, `load_with_head` and `load_tokenizer` are the package's only loaders; `read_checkpoint` reads the small
files and no weights.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import pickle
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from .auto import LADDER, Rung, find_rung
from .manifest import check_undamaged
from .run_folder import RESULTS, log_history, read_results, read_settings
from .tasks import task_of_head

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)


def load_config(name: str, trust_remote_code: bool = False) -> PreTrainedConfig:
    """The configuration of a run, a checkpoint or a Hub id."""
    from transformers import AutoConfig

    check_undamaged(name, with_weights=False)
    with explain_missing(name):
        return AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)


def load_tokenizer(name: str, trust_remote_code: bool = False) -> Any:
    """The tokenizer that was saved beside a model, or alone in a folder."""
    from transformers import AutoTokenizer

    if not (Path(name) / "tokenizer_config.json").is_file():
        check_exists(name)
    check_undamaged(name, with_weights=False)
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
    except (OSError, ValueError):  # transformers explains it in a list of many lines
        raise ValueError(
            f"no tokenizer can be loaded from {name}; save one beside the model with tokenizer.save_pretrained, or "
            "install sentencepiece if it only has a sentencepiece file"
        ) from None


def load_as(auto_class: Any, name: str, trust_remote_code: bool = False) -> PreTrainedModel:
    """The model of an Auto class in evaluation mode, without transformers' loading messages."""
    check_undamaged(name)
    with explain_missing(name), quiet():
        model, report = auto_class.from_pretrained(name, trust_remote_code=trust_remote_code, output_loading_info=True)
    check_no_weight_missing(name, model, report)
    return model.eval()


def check_no_weight_missing(name: str, model: PreTrainedModel, report: dict[str, Any]) -> None:
    """Raise an error if a model has random weights though it was saved as the same class; another head may be new."""
    missing = sorted(report["missing_keys"])
    if missing and type(model).__name__ == saved_class(model.config):
        raise ValueError(
            f"{name} lacks {len(missing)} weights of {type(model).__name__}, such as {missing[0]}; save the model that "
            "was trained, with all of its heads"
        )


def load_model(name: str, trust_remote_code: bool = False) -> tuple[PreTrainedModel, Any]:
    """A model in evaluation mode and its tokenizer: with its head if it generates text, otherwise the base model."""
    import transformers

    from .models.configuration_base import warn_of_other_ids

    config = load_config(name, trust_remote_code)
    task = task_of_head(saved_class(config))
    generates = task.auto_class in ("AutoModelForSeq2SeqLM", "AutoModelForCausalLM")
    auto_name = task.auto_class if generates else "AutoModel"
    if config.is_encoder_decoder:
        auto_name = "AutoModelForSeq2SeqLM"
    model = load_as(getattr(transformers, auto_name), name, trust_remote_code)
    tokenizer = load_tokenizer(name, trust_remote_code)
    if model.can_generate():
        warn_of_other_ids(model.config, tokenizer)
    return model, tokenizer


def load_with_head(name: str, trust_remote_code: bool = False) -> tuple[PreTrainedModel, Any]:
    """A model in evaluation mode as the class that it was saved as, and its tokenizer, None if it reads numbers."""
    import transformers

    config = load_config(name, trust_remote_code)
    architecture = saved_class(config)
    auto_map = getattr(config, "auto_map", None) or {}
    auto_name = next((auto for auto, path in auto_map.items() if path.endswith(f".{architecture}")), None)
    model_class = getattr(transformers, auto_name or architecture, None)
    if model_class is None:
        _check_has_auto_class(name, config.to_dict(), architecture)
        raise ValueError(f"{name} holds {architecture}, which neither transformers nor this package has")
    model = load_as(model_class, name, trust_remote_code)
    return model, load_tokenizer(name, trust_remote_code) if reads_text(config) else None


def reads_text(config: PreTrainedConfig) -> bool:
    """Whether the saved head has a tokenizer: some tasks read numbers."""
    return not task_of_head(saved_class(config)).values


def saved_class(config: PreTrainedConfig) -> str:
    """The name of the class that a checkpoint was saved as."""
    return (getattr(config, "architectures", None) or ["no named architecture"])[0]


@contextmanager
def explain_missing(name: str) -> Iterator[None]:
    """Check the disk before a Hub is asked, and turn the pages of transformers and torch into one sentence."""
    check_exists(name)
    try:
        yield
    except pickle.UnpicklingError:
        raise ValueError(
            f"the weights of {name} are a pickle with Python objects that could run code, so they are not loaded; ask "
            "for weights in the format of safetensors"
        ) from None
    except (RuntimeError, EOFError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"the weights of {name} cannot be loaded ({reason}); save or download them again") from None
    except OSError as error:
        reason = str(error).strip().partition("\n")[0]
        where = "" if Path(name).is_dir() else ", which is not a folder, nor a model on a Hub that can be reached"
        raise FileNotFoundError(f"no model can be loaded from {name}{where} ({reason}){_near_matches(name)}") from None


def check_exists(name: str) -> None:
    """Raise an error at once for a path that does not exist, instead of asking the Hub for it."""
    path = Path(name).expanduser()
    if path.exists():
        if path.is_dir() and not (path / "config.json").is_file() and not (path / "adapter_config.json").is_file():
            raise FileNotFoundError(
                f"{name} has no config.json; give the folder of a finished run or of a saved model{_near_matches(name)}"
            )
        return
    is_path = not _HUB_ID.fullmatch(name) or (os.sep in name and path.parent.is_dir())
    near = _near_matches(name)
    if near and not is_path and not _is_cached(name):  # an answer before the network is waited for
        print(f"{name} is not on this machine{near} Asking the Hub for it.", file=sys.stderr, flush=True)
    if is_path or not (_is_cached(name) or _is_on_hub(name)):
        where = "" if is_path else ", and no Hub that can be reached has it"
        raise FileNotFoundError(f"{name} does not exist{where}; give a run, a checkpoint or a Hub id{near}")


def _is_cached(name: str) -> bool:
    """Whether a Hub model has been downloaded before."""
    from huggingface_hub import constants

    return (Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}").is_dir()


def _is_on_hub(name: str) -> bool:
    """Ask the Hub once: transformers repeats a question that nobody answers for half a minute."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        HfApi().model_info(name, timeout=10)
    except HfHubHTTPError as error:
        return error.response.status_code != 404  # from_pretrained explains a private or gated model
    except Exception as error:
        return type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "requests", "builtins")
    return True


def _near_matches(name: str) -> str:
    """Folders with a model beside or below the path, the most similar first."""
    path = Path(name).expanduser()
    folder = next((each for each in (path, *path.parents) if each.is_dir()), Path())
    found = [each for pattern in ("*", "*/*") for each in folder.glob(f"{pattern}/config.json")]
    known = {str(each.parent): each for each in found[:1_000]}
    close = difflib.get_close_matches(str(path), known, n=3, cutoff=0.5)
    return f". Did you mean {' or '.join(close)}?" if close else ""


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' messages and progress bars while a model loads."""
    from transformers.utils import logging

    verbosity, shows_progress = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shows_progress:
            logging.enable_progress_bar()


def position_limit(config: Any) -> int | None:
    """The longest sequence that a model has position embeddings for; None for recurrent models and sinusoids.

    Args:
        config: a configuration, or the content of a config.json.
    """
    get = config.get if isinstance(config, dict) else lambda name: getattr(config, name, None)
    return None if get("position_embedding_type") == "sinusoidal" else get("max_position_embeddings")


def _tokenizer_limit(tokenizer: Any) -> int | None:
    """The longest sequence of a tokenizer; a huge number stands for none."""
    return tokenizer.model_max_length if tokenizer.model_max_length < 1_000_000 else None


def length_limit(config: Any, tokenizer: Any) -> int | None:
    """The longest input of a model with its tokenizer, in tokens; None if there is no limit."""
    limits = [limit for limit in (position_limit(config), _tokenizer_limit(tokenizer)) if limit is not None]
    return min(limits, default=None)


WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"


@dataclass(frozen=True)
class Checkpoint:
    """A folder that `from_pretrained` loads, and the files of the run beside the weights.

    Args:
        auto: name of the Auto class that loads the saved head.
        results: the run's `results.json`; empty without a finished run.
        history: log entries of Trainer.
    """

    folder: Path
    config: dict[str, Any]
    generation: dict[str, Any]
    rung: Rung
    architecture: str
    auto: str
    results: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def has_tokenizer(self) -> bool:
        return (self.folder / "tokenizer_config.json").is_file()

    @property
    def parameters(self) -> int:
        return self.results.get("parameters") or _count_parameters(self.folder)


def read_checkpoint(folder: str | os.PathLike) -> Checkpoint:
    """Read the small files of a run or a checkpoint, not its weights."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; give a run or a saved model{_near_matches(str(folder))}")
    check_exists(str(folder))
    config = _read_json(folder / "config.json")
    rung = find_rung(config.get("model_type", ""))
    if rung is None:
        known = ", ".join(rung.model_type for rung in LADDER)
        raise ValueError(
            f"{folder} has model_type {config.get('model_type')!r}, which is no rung of the ladder: {known}"
        )
    architecture = (config.get("architectures") or ["none"])[0]
    autos = {name: auto for auto, name in rung.config.heads.items()}
    if architecture not in autos:
        _check_has_auto_class(folder, config, architecture)
        raise ValueError(
            f"{folder} holds {architecture}, which is no head of {rung.model_type}; it has {', '.join(autos)}"
        )
    generation = folder / "generation_config.json"
    results = read_results(folder) if (folder / RESULTS).is_file() else {}
    return Checkpoint(
        folder=folder,
        config=config,
        generation=_read_json(generation) if generation.is_file() else {},
        rung=rung,
        architecture=architecture,
        auto=autos[architecture],
        results=results,
        settings=results.get("settings") or read_settings(folder),
        history=log_history(folder),
    )


def _check_has_auto_class(name: str | os.PathLike, config: dict[str, Any], architecture: str) -> None:
    """Raise an error for a model of several tasks, with the folders of its single tasks."""
    rung = find_rung(config.get("model_type", ""))
    if rung is not None and architecture in rung.config.heads_without_auto_class:
        tasks = config.get("tasks") or {}
        raise ValueError(
            f"{name} holds {architecture}, for which transformers has no Auto class; give the folder of one of its "
            f"tasks: {', '.join(str(Path(name) / task) for task in tasks)}"
        )


def check_complete(checkpoint: Checkpoint) -> None:
    """Raise an error unless anyone can load this folder: all weights, and every file of code that `auto_map` needs."""
    check_undamaged(str(checkpoint.folder))
    weight_files(checkpoint.folder)
    code_files(checkpoint)
    _check_weights_fit(checkpoint)


def weight_files(folder: Path) -> list[Path]:
    """The files of weights, one or several shards; an error if one is missing or truncated."""
    from safetensors import safe_open

    names = [WEIGHTS]
    if (folder / WEIGHTS_INDEX).is_file():
        names = sorted(set(_read_json(folder / WEIGHTS_INDEX)["weight_map"].values()))
    for name in names:
        if Path(name).name != name:
            raise ValueError(f"{folder / WEIGHTS_INDEX} names {name}, which is outside of its folder")
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}; save the model there with save_pretrained")
        try:
            with safe_open(folder / name, framework="pt"):
                pass
        except SafetensorError:
            raise ValueError(f"{folder / name} is truncated or not a safetensors file; save the model again") from None
    return [folder / name for name in names]


def _count_parameters(folder: Path) -> int:
    """Number of parameters by the headers of the weight files; tied weights are saved, and counted, once."""
    from safetensors import safe_open

    total = 0
    for file in weight_files(folder):
        with safe_open(file, framework="pt") as weights:
            total += sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    return total


def code_files(checkpoint: Checkpoint) -> list[Path]:
    """The files that `trust_remote_code=True` imports, from `auto_map` on; an error if one is missing."""
    from transformers.dynamic_module_utils import get_relative_imports

    auto_map = checkpoint.config.get("auto_map") or {}
    if checkpoint.auto not in auto_map:
        raise ValueError(
            f"{checkpoint.folder}/config.json names no code for {checkpoint.auto} in its auto_map; "
            "import hf_edu_models before saving the model, and save it again"
        )
    pending = {reference.rpartition("--")[2].partition(".")[0] for reference in auto_map.values()}
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        seen.add(name)
        file = checkpoint.folder / f"{name}.py"
        if not file.is_file():
            raise FileNotFoundError(
                f"{checkpoint.folder} lacks {name}.py, which its code needs; save the model again with save_pretrained"
            )
        pending |= set(get_relative_imports(file)) - seen
    return sorted(checkpoint.folder / f"{name}.py" for name in seen)


def _check_weights_fit(checkpoint: Checkpoint) -> None:
    """Load the model: the only check that finds a weight with a wrong name or shape."""
    head = checkpoint.rung.head(checkpoint.auto)
    try:
        with quiet():
            model, report = head.from_pretrained(checkpoint.folder, output_loading_info=True)
    except (RuntimeError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"{checkpoint.folder} does not load as {checkpoint.architecture}: {reason}") from None
    check_no_weight_missing(str(checkpoint.folder), model, report)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is not valid JSON ({error}); save the model again") from None
