"""`compute_metrics_for`: what `Trainer` takes as `compute_metrics`, by task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import load

IGNORED = -100


def compute_metrics_for(task: str, tokenizer: Any = None, **options: Any) -> Callable[[Any], dict[str, Any]]:
    """A function from `EvalPrediction` to scores.

    Args:
        task: translation, classification, documents, multiple_choice, token_classification, question_answering,
            language_modeling, masked_lm or pretraining (the last three with `preprocess_logits_for(task)`).
        tokenizer: Of the target side; translation needs it.
        options: `tag_names` (token_classification), `windows` and `examples` (question_answering), `lowercase` and
            `tokenize` for sacrebleu (translation).
    """
    if task not in _TASKS:
        raise ValueError(f"task must be one of {', '.join(_TASKS)}; got {task!r}")
    maker, allowed = _TASKS[task]
    for option in options:
        if option not in allowed:
            raise TypeError(f"scores for {task} have no option {option!r}; allowed: {', '.join(allowed) or 'none'}")
    return maker(tokenizer, **options)


def preprocess_logits_for(task: str) -> Callable[[Any, Any], Any] | None:
    """What `Trainer` takes as `preprocess_logits_for_metrics`, so that logits over a vocabulary are never kept."""
    return {"language_modeling": _token_losses, "masked_lm": _best_tokens, "pretraining": _best_tokens}.get(task)


def _translation(tokenizer: Any, lowercase: bool = False, tokenize: str | None = None):
    if tokenizer is None:
        raise ValueError("scores for translation need the tokenizer of the target side, to turn ids into text")
    bleu, chrf, wer, exact = (load(name) for name in ("bleu", "chrf", "wer", "exact_match"))

    def decode(ids: np.ndarray) -> list[str]:
        ids = np.where(ids == IGNORED, tokenizer.pad_token_id, ids)
        return [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]

    def scores(prediction: Any) -> dict[str, Any]:
        ids = _first(prediction.predictions)
        ids = ids.argmax(-1) if ids.ndim == 3 else ids  # logits of a forced target, where nothing was generated
        texts = {"predictions": decode(ids), "references": decode(prediction.label_ids)}
        found = bleu.compute(**texts, lowercase=lowercase, tokenize=tokenize)
        found = {name: found[name] for name in ("bleu", "bleu_signature")}
        found |= chrf.compute(**texts, lowercase=lowercase) | wer.compute(**texts) | exact.compute(**texts)
        real = (ids != tokenizer.pad_token_id) & (ids != IGNORED)
        return found | {"generated_length": float(real.sum(-1).mean())}

    return scores


def _classification(tokenizer: Any):
    def scores(prediction: Any) -> dict[str, float]:
        logits, labels = _first(prediction.predictions), prediction.label_ids
        if labels.ndim == 2:
            both = {"predictions": (logits > 0).astype(int), "references": labels.astype(int)}
            f1 = load("f1", "multilabel")
            averages = {
                f"f1_{name}": f1.compute(**both, average=name, zero_division=0)["f1"] for name in ("micro", "macro")
            }
            return averages | load("accuracy", "multilabel").compute(**both)
        if np.issubdtype(labels.dtype, np.floating):
            return load("pearson_spearman").compute(predictions=logits.reshape(-1), references=labels)
        both = {"predictions": logits.argmax(-1), "references": labels}
        average = "binary" if logits.shape[-1] == 2 else "macro"
        found = load("accuracy").compute(**both) | load("matthews").compute(**both)
        return found | load("f1").compute(**both, average=average)

    return scores


def _multiple_choice(tokenizer: Any):
    def scores(prediction: Any) -> dict[str, float]:
        best = _first(prediction.predictions).argmax(-1)
        return load("accuracy").compute(predictions=best, references=prediction.label_ids)

    return scores


def _token_classification(tokenizer: Any, tag_names: list[str] | None = None):
    if not tag_names:
        raise ValueError("scores for token_classification need tag_names=[...], the names of the tags in order")
    is_spans = any(name[:2] in ("B-", "I-") for name in tag_names)

    def scores(prediction: Any) -> dict[str, float]:
        best, labels = _first(prediction.predictions).argmax(-1), prediction.label_ids
        kept = labels != IGNORED
        if not is_spans:  # parts of speech: one tag a word, no spans
            return load("accuracy").compute(predictions=best[kept], references=labels[kept])
        said = [[tag_names[tag] for tag in row[keep]] for row, keep in zip(best, kept, strict=True)]
        right = [[tag_names[tag] for tag in row[keep]] for row, keep in zip(labels, kept, strict=True)]
        found = load("seqeval").compute(predictions=said, references=right)
        return {name.removeprefix("overall_"): score for name, score in found.items() if name.startswith("overall_")}

    return scores


def _question_answering(tokenizer: Any, windows: Any = None, examples: Any = None, **options: Any):
    if windows is None or examples is None:
        raise ValueError("scores for question_answering need windows= (the encoded data) and examples= (the corpus)")
    from ..data.question_answering import find_answers

    def scores(prediction: Any) -> dict[str, float]:
        starts, ends = prediction.predictions[:2]
        answers = find_answers(starts, ends, windows, examples, **options)
        references = [{"id": example["id"], "answers": example["answers"]} for example in examples]
        return load("squad").compute(predictions=answers, references=references)

    return scores


def _language_modeling(tokenizer: Any):
    def scores(prediction: Any) -> dict[str, float]:
        losses, tokens = np.asarray(_first(prediction.predictions)).T
        found = load("perplexity").compute(predictions=losses, references=tokens.round().astype(int))
        return {"perplexity": found["perplexity"], "nll": found["nll"]}

    return scores


def _pretraining(tokenizer: Any):
    def scores(prediction: Any) -> dict[str, float]:
        labels = prediction.label_ids
        labels, next_labels = labels if isinstance(labels, tuple | list) else (labels, None)
        tokens = _first(prediction.predictions)
        found = load("mlm_accuracy").compute(predictions=tokens, references=labels)
        found = {"mlm_accuracy": found["mlm_accuracy"]}
        if next_labels is None:
            return found
        best = prediction.predictions[1].argmax(-1)
        nsp = load("accuracy").compute(predictions=best, references=next_labels.reshape(-1))
        return found | {"nsp_accuracy": nsp["accuracy"]}

    return scores


def _token_losses(logits: Any, labels: Any) -> Any:
    """Summed loss and number of tokens of each row, (B, 2): small enough to be gathered."""
    import torch

    logits = logits[0] if isinstance(logits, tuple) else logits
    targets = labels[:, 1:]  # (B, T - 1)
    losses = torch.nn.functional.cross_entropy(
        logits[:, :-1].transpose(1, 2).float(), targets, ignore_index=IGNORED, reduction="none"
    )  # (B, T - 1)
    return torch.stack([losses.sum(1), (targets != IGNORED).sum(1).to(losses.dtype)], dim=1)


def _best_tokens(logits: Any, labels: Any) -> Any:
    if isinstance(logits, tuple):
        return logits[0].argmax(-1), *logits[1:2]
    return logits.argmax(-1)


def _first(predictions: Any) -> np.ndarray:
    return predictions[0] if isinstance(predictions, tuple | list) else predictions


_TASKS: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "translation": (_translation, ("lowercase", "tokenize")),
    "classification": (_classification, ()),
    "documents": (_classification, ()),
    "multiple_choice": (_multiple_choice, ()),
    "token_classification": (_token_classification, ("tag_names",)),
    "question_answering": (
        _question_answering,
        ("windows", "examples", "best", "max_answer_length", "null_threshold"),
    ),
    "language_modeling": (_language_modeling, ()),
    "masked_lm": (_pretraining, ()),
    "pretraining": (_pretraining, ()),
}
