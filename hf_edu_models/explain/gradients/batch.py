"""Turn a text into a batch with labels, for any head; labels that are not given are the model's own predictions."""

from __future__ import annotations

from typing import Any

import torch

from ..tokens import readable_tokens

_TokensBySide = dict[str, list[str]]


@torch.no_grad()
def labelled_batch(
    model: Any, tokenizer: Any, text: str, target: str | None = None
) -> tuple[dict[str, Any], _TokensBySide]:
    """One text as a batch with labels, and the tokens at its positions (`input` and, for a decoder, `target`).

    The labels of a language model are the text itself; of an encoder-decoder the target or, without one, what it
    generates; of a masked language model its predictions for the mask tokens or, without any, the last token, which is
    masked; of a classifier its prediction.
    """
    if not text.strip():
        raise ValueError("the text is empty; give at least one word")
    head = type(model).__name__
    if model.base_model is model:
        raise ValueError(f"{head} has no head, so it has no loss; load a checkpoint with a head")
    batch = dict(tokenizer(text, return_tensors="pt").to(model.device))
    if target is not None and not model.config.is_encoder_decoder:
        raise ValueError(f"{head} has no target side; leave --target out")
    if model.config.is_encoder_decoder:
        return _encoder_decoder_batch(model, tokenizer, batch, target)
    if head.endswith(("ForMaskedLM", "ForPreTraining")):
        batch = _masked_batch(model, tokenizer, batch)
    elif not head.endswith("ForCausalLM"):
        batch |= _predicted_labels(model, batch)
    return batch, {"input": _token_labels(tokenizer, batch["input_ids"])}


def _encoder_decoder_batch(model: Any, tokenizer: Any, batch: dict, target: str | None) -> tuple[dict, _TokensBySide]:
    if target is None:
        labels = model.generate(**batch, max_new_tokens=100, num_beams=1)[:, 1:]
    else:
        labels = tokenizer(text_target=target, return_tensors="pt").to(model.device)["input_ids"]
    if not labels.numel():
        raise ValueError("the model generates nothing for this text; give its output with --target")
    decoder_input_ids = model.prepare_decoder_input_ids_from_labels(labels)
    sides = {"input": batch["input_ids"], "target": decoder_input_ids}
    return batch | {"labels": labels}, {side: _token_labels(tokenizer, ids) for side, ids in sides.items()}


def _masked_batch(model: Any, tokenizer: Any, batch: dict[str, Any]) -> dict[str, Any]:
    ids = batch["input_ids"]
    masked = ids == tokenizer.mask_token_id
    if masked.any():
        outputs = model(**batch)
        predictions = (outputs.logits if "logits" in outputs else outputs.prediction_logits).argmax(dim=-1)
        return batch | {"labels": predictions.masked_fill(~masked, -100)}
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids, device=ids.device))
    positions = torch.arange(ids.shape[1], device=ids.device)
    masked = (positions == (positions * ~special).amax(dim=1, keepdim=True)) & ~special
    return batch | {
        "input_ids": ids.masked_fill(masked, tokenizer.mask_token_id),
        "labels": ids.masked_fill(~masked, -100),
    }


def _predicted_labels(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    outputs = model(**batch)
    if "start_logits" in outputs:
        logits = {"start_positions": outputs.start_logits, "end_positions": outputs.end_logits}
        return {name: each.argmax(dim=-1) for name, each in logits.items()}
    if model.config.problem_type in ("regression", "multi_label_classification") or outputs.logits.ndim > 3:
        raise ValueError(f"{type(model).__name__} needs labels; call gradient_flow(model, batch) with them")
    return {"labels": outputs.logits.argmax(dim=-1)}


def _token_labels(tokenizer: Any, ids: Any) -> list[str]:
    return list(readable_tokens(tokenizer, ids[0].tolist()).labels)
