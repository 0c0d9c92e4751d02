"""Recipes and presets by name. A preset is a YAML file with one section per recipe."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

_COMMON = "common"  # the section that all recipes share
_EXTENDS = "extends"  # the file below this one
_SUITES = "suites"  # the benchmarks that report a preset, and their scores
_DIGEST = "extends_digest"  # of what is inherited
_BAR = "bar"  # what counting words reaches
_NOTES = ("published", "license_of_data", "get_data", _BAR)  # facts about the data, not settings


def recipes_folder() -> Path:
    """The recipes, inside the installed package or beside it in a source tree."""
    package = Path(__file__).parent.parent
    for folder in (package / "recipes", package.parent / "recipes"):
        if (folder / "presets").is_dir():
            return folder
    raise FileNotFoundError(f"no recipes beside {package}; install the package again, or clone its repository")


def recipe_files() -> dict[str, Path]:
    """Every recipe by its name on the command line: `2015_bahdanau.py` is `bahdanau`."""
    files = sorted(recipes_folder().glob("[0-9][0-9]*_*.py"))
    return {file.stem.partition("_")[2].replace("_", "-"): file for file in files}


def find_recipe(name: str) -> Path:
    """The file of a recipe, by its name or an unambiguous prefix."""
    files = recipe_files()
    prefix = name.replace("_", "-")
    matches = [prefix] if prefix in files else [each for each in files if each.startswith(prefix)]
    if len(matches) != 1:
        problem = f"there is no recipe {name!r}" if not matches else f"{name!r} may be {' or '.join(matches)}"
        raise ValueError(f"{problem}; choose one of {', '.join(files)}")
    return files[matches[0]]


def preset_names(section: str | None = None) -> list[str]:
    """All presets, or those with a section for a recipe."""
    names = sorted(file.stem for file in (recipes_folder() / "presets").glob("*.yaml"))
    return names if section is None else [name for name in names if section in _sections(name)]


def suites() -> dict[str, dict[str, list[str]]]:
    """The benchmarks: of each one its presets, and the scores of them whose mean it reports."""
    found: dict[str, dict[str, list[str]]] = {}
    for name in preset_names():
        for suite, scores in (_read(name).get(_SUITES) or {}).items():
            found.setdefault(suite, {})[name] = scores
    return found


def load_preset(name: str, section: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and notes of a preset for a recipe."""
    sections = _sections(name) if name in preset_names() else {}
    if section not in sections:
        raise ValueError(f"no preset {name!r} for {section}; choose one of {', '.join(preset_names(section))}")
    settings = _merge(sections.get(_COMMON) or {}, sections[section] or {})
    notes = {note: settings.pop(note) for note in _NOTES if note in settings}
    parts = str(settings.get("dataset", "")).split("+")
    if parts[0].startswith("./"):  # files beside the presets
        settings["dataset"] = "+".join(str(recipes_folder() / "presets" / part) for part in parts)
    return settings, notes


def _sections(name: str) -> dict[str, Any]:
    """Sections of a preset file, merged over those of the file that it extends."""
    content = _read(name)
    content.pop(_SUITES, None)
    content.pop(_DIGEST, None)
    base = content.pop(_EXTENDS, None)
    if base is None:
        return content
    changes = content.pop(_COMMON, None) or {}
    inherited = {section: dict(settings or {}) for section, settings in _sections(base).items()}
    for settings in inherited.values():
        settings.pop(_BAR, None)  # it is that of other data
        if "dataset" in changes:
            settings.pop("get_data", None)
    merged = {section: _merge(settings, changes) for section, settings in inherited.items()}
    return _merge(merged, content)


def _read(name: str) -> dict[str, Any]:
    return yaml.safe_load((recipes_folder() / "presets" / f"{name}.yaml").read_text("utf-8"))


def find_stale_digest(name: str) -> str | None:
    """A sentence if the preset that this one extends has changed since `extends_digest` was written, else None.

    A change there changes the runs of this preset, too, whose figures then are those of other settings.
    """
    content = _read(name)
    base = content.get(_EXTENDS)
    if base is None:
        return None
    sections = {
        section: {setting: value for setting, value in (settings or {}).items() if setting not in _NOTES}
        for section, settings in _sections(base).items()
    }
    digest = hashlib.sha256(json.dumps(sections, sort_keys=True).encode()).hexdigest()[:8]
    if content.get(_DIGEST) == digest:
        return None
    return (
        f"{name}.yaml extends {base}.yaml, whose settings have changed since; see whether what is said about {name} "
        f"still holds, then set extends_digest: {digest!r}"
    )


def _merge(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """`second` over `first`; nested mappings are merged key by key."""
    merged = dict(first)
    for key, value in second.items():
        are_mappings = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if are_mappings else value
    return merged
