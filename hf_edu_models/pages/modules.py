"""ES modules as one script, for pages that open from disk: browsers import no module from a `file:` address.

Each module becomes a function that is called once, in the order of the imports, and returns what it exports. Modules
import names of other modules by a relative path, and export declarations only.
"""

from __future__ import annotations

import posixpath
import re

from .document import package_text

_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]*)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function\*?|class|const|let) +(\w+))", re.MULTILINE)
_LEFT_OVER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def join_modules(entry: str) -> str:
    """The module at a path of this package, and all that it imports, as one script."""
    order: list[str] = []
    _visit(entry, order, [])
    numbers = {path: number for number, path in enumerate(order)}
    parts = [_wrap(path, numbers) for path in order]
    return "\n".join(['"use strict";', *parts, ""])


def _visit(path: str, order: list[str], open_paths: list[str]) -> None:
    """Append a module behind the modules it imports."""
    if path in open_paths:
        raise ValueError(f"modules import each other in a circle: {' -> '.join([*open_paths, path])}")
    if path in order:
        return
    for _, target in _IMPORT.findall(package_text(path)):
        _visit(_resolve(path, target), order, [*open_paths, path])
    order.append(path)


def _resolve(path: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def _wrap(path: str, numbers: dict[str, int]) -> str:
    def bind(found: re.Match) -> str:
        names = re.sub(r"\s+as\s+", ": ", " ".join(found[1].split()))
        return f"const {{ {names} }} = module{numbers[_resolve(path, found[2])]};"

    source = _IMPORT.sub(bind, package_text(path))
    exported = [name for _, name in _EXPORT.findall(source)]
    source = _EXPORT.sub(r"\1", source)
    if left := _LEFT_OVER.search(source):
        raise ValueError(f"{path} has a line that cannot be joined: {left[0]}; import names, and export declarations")
    exports = f"return {{ {', '.join(exported)} }};\n" if exported else ""
    return f"const module{numbers[path]} = (() => {{ // {path}\n{source}{exports}}})();"
