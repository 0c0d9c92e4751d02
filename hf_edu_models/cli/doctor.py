"""`hf-edu doctor`."""

import json
from typing import Annotated

import typer
from rich.console import Console

from .options import TrustRemoteCode


def doctor(
    checkpoint_or_class: Annotated[
        str, typer.Argument(help="Folder of a checkpoint, a model id on the Hub, or package.module:Class.")
    ],
    trust_remote_code: TrustRemoteCode = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Config value of a class, name=value; can be repeated.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Skip the checks that take several seconds.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Name of a check to run, with those it needs; can be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Check any transformers model for known bugs and explain how to fix each; exit code 1 if one is found.

    A class is built with a small config. A checkpoint is loaded in float32, with at most one copy in memory and one on
    disk.
    """
    from ..data.named_values import named_values
    from ..doctor.diagnosis import diagnose
    from ..doctor.report import print_report

    config = named_values("set", settings)
    with Console(stderr=True).status(f"examining {checkpoint_or_class}"):
        report = diagnose(
            checkpoint_or_class,
            trust_remote_code=trust_remote_code,
            settings=config,
            quick=quick,
            only=only or (),
        )
    if as_json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        print_report(report, Console())
    raise typer.Exit(0 if report.is_healthy else 1)
