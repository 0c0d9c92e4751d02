"""`--features`: the frozen models of other runs, as a part of a tagger or classifier (`models/blocks_features.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModel, PreTrainedModel

from ..checkpoints import load_as, load_tokenizer
from ..data.normalization import kind_of
from ..data.spelling import spellings
from ..models.blocks_features import open_body

_UNUSED = ("auto_map", "id2label", "label2id", "_name_or_path")  # of heads, and of this machine


@dataclass
class Features:
    """What `--features` adds to a model; `settings` are the fields of its configuration."""

    settings: dict[str, Any]
    weights: list[dict[str, torch.Tensor]]
    tables: list[torch.Tensor]

    def fill(self, model: PreTrainedModel) -> PreTrainedModel:
        """Load the frozen weights and the spellings into a new model."""
        for module, weights, table in zip(model.base_model.features, self.weights, self.tables, strict=False):
            module.body.load_state_dict(weights)
            module.spellings = table
        return model


def features_for(names: str | None, tokenizer: Any) -> Features:
    """The features of runs, separated by commas, for a model that reads with this tokenizer."""
    found = Features({}, [], [])
    for name in [] if names is None else names.split(","):
        found.settings.setdefault("features", [])
        body, theirs = load_as(AutoModel, name.strip()), load_tokenizer(name.strip())
        body = body.get_encoder() if body.config.is_encoder_decoder else body
        table = spelling_table(tokenizer, theirs)
        prefix, suffix = _around(theirs)
        config = {key: value for key, value in body.config.to_dict().items() if key not in _UNUSED}
        entry = {"config": config, "pieces": table.shape[1], "prefix": prefix, "suffix": suffix}
        with torch.device("meta"):
            wanted = open_body(config).state_dict()
        found.settings["features"].append(entry)
        found.weights.append({key: weight for key, weight in body.state_dict().items() if key in wanted})
        found.tables.append(table)
    return found


def _around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special tokens that a tokenizer puts before and behind a text."""
    whole, plain = tokenizer("a")["input_ids"], tokenizer("a", add_special_tokens=False)["input_ids"]
    start = next(start for start in range(len(whole)) if whole[start : start + len(plain)] == plain)
    return whole[:start], whole[start + len(plain) :]


def spelling_table(ours: Any, theirs: Any) -> torch.Tensor:
    """Each token of our vocabulary as tokens of another, (V, M), -1 behind its end; special tokens have none.

    Characters and bytes can write every token. A token that both vocabularies have is itself; other tokenizers write
    the rest of a word as well as they can.
    """
    special, texts = set(ours.all_special_ids), spellings(ours)
    tokens, known = ours.convert_ids_to_tokens(list(range(len(ours)))), theirs.get_vocab()
    is_same_kind = kind_of(ours) == kind_of(theirs)
    rows: list[list[int]] = []
    for token_id, (token, text) in enumerate(zip(tokens, texts, strict=True)):
        if token_id == ours.unk_token_id and theirs.unk_token_id is not None:
            rows.append([theirs.unk_token_id])
        elif token_id in special:
            rows.append([])
        elif is_same_kind and token in known:
            rows.append([known[token]])
        else:
            rows.append(_write(text.decode(errors="replace"), theirs, known))
    width = max(1, *map(len, rows))
    return torch.tensor([row + [-1] * (width - len(row)) for row in rows])


def _write(text: str, tokenizer: Any, known: dict[str, int]) -> list[int]:
    """A token's text in another vocabulary; WordPiece writes the rest of a word with its own marks, longest first."""
    if kind_of(tokenizer) != "wordpiece" or text.startswith(" "):
        return tokenizer(text, add_special_tokens=False)["input_ids"]
    normalizer, ids = tokenizer.backend_tokenizer.normalizer, []
    rest = text if normalizer is None else normalizer.normalize_str(text)
    while rest:
        size = next((size for size in range(len(rest), 0, -1) if f"##{rest[:size]}" in known), 0)
        if size == 0:
            return tokenizer(text, add_special_tokens=False)["input_ids"]
        ids.append(known[f"##{rest[:size]}"])
        rest = rest[size:]
    return ids
