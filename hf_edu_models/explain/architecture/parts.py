"""The parts of a model in the order in which they run, found by running a small twin of it.

Nothing is known about model families here: what a modeling file defines is what is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers.initialization import no_init_weights

from ...auto import AXES, LADDER, Rung, find_rung
from ...checkpoints import load_config, saved_class
from ...tasks import TASKS, task_of_class
from ..inference import use_eager_attention, use_eager_recurrence

_EQUATION = re.compile(r"(?:^\s*|[:,] )(\w[\w~^{}-]* = .*)$", re.MULTILINE)  # on a line of its own, or behind the paper
_SKIPPED = (nn.Dropout, nn.Identity)
POST_NORM, PRE_NORM = "PostNorm", "PreNorm"  # classes with a layer norm and a residual connection around a sublayer
_MAX_LINES, _MAX_WIDTH = 5, 54


@dataclass
class Part:
    """One module of a model.

    Args:
        name: of the attribute that holds it.
        kind: name of its class.
        lines: its sizes or equations.
        parts: the modules inside, in the order in which they run.
        repeats: how many of it follow one another, as layers do.
        steps: it runs once for each token.
        is_causal: its attention sees no later position.
    """

    name: str
    kind: str
    lines: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    repeats: int = 1
    steps: bool = False
    is_causal: bool = False

    def __iter__(self) -> Iterator[Part]:
        """This part and all inside."""
        yield self
        for part in self.parts:
            yield from part

    @property
    def title(self) -> str:
        return self.name.replace("_", " ").replace("proj", "projection")


def find_parts(config: Any, head: str | None = None) -> Part:
    """The parts of the model that a configuration describes.

    Args:
        head: the class name of the head; default the rung's first one that is trained.
    """
    rung = find_rung(config.model_type)
    if rung is None:
        known = ", ".join(each.name for each in LADDER)
        raise ValueError(f"{config.model_type} is no rung of the ladder; choose one of {known}, or a run of one")
    model_class = _find_head(rung, head)
    with torch.device("meta"), no_init_weights():
        modules = dict(model_class(config).named_modules())  # its sizes; the weights need no memory
    calls = _trace(rung, model_class, config)
    paths = [path for path in calls if path and path in modules and not isinstance(modules[path], _SKIPPED)]
    root = Part(model_class.__name__, model_class.__name__)
    by_path = {"": root}
    for path in _in_order(paths):
        _add(by_path, path, modules, calls[path])
    return _simplify(root)


def config_of(name: str, settings: dict[str, Any], trust_remote_code: bool = False) -> tuple[Any, str | None]:
    """The configuration of a rung by its name, or of a run, and the class of its head."""
    rung = next((each for each in LADDER if each.name == name), None)
    if rung is not None:
        return rung.config(**settings), None
    config = load_config(name, trust_remote_code)
    for key, value in settings.items():
        setattr(config, key, value)
    return config, saved_class(config)


def _find_head(rung: Rung, name: str | None) -> type[nn.Module]:
    heads = {head.__name__: head for head in rung.heads.values()}
    if name is not None and name not in heads:
        raise ValueError(f"{rung.name} has no head {name!r}; choose one of {', '.join(heads)}")
    trained = [each for each in heads if not each.endswith("Model")] or list(heads)
    return heads[name or trained[0]]


def _trace(rung: Rung, model_class: type, config: Any) -> dict[str, int]:
    """How often each module of a small twin is called, in the order of the first calls."""
    defaults = rung.config().to_dict()  # what follows from a default size would not fit the sizes of the twin
    given = {name: value for name, value in config.to_diff_dict().items() if value != defaults.get(name)}
    settings = {name: value for name, value in given.items() if not isinstance(value, list)}  # a number per channel
    settings |= rung.tiny
    if given.get("tie_word_embeddings") and "embedding_size" in settings:
        settings["embedding_size"] = settings["hidden_size"]
    settings = {name: value for name, value in settings.items() if name in type(config).__dataclass_fields__}
    twin = model_class(rung.config(**settings)).eval()
    calls: dict[str, int] = {}

    def note(path: str) -> Any:
        def hook(*_: Any) -> None:
            calls[path] = calls.get(path, 0) + 1

        return hook

    for path, module in twin.named_modules():
        module.register_forward_pre_hook(note(path))
    task = task_of_class(model_class.__name__) or "feature_extraction"
    choices = [AXES["choices"]] if "choices" in [size for _, size in TASKS[task].targets.values()] else []
    values = TASKS[task].values
    inputs = {
        name: torch.ones(
            AXES[axes[0]], *choices, *(AXES[axis] for axis in axes[1:]), dtype=torch.float if values else torch.long
        )
        for name, axes in (values or rung.inputs).items()
    }
    for buffer in twin.buffers():
        buffer.nan_to_num_()  # a memory without anything in it
    with use_eager_attention(twin), use_eager_recurrence(twin):
        twin(**inputs)
    return calls


def _in_order(calls: list[str]) -> list[str]:
    """A module is where the last module inside it is: keys of a source may be computed long before they are used."""
    last: dict[str, int] = {}
    for number, path in enumerate(calls):
        names = path.split(".")
        last |= {".".join(names[:count]): number for count in range(1, len(names) + 1)}

    def place(path: str) -> list[int]:
        names = path.split(".")
        return [last[".".join(names[: count + 1])] for count in range(len(names))]

    return sorted(calls, key=place)


def _add(by_path: dict[str, Part], path: str, modules: dict[str, nn.Module], count: int) -> None:
    """Put a module below its parents, which may not be called themselves."""
    parent, _, name = path.rpartition(".")
    if path in by_path:
        return
    if parent not in by_path:
        _add(by_path, parent, modules, 1)
    module = modules[path]
    part = Part(name, type(module).__name__, _lines(module), steps=count > 2)
    part.is_causal = bool(getattr(module, "is_causal", False))
    part.repeats = len(module) if isinstance(module, nn.ModuleList) else 1
    by_path[path] = part
    by_path[parent].parts.append(part)


def _lines(module: nn.Module) -> list[str]:
    if isinstance(module, nn.Embedding):
        return [f"{module.num_embeddings:,} × {module.embedding_dim:,}"]  # noqa: RUF001
    if isinstance(module, nn.Linear):
        return [f"{module.in_features:,} → {module.out_features:,}"]
    if isinstance(module, nn.LayerNorm):
        return [f"size {module.normalized_shape[0]:,}"]
    heads = getattr(getattr(module, "config", None), "num_attention_heads", None)
    if heads and hasattr(module, "head_size"):
        return [f"{heads} heads of {module.head_size}"]
    if next(module.children(), None) is None or type(module).__name__.endswith("Cell"):
        found = _EQUATION.findall(_documentation(type(module)))
        equations = [line for line in found if not re.search(r"\w\. [A-Z]", line)]  # in a sentence: of another paper
        return [re.split(r";|: |  Eq", line)[0].strip(" .")[:_MAX_WIDTH] for line in equations][:_MAX_LINES]
    return []


def _documentation(kind: type) -> str:
    """The docstring of a class, behind those of what it extends and is named after: `LSTMCell`, `ProjectedLSTMCell`."""
    return "\n".join(each.__doc__ or "" for each in reversed(kind.__mro__) if kind.__name__.endswith(each.__name__))


def _simplify(part: Part) -> Part:
    """Layers of one form as one part that repeats; a part around a single other one is left out."""
    merged: list[Part] = []
    for each in map(_simplify, part.parts):
        if each.kind == "ModuleList" and each.parts:
            first = each.parts[0]
            first.repeats, first.name = each.repeats, each.name.removesuffix("s")
            each = first
        if len(each.parts) == 1 and not each.lines:
            inner, outer = each.parts[0], each
            each = inner
            each.repeats = max(inner.repeats, outer.repeats)
            if outer.kind in (POST_NORM, PRE_NORM):
                each.kind = outer.kind
            elif outer.repeats > 1 or inner.name in ("forward_cell", "norm") or outer.name.endswith("ward_lm"):
                each.name = outer.name
        merged.append(each)
    part.parts = merged
    return part
