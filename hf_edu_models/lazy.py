"""Imports that wait until they are needed, so that `import hf_edu_models` and `hf-edu --help` cost next to nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list]:
    """`__getattr__`, `__dir__` and `__all__` of a package.

    Args:
        package: the package's `__name__`.
        homes: each public name and the module that defines it, relative to the package (`corpora`, `..run_folder`).
    """
    public = sorted(homes)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"{package} has no {name!r}; it has {', '.join(public)}")
        home = homes[name]
        return getattr(import_module(home if home.startswith(".") else f".{home}", package), name)

    return get, lambda: public, public


def resolve(reference: str) -> Any:
    """The object behind `module:name`; a module that starts with a dot is one of this package's."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module, __package__), name)


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Call `action` right after the module `name` is imported: now, if it is there already."""
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _ImportHook(name, action))


class _ImportHook:
    """A finder that finds its one module as the others do, and adds an action to the end of its execution."""

    def __init__(self, name: str, action: Callable[[], None]):
        self.name, self.action, self.is_searching = name, action, False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name or self.is_searching:
            return None
        self.is_searching = True  # the search below asks every finder, this one too
        try:
            spec = find_spec(name)
        finally:
            self.is_searching = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_act(module: Any) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self.action()

        spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec
