"""`hf-edu serve`."""

from __future__ import annotations

import ipaddress
import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from .options import CpuKernels, Device, Dtype, Int8, TrustRemoteCode

_TOKEN = "HF_EDU_SERVE_TOKEN"


def serve(
    models: Annotated[list[str], typer.Argument(help="Runs, checkpoints or Hub ids; NAME=RUN names a model.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for the network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
    workers: Annotated[int, typer.Option(help="Number of processes, each with all models.", min=1)] = 1,
    token: Annotated[
        str | None, typer.Option(help="Bearer token that clients must send.", envvar=_TOKEN, show_envvar=True)
    ] = None,
    max_batch_size: Annotated[int, typer.Option(help="Maximum number of texts in a batch.", min=1)] = 32,
    max_batch_tokens: Annotated[int, typer.Option(help="Maximum size of a padded batch, in tokens.", min=1)] = 8192,
    max_waiting: Annotated[int, typer.Option(help="Texts that may wait; more are answered with 503.", min=1)] = 4096,
    max_inputs: Annotated[int, typer.Option(help="Maximum number of texts in a request.", min=1)] = 2048,
    max_bytes: Annotated[int, typer.Option(help="Maximum size of a request in bytes.", min=1)] = 4 * 2**20,
    timeout: Annotated[float, typer.Option(help="Seconds until a waiting request is answered with 504.")] = 60.0,
    device: Device = None,
    dtype: Dtype = None,
    int8: Int8 = False,
    cpu_kernels: CpuKernels = "auto",
    log_level: Annotated[str, typer.Option(help="critical, error, warning, info or debug.")] = "info",
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Serve models over HTTP: embeddings and completions as in OpenAI's API, translations, labels, tags and answers.

    hf-edu serve runs/bert_pretrain-wikitext runs/transformer-multi30k --port 8000

    curl localhost:8000/v1/embeddings -H 'Content-Type: application/json' -d '{"input": ["a text"]}'
    """
    try:
        from ..serve import ServeSettings, run_server
    except ImportError as error:
        raise ValueError(f'serve needs {error.name}; run pip install "hf_edu_models[serve]"') from None
    named = _name_models(models)
    settings = ServeSettings(
        models=named,
        device=device,
        dtype=dtype,
        int8=int8,
        trust_remote_code=trust_remote_code,
        cpu_kernels=cpu_kernels,
        max_batch_size=max_batch_size,
        max_batch_tokens=max_batch_tokens,
        max_waiting=max_waiting,
        max_bytes=max_bytes,
        max_inputs=max_inputs,
        timeout=timeout,
        token=token or None,
    )
    console = Console(stderr=True)
    if not _is_loopback(host) and not settings.token:
        console.print(Text(f"{host} can be reached from the network; without --token anybody may send requests"))
    first = next(iter(named))
    body = json.dumps({"model": first, "input": ["a text", "another one"]})
    console.print(
        Text(f"curl http://{host}:{port}/v1/embeddings -H 'Content-Type: application/json' -d '{body}'"), soft_wrap=True
    )
    run_server(settings, host, port, workers, log_level)


def _name_models(models: list[str]) -> dict[str, str]:
    """Name and source of each model; a model's own name is the last part of its path or Hub id."""
    named: dict[str, str] = {}
    for text in models:
        name, _, source = text.partition("=") if "=" in text and not os.path.exists(text) else ("", "", text)
        name = name or Path(source).name or Path(source).resolve().name
        if name in named:
            raise ValueError(f"two models are named {name}; name one of them: NAME={source}")
        named[name] = source
    return named


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
