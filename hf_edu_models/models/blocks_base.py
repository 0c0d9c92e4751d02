"""What every model declares to transformers."""

import functools
import inspect
from typing import Any

from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto  # noqa: F401  `add_class_names` adds to its tables

from .configuration_base import add_class_names, warn_of_other_ids


class EduPreTrainedModel(PreTrainedModel):
    """The base class of all models."""

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        add_class_names(cls.config_class)
        if "output_class" in vars(cls):
            cls.forward = _returning(cls.forward, cls.output_class)

    def penalise(self, loss, outputs, attention_mask, labels, num_items_in_batch=None, dropped=None):
        """The loss of a training step with the terms for attention and hidden states; most models have none.

        Args:
            dropped: the hidden states after the dropout of a language modelling head.
        """
        return loss

    def save_pretrained(self, *args, **kwargs):
        """FSDP2 makes a model an instance of a class of torch's own; a checkpoint has the name and the code of ours."""
        current = type(self)
        self.__class__ = next(cls for cls in current.__mro__ if not cls.__name__.startswith("FSDP"))
        try:
            return super().save_pretrained(*args, **kwargs)
        finally:
            self.__class__ = current

    def init_continuous_batching(self, *args, **kwargs):
        """`generate_batch` keeps the past of a decoder-only model in a paged attention cache; others have none."""
        if self._is_stateful or self.config.is_encoder_decoder:
            raise ValueError(
                f"{type(self).__name__} cannot generate with continuous batching (generate_batch), which needs a "
                "decoder-only model with attention; call generate() with a padded batch"
            )
        return super().init_continuous_batching(*args, **kwargs)


def _returning(forward, output_class: type):
    """`forward` with the output class of one of the heads that share it as its return annotation.

    sentence-transformers reads there which fields a model returns.
    """

    @functools.wraps(forward)
    def annotated(self, *args, **kwargs):
        return forward(self, *args, **kwargs)

    annotated.__annotations__ = forward.__annotations__ | {"return": output_class}
    annotated.__signature__ = inspect.signature(forward).replace(return_annotation=output_class)  # type: ignore[attr-defined]
    return annotated


class CheckedGeneration:
    """`generate()` that compares the ids of a tokenizer, if it is given one, with those of the model."""

    config: Any

    def generate(self, *args, tokenizer=None, **kwargs):
        if tokenizer is not None:
            warn_of_other_ids(self.config, tokenizer)
        return super().generate(*args, tokenizer=tokenizer, **kwargs)  # type: ignore[misc]
