"""Small BERTs for the sweeps: what masked words are replaced with, and with or without next sentences.

Every variant reads the same pairs in the same order; one setting of the loss or of the masking differs. The no-NSP
variant leaves out the loss of the next sentence and keeps everything else (Devlin et al. 2019, Section 5.1).
All are measured on the same held-out pairs with the same words hidden (80-10-10), and then fine-tuned: on `stories` to
tell whether two sentences come from one story, or on a classification corpus that is given.
"""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

from .sweep_translation import quiet_arguments
from .sweeps import Variant

BASE = {
    "dataset": "stories",
    "downstream": None,
    "train_size": 2_000,
    "test_size": 200,
    "pairs": 4_000,
    "epochs": 20,
    "fine_tuning_epochs": 3,
    "max_length": 64,
    "vocab_size": 2_000,
    "learning_rate": 1e-3,
    "batch_size": 32,
    "config": {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 192},
    "next_sentence": True,
    "mask": 0.8,
    "random": 0.1,
}
MOST_HELD_OUT = 1_000
QUICK = {"train_size": 30, "test_size": 10, "pairs": 40, "epochs": 1, "fine_tuning_epochs": 1}


def masking_variants(quick: bool = False, dataset: str | None = None, downstream: str | None = None) -> list[Variant]:
    """Devlin et al. 2019, Table 8: per cent of the chosen words that become [MASK], stay, or become another word."""
    rates = {"80-10-10": (0.8, 0.1), "100-0-0": (1.0, 0.0), "0-0-100": (0.0, 1.0)}
    return [
        Variant(name, _settings(quick, dataset, downstream, mask=mask, random=other))
        for name, (mask, other) in rates.items()
    ]


def nsp_variants(quick: bool = False, dataset: str | None = None, downstream: str | None = None) -> list[Variant]:
    """Devlin et al. 2019, Table 5: masked words and next sentences, or masked words alone."""
    return [
        Variant(name, _settings(quick, dataset, downstream, next_sentence=both))
        for name, both in (("with NSP", True), ("no NSP", False))
    ]


def _settings(quick: bool, dataset: str | None, downstream: str | None, **change: Any) -> dict[str, Any]:
    given = {"dataset": dataset or BASE["dataset"], "downstream": downstream}
    return BASE | given | change | (QUICK if quick else {})


def pretrain_bert(settings: dict[str, Any], seed: int, folder: Path) -> dict[str, float]:
    """Pre-train, score on held-out pairs, fine-tune and score again; the pre-trained model stays in `folder`."""
    from transformers import set_seed

    from ..data import build_nsp_pairs, train_tokenizer

    corpus = _documents(settings)
    tokenizer = train_tokenizer(corpus, "wordpiece", settings["vocab_size"], lowercase=True, rung="bert")
    # A story's rows are sentences; rows of other corpora may be paragraphs.
    cut = {"max_length": settings["max_length"], "split_sentences": settings["dataset"] != "stories"}
    pairs = {split: build_nsp_pairs(corpus[split], tokenizer, **cut) for split in ("train", "test")}
    set_seed(seed)
    model = _new_model(settings, tokenizer)
    seconds = _pretrain(model, tokenizer, pairs["train"], settings, seed, folder)
    held_out = pairs["test"]
    scores = masked_words(model, tokenizer, held_out.select(range(min(MOST_HELD_OUT, len(held_out)))))
    tasks = _downstream(settings, corpus)
    if tasks is not None:
        scores["downstream_accuracy"] = fine_tune(folder, tokenizer, tasks, settings, seed)
    return scores | {"parameters": model.num_parameters(), "seconds": round(seconds, 1)}


def _documents(settings: dict[str, Any]) -> dict[str, Any]:
    """Rows of text by document, `train` and `test`; a given corpus is taken whole, `pairs` of it are read."""
    from ..data import load_corpus

    if settings["dataset"] == "stories":
        sizes = {"train_size": settings["train_size"], "validation_size": 0, "test_size": settings["test_size"]}
        return dict(load_corpus("stories", **sizes))
    corpus = load_corpus(settings["dataset"], task="language_modeling")
    held_out = next((split for split in ("test", "validation") if split in corpus), None)
    if held_out is None:
        raise ValueError(f"{settings['dataset']} has no test or validation split to measure on; give one that has")
    return {"train": corpus["train"], "test": corpus[held_out]}


def _new_model(settings: dict[str, Any], tokenizer: Any) -> Any:
    from ..models.configuration_bert import EduBertConfig
    from ..models.modeling_bert import EduBertForMaskedLM, EduBertForPreTraining

    config = EduBertConfig(
        **settings["config"],
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        max_position_embeddings=2 * settings["max_length"],
    )
    return (EduBertForPreTraining if settings["next_sentence"] else EduBertForMaskedLM)(config)


def _pretrain(model: Any, tokenizer: Any, pairs: Any, settings: dict[str, Any], seed: int, folder: Path) -> float:
    from transformers import Trainer, TrainingArguments

    from ..data import collator_for

    if not settings["next_sentence"]:
        pairs = pairs.remove_columns("next_sentence_label")
    rates = {"mask_replace_prob": settings["mask"], "random_replace_prob": settings["random"]}
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(folder),
            num_train_epochs=settings["epochs"],
            per_device_train_batch_size=settings["batch_size"],
            learning_rate=settings["learning_rate"],
            warmup_steps=0.1,
            weight_decay=0.01,
            **quiet_arguments(seed),
        ),
        train_dataset=pairs.select(range(min(settings["pairs"], len(pairs)))),
        data_collator=collator_for("pretraining", tokenizer, seed=seed, **rates),
        processing_class=tokenizer,
    )
    seconds = trainer.train().metrics["train_runtime"]
    trainer.save_model()
    return seconds


def masked_words(model: Any, tokenizer: Any, pairs: Any, batch_size: int = 64) -> dict[str, float]:
    """Loss and accuracy on hidden words, the same ones for every model; and next sentences where it has learnt them."""
    import torch

    from ..data import collator_for

    collate = collator_for("pretraining", tokenizer, seed=0)
    totals = {"loss": 0.0, "right": 0, "hidden": 0, "next_right": 0}
    model.eval()
    for start in range(0, len(pairs), batch_size):
        batch = collate([pairs[row] for row in range(start, min(start + batch_size, len(pairs)))])
        batch = {name: value.to(model.device) for name, value in batch.items()}
        labels, following = batch.pop("labels"), batch.pop("next_sentence_label")
        with torch.no_grad():
            outputs = model(**batch)
        logits = outputs.prediction_logits if "prediction_logits" in outputs else outputs.logits
        hidden = labels != -100
        logits, words = logits[hidden].float(), labels[hidden]
        totals["loss"] += float(torch.nn.functional.cross_entropy(logits, words, reduction="sum"))
        totals["right"] += int((logits.argmax(dim=-1) == words).sum())
        totals["hidden"] += len(words)
        if "seq_relationship_logits" in outputs:
            totals["next_right"] += int((outputs.seq_relationship_logits.argmax(dim=-1) == following).sum())
    scores = {"mlm_loss": totals["loss"] / totals["hidden"], "mlm_accuracy": 100 * totals["right"] / totals["hidden"]}
    has_next = type(model).__name__.endswith("ForPreTraining")
    return scores | ({"nsp_accuracy": 100 * totals["next_right"] / len(pairs)} if has_next else {})


def _downstream(settings: dict[str, Any], corpus: Any) -> Any:
    """What to fine-tune on: the given corpus, pairs of sentences from `stories`, or nothing."""
    from ..data import load_corpus

    if settings["downstream"]:
        sizes = {"train_size": settings["pairs"], "validation_size": 5 * settings["test_size"]}
        return load_corpus(settings["downstream"], task="classification", **sizes)
    return same_story_pairs(corpus, settings["pairs"] // 2) if settings["dataset"] == "stories" else None


def same_story_pairs(corpus: Any, train_pairs: int, test_pairs: int = 1_000) -> Any:
    """A classification corpus: two sentences that do not follow each other, from one story or from two."""
    import datasets

    label = datasets.ClassLabel(names=["two stories", "one story"])
    features = datasets.Features(text=datasets.Value("string"), text_pair=datasets.Value("string"), label=label)
    splits = {"train": train_pairs, "test": min(test_pairs, train_pairs)}
    return datasets.DatasetDict(
        {
            split: datasets.Dataset.from_dict(_sentence_pairs(corpus[split], size), features=features)
            for split, size in splits.items()
        }
    )


def _sentence_pairs(rows: Any, size: int) -> dict[str, list]:
    stories: dict[str, list[str]] = {}
    for story, sentence in zip(rows["document"], rows["text"], strict=True):
        stories.setdefault(story, []).append(sentence)
    rng, kept = random.Random(0), list(stories.values())
    pairs: dict[str, list] = {"text": [], "text_pair": [], "label": []}
    for number in range(size):
        first, other = rng.sample(range(len(kept)), 2)
        story, place, is_same = kept[first], rng.randrange(len(kept[first]) - 2), number % 2
        sentence = story[place]
        # A story may say a sentence twice: nothing that follows it anywhere is taken, nor itself.
        near = {sentence} | {after for before, after in pairwise(story) if before == sentence}
        second = rng.choice([each for each in story[place + 2 :] if each not in near] if is_same else kept[other])
        for name, value in zip(pairs, (sentence, second, is_same), strict=True):
            pairs[name].append(value)
    return pairs


def fine_tune(folder: Path, tokenizer: Any, corpus: Any, settings: dict[str, Any], seed: int) -> float:
    """Accuracy in per cent after a short fine-tuning, on the validation split where there is one."""
    import datasets
    from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

    from ..data import collator_for, encode_corpus
    from ..hub.convert import quiet
    from ..metrics import compute_metrics_for

    label = corpus["train"].features["label"]
    if not isinstance(label, datasets.ClassLabel):
        raise ValueError(
            "fine-tuning here needs one class a text; give a corpus with one label, not numbers or several"
        )
    # Validation before test: many a test set comes without its answers.
    corpus = {split: corpus[split] for split in ("train", "validation" if "validation" in corpus else "test")}
    encoded = encode_corpus(corpus, tokenizer, task="classification", max_length=settings["max_length"])
    with quiet():  # the head is new, and that is meant
        model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=len(label.names))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(folder / "fine_tuned"),
            num_train_epochs=settings["fine_tuning_epochs"],
            per_device_train_batch_size=settings["batch_size"],
            per_device_eval_batch_size=128,
            learning_rate=settings["learning_rate"] / 3,
            warmup_steps=0.1,
            **quiet_arguments(seed),
        ),
        train_dataset=encoded["train"],
        data_collator=collator_for("classification", tokenizer),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("classification"),
    )
    trainer.train()
    *_, held_out = encoded.values()
    return 100 * trainer.evaluate(held_out, metric_key_prefix="test")["test_accuracy"]
