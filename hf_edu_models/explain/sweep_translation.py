"""Small translators for the sweeps: source reversal, heads, positions; on built-in tasks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from .sweeps import Variant

# Small enough for a CPU; `quick` only shows that everything runs.
COPY = {"dataset": "copy", "options": {"min_length": 6, "max_length": 12}, "train_size": 6_000, "epochs": 8}
RECURRENT = {
    "rung": "seq2seq",
    "config": {"cell_type": "lstm", "hidden_size": 128, "embedding_size": 64, "num_hidden_layers": 1},
    "learning_rate": 3e-3,
    "batch_size": 64,
}
NUMBERS = {"dataset": "numbers", "options": {"languages": ["en"]}, "train_size": 4_000, "epochs": 5}
ATTENTIVE = {
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
QUICK = {"train_size": 64, "epochs": 1, "test_size": 16}


def reversal_variants(quick: bool = False, dataset: str | None = None) -> list[Variant]:
    """Sutskever et al. 2014, Section 3.3: the source as it is, and last word first."""
    return [
        Variant(name, _settings(COPY, RECURRENT, {"reverse_source": turned}, quick, dataset))
        for name, turned in (("source as it is", False), ("source reversed", True))
    ]


def heads_variants(quick: bool = False, dataset: str | None = None, heads: tuple[int, ...] = (1, 2, 4, 8)):
    """Vaswani et al. 2017, Table 3, rows (A): more heads, each of them smaller, for the same work."""
    return [
        Variant(
            f"{count} head{'s' * (count > 1)}",
            _settings(NUMBERS, ATTENTIVE, {"num_attention_heads": count}, quick, dataset),
        )
        for count in heads
    ]


def positions_variants(quick: bool = False, dataset: str | None = None) -> list[Variant]:
    """Vaswani et al. 2017, Table 3, row (E): sinusoids, or vectors that are learnt."""
    return [
        Variant(kind, _settings(NUMBERS, ATTENTIVE, {"position_embedding_type": kind}, quick, dataset))
        for kind in ("sinusoidal", "learned")
    ]


def _settings(task: dict, model: dict, change: dict, quick: bool, dataset: str | None) -> dict[str, Any]:
    settings = {**task, **model, "test_size": 500, "config": model["config"] | change}
    if dataset is not None:
        settings |= {"dataset": dataset, "options": {}}
    return settings | QUICK if quick else settings


def train_translator(settings: dict[str, Any], seed: int, folder: Path) -> dict[str, float]:
    """Train one and score it on the test split: perplexity, BLEU, exact match; the model stays in `folder`."""
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments, set_seed

    import hf_edu_models  # noqa: F401  registers every rung

    from ..data import collator_for, encode_corpus, load_corpus, train_tokenizer
    from ..metrics import compute_metrics_for

    sizes = {"train_size": settings["train_size"], "test_size": settings["test_size"]}
    corpus = load_corpus(settings["dataset"], **sizes, **settings["options"])
    kind = {"kind": "word"} if settings["dataset"] in ("copy", "reverse", "numbers") else {"kind": "bpe"}
    tokenizer = train_tokenizer(corpus, vocab_size=4_000, rung=settings["rung"], **kind)
    encoded = encode_corpus(corpus, tokenizer, task="translation", max_length=64)
    set_seed(seed)
    config = AutoConfig.for_model(
        f"edu_{settings['rung']}", **settings["config"], vocab_size=len(tokenizer), **_special_ids(tokenizer)
    )
    model = AutoModelForSeq2SeqLM.from_config(config)
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=settings["epochs"],
        per_device_train_batch_size=settings["batch_size"],
        per_device_eval_batch_size=128,
        learning_rate=settings["learning_rate"],
        warmup_steps=0.1,
        lr_scheduler_type="linear",
        predict_with_generate=True,
        generation_max_length=66,
        **quiet_arguments(seed),
    )
    trainer = Seq2SeqTrainer(
        model=model,
        args=arguments,
        train_dataset=encoded["train"],
        data_collator=collator_for("translation", tokenizer, model=model),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("translation", tokenizer),
    )
    seconds = trainer.train().metrics["train_runtime"]
    trainer.save_model()
    found = trainer.evaluate(encoded["test"], metric_key_prefix="test")
    return {
        "perplexity": perplexity(trainer, encoded["test"]),
        "bleu": found["test_bleu"],
        "exact_match": 100 * found["test_exact_match"],
        "parameters": model.num_parameters(),
        "seconds": round(seconds, 1),
    }


def quiet_arguments(seed: int) -> dict[str, Any]:
    """What every training of a sweep shares: it reports to nobody and saves no checkpoints on its way."""
    import torch

    quiet = {"report_to": "none", "save_strategy": "no", "logging_steps": 50, "log_level": "warning"}
    return quiet | {"seed": seed, "dataloader_pin_memory": torch.cuda.is_available()}


def perplexity(trainer: Any, dataset: Any) -> float:
    """Of every label alike; Trainer's own mean is over batches, whatever their length."""
    import torch

    model, total, labels = trainer.model.eval(), 0.0, 0
    for batch in trainer.get_eval_dataloader(dataset):
        with torch.no_grad():
            count = int((batch["labels"] != -100).sum())
            total += float(model(**batch).loss) * count
        labels += count
    return math.exp(total / labels)


def _special_ids(tokenizer: Any) -> dict[str, int]:
    return {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.bos_token_id,
    }
