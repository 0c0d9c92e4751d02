# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""What every rung's configuration shares."""

from typing import ClassVar

# `strict` checks field types; taken from where transformers itself uses it, so that torch and transformers suffice.
from transformers.configuration_utils import PreTrainedConfig, strict

IMPLEMENTATIONS = ("eager", "fused")
CELL_TYPES = ("rnn", "gru", "lstm")


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} '{value}' is not known; choose one of {', '.join(allowed)}")


def check_heads(config) -> None:
    if config.hidden_size % config.num_attention_heads:
        raise ValueError(
            f"hidden_size {config.hidden_size} cannot be split into {config.num_attention_heads} equal heads; "
            "choose a multiple"
        )


@strict
class EduConfig(PreTrainedConfig):
    """A configuration whose checkpoints name every head of the rung, not only the one that was saved."""

    heads: ClassVar[dict[str, str]] = {}  # Auto class -> our class
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values", "encoder_last_hidden_state"]

    vocab_size: int = 10_000
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    tie_word_embeddings: bool = False
    use_cache: bool = True
    dropout: float | int = 0.0

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        stem = self.model_type.removeprefix("edu_")
        self.auto_map = {"AutoConfig": f"configuration_{stem}.{type(self).__name__}"}
        self.auto_map |= {auto: f"modeling_{stem}.{name}" for auto, name in self.heads.items()}

    def validate_architecture(self):
        for name, value in vars(self).items():
            if name.endswith(("dropout", "label_smoothing")) and value is not None and not 0 <= value < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {value}")
            is_size = name.endswith("_size") or name.startswith(("num_hidden", "num_attention", "max_position"))
            if is_size and value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(
                f"pad_token_id {self.pad_token_id} is outside the vocabulary; choose 0 to {self.vocab_size - 1}"
            )
