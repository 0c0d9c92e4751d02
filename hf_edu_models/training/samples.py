"""Samples of a language model for results and card: continued texts, filled masks, words guessed from both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch

from ..checkpoints import position_limit
from ..data.columns import read_column
from ..data.normalization import continuation_table, kind_of
from ..data.sentences import cut_sentences

NUM_SAMPLES = 5
Samples = Callable[[Any, Any], list[dict[str, str]]]  # from the model and its tokenizer


def continued_texts(corpus: Any, top_k: int = 40, seed: int = 0) -> Samples:
    """Sample continuations of the first words of held-out texts."""

    def samples(model: Any, tokenizer: Any) -> list[dict[str, str]]:
        texts = _held_out(corpus, min_words=4)
        prompts = [" ".join(words[: min(8, len(words) // 2)]) for words in map(str.split, texts)]
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(seed)
            return [{"prompt": each, "continuation": _continue(model, tokenizer, each, top_k)} for each in prompts]

    return samples


def _continue(model: Any, tokenizer: Any, prompt: str, top_k: int) -> str:
    inputs = tokenizer(prompt, return_tensors="pt").to(model.device)
    length = inputs["input_ids"].shape[1]
    limit = position_limit(model.config) or 100_000
    if length >= limit:
        return ""
    ids = model.generate(
        **inputs,
        do_sample=True,
        top_k=min(top_k, len(tokenizer)),
        max_new_tokens=min(120 if kind_of(tokenizer) == "char" else 30, limit - length),
        pad_token_id=tokenizer.pad_token_id,
        synced_gpus=False,  # one process writes samples; under FSDP it would wait for the others
    )
    return tokenizer.decode(ids[0, length:], skip_special_tokens=True)


def filled_masks(corpus: Any, top_k: int = 3) -> Samples:
    """Mask one word of each held-out text and predict it."""

    def samples(model: Any, tokenizer: Any) -> list[dict[str, str]]:
        texts = [cut_sentences(text)[0] for text in _held_out(corpus, min_words=6)]
        with torch.no_grad():
            return [_fill_mask(model, tokenizer, text, top_k) for text in texts]

    return samples


def _fill_mask(model: Any, tokenizer: Any, text: str, top_k: int) -> dict[str, str]:
    limit = position_limit(model.config)
    inputs = tokenizer(text, truncation=True, max_length=limit, return_tensors="pt").to(model.device)
    ids = inputs["input_ids"][0]  # (T)
    position = _whole_word(ids.tolist(), tokenizer)
    label = ids[position].item()
    ids[position] = tokenizer.mask_token_id
    outputs = model(**inputs)
    logits = outputs.prediction_logits if "prediction_logits" in outputs else outputs.logits
    predictions = logits[0, position].topk(top_k).indices
    return {
        "text": tokenizer.decode(ids[1:-1]),
        "label": tokenizer.convert_ids_to_tokens(label),
        "prediction": " / ".join(tokenizer.convert_ids_to_tokens(predictions)),
    }


def words_from_both_sides(corpus: Any, top_k: int = 3) -> Samples:
    """Predict one word of each held-out text from the words before it, and from the words behind it."""

    def samples(model: Any, tokenizer: Any) -> list[dict[str, str]]:
        texts = [cut_sentences(text)[0] for text in _held_out(corpus, min_words=6)]
        with torch.no_grad():
            return [row for text in texts for row in _from_both_sides(model, tokenizer, text, top_k)]

    return samples


def _from_both_sides(model: Any, tokenizer: Any, text: str, top_k: int) -> list[dict[str, str]]:
    inputs = tokenizer(text, return_tensors="pt").to(model.device)
    ids = inputs["input_ids"][0]  # (T)
    position = _whole_word(ids.tolist(), tokenizer)
    if not 0 < position < len(ids) - 1:  # a text of one word has no side
        return []
    outputs = model(**inputs)
    sides = {"before": outputs.logits[0, position - 1], "behind": outputs.backward_logits[0, position + 1]}
    guesses = {
        f"from {side}": " / ".join(tokenizer.convert_ids_to_tokens(scores.topk(top_k).indices))
        for side, scores in sides.items()
    }
    return [{"text": text, "label": tokenizer.convert_ids_to_tokens(ids[position].item())} | guesses]


def _whole_word(ids: list[int], tokenizer: Any) -> int:
    """Position of the word nearest to the middle that is a single token; the middle if there is none."""
    middle = len(ids) // 2
    if kind_of(tokenizer) == "char":
        return middle
    continues = continuation_table(tokenizer)
    whole = [
        position
        for position, (token, following) in enumerate(pairwise(ids[1:]), start=1)
        if not continues[token] and not continues[following] and tokenizer.decode(token).isalpha()
    ]
    return min(whole, key=lambda position: abs(position - middle), default=middle)


def nearest_words(words: Sequence[str], k: int = 5) -> Samples:
    """The nearest neighbours of some words."""

    def samples(model: Any, tokenizer: Any) -> list[dict[str, str]]:
        from ..explain.words.embeddings import nearest

        rows = []
        for word in words[:NUM_SAMPLES]:
            found = nearest(model, tokenizer, word, k)
            rows.append({"word": word, "neighbours": " / ".join(each.text for each in found.neighbours)})
        return rows

    return samples


def _held_out(corpus: Any, min_words: int) -> list[str]:
    """A few texts spread over the test split (or validation, or train), preferably of at least `min_words` words."""
    split = next(split for split in ("test", "validation", "train") if split in corpus)
    texts = [text for text in read_column(corpus[split], "text") if text and text.strip()]
    texts = [text for text in texts if len(text.split()) >= min_words] or texts
    step = max(len(texts) // NUM_SAMPLES, 1)
    return texts[::step][:NUM_SAMPLES]
