# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of ELMo."""

from typing import ClassVar

from .configuration_base import EduConfig, check_choice, check_recurrent, strict

_TOKEN_ENCODERS = ("embedding", "characters")
_POOLINGS = ("last", "mean", "max", "attention")
_CHAR_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


@strict
class EduElmoConfig(EduConfig):
    """Defaults are the sizes of Peters et al. 2018, Section 3.4.

    Args:
        hidden_size: of one direction, after the projection; also the size of the token vectors x_k.
        cell_size: units of an LSTM, before the projection.
        token_encoder: `embedding` looks a vector up for each token; `characters` makes it of the token's spelling.
        char_embedding_size: size of a character's embedding.
        char_filters: width and number of the convolutions over characters, as [[1, 32], [2, 32], ...].
        num_highway_layers: above the convolutions.
        max_characters: bytes of a token that are read, its start and end included; the others are cut off.
        layer_mix: how the classification heads mix the layers: `scalar` learns a weight for each; `last`, or `sumN` or
            `concatN` of the last N.
        pooling: how the text classifier makes one vector of all tokens: `last`, `mean`, `max` or `attention`.
        attention_size: size of the query of `attention`.
        forget_gate_bias: initial bias of the forget gates; 1 keeps the cell state (Jozefowicz et al. 2015).
        initializer_range: weights are initialised uniformly in plus and minus this.
        recurrent_implementation: `eager` computes the equations step by step, token by token; `fused` runs torch's
            kernels and spells each distinct token once.
    """

    model_type = "edu_elmo"
    heads: ClassVar[dict[str, str]] = {
        "AutoModel": "EduElmoModel",
        "AutoModelForPreTraining": "EduElmoForPreTraining",
        "AutoModelForSequenceClassification": "EduElmoForSequenceClassification",
        "AutoModelForTokenClassification": "EduElmoForTokenClassification",
    }

    hidden_size: int = 512
    cell_size: int = 4096
    num_hidden_layers: int = 2
    token_encoder: str = "embedding"
    char_embedding_size: int = 16
    char_filters: list[list[int]] | None = None
    num_highway_layers: int = 2
    max_characters: int = 50
    layer_mix: str = "scalar"
    pooling: str = "max"
    attention_size: int = 64
    dropout: float | int = 0.1
    forget_gate_bias: float | int = 1.0
    initializer_range: float = 0.05
    recurrent_implementation: str = "fused"

    def __post_init__(self, **kwargs):
        if self.char_filters is None:
            self.char_filters = [list(each) for each in _CHAR_FILTERS]
        super().__post_init__(**kwargs)

    @property
    def output_size(self) -> int:
        return 2 * self.hidden_size

    def validate_architecture(self):
        super().validate_architecture()
        check_recurrent(self)
        check_choice("token_encoder", self.token_encoder, _TOKEN_ENCODERS)
        check_choice("pooling", self.pooling, _POOLINGS)
        if self.max_characters < 3:
            raise ValueError(f"max_characters must be 3 or more (start, one byte, end), got {self.max_characters}")
        if not self.char_filters or any(len(each) != 2 or min(each) < 1 for each in self.char_filters):
            raise ValueError(
                f"char_filters must be pairs of width and number, both 1 or more, got {self.char_filters}; give "
                "[[1, 32], [3, 64]] for example"
            )
        if self.tie_word_embeddings and self.token_encoder == "characters":
            raise ValueError(
                "tie_word_embeddings needs a table of token embeddings, which token_encoder 'characters' does not "
                "have; set it to False, or token_encoder to 'embedding'"
            )
