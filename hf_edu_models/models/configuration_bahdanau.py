# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of rung 4."""

from typing import ClassVar

from .configuration_base import CELL_TYPES, IMPLEMENTATIONS, EduConfig, check_choice, strict

SCORES = ("additive", "dot", "scaled_dot", "general", "cosine")
SAME_SIZE_SCORES = ("dot", "scaled_dot", "cosine")
READOUTS = ("maxout", "linear")


@strict
class EduBahdanauConfig(EduConfig):
    """Defaults are RNNsearch-50 of Bahdanau et al. 2015 (its appendix on model sizes).

    Args:
        num_hidden_layers: layers of the encoder; the decoder has one.
        encoder_hidden_size: units of the encoder in each direction, so that an annotation has twice as many.
            `hidden_size` unless it is given; for `dot`, `scaled_dot` and `cosine` half of it, because
            they compare annotations and decoder states number by number.
        attention_size: units of the additive score's hidden layer; `hidden_size` unless it is given.
        readout: `maxout` as in the paper, or `linear`.
        maxout_size: what the readout gives to the softmax layer.
        label_smoothing: in training, the share of probability spread over all words; the paper has none.
        initializer_range: standard deviation that weights start with; the score's start with a tenth of it, and the
            matrices between states orthogonal.
    """

    model_type = "edu_bahdanau"
    heads: ClassVar[dict[str, str]] = {
        "AutoModel": "EduBahdanauModel",
        "AutoModelForSeq2SeqLM": "EduBahdanauForConditionalGeneration",
    }

    cell_type: str = "gru"
    attention_score: str = "additive"
    embedding_size: int = 620
    hidden_size: int = 1000
    encoder_hidden_size: int | None = None
    num_hidden_layers: int = 1
    attention_size: int | None = None
    readout: str = "maxout"
    maxout_size: int = 500
    label_smoothing: float | int = 0.0
    forget_gate_bias: float | int = 1.0
    initializer_range: float = 0.01
    recurrent_implementation: str = "fused"
    is_encoder_decoder: bool = True
    decoder_start_token_id: int | None = 1

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.attention_size is None:
            self.attention_size = self.hidden_size
        if self.encoder_hidden_size is None:
            same_size = self.attention_score in SAME_SIZE_SCORES
            self.encoder_hidden_size = self.hidden_size // 2 if same_size else self.hidden_size

    @property
    def annotation_size(self) -> int:
        return 2 * self.encoder_hidden_size

    def validate_architecture(self):
        super().validate_architecture()
        check_choice("cell_type", self.cell_type, CELL_TYPES)
        check_choice("attention_score", self.attention_score, SCORES)
        check_choice("readout", self.readout, READOUTS)
        check_choice("recurrent_implementation", self.recurrent_implementation, IMPLEMENTATIONS)
        if self.attention_score in SAME_SIZE_SCORES and self.annotation_size != self.hidden_size:
            raise ValueError(
                f"attention_score '{self.attention_score}' compares states of hidden_size {self.hidden_size} with "
                f"annotations of 2 x encoder_hidden_size = {self.annotation_size}; choose an even hidden_size and "
                "encoder_hidden_size half of it, or attention_score 'general' or 'additive'"
            )
        if self.tie_word_embeddings and self.embedding_size != self.maxout_size:
            raise ValueError(
                f"tied embeddings need embedding_size {self.embedding_size} equal to maxout_size {self.maxout_size}; "
                "set them equal or tie_word_embeddings to False"
            )
