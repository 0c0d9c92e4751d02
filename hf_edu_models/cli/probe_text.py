"""`hf-edu probe-text`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from .loading import read_corpus, read_model
from .options import BatchSize, Columns, Model, Seed, TrustRemoteCode


def probe_text(
    model: Model,
    dataset: Annotated[str, typer.Option(help="Texts with labels: a built-in corpus, file, folder or Hub dataset.")],
    config: Annotated[str | None, typer.Option(help="Configuration of a Hub dataset.")] = None,
    columns: Columns = None,
    layer: Annotated[
        list[int] | None, typer.Option(help="Layer of the hidden states: 0 the embeddings, -1 the last; repeatable.")
    ] = None,
    pooling: Annotated[str, typer.Option(help="How tokens become one vector: mean, max, first or last.")] = "mean",
    train_size: Annotated[int, typer.Option(help="Number of training texts.", min=2)] = 2_000,
    test_size: Annotated[int, typer.Option(help="Number of test texts.", min=1)] = 1_000,
    seed: Seed = 0,
    batch_size: BatchSize = 32,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Classify texts by logistic regression on the vectors of a frozen model, beside word counts (tf-idf).

    hf-edu probe-text runs/bert_pretrain-wikitext --dataset my/sst2 --layer -2 --layer -1
    """
    from ..data.named_values import named_values
    from ..explain.probes.texts import probe_texts

    names = named_values("columns", columns)
    corpus = read_corpus(dataset, task="classification", config=config, columns=names or None)
    options: dict[str, Any] = {"pooling": pooling, "train_size": train_size, "test_size": test_size, "seed": seed}
    loaded = read_model(model, trust_remote_code)
    found = probe_texts(*loaded, corpus, layers=layer or (-1,), batch_size=batch_size, progress=True, **options)
    table = Table("vectors", "accuracy", "macro F1")
    for each in (*found.layers, found.tfidf):
        label = "word counts (tf-idf)" if each.layer is None else f"layer {each.layer}, {pooling}"
        table.add_row(label, f"{100 * each.accuracy:.1f}", f"{100 * each.macro_f1:.1f}")
    Console().print(table)
    sizes = f"{found.train_texts:,} training texts, {found.test_texts:,} test texts"
    Console().print(f"majority class: {100 * found.majority:.1f}; {sizes}")
    if found.truncated:
        Console().print(f"{found.truncated} texts are longer than the model's positions and were truncated")
