"""Does a body that read two languages carry a task from one to the other? (After Pires et al. 2019, arXiv:1906.01502.)

A small BERT is pre-trained on parallel texts, fine-tuned on the first language alone, and tested in both. The task is
the subject of a caption: which of four words of the first language comes first in it. The label of the second text is
that of its translation, so that no label needs a person, and the answer is not a word of the second language's text.

Three bodies of the same size and number of steps: one that reads the first language alone, one that reads both, each
text by itself (MLM), and one that reads a text and its translation in one row, so that a masked word can be looked up
in the other language (TLM, Conneau & Lample 2019, arXiv:1901.07291). There every other row begins with the second
language: in the paper, both begin at position 0.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .sweep import Variant
from .translation import sweep_arguments

_SUBJECTS = {"man": "man", "woman": "woman", "children": "boy girl child children", "dog": "dog dogs"}
BASE = {
    "dataset": "bentrevett/multi30k",
    "source": "en",
    "target": "de",
    "languages": "both",
    "train_size": 20_000,
    "steps": 3_000,
    "labelled": 2_000,
    "fine_tuning_epochs": 5,
    "max_length": 64,
    "vocab_size": 4_000,
    "learning_rate": 2e-3,
    "batch_size": 32,
    "config": {
        "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 256,
        "norm_first": True, "dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.08,
        "position_init": "sinusoidal",
    },
}  # fmt: skip
_QUICK = {"train_size": 60, "steps": 3, "labelled": 40, "fine_tuning_epochs": 1}


def cross_lingual_variants(quick: bool = False, **changes: Any) -> list[Variant]:
    """The three bodies; `changes` are of BASE."""
    settings = BASE | {name: value for name, value in changes.items() if value is not None} | (_QUICK if quick else {})
    names = {f"{settings['source']} alone": "first", "both": "both", "both, in pairs": "pairs"}
    return [Variant(name, settings | {"languages": languages}) for name, languages in names.items()]


def subject_of(text: str) -> int | None:
    """The number of the subject that comes first in a text; None if there is none of them."""
    classes = {word: number for number, words in enumerate(_SUBJECTS.values()) for word in words.split()}
    found = (classes[word] for word in re.findall(r"\w+", text.lower()) if word in classes)
    return next(found, None)


def pretraining_rows(pairs: Any, tokenizer: Any, languages: str, max_length: int) -> list[dict[str, list[int]]]:
    """Token ids of the texts that a body reads."""
    sources, targets = pairs["source"], pairs["target"]
    options = {"truncation": True, "max_length": max_length}
    if languages == "pairs":
        rows = [pair if number % 2 else pair[::-1] for number, pair in enumerate(zip(sources, targets, strict=True))]
        encoded = tokenizer(*map(list, zip(*rows, strict=True)), **options)
    else:
        encoded = tokenizer([*sources, *(targets if languages == "both" else [])], **options)
    return [dict(zip(encoded, row, strict=True)) for row in zip(*encoded.values(), strict=True)]


def transfer(settings: dict[str, Any], seed: int, folder: Path) -> dict[str, float]:
    """Pre-train, fine-tune on the first language, and score both: accuracy in per cent, and the most frequent class."""
    import torch
    from transformers import Trainer, TrainingArguments, set_seed

    from ..data import collator_for, load_corpus, train_tokenizer
    from ..models.configuration_bert import EduBertConfig
    from ..models.modeling_bert import EduBertForMaskedLM, EduBertForSequenceClassification

    sizes = {name: settings[name] for name in ("source", "target", "train_size")}
    corpus = load_corpus(settings["dataset"], task="translation", **sizes)
    tokenizer = train_tokenizer(corpus, "wordpiece", settings["vocab_size"], lowercase=True, rung="bert")
    set_seed(seed)
    config = EduBertConfig.for_tokenizer(
        tokenizer, **settings["config"], max_position_embeddings=settings["max_length"]
    )
    body = EduBertForMaskedLM(config)

    def train(model: Any, rows: list, task: str, own: dict[str, Any], **options: Any) -> Any:
        arguments = sweep_arguments(settings | {"epochs": 1.0} | own, seed, folder) | options
        trainer = Trainer(
            model=model,
            args=TrainingArguments(**arguments, weight_decay=0.01),
            train_dataset=rows,
            data_collator=collator_for(task, tokenizer),
            processing_class=tokenizer,
        )
        seconds = trainer.train().metrics["train_runtime"]
        return trainer, seconds

    rows = pretraining_rows(corpus["train"], tokenizer, settings["languages"], settings["max_length"])
    _, seconds = train(body, rows, "masked_lm", {}, max_steps=settings["steps"])

    classifier = EduBertForSequenceClassification(EduBertConfig(**config.to_dict() | {"num_labels": len(_SUBJECTS)}))
    classifier.model.load_state_dict(body.model.state_dict(), strict=False)  # the pooler is new
    held_out = "test" if "test" in corpus else "validation"
    labelled = _labelled(corpus["train"], "source", tokenizer, settings["max_length"])[: settings["labelled"]]
    own = {"epochs": settings["fine_tuning_epochs"], "learning_rate": settings["learning_rate"] / 4}
    trainer, _ = train(classifier, labelled, "classification", own)
    scores: dict[str, float] = {}
    for side in ("source", "target"):
        predicted = trainer.predict(_labelled(corpus[held_out], side, tokenizer, settings["max_length"]))
        correct = predicted.predictions.argmax(-1) == predicted.label_ids
        scores[settings[side]] = 100 * float(correct.mean())
        most = torch.bincount(torch.as_tensor(predicted.label_ids)).max()
        scores["most frequent class"] = 100 * float(most) / len(correct)
    return scores | {"seconds": round(seconds, 1)}


def _labelled(pairs: Any, side: str, tokenizer: Any, max_length: int) -> list[dict[str, Any]]:
    """The texts of one side with the subject of the source."""
    labels = [subject_of(text) for text in pairs["source"]]
    encoded = tokenizer(list(pairs[side]), truncation=True, max_length=max_length)
    rows = [dict(zip(encoded, row, strict=True)) for row in zip(*encoded.values(), strict=True)]
    return [row | {"labels": label} for row, label in zip(rows, labels, strict=True) if label is not None]


def draw_transfer(rows: list[dict[str, Any]], languages: tuple[str, str], about: str) -> Any:
    """For each body, the accuracy in the language it was fine-tuned in and in the other one."""
    from ..plotting import GREY, add_caption, colour, new_figure

    variants = list(dict.fromkeys(row["variant"] for row in rows))
    figure, axis = new_figure(7.5, 4.6)
    for number, language in enumerate(languages):
        for place, variant in enumerate(variants):
            values = [row[language] for row in rows if row["variant"] == variant]
            x, mean = place + 0.4 * number - 0.2, sum(values) / len(values)
            label = ("fine-tuned in " if number == 0 else "tested in ") + language if place == 0 else None
            axis.bar(x, mean, 0.38, color=colour(number), alpha=0.85, label=label)
            axis.plot([x] * len(values), values, "o", color="black", markersize=3)
            axis.annotate(
                f"{mean:.1f}", (x, max(values)), (0, 4), textcoords="offset points", ha="center", fontsize=8.5
            )
    axis.axhline(rows[0]["most frequent class"], color=GREY, linestyle="--", label="most frequent class")
    axis.set_xticks(range(len(variants)), [f"pre-trained on\n{name}" for name in variants])
    axis.set_ylabel("accuracy (%)")
    axis.set_ylim(0, 120)
    axis.legend(loc="upper left", ncols=3, fontsize=8.5)
    figure.suptitle("A task learnt in one language, tested in another", fontsize=12)
    add_caption(figure, about)
    return figure
