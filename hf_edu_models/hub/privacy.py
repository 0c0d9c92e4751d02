"""What must not leave the machine with a model: tokens, local paths, the user's name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

HIDDEN = "(hidden)"
TOKEN = re.compile(r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}\b")
SECRET_NAME = re.compile(r"token$|secret|password|api_?key|credential", re.IGNORECASE)
# Where things lie on this machine, and what is done with the result: nothing that a reader could use again.
PLACES = {"output_dir", "cache_dir", "logging_dir", "run_name", "resume_from_checkpoint", "resume", "hub_model_id"}
WHERE_PATHS_ARE = re.compile(r"(?<![\w/:.])(?:~|/|[A-Za-z]:[\\/])[^\s'\"`|<>,;()]*[\\/][^\s'\"`|<>,;()]+")


def without_secrets(text: str) -> str:
    """The text with tokens hidden, and every absolute path cut down to its last part."""
    return WHERE_PATHS_ARE.sub(lambda found: last_part(found.group()), TOKEN.sub(HIDDEN, text))


def last_part(path: str) -> str:
    """The last part of a path; of the home folder, which is named after its user, nothing."""
    if Path(path).expanduser() == Path.home():
        return "~"
    flavour = PureWindowsPath if "\\" in path or re.match(r"[A-Za-z]:", path) else PurePosixPath
    return flavour(path).name or "/"


def looks_local(text: str) -> bool:
    """Whether a setting's value is a place on this machine, not a Hub id."""
    if text.startswith(("/", "~", "./", "../", ".\\", "..\\")) or re.match(r"[A-Za-z]:[\\/]", text):
        return True
    parts = re.split(r"[\\/]", text)
    return len(parts) > 2 or (len(parts) == 2 and Path(text).exists())


def clean_value(value: Any) -> Any:
    """A setting as it may be shown; containers are cleaned inside."""
    if isinstance(value, dict):
        return clean_settings(value)
    if isinstance(value, list | tuple):
        return [clean_value(each) for each in value]
    if not isinstance(value, str):
        return value
    return without_secrets(last_part(value) if looks_local(value) and " " not in value else value)


def clean_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings that a reader can use, without secrets and places."""
    kept = {name: value for name, value in settings.items() if name not in PLACES and not SECRET_NAME.search(name)}
    return {name: clean_value(value) for name, value in kept.items()}


def clean_command(command: str) -> str:
    """A command line whose paths are cut down to their last part and whose secrets are hidden."""
    try:
        words = shlex.split(command)
    except ValueError:
        return without_secrets(command)
    cleaned: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if SECRET_NAME.search(cleaned[-1] if cleaned and cleaned[-1].startswith("--") else ""):
            word = HIDDEN
        elif word.startswith("--") and equals:
            word = f"{name}={HIDDEN if SECRET_NAME.search(name) else clean_word(value)}"
        else:
            word = clean_word(word)
        cleaned.append(word)
    return " ".join(word if word.endswith(HIDDEN) else shlex.quote(word) for word in cleaned)


def clean_word(word: str) -> str:
    is_recipe = re.fullmatch(r"recipes/\w+\.py", word)
    return word if is_recipe else clean_value(word)
