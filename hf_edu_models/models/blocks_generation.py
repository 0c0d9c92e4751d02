"""When `generate()` runs the searches of `blocks_search.py`, and when transformers' `GenerationMixin`.

`GenerationMixin.generate` prepares everything: options, encoder, lengths, logits processors, stopping criteria. Then it
calls `_sample` or `_beam_search`, and here it meets ours, which run only what they know, in a list: greedy and beam
search, length limits, end tokens, forced and suppressed tokens, scores. Everything else is passed on.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.generation import logits_process, stopping_criteria
from transformers.generation.utils import (
    GenerateBeamDecoderOnlyOutput,
    GenerateBeamEncoderDecoderOutput,
    GenerateDecoderOnlyOutput,
    GenerateEncoderDecoderOutput,
)

from .blocks_base import CheckedGeneration
from .blocks_search import SearchOptions, SearchResult, Stepper, beam_search, greedy_search

# Processors that read the length of a sequence and not its tokens, so that rows may be dropped.
_PROCESSORS = {
    logits_process.ForcedBOSTokenLogitsProcessor,
    logits_process.ForcedEOSTokenLogitsProcessor,
    logits_process.MinLengthLogitsProcessor,
    logits_process.MinNewTokensLengthLogitsProcessor,
    logits_process.SuppressTokensLogitsProcessor,
    logits_process.SuppressTokensAtBeginLogitsProcessor,
}
_LIBRARIES = ("torch.nn.modules", "transformers.activations")
_MODEL_INPUTS = {"attention_mask", "position_ids", "encoder_outputs", "past_key_values", "use_cache", "logits_to_keep"}
_IGNORED = {"tokenizer", "assistant_tokenizer"}  # no option that needs them gets here
_SWITCHED_OFF = ("do_sample", "output_attentions", "output_hidden_states", "is_assistant", "low_memory")
_NOT_SET = ("cache_implementation", "prefill_chunk_size")


class RowLengthCriteria(stopping_criteria.StoppingCriteria):
    """Stops each sequence of an encoder-decoder at its own number of new tokens (N,)."""

    def __init__(self, limits: Tensor):
        self.limits = limits

    def __call__(self, input_ids: Tensor, scores, **kwargs) -> Tensor:
        # The beams of one source are neighbouring rows.
        limits = self.limits.to(input_ids.device).repeat_interleave(len(input_ids) // len(self.limits))
        return input_ids.shape[1] - 1 >= limits


_CRITERIA = {stopping_criteria.MaxLengthCriteria, stopping_criteria.EosTokenCriteria, RowLengthCriteria}


def is_as_written(module: nn.Module) -> bool:
    """Whether a call of the module does what its file says: no subclass from elsewhere, no hook, no new `forward`."""
    hooks = (module._forward_pre_hooks, module._forward_hooks)
    is_known = type(module).__module__.startswith((__name__.rpartition(".")[0], *_LIBRARIES))
    return is_known and "forward" not in vars(module) and not any(hooks)


class SearchedGeneration(CheckedGeneration):
    """`generate()` with the greedy and beam search of `blocks_search.py`."""

    model: Any
    lm_head: Any
    device: torch.device
    dtype: torch.dtype
    modules: Callable

    def make_stepper(self, prompts: Tensor, num_beams: int, max_length: int, inputs: dict) -> Stepper | None:
        """The model as the searches take it, or None where only its `forward` will do.

        Args:
            prompts: one row for each sentence.
            inputs: the other arguments of `forward`, with one row for each beam as `generate()` has repeated them.
        """
        return None

    def _sample(self, input_ids, *args, **kwargs):
        result = self.search(greedy_search, input_ids, *args, **kwargs)
        return super()._sample(input_ids, *args, **kwargs) if result is None else result  # type: ignore[misc]

    def _beam_search(self, input_ids, *args, **kwargs):
        result = self.search(beam_search, input_ids, *args, **kwargs)
        return super()._beam_search(input_ids, *args, **kwargs) if result is None else result  # type: ignore[misc]

    def search(
        self,
        run,
        input_ids: Tensor,
        logits_processor,
        stopping_criteria,
        generation_config,
        synced_gpus: bool = False,
        streamer=None,
        **inputs,
    ):
        """What `run` finds, as `generate()` returns it; None if an option is not in the lists above."""
        config, inputs = generation_config, {key: value for key, value in inputs.items() if value is not None}
        if synced_gpus or streamer is not None or not _are_known(logits_processor, stopping_criteria, config, inputs):
            return None
        if not self.is_plain() or config.max_length <= input_ids.shape[1]:
            return None
        prompts = input_ids[:: config.num_beams]
        inputs = {key: value for key, value in inputs.items() if key not in _IGNORED}
        # Scores and a cache may meet autograd later, which inference tensors must not.
        with torch.no_grad() if config.return_dict_in_generate else torch.inference_mode():
            stepper = self.make_stepper(prompts, config.num_beams, config.max_length, inputs)
            if stepper is None:
                return None
            result = run(stepper, prompts, _options(config, logits_processor, stopping_criteria))
        if not config.return_dict_in_generate:
            return result.sequences.clone()
        return _output(result, config, stepper, self.config.is_encoder_decoder)

    def is_plain(self) -> bool:
        """Whether the steppers, which pass by `forward`, compute what it would."""
        is_mixed = torch.is_autocast_enabled(self.device.type)
        if any(module.training for module in self.modules()):
            return False
        if is_mixed or self.dtype not in (torch.float32, torch.float64) or torch.compiler.is_compiling():
            return False
        return all(map(is_as_written, (self, self.model))) and not nn.modules.module._has_any_global_hook()


def _are_known(processors, criteria, config, inputs: dict) -> bool:
    """Whether the searches have all options."""
    cache = inputs.get("past_key_values")
    if config._eos_token_tensor is None and any(type(criterion) is RowLengthCriteria for criterion in criteria):
        return False  # transformers then goes on behind the limit of a row
    return (
        all(type(processor) in _PROCESSORS for processor in processors)
        and all(type(criterion) in _CRITERIA for criterion in criteria)
        and not any(getattr(config, name, None) for name in _SWITCHED_OFF)
        and all(getattr(config, name, None) is None for name in _NOT_SET)
        and inputs.keys() <= _MODEL_INPUTS | _IGNORED
        and inputs.get("use_cache", True) is True
        and not getattr(cache, "_is_user_defined", False)
    )


def _options(config, processors, criteria) -> SearchOptions:
    ends, padding = config._eos_token_tensor, config._pad_token_tensor
    ends = [] if ends is None else ends.tolist()
    if config.num_beams > 1:  # transformers' rule, by which a padding id of 0 counts as none
        padding = (int(padding or 0) or ends[0]) if ends else -1
    return SearchOptions(
        config.max_length,
        ends,
        0 if padding is None else int(padding),
        processors,
        config.num_beams,
        config.length_penalty,
        config.early_stopping,
        config.num_return_sequences,
        bool(config.return_dict_in_generate),
        next((criterion.limits + 1 for criterion in criteria if type(criterion) is RowLengthCriteria), None),
    )


def _output(result: SearchResult, config, stepper: Stepper, is_encoder_decoder: bool):
    """The result as `return_dict_in_generate=True` has it."""
    fields = {
        "sequences": result.sequences,
        "scores": tuple(result.scores) if config.output_scores else None,
        "logits": tuple(result.logits) if config.output_logits else None,
        "past_key_values": stepper.cache(),
    }
    if config.num_beams == 1:
        return (GenerateEncoderDecoderOutput if is_encoder_decoder else GenerateDecoderOnlyOutput)(**fields)
    scores = result.sequences_scores if config.output_scores else None
    output_class = GenerateBeamEncoderDecoderOutput if is_encoder_decoder else GenerateBeamDecoderOnlyOutput
    return output_class(**fields, sequences_scores=scores, beam_indices=result.beam_indices)
