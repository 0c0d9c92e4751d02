"""`hf-edu generate` and `hf-edu translate`: lines of text in, lines of text out."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import BatchSize, CpuKernels, Device, Dtype, Int8, MaxNewTokens, Model, NumBeams, TrustRemoteCode
from .text_lines import InputFile, OutputFile, Texts, check_files, log_truncated, open_lines


def generate(
    context: typer.Context,
    model: Model,
    text: Texts = None,
    file: InputFile = None,
    out: OutputFile = None,
    batch_size: BatchSize = 32,
    num_beams: NumBeams = 1,
    max_new_tokens: MaxNewTokens = None,
    sample: Annotated[
        bool,
        typer.Option(
            "--sample", help="Sample from the next-token distribution instead of taking the most likely token."
        ),
    ] = False,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature: below 1 sharpens the distribution, above 1 flattens it.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample only from the k most likely tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample only from the smallest set of tokens with this total probability.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed for sampling.")] = None,
    num_return_sequences: Annotated[int, typer.Option(min=1, help="Number of output lines per input line.")] = 1,
    device: Device = None,
    dtype: Dtype = None,
    int8: Int8 = False,
    cpu_kernels: CpuKernels = "auto",
    engine: Annotated[
        str | None,
        typer.Option(
            help="`ctranslate2` to translate with CTranslate2, if it is installed; a Transformer's runs only."
        ),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Generate text: translate, continue a prompt, or fill in masked tokens.

    Encoder-decoders translate, causal language models continue the text, and masked language models replace each
    [MASK]. One input line gives one output line, in the same order; an empty line stays empty. Only the outputs go to
    stdout.

    hf-edu generate runs/gpt "Once upon a time" --sample --temperature 0.8 --seed 1

    hf-edu generate runs/bahdanau --file test.de --out test.en --num-beams 5
    """
    from transformers import set_seed

    from ..cpu_kernels import enabled
    from ..generation import GenerationOptions, generate_lines, load_text_writer

    options = GenerationOptions(
        batch_size, num_beams, max_new_tokens, sample, temperature, top_k, top_p, num_return_sequences
    )
    check_files(text, file, out)
    only_translation = context.info_name == "translate"
    write = load_text_writer(model, options, device, trust_remote_code, only_translation, dtype, engine, int8)
    if seed is not None:
        set_seed(seed)
    with open_lines(text, file, out) as lines, enabled(cpu_kernels):
        for line, outputs in generate_lines(write, lines.inputs, options, lines.is_interactive):
            lines.write(line, outputs)
    log_truncated(write.num_truncated)


TRANSLATE_HELP = """Translate lines of text with an encoder-decoder.

The same as `hf-edu generate`, but rejects models that do not translate.

hf-edu translate runs/transformer "ein Hund läuft" --num-beams 5

cat test.de | hf-edu translate runs/transformer --batch-size 64 > test.en
"""
