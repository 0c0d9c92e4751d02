"""`hf-edu evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import Columns, CpuKernels, Dtype, Int8, Limit, Model, Source, Split, Target, TrustRemoteCode


def evaluate(
    checkpoint: Model,
    dataset: Annotated[
        str | None, typer.Option(help="Built-in corpus, file, folder or Hub dataset; default the run's own.")
    ] = None,
    split: Split = "test",
    source: Source = None,
    target: Target = None,
    columns: Columns = None,
    limit: Limit = None,
    num_beams: Annotated[int | None, typer.Option(help="Number of beams; default the run's own.", min=1)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Batch size; default the run's own.", min=1)] = None,
    max_length: Annotated[int | None, typer.Option(help="Maximum sequence length in tokens.", min=2)] = None,
    lowercase: Annotated[bool | None, typer.Option(help="Lowercase texts before scoring.")] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Run on the CPU even if a GPU is available.")] = False,
    dtype: Dtype = None,
    int8: Int8 = False,
    cpu_kernels: CpuKernels = "auto",
    trust_remote_code: TrustRemoteCode = False,
    out: Annotated[Path | None, typer.Option(help="Output file for scores and predictions, as JSON.")] = None,
) -> None:
    """Evaluate a run on its own data, or a checkpoint on any data.

    hf-edu evaluate runs/bahdanau-dates

    hf-edu evaluate runs/transformer-multi30k --split validation --num-beams 10

    hf-edu evaluate user/name --dataset my_folder --columns text=body --columns label=topic --out scores.json
    """
    from ..cpu_kernels import enabled
    from ..data.named_values import named_texts, word_or_list
    from ..run_folder import write_atomically
    from ..training.evaluate_checkpoint import EvaluationRequest, score_checkpoint
    from ..training.run import print_scores

    options: dict[str, Any] = {"num_beams": num_beams, "batch_size": batch_size, "max_length": max_length}
    options |= {"lowercase": lowercase, "cpu": cpu, "dtype": dtype, "int8": int8}
    mapping: dict[str, Any] = {name: word_or_list(value) for name, value in named_texts("columns", columns)}
    request = EvaluationRequest(
        checkpoint, dataset, split, source, target, mapping, limit, options, trust_remote_code=trust_remote_code
    )
    with enabled(cpu_kernels):
        scored = score_checkpoint(request)
    print_scores(checkpoint, {split: scored.scores})
    if out is not None:
        content = {"checkpoint": checkpoint, "split": split, "scores": scored.scores, "predictions": scored.rows}
        write_atomically(out, json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n")
