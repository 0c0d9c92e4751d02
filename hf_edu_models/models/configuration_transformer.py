# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of the Transformer."""

from typing import ClassVar

from .configuration_base import EduConfig, check_choice, check_heads, layer_sizes, strict, tensor_parallel_plan

POSITIONS = ("sinusoidal", "learned")
_LAYOUTS = ("interleaved", "halves")


@strict
class EduTransformerConfig(EduConfig):
    """Defaults are the base model of Vaswani et al. 2017 (Table 3, first row).

    Args:
        num_hidden_layers: layers of the encoder, and of the decoder unless `decoder_layers` is set.
        position_embedding_type: `sinusoidal` (any length) or `learned` (up to `max_position_embeddings`).
        sinusoid_layout: sines and cosines `interleaved`, as printed, or all sines first (`halves`), as in Marian.
        scale_embeddings: multiply embeddings by the square root of their size (Section 3.4).
        share_embeddings: source and target share one embedding matrix.
        tie_word_embeddings: the softmax layer shares it with the target.
        attention_bias: biases in the attention's projections; the paper has none.
        logits_bias: a bias for each token of the vocabulary, added to the logits.
        label_smoothing: in training, the probability spread over the whole vocabulary (Section 5.4).
        head_aggregation: how the outputs of the heads are combined: `project`, `concat` or `mean`.
        head_diversity_weight: weight of a penalty in training for heads that attend to the same positions; 0 for none.
    """

    model_type = "edu_transformer"
    base_model_tp_plan = tensor_parallel_plan("encoder.layers", "decoder.layers", cross_attention=("decoder.layers",))
    heads: ClassVar[dict[str, str]] = {
        "AutoModel": "EduTransformerModel",
        "AutoModelForSeq2SeqLM": "EduTransformerForConditionalGeneration",
    }

    # Vaswani et al. 2017, Table 3, first and last row; for English to French, big has a dropout of 0.1 (Section 6.1).
    sizes: ClassVar[dict[str, dict]] = {
        "base": layer_sizes(6, 512, heads=8) | {"dropout": 0.1},
        "big": layer_sizes(6, 1024, heads=16) | {"dropout": 0.3},
    }

    vocab_size: int = 37_000
    hidden_size: int = 512
    num_hidden_layers: int = 6
    decoder_layers: int | None = None
    num_attention_heads: int = 8
    intermediate_size: int = 2048
    hidden_act: str = "relu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    position_embedding_type: str = "sinusoidal"
    sinusoid_layout: str = "interleaved"
    max_position_embeddings: int = 512
    norm_first: bool = False
    layer_norm_eps: float = 1e-5
    scale_embeddings: bool = True
    share_embeddings: bool = True
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    logits_bias: bool = False
    label_smoothing: float | int = 0.1
    head_aggregation: str = "project"
    head_diversity_weight: float | int = 0.0
    is_encoder_decoder: bool = True
    decoder_start_token_id: int | None = 2

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.decoder_layers is None:
            self.decoder_layers = self.num_hidden_layers

    def validate_architecture(self):
        super().validate_architecture()
        check_heads(self)
        check_choice("position_embedding_type", self.position_embedding_type, POSITIONS)
        check_choice("sinusoid_layout", self.sinusoid_layout, _LAYOUTS)
        if self.position_embedding_type == "sinusoidal" and self.hidden_size % 2:
            raise ValueError(
                f"hidden_size {self.hidden_size} is odd, but every sine has a cosine; choose an even one or "
                "position_embedding_type 'learned'"
            )
