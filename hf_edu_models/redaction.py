"""Remove what must not be published with a model: tokens, local paths, the user's name, invisible characters."""

from __future__ import annotations

import re
import shlex
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

REDACTED = "(hidden)"
_TOKEN = re.compile(r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}\b")
_SECRET_NAME = re.compile(r"token$|secret|password|api_?key|credential", re.IGNORECASE)
# Settings that only locate files of this machine or the repository of the result.
_LOCATIONS = {"output_dir", "cache_dir", "logging_dir", "run_name", "resume_from_checkpoint", "resume", "hub_model_id"}
_ABSOLUTE_PATH = re.compile(r"(?<![\w/:.])(?:~|/|[A-Za-z]:[\\/])[^\s'\"`|<>,;()]*[\\/][^\s'\"`|<>,;()]+")
# Control characters, which terminals obey, except tab and line feed; those that change the direction of a line of text;
# other line separators; halves of characters, which cannot be encoded.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def make_visible(text: str) -> str:
    """The text with control and bidirectional characters as escapes, such as \\x1b: it shows what it contains."""
    return _INVISIBLE.sub(lambda found: ascii(found.group())[1:-1], text)


def make_values_visible(value: Any) -> Any:
    """`make_visible` on every text in nested lists and dictionaries, names included."""
    if isinstance(value, dict):
        return {make_values_visible(name): make_values_visible(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [make_values_visible(each) for each in value]
    return make_visible(value) if isinstance(value, str) else value


def redact_text(text: str) -> str:
    """The text without tokens, and with every absolute path shortened to its last part."""
    return _ABSOLUTE_PATH.sub(lambda found: _last_part(found.group()), _TOKEN.sub(REDACTED, text))


def is_local_path(text: str) -> bool:
    """Whether a value is a path on this machine, not a Hub id."""
    if text.startswith(("/", "~", "./", "../", ".\\", "..\\")) or re.match(r"[A-Za-z]:[\\/]", text):
        return True
    parts = re.split(r"[\\/]", text)
    return len(parts) > 2 or (len(parts) == 2 and Path(text).exists())


def clean_value(value: Any) -> Any:
    """A value without tokens, and with local paths shortened to their last part, also after `name=` and around `+`."""
    if isinstance(value, dict):
        return {name: clean_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [clean_value(each) for each in value]
    if not isinstance(value, str):
        return value
    if "+" in value and " " not in value:  # several corpora
        return "+".join(map(clean_value, value.split("+")))
    name, equals, path = value.rpartition("=")
    is_path = is_local_path(path) and " " not in path
    return redact_text(name + equals + (_last_part(path) if is_path else path))


def clean_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without secrets, locations and local paths."""
    return {
        name: clean_settings(value) if isinstance(value, dict) else clean_value(value)
        for name, value in settings.items()
        if name not in _LOCATIONS and not _SECRET_NAME.search(name)
    }


def clean_command(command: str) -> str:
    """A command line without secrets, and with its paths shortened to their last part."""
    try:
        arguments = shlex.split(command)
    except ValueError:
        return redact_text(command)
    cleaned: list[str] = []
    for argument in arguments:
        option, equals, _ = argument.partition("=")
        if cleaned and cleaned[-1].startswith("--") and _SECRET_NAME.search(cleaned[-1]):
            argument = REDACTED
        elif argument.startswith("--") and equals and _SECRET_NAME.search(option):
            argument = f"{option}={REDACTED}"
        elif not re.fullmatch(r"recipes/\w+\.py", argument):
            argument = clean_value(argument)
        cleaned.append(argument)
    return " ".join(argument if argument.endswith(REDACTED) else shlex.quote(argument) for argument in cleaned)


def _last_part(path: str) -> str:
    """The last part of a path; `~` for the home folder, whose name is the user's."""
    if Path(path).expanduser() == Path.home():
        return "~"
    flavour = PureWindowsPath if "\\" in path or re.match(r"[A-Za-z]:", path) else PurePosixPath
    return flavour(path).name or "/"
