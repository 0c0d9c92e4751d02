"""`hf-edu encode`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .options import BatchSize, CpuKernels, Device, Dtype, Model, TrustRemoteCode
from .text_lines import InputFile, Texts, check_files, log_truncated, open_lines


def encode(
    model: Model,
    text: Texts = None,
    file: InputFile = None,
    out: Annotated[
        Path | None, typer.Option(help="Output file .npy, one row of float32 per text; default JSON on stdout.")
    ] = None,
    pooling: Annotated[
        str, typer.Option(help="How tokens become one vector: mean, max, first (BERT's [CLS]) or last.")
    ] = "mean",
    layer: Annotated[int, typer.Option(help="Layer of the hidden states: 0 the embeddings, -1 the last.")] = -1,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale each vector to length one.")] = False,
    batch_size: BatchSize = 32,
    device: Device = None,
    dtype: Dtype = None,
    cpu_kernels: CpuKernels = "auto",
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Encode texts as vectors: the hidden states of any model, pooled over the tokens of a text.

    Row n of the output is the vector of text n; an empty line is a vector of zeros. An encoder-decoder gives the states
    of its encoder.

    hf-edu encode runs/bert_pretrain-wikitext --file texts.txt --out vectors.npy --pooling mean --layer -2

    hf-edu encode runs/gpt "two dogs run" "a cat sleeps" --pooling last
    """
    from ..checkpoints import load_model
    from ..cpu_kernels import enabled
    from ..explain.hidden_states import TextEncoder
    from ..generation import find_device
    from ..precision import set_precision

    check_files(text, file, out)
    if out is not None and out.suffix != ".npy":
        raise ValueError(f"--out {out} must end in .npy; without --out the vectors are printed as JSON")
    torch_device = find_device(device)
    network, tokenizer = load_model(model, trust_remote_code)
    network = set_precision(network.to(torch_device), dtype)
    encoder = TextEncoder(network, tokenizer, pooling, layer, normalize, batch_size)
    with open_lines(text, file, None, has_bar=True if out else None) as lines, enabled(cpu_kernels):
        if out is not None:
            encoder.save(lines.inputs, out, lambda line: lines.write(line, []))
        else:
            for line, vector in encoder(lines.inputs, lines.is_interactive):
                lines.write(line, [json.dumps([float(f"{number:.6g}") for number in vector.tolist()])])
    log_truncated(encoder.num_truncated)
