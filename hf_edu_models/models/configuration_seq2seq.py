# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of rung 3."""

from typing import ClassVar

from .configuration_base import CELL_TYPES, IMPLEMENTATIONS, EduConfig, check_choice, strict


@strict
class EduSeq2SeqConfig(EduConfig):
    """Defaults are the depth, size and range of Sutskever et al. 2014; Cho et al. 2014 is `cell_type="gru"`,
    `num_hidden_layers=1`, `reverse_source=False`, `context_every_step=True`.

    Args:
        reverse_source: feed the source from its last word to its first.
        context_every_step: give the context vector to every decoder step and to the output, not only to the start.
        teacher_forcing_ratio: in training, the share of steps that are fed the reference's word rather than the
            model's own (scheduled sampling, Bengio et al. 2015). In evaluation always the reference's.
        label_smoothing: in training, the share of probability spread over all words; the papers have none.
        maxout_size: units of the output layer of `context_every_step`; `hidden_size` unless it is given.
    """

    model_type = "edu_seq2seq"
    heads: ClassVar[dict[str, str]] = {
        "AutoModel": "EduSeq2SeqModel",
        "AutoModelForSeq2SeqLM": "EduSeq2SeqForConditionalGeneration",
    }

    cell_type: str = "lstm"
    embedding_size: int | None = None
    hidden_size: int = 1000
    num_hidden_layers: int = 4
    reverse_source: bool = True
    context_every_step: bool = False
    maxout_size: int | None = None
    teacher_forcing_ratio: float | int = 1.0
    label_smoothing: float | int = 0.0
    forget_gate_bias: float | int = 1.0
    initializer_range: float = 0.08
    recurrent_implementation: str = "fused"
    is_encoder_decoder: bool = True
    decoder_start_token_id: int | None = 1

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.embedding_size is None:
            self.embedding_size = self.hidden_size
        if self.maxout_size is None:
            self.maxout_size = self.hidden_size

    @property
    def readout_size(self) -> int:
        return self.maxout_size if self.context_every_step else self.hidden_size

    def validate_architecture(self):
        super().validate_architecture()
        check_choice("cell_type", self.cell_type, CELL_TYPES)
        check_choice("recurrent_implementation", self.recurrent_implementation, IMPLEMENTATIONS)
        if not 0 <= self.teacher_forcing_ratio <= 1:
            raise ValueError(f"teacher_forcing_ratio must be from 0 to 1, got {self.teacher_forcing_ratio}")
        if self.tie_word_embeddings and self.embedding_size != self.readout_size:
            raise ValueError(
                f"tied embeddings need embedding_size {self.embedding_size} equal to the output's input "
                f"{self.readout_size}; set them equal or tie_word_embeddings to False"
            )
