"""Small translation models for the sweeps over source reversal, attention heads, positions and attention scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..auto import LADDER
from ..plotting import add_caption, escape_dollars, new_figure
from .sweep import Variant

# Small enough for a CPU; `quick` only checks that everything runs.
_COPY = {"dataset": "copy", "options": {"min_length": 6, "max_length": 12}, "train_size": 6_000, "epochs": 8}
_SEQ2SEQ = {
    "rung": "seq2seq",
    "config": {"cell_type": "lstm", "hidden_size": 128, "embedding_size": 64, "num_hidden_layers": 1},
    "learning_rate": 3e-3,
    "batch_size": 64,
}
_NUMBERS = {"dataset": "numbers", "options": {"languages": ["en"]}, "train_size": 4_000, "epochs": 5}
_TRANSFORMER = {
    "rung": "transformer",
    "config": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
        "label_smoothing": 0.0,
    },
    "learning_rate": 2e-3,
    "batch_size": 64,
}
_BAHDANAU = {
    "rung": "bahdanau",
    "config": {
        "embedding_size": 32,
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "attention_size": 64,
        "maxout_size": 32,
        "initializer_range": 0.1,
    },
    "learning_rate": 4e-3,
    "batch_size": 64,
}
_QUICK = {"train_size": 64, "epochs": 1, "test_size": 16}


def reversal_variants(quick: bool = False, dataset: str | None = None) -> list[Variant]:
    """Sutskever et al. 2014, Section 3.3: the source in order, and reversed."""
    return [
        Variant(name, _settings(_COPY, _SEQ2SEQ, {"reverse_source": is_reversed}, quick, dataset))
        for name, is_reversed in (("source as it is", False), ("source reversed", True))
    ]


def heads_variants(quick: bool = False, dataset: str | None = None, heads: tuple[int, ...] = (1, 2, 4, 8)):
    """Vaswani et al. 2017, Table 3, rows (A): more heads of a smaller size, at the same cost."""
    return [
        Variant(
            f"{count} head{'s' * (count > 1)}",
            _settings(_NUMBERS, _TRANSFORMER, {"num_attention_heads": count}, quick, dataset),
        )
        for count in heads
    ]


def positions_variants(quick: bool = False, dataset: str | None = None) -> list[Variant]:
    """Vaswani et al. 2017, Table 3, row (E): sinusoidal or learned position embeddings."""
    return [
        Variant(kind, _settings(_NUMBERS, _TRANSFORMER, {"position_embedding_type": kind}, quick, dataset))
        for kind in ("sinusoidal", "learned")
    ]


def scores_variants(quick: bool = False, dataset: str | None = None) -> list[Variant]:
    """Every energy function of the encoder-decoder with attention (Luong et al. 2015, Table 4)."""
    from ..models.blocks_attention import SCORES

    return [
        Variant(score, _settings(_NUMBERS, _BAHDANAU, {"attention_score": score}, quick, dataset)) for score in SCORES
    ]


def diversity_variants(quick: bool = False, dataset: str | None = None, weight: float = 0.1) -> list[Variant]:
    """Heads without and with the penalty for attending to the same positions (after Lin et al. 2017, Section 2.2)."""
    return [
        Variant(name, _settings(_NUMBERS, _TRANSFORMER, {"head_diversity_weight": each}, quick, dataset))
        for name, each in (("no penalty", 0.0), (f"penalty, weight {weight:g}", weight))
    ]


def _settings(task: dict, model: dict, change: dict, quick: bool, dataset: str | None) -> dict[str, Any]:
    settings = {**task, **model, "test_size": 500, "config": model["config"] | change}
    if dataset is not None:
        settings |= {"dataset": dataset, "options": {}}
    return settings | _QUICK if quick else settings


def train_translator(settings: dict[str, Any], seed: int, folder: Path) -> dict[str, float]:
    """Train one model, save it in `folder` and score it on the test split: perplexity, BLEU, exact match."""
    from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, set_seed

    from ..data import collator_for, encode_corpus, load_corpus, train_tokenizer
    from ..metrics import compute_metrics_for

    sizes = {"train_size": settings["train_size"], "test_size": settings["test_size"]}
    corpus = load_corpus(settings["dataset"], **sizes, **settings["options"])
    kind = "word" if settings["dataset"] in ("copy", "reverse", "numbers") else "bpe"
    tokenizer = train_tokenizer(corpus, kind, vocab_size=4_000, rung=settings["rung"])
    encoded = encode_corpus(corpus, tokenizer, task="translation", max_length=64)
    set_seed(seed)
    model = _new_model(settings, tokenizer)
    generation = {"predict_with_generate": True, "generation_max_length": 66}
    trainer = Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(**sweep_arguments(settings, seed, folder), **generation),
        train_dataset=encoded["train"],
        data_collator=collator_for("translation", tokenizer, model=model),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("translation", tokenizer),
    )
    seconds = trainer.train().metrics["train_runtime"]
    trainer.save_model()
    scores = trainer.evaluate(encoded["test"], metric_key_prefix="test")
    return {
        "perplexity": perplexity(trainer, encoded["test"]),
        "bleu": scores["test_bleu"],
        "exact_match": 100 * scores["test_exact_match"],
        "parameters": model.num_parameters(),
        "seconds": round(seconds, 1),
    }


def train_and_measure_heads(settings: dict[str, Any], seed: int, folder: Path) -> dict[str, float]:
    """As `train_translator`, and how alike the heads attend: the penalty without its weight, on test rows."""
    scores = train_translator(settings, seed, folder)
    return scores | {"head_overlap": _head_overlap(*_read_translator(folder), settings)}


def _read_translator(folder: Path) -> tuple[Any, Any]:
    from ..checkpoints import load_with_head

    return load_with_head(str(folder))


def _head_overlap(model: Any, tokenizer: Any, settings: dict[str, Any]) -> float:
    import torch

    from ..data import collator_for, encode_corpus, load_corpus

    sizes = {"train_size": settings["train_size"], "test_size": settings["test_size"]}
    corpus = load_corpus(settings["dataset"], **sizes, **settings["options"])
    encoded = encode_corpus(corpus["test"].select(range(16)), tokenizer, task="translation", max_length=64)
    batch = collator_for("translation", tokenizer, model=model)(list(encoded))
    with torch.no_grad():
        outputs = model.eval()(**batch, output_attentions=True)
    return float(model.attention_penalties(outputs, batch["attention_mask"], batch["labels"]).mean())


def draw_heads(rows: Sequence[dict[str, Any]], folders: Mapping[str, Path], source: str, about: str) -> Figure:
    """The cross-attention of the last layer, head by head: a row for each variant, with its scores."""
    from ..explain.attention.maps import attention_maps

    maps = {name: attention_maps(*_read_translator(folder), source).main for name, folder in folders.items()}
    heads = len(next(iter(maps.values())).weights[-1])
    figure, axes = new_figure(2.6 * heads + 0.6, 3.2 * len(maps) + 0.4, rows=len(maps), columns=heads)
    lines: list[Any] = list(np.reshape(axes, (len(maps), heads)))
    for line, (name, each) in zip(lines, maps.items(), strict=True):
        own = [row for row in rows if row["variant"] == name]
        overlap, exact = (np.mean([row[score] for row in own]) for score in ("head_overlap", "exact_match"))
        for head, axis in enumerate(line):
            axis.imshow(each.weights[-1][head], cmap="Blues", vmin=0, vmax=1, aspect="auto")
            axis.grid(False)
            axis.set_xticks(range(len(each.key_tokens)), escape_dollars(each.key_tokens), fontsize=8)
            axis.set_yticks(range(len(each.query_tokens)), escape_dollars(each.query_tokens) if head == 0 else [])
            axis.set_title(f"head {head + 1}", fontsize=9)
        line[0].set_title("")
        line[0].set_title(f"{name}: overlap {overlap:.2f}, exact match {exact:.0f}%\nhead 1", fontsize=9, loc="left")
    add_caption(figure, f"Cross-attention of the last layer, seed 0. Overlap: ||A A^T - I||^2, all attention. {about}")
    return figure


def _new_model(settings: dict[str, Any], tokenizer: Any) -> Any:
    from transformers import AutoModelForSeq2SeqLM

    rung = next(rung for rung in LADDER if rung.name == settings["rung"])
    config = rung.config.for_tokenizer(tokenizer, **settings["config"])
    return AutoModelForSeq2SeqLM.from_config(config)


def sweep_arguments(settings: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """Training arguments of every sweep: no tracker, no intermediate checkpoints."""
    import torch

    return {
        "output_dir": str(folder),
        "num_train_epochs": settings["epochs"],
        "per_device_train_batch_size": settings["batch_size"],
        "per_device_eval_batch_size": 128,
        "learning_rate": settings["learning_rate"],
        "warmup_steps": 0.1,
        "seed": seed,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 50,
        "log_level": "warning",
        "dataloader_pin_memory": torch.cuda.is_available(),
    }


def perplexity(trainer: Any, dataset: Any) -> float:
    """Perplexity over all labels; Trainer's own loss is a mean over batches, whatever their size."""
    import torch

    model, total_loss, num_labels = trainer.model.eval(), 0.0, 0
    for batch in trainer.get_eval_dataloader(dataset):
        with torch.no_grad():
            count = int((batch["labels"] != -100).sum())
            total_loss += float(model(**batch).loss) * count
        num_labels += count
    return math.exp(total_loss / num_labels)
