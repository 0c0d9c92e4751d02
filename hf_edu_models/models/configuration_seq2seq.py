# Copyright 2026 The hf_edu_models authors. Licensed under the Apache License, Version 2.0.
"""Configuration of the sequence-to-sequence model."""

from typing import ClassVar

from .configuration_base import EduConfig, check_recurrent, check_tied_sizes, strict


@strict
class EduSeq2SeqConfig(EduConfig):
    """Defaults are the depth, size and range of Sutskever et al. 2014; Cho et al. 2014 is `cell_type="gru"`,
    `num_hidden_layers=1`, `reverse_source=False`, `context_every_step=True`.

    Args:
        reverse_source: read the source from its last token to its first.
        context_every_step: give the context vector to every decoder step and to the output, not only to the start.
        teacher_forcing_ratio: in training, the probability that a step reads the reference's token rather than the
            model's own (scheduled sampling, Bengio et al. 2015). Evaluation always reads the reference.
        label_smoothing: in training, the probability spread over the whole vocabulary; the papers have none.
        maxout_size: units of the output layer of `context_every_step`. Default: `hidden_size`.
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
    decoder_start_token_id: int | None = 2

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.embedding_size is None:
            self.embedding_size = self.hidden_size
        if self.maxout_size is None:
            self.maxout_size = self.hidden_size

    @property
    def encoder_hidden_size(self) -> int:
        return self.hidden_size

    @property
    def readout_size(self) -> int:
        return self.maxout_size if self.context_every_step else self.hidden_size

    def validate_architecture(self):
        super().validate_architecture()
        check_recurrent(self)
        if not 0 <= self.teacher_forcing_ratio <= 1:
            raise ValueError(f"teacher_forcing_ratio must be from 0 to 1, got {self.teacher_forcing_ratio}")
        check_tied_sizes(self, "the output's input", self.readout_size)
