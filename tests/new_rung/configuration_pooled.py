# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of the pooled document classifier."""

from typing import ClassVar

from .configuration_base import EduConfig, strict


@strict
class EduPooledConfig(EduConfig):
    """A model family that exists in a test only."""

    model_type = "edu_pooled"
    heads: ClassVar[dict[str, str]] = {
        "AutoModel": "EduPooledModel",
        "AutoModelForSequenceClassification": "EduPooledForSequenceClassification",
    }

    hidden_size: int = 32
    num_hidden_layers: int = 1
    initializer_range: float = 0.1
