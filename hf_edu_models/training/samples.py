"""What a model of texts has learnt, to look at: texts that it goes on with, and words that it finds again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..data.columns import read_column
from ..data.normalising import continuation_table, kind_of
from ..data.pretraining import cut_sentences

COUNT = 5
Samples = Callable[[Any, Any], list[dict[str, str]]]


def continued_texts(corpus: Any, top_k: int = 40, seed: int = 0) -> Samples:
    """Beginnings of held-out texts and how a language model goes on; a function of the model and its tokenizer."""

    def samples(model: Any, tokenizer: Any) -> list[dict[str, str]]:
        texts = _held_out(corpus, at_least=4)
        prompts = [" ".join(words[: min(8, len(words) // 2)]) for words in map(str.split, texts)]
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(seed)
            return [{"prompt": prompt, "continuation": _go_on(model, tokenizer, prompt, top_k)} for prompt in prompts]

    return samples


def _go_on(model: Any, tokenizer: Any, prompt: str, top_k: int) -> str:
    inputs = tokenizer(prompt, return_tensors="pt").to(model.device)
    length = inputs["input_ids"].shape[1]
    room = getattr(model.config, "max_position_embeddings", 100_000) - length
    wanted = 120 if kind_of(tokenizer) == "char" else 30
    if room < 1:
        return ""
    ids = model.generate(
        **inputs,
        do_sample=True,
        top_k=min(top_k, len(tokenizer)),
        max_new_tokens=min(wanted, room),
        pad_token_id=tokenizer.pad_token_id,
    )
    return tokenizer.decode(ids[0, length:], skip_special_tokens=True)


def filled_masks(corpus: Any, guesses: int = 3) -> Samples:
    """Held-out texts with a word masked, the word, and the best guesses; a function of the model and its tokenizer."""

    def samples(model: Any, tokenizer: Any) -> list[dict[str, str]]:
        texts = [cut_sentences(text)[0] for text in _held_out(corpus, at_least=6)]
        with torch.no_grad():
            return [_guess(model, tokenizer, text, guesses) for text in texts]

    return samples


def _guess(model: Any, tokenizer: Any, text: str, guesses: int) -> dict[str, str]:
    longest = model.config.max_position_embeddings
    inputs = tokenizer(text, truncation=True, max_length=longest, return_tensors="pt").to(model.device)
    ids = inputs["input_ids"][0]  # (T)
    place = _whole_word(ids.tolist(), tokenizer)
    word = ids[place].item()
    ids[place] = tokenizer.mask_token_id
    outputs = model(**inputs)
    logits = outputs.prediction_logits if "prediction_logits" in outputs else outputs.logits
    best = logits[0, place].topk(guesses).indices
    return {
        "text": tokenizer.decode(ids[1:-1]),
        "label": tokenizer.convert_ids_to_tokens(word),
        "prediction": " / ".join(tokenizer.convert_ids_to_tokens(best)),
    }


def _whole_word(ids: list[int], tokenizer: Any) -> int:
    """The place nearest to the middle where a word stands that is not in pieces; the middle if there is none."""
    middle = len(ids) // 2
    if kind_of(tokenizer) == "char":
        return middle
    continues = continuation_table(tokenizer)
    whole = [
        place
        for place in range(1, len(ids) - 1)
        if not continues[ids[place]] and not continues[ids[place + 1]] and tokenizer.decode(ids[place]).isalpha()
    ]
    return min(whole, key=lambda place: abs(place - middle), default=middle)


def _held_out(corpus: Any, at_least: int) -> list[str]:
    """A few texts from all over the last split that was not learnt from, of `at_least` so many words if there are."""
    split = next(split for split in ("test", "validation", "train") if split in corpus)
    texts = [text for text in read_column(corpus[split], "text") if text and text.strip()]
    long_ones = [text for text in texts if len(text.split()) >= at_least] or texts
    step = max(len(long_ones) // COUNT, 1)
    return long_ones[::step][:COUNT]
