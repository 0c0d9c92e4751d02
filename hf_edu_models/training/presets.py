"""Presets: named settings of a run, one YAML file a data set, with a section for each recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SHARED = "common"  # the section that every recipe of a preset reads first
NOTES = ("published", "license_of_data", "get_data")  # what a preset tells about its data, beside settings


def recipes_folder() -> Path:
    """Where the recipes are: inside an installed package, or beside it in a source tree."""
    package = Path(__file__).parent.parent
    for folder in (package / "recipes", package.parent / "recipes"):
        if (folder / "presets").is_dir():
            return folder
    raise FileNotFoundError(f"no recipes beside {package}; install the package again, or clone its repository")


def recipe_files() -> dict[str, Path]:
    """Every recipe by its name on the command line: `04_bahdanau.py` is `bahdanau`."""
    files = sorted(recipes_folder().glob("[0-9][0-9]*_*.py"))
    return {file.stem.partition("_")[2].replace("_", "-"): file for file in files}


def find_recipe(name: str) -> Path:
    """The file of a recipe, by its name or the beginning of one that fits no other."""
    files = recipe_files()
    wanted = name.replace("_", "-")
    fits = [wanted] if wanted in files else [each for each in files if each.startswith(wanted)]
    if len(fits) != 1:
        problem = f"there is no recipe {name!r}" if not fits else f"{name!r} may be {' or '.join(fits)}"
        raise ValueError(f"{problem}; choose one of {', '.join(files)}")
    return files[fits[0]]


def preset_names(section: str | None = None) -> list[str]:
    """All presets, or those that have a section for a recipe."""
    names = sorted(file.stem for file in (recipes_folder() / "presets").glob("*.yaml"))
    return names if section is None else [name for name in names if section in _sections(name)]


def load_preset(name: str, section: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings that a preset gives to a recipe, and its notes."""
    if name not in preset_names(section):
        allowed = ", ".join(preset_names(section))
        raise ValueError(f"preset {name!r} is not there for {section}; choose one of {allowed}")
    sections = _sections(name)
    settings = _merge(sections.get(SHARED) or {}, sections[section] or {})
    notes = {note: settings.pop(note) for note in NOTES if note in settings}
    if str(settings.get("dataset", "")).startswith("./"):  # a file beside the presets
        settings["dataset"] = str(recipes_folder() / "presets" / settings["dataset"])
    return settings, notes


def _sections(name: str) -> dict[str, Any]:
    """The sections of a file, on top of those of the file that it extends."""
    content = yaml.safe_load((recipes_folder() / "presets" / f"{name}.yaml").read_text("utf-8"))
    base = content.pop("extends", None)
    if base is None:
        return content
    below = _sections(base)
    changes = content.pop(SHARED, None) or {}
    joined = {section: _merge(settings or {}, changes) for section, settings in below.items()}
    return _merge(joined, content)


def _merge(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """`second` over `first`, mappings joined entry by entry."""
    joined = dict(first)
    for key, value in second.items():
        both = isinstance(value, dict) and isinstance(joined.get(key), dict)
        joined[key] = _merge(joined[key], value) if both else value
    return joined
