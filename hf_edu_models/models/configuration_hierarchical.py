# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of the hierarchical attention network."""

from typing import ClassVar

from .configuration_base import EduConfig, check_choice, check_recurrent, strict


@strict
class EduHierarchicalConfig(EduConfig):
    """Defaults are the sizes of Yang et al. 2016 (its section on model configuration and training).

    Args:
        hidden_size: units of each direction, of the words and of the sentences.
        attention_size: size of u and of the queries q_word and q_sentence.
        pooling: `attention`, or `mean` or `max`, with which the paper compares it.
        initializer_range: standard deviation of the initial weights; recurrent matrices are initialised orthogonal.
        recurrent_implementation: `eager` computes the equations, `fused` runs torch's kernels.
    """

    model_type = "edu_hierarchical"
    heads: ClassVar[dict[str, str]] = {
        "AutoModel": "EduHierarchicalModel",
        "AutoModelForSequenceClassification": "EduHierarchicalForSequenceClassification",
    }

    cell_type: str = "gru"
    embedding_size: int = 200
    hidden_size: int = 50
    attention_size: int = 100
    pooling: str = "attention"
    dropout: float | int = 0.0
    forget_gate_bias: float | int = 1.0
    initializer_range: float = 0.1
    recurrent_implementation: str = "fused"

    def validate_architecture(self):
        super().validate_architecture()
        check_recurrent(self)
        check_choice("pooling", self.pooling, ("attention", "mean", "max"))
