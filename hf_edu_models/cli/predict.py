"""`hf-edu predict`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from .options import BatchSize, Columns, CpuKernels, Device, Dtype, Model, TrustRemoteCode
from .text_lines import InputFile, OutputFile, Texts, check_files, log_truncated, open_lines


def predict(
    model: Model,
    text: Texts = None,
    file: InputFile = None,
    out: OutputFile = None,
    pair: Annotated[str | None, typer.Option(help="Second text of a pair.")] = None,
    context: Annotated[str | None, typer.Option(help="Text that contains the answer to a question.")] = None,
    choice: Annotated[list[str] | None, typer.Option(help="A choice; give two or more.")] = None,
    columns: Columns = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per text.")] = False,
    batch_size: BatchSize = 32,
    device: Device = None,
    dtype: Dtype = None,
    cpu_kernels: CpuKernels = "auto",
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Predict labels, numbers, tags, answers or choices for new texts, as the model was trained to.

    One text gives one line of output, in the same order; an empty line stays empty. A line may also be JSON with the
    columns of the task, or have tabs between them (question and context, two sentences, a context and its choices).
    Files of tables (.csv, .tsv, .jsonl, .parquet, .conll) are read by column.

    hf-edu predict runs/bert_finetune-sst2 "a film to see twice" "two hours of my life"

    hf-edu predict runs/bert_finetune-squad "Where did Ada live?" --context "Ada Lovelace lived in London."

    hf-edu predict runs/bert_finetune-swag "He opened his umbrella" --choice "because it rained" --choice "and slept"

    hf-edu predict runs/recurrent-pos --file reviews.csv --columns text=body --json --out tags.jsonl
    """
    from ..cpu_kernels import enabled
    from ..data.named_values import named_texts
    from ..prediction import is_table, load_predictor, predict_rows, table_rows

    check_files(text, file, out)
    predictor = load_predictor(model, device, batch_size, trust_remote_code, dtype)
    fields = predictor.check_fields({"text_pair": pair, "context": context, "choices": choice})
    table = None
    if file is not None and is_table(file):
        table = table_rows(predictor, file, dict(named_texts("columns", columns)))
    elif columns:
        raise ValueError("--columns is for --file with a table (.csv, .tsv, .jsonl, .parquet); remove it")
    with open_lines(text, file, out, inputs=table) as lines, enabled(cpu_kernels):
        rows = _rows(predictor, lines.inputs, fields)
        for row, prediction in predict_rows(predictor, rows, lines.is_interactive):
            if as_json:
                output = json.dumps(prediction and row | prediction, ensure_ascii=False)
            else:
                output = "" if prediction is None else predictor.format(prediction)
            lines.write(str(row.get(predictor.columns[0], "")), [output])
    log_truncated(predictor.num_truncated)


def _rows(predictor: Any, lines: Iterable[Any], fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        try:
            yield predictor.row(line, **fields)
        except ValueError as error:
            raise ValueError(f"text {number}: {error}") from None
