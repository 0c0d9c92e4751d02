# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of the encoder-decoder with attention."""

from typing import ClassVar

from .configuration_base import EduConfig, check_choice, check_recurrent, check_tied_sizes, strict


def _scores() -> dict:
    """The registry of scores. Registries are imported when used, because they need torch and configurations do not."""
    from .blocks_attention import SCORES

    return SCORES


@strict
class EduBahdanauConfig(EduConfig):
    """Defaults are RNNsearch-50 of Bahdanau et al. 2015 (its appendix on model sizes).

    Args:
        num_hidden_layers: layers of the encoder; the decoder has one.
        encoder_hidden_size: units of the encoder per direction; an annotation has twice as many. Default: `hidden_size`
            or half of it, for scores that need annotations as large as decoder states (`dot`, `scaled_dot`, `cosine`).
        attention_score: a key of `SCORES` in `blocks_attention.py`.
        attention_size: units of the additive score's hidden layer; the size of queries and keys of the projected score.
            Default: `hidden_size`.
        attention_normalizer: from scores to weights: `softmax` as in the paper, or `sparsemax`, which gives a weight of
            exactly 0 to low scores. `sparsemax` runs eager.
        readout: `maxout` as in the paper, or `linear`.
        maxout_size: output size of the readout.
        label_smoothing: in training, the probability spread over the whole vocabulary; the paper has none.
        initializer_range: standard deviation of the initial weights; a tenth of it for the score's. Recurrent matrices
            are initialised orthogonal.
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
    attention_normalizer: str = "softmax"
    readout: str = "maxout"
    maxout_size: int = 500
    label_smoothing: float | int = 0.0
    forget_gate_bias: float | int = 1.0
    initializer_range: float = 0.01
    recurrent_implementation: str = "fused"
    is_encoder_decoder: bool = True
    decoder_start_token_id: int | None = 2

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.attention_size is None:
            self.attention_size = self.hidden_size
        if self.encoder_hidden_size is None:
            self.encoder_hidden_size = self.hidden_size // 2 if self.needs_equal_sizes else self.hidden_size

    @property
    def needs_equal_sizes(self) -> bool:
        return getattr(_scores().get(self.attention_score), "needs_equal_sizes", False)

    @property
    def annotation_size(self) -> int:
        return 2 * self.encoder_hidden_size

    def validate_architecture(self):
        from .blocks_attention import NORMALIZERS
        from .blocks_readout import READOUTS

        super().validate_architecture()
        check_recurrent(self)
        check_choice("attention_score", self.attention_score, _scores())
        check_choice("attention_normalizer", self.attention_normalizer, NORMALIZERS)
        check_choice("readout", self.readout, READOUTS)
        if self.needs_equal_sizes and self.annotation_size != self.hidden_size:
            raise ValueError(
                f"attention_score '{self.attention_score}' compares states of hidden_size {self.hidden_size} with "
                f"annotations of 2 x encoder_hidden_size = {self.annotation_size}; choose an even hidden_size and "
                "encoder_hidden_size half of it, or attention_score 'general', 'additive' or 'projected'"
            )
        check_tied_sizes(self, "maxout_size", self.maxout_size)
