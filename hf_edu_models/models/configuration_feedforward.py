# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of the feed-forward language model."""

from typing import ClassVar

from .configuration_base import EduConfig, strict


@strict
class EduFeedForwardConfig(EduConfig):
    """Defaults are of the size of the paper's models for the Brown corpus (its table of results).

    Args:
        window_size: the number of tokens that the next one is predicted from, the paper's n - 1.
        direct_connections: whether the embeddings also reach the output directly, around the tanh layer (W).
        classifier_layers: number of hidden layers of the text classifier.
        word_dropout: probability that the text classifier leaves a word out of the mean, in training.
    """

    model_type = "edu_feedforward"
    heads: ClassVar[dict[str, str]] = {
        "AutoModel": "EduFeedForwardModel",
        "AutoModelForCausalLM": "EduFeedForwardForCausalLM",
        "AutoModelForSequenceClassification": "EduFeedForwardForSequenceClassification",
    }

    embedding_size: int = 60
    hidden_size: int = 100
    window_size: int = 4
    direct_connections: bool = True
    classifier_layers: int = 2
    word_dropout: float | int = 0.0

    def validate_architecture(self):
        super().validate_architecture()
        if self.classifier_layers < 1:
            raise ValueError(f"classifier_layers must be 1 or more, got {self.classifier_layers}")
        if self.tie_word_embeddings:
            raise ValueError(
                "tie_word_embeddings cannot be True on this rung: the output reads the whole window, not one embedding"
            )

    @property
    def num_hidden_layers(self) -> int:
        return 1
