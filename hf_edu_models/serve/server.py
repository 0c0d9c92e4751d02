"""Start uvicorn: the address, the workers, and an end that loses no request."""

from __future__ import annotations

import json
import os
import tempfile
from typing import TYPE_CHECKING, Any

from ..malloc import configure_malloc
from .app import ServeSettings, create_app

if TYPE_CHECKING:
    from fastapi import FastAPI

_VARIABLE = "HF_EDU_SERVE"  # the settings, for the processes of several workers
_SHUTDOWN_SECONDS = 30


def run_server(settings: ServeSettings, host: str, port: int, workers: int = 1, log_level: str = "info") -> None:
    """Serve until SIGTERM or Ctrl-C; requests that were accepted are answered first.

    Each worker is a process with models of its own; one that dies is started again.
    """
    import uvicorn

    options: dict[str, Any] = {
        "host": host,
        "port": port,
        "log_level": log_level,
        "timeout_graceful_shutdown": _SHUTDOWN_SECONDS,
    }
    options |= {"access_log": log_level == "debug"}
    if workers == 1:
        configure_malloc()
        uvicorn.run(create_app(settings), **options)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {_VARIABLE: settings.to_json(), "PROMETHEUS_MULTIPROC_DIR": folder}
        uvicorn.run(f"{__name__}:_create_worker_app", factory=True, workers=workers, **options)


def _create_worker_app() -> FastAPI:
    """The app of one of several workers, from the environment."""
    configure_malloc()
    return create_app(ServeSettings(**json.loads(os.environ[_VARIABLE])))
