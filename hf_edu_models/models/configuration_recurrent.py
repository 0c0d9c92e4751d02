# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of rung 2."""

from typing import ClassVar

from .configuration_base import CELL_TYPES, IMPLEMENTATIONS, EduConfig, check_choice, strict


@strict
class EduRecurrentConfig(EduConfig):
    """Defaults are the medium model of Zaremba et al. 2014.

    Args:
        embedding_size: size of a word vector; `hidden_size` unless it is given.
        bidirectional: read from both ends; for the classification heads only.
        attention_window: how many past hidden states each position may look back at; 0 for none.
        forget_gate_bias: where the LSTM's forget gate starts; 1 lets a new model remember (Jozefowicz et al. 2015).
        initializer_range: weights start uniformly within plus and minus this.
        recurrent_implementation: `eager` reads as the paper does, `fused` runs torch's kernels on the same weights.
    """

    model_type = "edu_recurrent"
    heads: ClassVar[dict[str, str]] = {
        "AutoModel": "EduRecurrentModel",
        "AutoModelForCausalLM": "EduRecurrentForCausalLM",
        "AutoModelForSequenceClassification": "EduRecurrentForSequenceClassification",
        "AutoModelForTokenClassification": "EduRecurrentForTokenClassification",
    }

    cell_type: str = "lstm"
    embedding_size: int | None = None
    hidden_size: int = 650
    num_hidden_layers: int = 2
    bidirectional: bool = False
    attention_window: int = 0
    dropout: float | int = 0.5
    forget_gate_bias: float | int = 1.0
    initializer_range: float = 0.05
    recurrent_implementation: str = "fused"

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.embedding_size is None:
            self.embedding_size = self.hidden_size

    def validate_architecture(self):
        super().validate_architecture()
        check_choice("cell_type", self.cell_type, CELL_TYPES)
        check_choice("recurrent_implementation", self.recurrent_implementation, IMPLEMENTATIONS)
        if self.attention_window < 0:
            raise ValueError(f"attention_window must be 0 (none) or more, got {self.attention_window}")
        if self.attention_window and self.bidirectional:
            raise ValueError("attention_window looks back at past states only; set it to 0 or bidirectional to False")
        if self.tie_word_embeddings and self.embedding_size != self.hidden_size:
            raise ValueError(
                f"tied embeddings need embedding_size {self.embedding_size} equal to hidden_size {self.hidden_size}; "
                "set them equal or tie_word_embeddings to False"
            )
