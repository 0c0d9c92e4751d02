"""Small BERT models for the sweeps over masking strategies and next sentence prediction (NSP).

Every variant reads the same pairs in the same order; one setting of the masking or of the loss differs. The no-NSP
variant drops the NSP loss and keeps everything else (Devlin et al. 2019, Section 5.1). The left-to-right variant is an
`edu_gpt` of the same sizes that predicts each next token of the same pairs. It stays left-to-right in fine-tuning and
classifies by the last token: [CLS], the first one, would see nothing. The others are scored on the same held-out
pairs with the same masked tokens (80-10-10). Then all are fine-tuned: on `stories` to classify whether two sentences
come from the same story, or on a given classification corpus.
"""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

from .sweep import Variant
from .translation import sweep_arguments

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
    "left_to_right": False,
    "mask": 0.8,
    "random": 0.1,
}
_MAX_TEST_PAIRS = 1_000
_QUICK = {"train_size": 30, "test_size": 10, "pairs": 40, "epochs": 1, "fine_tuning_epochs": 1}


def masking_variants(quick: bool = False, dataset: str | None = None, downstream: str | None = None) -> list[Variant]:
    """Devlin et al. 2019, Table 8: percentages of the selected tokens that become [MASK], stay, or become random."""
    probabilities = {"80-10-10": (0.8, 0.1), "100-0-0": (1.0, 0.0), "0-0-100": (0.0, 1.0)}
    return [
        Variant(name, _settings(quick, dataset, downstream, mask=to_mask, random=to_random))
        for name, (to_mask, to_random) in probabilities.items()
    ]


def nsp_variants(quick: bool = False, dataset: str | None = None, downstream: str | None = None) -> list[Variant]:
    """Devlin et al. 2019, Table 5: MLM and NSP, MLM alone, or a left-to-right language model."""
    changes: dict[str, dict[str, Any]] = {
        "with NSP": {},
        "no NSP": {"next_sentence": False},
        "left-to-right, no NSP": {"next_sentence": False, "left_to_right": True},
    }
    return [Variant(name, _settings(quick, dataset, downstream, **change)) for name, change in changes.items()]


def _settings(quick: bool, dataset: str | None, downstream: str | None, **change: Any) -> dict[str, Any]:
    data = {"dataset": dataset or BASE["dataset"], "downstream": downstream}
    return BASE | data | change | (_QUICK if quick else {})


def pretrain_bert(settings: dict[str, Any], seed: int, folder: Path) -> dict[str, float]:
    """Pre-train, save in `folder`, score on held-out pairs, fine-tune and score again."""
    from transformers import set_seed

    from ..data import build_nsp_pairs, train_tokenizer

    corpus = _load_documents(settings)
    tokenizer = train_tokenizer(corpus, "wordpiece", settings["vocab_size"], lowercase=True, rung="bert")
    # The rows of `stories` are sentences; those of other corpora may be paragraphs.
    options = {"max_length": settings["max_length"], "split_sentences": settings["dataset"] != "stories"}
    pairs = {split: build_nsp_pairs(corpus[split], tokenizer, **options) for split in ("train", "test")}
    set_seed(seed)
    model = new_bert(settings, tokenizer)
    seconds = _pretrain(model, tokenizer, pairs["train"], settings, seed, folder)
    held_out = pairs["test"]
    scores = {}
    if not settings["left_to_right"]:  # its next tokens are no masked tokens
        scores = mlm_scores(model, tokenizer, held_out.select(range(min(_MAX_TEST_PAIRS, len(held_out)))))
    downstream = _downstream_corpus(settings, corpus)
    if downstream is not None:
        scores["downstream_accuracy"] = _fine_tune(folder, tokenizer, downstream, settings, seed)
    return scores | {"parameters": model.num_parameters(), "seconds": round(seconds, 1)}


def _load_documents(settings: dict[str, Any]) -> dict[str, Any]:
    """Rows of text by document, `train` and `test`; `pairs` limits how many of them are used."""
    from ..data import load_corpus

    if settings["dataset"] == "stories":
        sizes = {"train_size": settings["train_size"], "validation_size": 0, "test_size": settings["test_size"]}
        return dict(load_corpus("stories", **sizes))
    corpus = load_corpus(settings["dataset"], task="language_modeling")
    held_out = next((split for split in ("test", "validation") if split in corpus), None)
    if held_out is None:
        raise ValueError(f"{settings['dataset']} has no test or validation split; give a corpus with one")
    return {"train": corpus["train"], "test": corpus[held_out]}


def new_bert(settings: dict[str, Any], tokenizer: Any) -> Any:
    from ..models.configuration_bert import EduBertConfig
    from ..models.modeling_bert import EduBertForMaskedLM, EduBertForPreTraining

    sizes = settings["config"] | {"max_position_embeddings": 2 * settings["max_length"]}
    if settings["left_to_right"]:
        from ..models.configuration_gpt import EduGPTConfig
        from ..models.modeling_gpt import EduGPTForCausalLM

        # Layer norm as in BERT, after each sublayer.
        return EduGPTForCausalLM(EduGPTConfig.for_tokenizer(tokenizer, **sizes, norm_first=False))
    config = EduBertConfig.for_tokenizer(tokenizer, **sizes)
    return (EduBertForPreTraining if settings["next_sentence"] else EduBertForMaskedLM)(config)


def _pretrain(model: Any, tokenizer: Any, pairs: Any, settings: dict[str, Any], seed: int, folder: Path) -> float:
    from transformers import Trainer, TrainingArguments

    from ..data import collator_for

    if not settings["next_sentence"]:
        pairs = pairs.remove_columns("next_sentence_label")
    if settings["left_to_right"]:
        pairs = pairs.remove_columns("token_type_ids")
        collator = collator_for("language_modeling", tokenizer)
    else:
        masking = {"mask_replace_prob": settings["mask"], "random_replace_prob": settings["random"]}
        collator = collator_for("pretraining", tokenizer, seed=seed, **masking)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(**sweep_arguments(settings, seed, folder), weight_decay=0.01),
        train_dataset=pairs.select(range(min(settings["pairs"], len(pairs)))),
        data_collator=collator,
        processing_class=tokenizer,
    )
    seconds = trainer.train().metrics["train_runtime"]
    trainer.save_model()
    return seconds


def mlm_scores(model: Any, tokenizer: Any, pairs: Any, batch_size: int = 64) -> dict[str, float]:
    """MLM loss and accuracy, with the same masked tokens for every model; NSP accuracy if the model has that head."""
    import torch

    from ..data import collator_for

    collate = collator_for("pretraining", tokenizer, seed=0)
    has_nsp = type(model).__name__.endswith("ForPreTraining")
    loss, num_correct, num_masked, num_nsp_correct = 0.0, 0, 0, 0
    model.eval()
    for start in range(0, len(pairs), batch_size):
        batch = collate([pairs[row] for row in range(start, min(start + batch_size, len(pairs)))])
        batch = {name: value.to(model.device) for name, value in batch.items()}
        labels, nsp_labels = batch.pop("labels"), batch.pop("next_sentence_label")
        with torch.no_grad():
            outputs = model(**batch)
        is_masked = labels != -100
        logits = (outputs.prediction_logits if has_nsp else outputs.logits)[is_masked].float()
        labels = labels[is_masked]
        loss += float(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))
        num_correct += int((logits.argmax(dim=-1) == labels).sum())
        num_masked += len(labels)
        if has_nsp:
            num_nsp_correct += int((outputs.seq_relationship_logits.argmax(dim=-1) == nsp_labels).sum())
    scores = {"mlm_loss": loss / num_masked, "mlm_accuracy": 100 * num_correct / num_masked}
    return scores | ({"nsp_accuracy": 100 * num_nsp_correct / len(pairs)} if has_nsp else {})


def _downstream_corpus(settings: dict[str, Any], corpus: Any) -> Any:
    """The corpus to fine-tune on: the given one, sentence pairs of `stories`, or None."""
    from ..data import load_corpus

    if settings["downstream"]:
        sizes = {"train_size": settings["pairs"], "validation_size": 5 * settings["test_size"]}
        return load_corpus(settings["downstream"], task="classification", **sizes)
    return same_story_pairs(corpus, settings["pairs"] // 2) if settings["dataset"] == "stories" else None


def same_story_pairs(corpus: Any, train_pairs: int, test_pairs: int = 1_000) -> Any:
    """A classification corpus: two sentences that are not adjacent, from the same story or from two stories."""
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
    rng, texts = random.Random(0), list(stories.values())
    pairs: dict[str, list] = {"text": [], "text_pair": [], "label": []}
    for number in range(size):
        first, other = rng.sample(range(len(texts)), 2)
        story, start, is_same = texts[first], rng.randrange(len(texts[first]) - 2), number % 2
        sentence = story[start]
        # A story may repeat a sentence: exclude it and every sentence that follows it anywhere.
        excluded = {sentence} | {after for before, after in pairwise(story) if before == sentence}
        second = rng.choice([each for each in story[start + 2 :] if each not in excluded] if is_same else texts[other])
        for name, value in zip(pairs, (sentence, second, is_same), strict=True):
            pairs[name].append(value)
    return pairs


def _fine_tune(folder: Path, tokenizer: Any, corpus: Any, settings: dict[str, Any], seed: int) -> float:
    """Accuracy in per cent after a short fine-tuning, on the validation split if there is one."""
    import datasets
    from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

    from ..checkpoints import quiet
    from ..data import collator_for, encode_corpus
    from ..metrics import compute_metrics_for

    label = corpus["train"].features["label"]
    if not isinstance(label, datasets.ClassLabel):
        raise ValueError("fine-tuning needs one class label for each text; give a single-label corpus")
    # Validation before test: many test sets have no labels.
    corpus = {split: corpus[split] for split in ("train", "validation" if "validation" in corpus else "test")}
    encoded = encode_corpus(corpus, tokenizer, task="classification", max_length=settings["max_length"])
    with quiet():  # the new classification head is intended
        model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=len(label.names))
    settings = settings | {"epochs": settings["fine_tuning_epochs"], "learning_rate": settings["learning_rate"] / 3}
    trainer = Trainer(
        model=model,
        args=TrainingArguments(**sweep_arguments(settings, seed, folder / "fine_tuned")),
        train_dataset=encoded["train"],
        data_collator=collator_for("classification", tokenizer),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("classification"),
    )
    trainer.train()
    *_, held_out = encoded.values()
    return 100 * trainer.evaluate(held_out, metric_key_prefix="test")["test_accuracy"]
