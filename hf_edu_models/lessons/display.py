"""Show code, architectures and figures in a notebook."""

from __future__ import annotations

import inspect
import io
import textwrap
from typing import Any


def source_of(code: Any) -> str:
    """The source of a class or function as it is installed, below the name of its file."""
    path = f"{code.__module__.replace('.', '/')}.py"
    return f"# {path}: {code.__qualname__}\n{textwrap.dedent(inspect.getsource(code)).rstrip()}"


def show_code(*codes: Any) -> None:
    """Show the source of classes or functions; in Jupyter with colours."""
    text = "\n\n".join(map(source_of, codes))
    if in_notebook():
        from IPython.display import Markdown, display

        display(Markdown(f"```python\n{text}\n```"))
    else:
        print(text)


def show_figure(figure: Any, dpi: int = 80) -> None:
    """Show a figure in Jupyter, as a small PNG; elsewhere render it and print its size."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=dpi)
    if in_notebook():
        from IPython.display import Image, display

        display(Image(content.getvalue()))
    else:
        print(f"figure of {len(content.getvalue())} bytes")


def show_architecture(rung: str, head: str | None = None, **settings: Any) -> None:
    """Draw the architecture of a rung; `settings` are fields of its configuration."""
    from ..explain import config_of, draw_architecture, find_parts

    config, saved_head = config_of(rung, settings)
    root = find_parts(config, head or saved_head)
    show_figure(draw_architecture(root, f"{root.kind}: {rung}"))


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this: a script or plain IPython shows no pictures."""
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return False
    return hasattr(get_ipython(), "kernel")
