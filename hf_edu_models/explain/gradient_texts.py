"""From a text to a batch with a loss, for any head: what was not given, the model answers itself."""

from __future__ import annotations

from typing import Any

import torch

Tokens = dict[str, list[str]]


def load_with_head(name: str) -> tuple[Any, Any]:
    """A checkpoint as the class that it was saved as, in evaluation mode, and its tokenizer."""
    import transformers

    import hf_edu_models  # noqa: F401  registers every rung

    try:
        config = transformers.AutoConfig.from_pretrained(name)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    except OSError as problem:
        sentence = str(problem).strip().splitlines()[0]
        raise FileNotFoundError(f"no model with its tokenizer can be loaded from {name!r}: {sentence}") from None
    saved_as = (getattr(config, "architectures", None) or [""])[0]
    homes = getattr(config, "auto_map", None) or {}
    autos = [auto for auto, home in homes.items() if home.endswith(f".{saved_as}") and auto != "AutoModel"]
    if not saved_as or not autos:
        raise ValueError(f"{name} holds {saved_as or 'no named class'}, which has no loss; give a rung with a head")
    return getattr(transformers, autos[0]).from_pretrained(name).eval(), tokenizer


@torch.no_grad()
def batch_of(model: Any, tokenizer: Any, text: str, target: str | None = None) -> tuple[dict[str, Any], Tokens]:
    """One text as a batch with labels, and the tokens at its positions (`input` and, for a translator, `target`).

    A language model predicts the text itself, a translator the target or, without one, its own translation; a masked
    model the last word or, where the text has mask tokens, its own guess for them; a classifier its own answer.
    """
    if not text.strip():
        raise ValueError("the text is empty; give at least one word")
    batch = dict(tokenizer(text, return_tensors="pt").to(model.device))
    head = type(model).__name__
    if target is not None and not model.config.is_encoder_decoder:
        raise ValueError(f"{head} has no target side; leave --target out")
    if model.config.is_encoder_decoder:
        return _translation(model, tokenizer, batch, target)
    if head.endswith(("ForMaskedLM", "ForPreTraining")):
        batch = _masked(model, tokenizer, batch)
    elif not head.endswith("ForCausalLM"):
        batch |= _own_answer(model, batch)
    return batch, {"input": _words(tokenizer, batch["input_ids"][0])}


def _translation(model: Any, tokenizer: Any, batch: dict[str, Any], target: str | None) -> tuple[dict, Tokens]:
    if target is None:
        labels = model.generate(**batch, max_new_tokens=100, num_beams=1)[:, 1:]
    else:
        labels = tokenizer(text_target=target, return_tensors="pt").to(model.device)["input_ids"]
    if not labels.numel():
        raise ValueError("the model wrote nothing for this text; give what it should write with --target")
    read = model.prepare_decoder_input_ids_from_labels(labels)  # what stands at the decoder's steps
    words = {"input": _words(tokenizer, batch["input_ids"][0]), "target": _words(tokenizer, read[0])}
    return batch | {"labels": labels}, words


def _masked(model: Any, tokenizer: Any, batch: dict[str, Any]) -> dict[str, Any]:
    ids = batch["input_ids"]
    hidden = ids == tokenizer.mask_token_id
    if hidden.any():
        outputs = model(**batch)
        words = (outputs.logits if "logits" in outputs else outputs.prediction_logits).argmax(dim=-1)
        return batch | {"labels": words.masked_fill(~hidden, -100)}
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids, device=ids.device))
    places = torch.arange(ids.shape[1], device=ids.device)
    hidden = (places == (places * ~special).amax(dim=1, keepdim=True)) & ~special
    return batch | {
        "input_ids": ids.masked_fill(hidden, tokenizer.mask_token_id),
        "labels": ids.masked_fill(~hidden, -100),
    }


def _own_answer(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    outputs = model(**batch)
    if "start_logits" in outputs:
        return {
            "start_positions": outputs.start_logits.argmax(dim=-1),
            "end_positions": outputs.end_logits.argmax(dim=-1),
        }
    if model.config.problem_type in ("regression", "multi_label_classification") or outputs.logits.ndim > 3:
        raise ValueError(f"{type(model).__name__} has no one answer here; call gradient_flow(model, batch) with labels")
    return {"labels": outputs.logits.argmax(dim=-1)}


def _words(tokenizer: Any, ids: Any) -> list[str]:
    from .tokens import readable_tokens

    return list(readable_tokens(tokenizer, ids.tolist()).labels)
