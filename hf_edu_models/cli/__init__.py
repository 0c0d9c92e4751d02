"""`hf-edu`: one file per verb, which parses arguments and prints; the work is done by the rest of the package.

No file of this folder imports torch, transformers, datasets or matplotlib before a verb runs, so that `--help` is fast.
"""

import os
import sys

from ..lazy import lazy_names

__getattr__, *_ = lazy_names(__name__, {"app": "commands"})


def main() -> None:
    """Run a verb; a user's mistake prints one sentence and exits with 2, Ctrl-C exits with 130.

    `HF_EDU_TRACEBACK=1` shows the traceback.
    """
    try:
        from .commands import app  # here, so that Ctrl-C while it is imported is one sentence too

        app()
    except SystemExit as end:
        if end.code == 130 and type(end.__context__).__name__ == "Exit":  # typer's own, silent answer to Ctrl-C
            print("hf-edu: interrupted", file=sys.stderr)
        raise
    except KeyboardInterrupt:
        print("hf-edu: interrupted", file=sys.stderr)
        sys.exit(130)
    except (ValueError, OSError) as error:
        if os.environ.get("HF_EDU_TRACEBACK"):
            raise
        from rich.console import Console
        from rich.text import Text

        Console(stderr=True).print(Text(f"hf-edu: {_message(error)}", style="red"), soft_wrap=True)
        sys.exit(2)


def _message(error: ValueError | OSError) -> str:
    """The error's text; the system's own errors without their number: "runs/x: Permission denied"."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__
