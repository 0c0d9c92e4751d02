"""HTML pages as one file without a request: a template, its parts, and a content policy with their hashes.

User text is data: it is escaped in a block of JSON, and scripts only ever set it as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from importlib import resources
from pathlib import Path
from typing import Any

# Characters that could end the JSON block or a line of script are escaped as JSON does it.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def write_document(path: str | os.PathLike, template: str, style: str, script: str, **parts: str) -> Path:
    """Write a page.

    Args:
        template: with `{{policy}}`, `{{style}}`, each of `parts` and `{{script}}`, in this order.
        parts: what else the template has places for, as HTML.
    """
    if "</script" in script.lower() or "</style" in style.lower():
        raise ValueError("the script or the style of a page contains its own end tag; split the word in the source")
    page = _fill(template, {"policy": _policy(style, script), "style": style, **parts, "script": script})
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path


def package_text(path: str) -> str:
    """A text file of this package, by its path in it."""
    return resources.files(__package__.partition(".")[0]).joinpath(path).read_text(encoding="utf-8")


def json_block(data: Any) -> str:
    """Data as JSON that is safe inside of a script element."""
    return json.dumps(data, ensure_ascii=False).translate(_ESCAPES)


def data_block(name: str, content: bytes) -> str:
    """Bytes as a block that a page decodes when it first needs them."""
    return f'<script type="text/plain" id="{name}">{base64.b64encode(content).decode()}</script>'


def _fill(template: str, parts: dict[str, str]) -> str:
    """Replace each `{{name}}` once, from left to right: inserted text is never searched for placeholders."""
    filled = []
    for name, part in parts.items():
        before, template = template.split(f"{{{{{name}}}}}", 1)
        filled += [before, part]
    return "".join([*filled, template])


def _policy(style: str, script: str) -> str:
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    rules = ["default-src 'none'", f"style-src 'sha256-{hashes[0]}'", f"script-src 'sha256-{hashes[1]}'"]
    return "; ".join([*rules, "img-src data:", "base-uri 'none'", "form-action 'none'"])
