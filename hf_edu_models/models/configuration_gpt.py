# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of GPT."""

from typing import ClassVar

from .configuration_base import (
    EduConfig,
    check_heads,
    layer_sizes,
    pipeline_parallel_plan,
    strict,
    tensor_parallel_plan,
)


@strict
class EduGPTConfig(EduConfig):
    """Defaults are the smallest model of Radford et al. 2019; `norm_first=False` is the order of 2018's paper.

    Args:
        lm_loss_weight: of the language modelling loss that a classifier has besides its own in training: lambda of
            Radford et al. 2018, Section 3.2, which is 0.5 there (Section 4.1); 0 for none.
        head_aggregation: how the outputs of the heads are combined: `project`, as in the papers, `concat` or `mean`.
        head_diversity_weight: weight of a penalty in training for heads that attend to the same positions; 0 for none.
    """

    model_type = "edu_gpt"
    base_model_tp_plan = tensor_parallel_plan("layers")
    base_model_pp_plan = pipeline_parallel_plan("embed_tokens")
    heads: ClassVar[dict[str, str]] = {
        "AutoModel": "EduGPTModel",
        "AutoModelForCausalLM": "EduGPTForCausalLM",
        "AutoModelForSequenceClassification": "EduGPTForSequenceClassification",
    }

    # Radford et al. 2019, Table 2; heads from the published checkpoints.
    sizes: ClassVar[dict[str, dict]] = {
        "small": layer_sizes(12, 768, heads=12),
        "medium": layer_sizes(24, 1024, heads=16),
        "large": layer_sizes(36, 1280, heads=20),
        "xl": layer_sizes(48, 1600, heads=25),
    }

    vocab_size: int = 50_257
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu_new"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.1
    max_position_embeddings: int = 1024
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-5
    norm_first: bool = True
    lm_loss_weight: float | int = 0.0
    head_aggregation: str = "project"
    head_diversity_weight: float | int = 0.0
    tie_word_embeddings: bool = True

    def validate_architecture(self):
        super().validate_architecture()
        check_heads(self)
