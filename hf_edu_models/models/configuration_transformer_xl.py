# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of Transformer-XL."""

from typing import ClassVar

from .configuration_base import EduConfig, check_heads, strict


@strict
class EduTransformerXLConfig(EduConfig):
    """Defaults are the 12-layer model of the authors' code for enwik8.

    Args:
        memory_length: how many tokens before a segment every layer attends to; 0 for none. As there is no parameter for
            a position, a longer memory may be chosen for evaluation than for training.
    """

    model_type = "edu_transformer_xl"
    heads: ClassVar[dict[str, str]] = {
        "AutoModel": "EduTransformerXLModel",
        "AutoModelForCausalLM": "EduTransformerXLForCausalLM",
    }

    hidden_size: int = 512
    num_hidden_layers: int = 12
    num_attention_heads: int = 8
    intermediate_size: int = 2048
    hidden_act: str = "relu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    memory_length: int = 512
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-5
    tie_word_embeddings: bool = True

    def validate_architecture(self):
        super().validate_architecture()
        check_heads(self)
        if self.hidden_size % 2:
            raise ValueError(f"hidden_size {self.hidden_size} is odd, but sines and cosines come in pairs; choose even")
        if self.memory_length < 0:
            raise ValueError(f"memory_length must be at least 0, got {self.memory_length}")
