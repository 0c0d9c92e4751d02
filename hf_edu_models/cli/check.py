"""`hf-edu check`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

_DAMAGED = 1  # exit code


def check(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, a checkpoint or a downloaded model.")],
    accept: Annotated[
        bool, typer.Option("--accept", help="Write new digests for files of this folder that you changed yourself.")
    ] = False,
) -> None:
    """Verify the files of a run and of its checkpoints by their digests; exit code 1 if one is damaged.

    Digests are in `manifest.json`, which is saved with every checkpoint and uploaded with every model. In a folder
    without one, only the form of its files is checked.
    """
    from ..manifest import MANIFEST, accept_changes, find_damage
    from ..run_folder import list_checkpoints

    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give a run, a checkpoint or a downloaded model")
    if accept:
        accept_changes(folder)
    checkpoints = list_checkpoints(folder)
    is_model = any((folder / name).is_file() for name in ("config.json", MANIFEST)) or not checkpoints
    found = {each: find_damage(each) for each in [folder] * is_model + checkpoints}
    for each, problem in found.items():
        good = "verified" if (each / MANIFEST).is_file() else f"readable, but not verified: it has no {MANIFEST}"
        result = Text(f"damaged: {problem}", style="red") if problem else Text(good)
        Console().print(Text.assemble(f"{each}: ", result), soft_wrap=True)
    if any(found.values()):
        raise typer.Exit(_DAMAGED)
