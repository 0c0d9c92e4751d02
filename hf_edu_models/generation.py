"""Generate text with any checkpoint whose head writes text: translate, continue a prompt, or fill in masks.

`load_text_writer` chooses the class by the checkpoint's head. A writer maps a batch of texts to a list of outputs per
text; `generate_lines` runs it on a stream of lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
import transformers

from .batching import map_by_length, visible_length
from .checkpoints import length_limit, load_as, load_config, load_tokenizer, position_limit, saved_class
from .pipelines import EduTranslationPipeline, default_max_new_tokens
from .precision import set_precision
from .tasks import TASKS, task_of_class

DEFAULT_NEW_TOKENS = 50  # of a continuation, if neither the user nor the checkpoint sets max_new_tokens


@dataclass(frozen=True)
class GenerationOptions:
    """Decoding options; None leaves a value to the checkpoint's generation config."""

    batch_size: int = 32
    num_beams: int = 1
    max_new_tokens: int | None = None
    sample: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    num_return_sequences: int = 1

    def __post_init__(self) -> None:
        for name in ("temperature", "top_k", "top_p"):
            if getattr(self, name) is not None and not self.sample:
                raise ValueError(f"{_flag(name)} only applies to sampling; add --sample or remove it")
        if self.temperature is not None and self.temperature <= 0:
            raise ValueError(
                f"--temperature must be above 0, got {self.temperature}; to decode greedily remove --sample"
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"--top-p must be above 0 and at most 1, got {self.top_p}")

    def generate_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of `generate()`."""
        if self.num_return_sequences > self.num_beams and not self.sample:
            raise ValueError(
                f"--num-return-sequences {self.num_return_sequences} needs at least as many beams, or --sample; "
                f"--num-beams is {self.num_beams}"
            )
        options = {"num_beams": self.num_beams, "do_sample": self.sample}
        for name in ("temperature", "top_k", "top_p", "max_new_tokens"):
            if getattr(self, name) is not None:
                options[name] = getattr(self, name)
        return options | {"num_return_sequences": self.num_return_sequences}


class TranslationWriter:
    """Translates with an encoder-decoder, through the `edu-translation` pipeline."""

    def __init__(self, model: Any, tokenizer: Any, options: GenerationOptions):
        self.pipeline = EduTranslationPipeline(model, tokenizer=tokenizer, device=model.device)
        self.max_length = length_limit(model.config, tokenizer)
        self.generate_kwargs = options.generate_kwargs()
        self.num_truncated = 0

    def __call__(self, texts: list[str]) -> list[list[str]]:
        self.num_truncated += _count_longer(self.pipeline.tokenizer, texts, self.max_length)
        results = self.pipeline(texts, batch_size=len(texts), truncation=True, **self.generate_kwargs)
        results = [result if isinstance(result, list) else [result] for result in results]
        return [[sequence["translation_text"] for sequence in result] for result in results]


class EngineWriter:
    """Translates with CTranslate2 instead of our model."""

    def __init__(self, model: Any, tokenizer: Any, options: GenerationOptions, compute_type: str = "float32"):
        from .convert.to_ctranslate2 import EngineTranslator

        if options.sample:
            raise ValueError("--engine ctranslate2 searches and does not sample; remove --sample or --engine")
        self.translate = EngineTranslator(model, tokenizer, compute_type)
        self.tokenizer, self.options = tokenizer, options
        self.max_length, self.positions = length_limit(model.config, tokenizer), position_limit(model.config)
        self.max_new_tokens = options.max_new_tokens or model.generation_config.max_new_tokens
        self.num_truncated = 0

    def __call__(self, texts: list[str]) -> list[list[str]]:
        self.num_truncated += _count_longer(self.tokenizer, texts, self.max_length)
        is_limited = self.max_length is not None
        sources = self.tokenizer(texts, truncation=is_limited, max_length=self.max_length)["input_ids"]
        limits = [self.max_new_tokens or default_max_new_tokens(len(ids), self.positions) for ids in sources]
        results = self.translate(sources, self.options.num_beams, limits, self.options.num_return_sequences)
        return [[self.tokenizer.decode(ids, skip_special_tokens=True) for ids in group] for group in results]


class TextContinuer:
    """Continues a prompt with a causal language model; the output starts with the prompt."""

    def __init__(self, model: Any, tokenizer: Any, options: GenerationOptions):
        self.model, self.tokenizer = model, tokenizer
        # New tokens continue the last one: padding goes to the left, and a long prompt loses its start.
        tokenizer.padding_side = tokenizer.truncation_side = "left"
        if tokenizer.pad_token is None:  # any token will do: the attention mask hides it
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
        new_tokens = options.max_new_tokens or model.generation_config.max_new_tokens or DEFAULT_NEW_TOKENS
        self.generate_kwargs = options.generate_kwargs()
        self.generate_kwargs |= {"max_new_tokens": new_tokens, "pad_token_id": tokenizer.pad_token_id}
        positions = position_limit(model.config)
        self.max_length = None if positions is None else positions - new_tokens
        if self.max_length is not None and self.max_length < 2:
            raise ValueError(
                f"{new_tokens} new tokens leave no positions for the prompt: the model has {positions}; reduce "
                "--max-new-tokens"
            )
        self.num_truncated = 0

    def __call__(self, texts: list[str]) -> list[list[str]]:
        self.num_truncated += _count_longer(self.tokenizer, texts, self.max_length)
        encoded = self.tokenizer(
            texts, return_tensors="pt", padding=True, truncation=self.max_length is not None, max_length=self.max_length
        )
        inputs = {name: encoded[name].to(self.model.device) for name in ("input_ids", "attention_mask")}
        sequences = self.model.generate(**inputs, **self.generate_kwargs).unflatten(0, (len(texts), -1))
        prompts = self.tokenizer.batch_decode(inputs["input_ids"], skip_special_tokens=True)
        return [
            # Prompt and continuation are decoded together: a space before a token depends on the token before it.
            [text + self.tokenizer.decode(ids, skip_special_tokens=True)[len(prompt) :] for ids in group]
            for text, prompt, group in zip(texts, prompts, sequences, strict=True)
        ]


class MaskFiller:
    """Fills in mask tokens with a masked language model; output n has the n-th most likely token at every mask."""

    num_truncated = 0  # a long text raises an error: truncation could remove a mask

    def __init__(self, model: Any, tokenizer: Any, options: GenerationOptions):
        self.model, self.tokenizer, self.count = model, tokenizer, options.num_return_sequences
        for name in ("num_beams", "max_new_tokens", "sample"):
            if getattr(options, name) != getattr(GenerationOptions, name):
                raise ValueError(f"{type(model).__name__} fills in masks and does not use {_flag(name)}; remove it")
        if model.get_output_embeddings() is None:  # ELECTRA's ForPreTraining tells replaced tokens from original ones
            raise ValueError(f"{type(model).__name__} has no masked language modelling head; use a ForMaskedLM model")
        self.max_length = length_limit(model.config, tokenizer)

    def __call__(self, texts: list[str]) -> list[list[str]]:
        self._check(texts)
        encoded = self.tokenizer(texts, return_tensors="pt", padding=True).to(self.model.device)
        with torch.no_grad():
            logits = self.model(**encoded)[0]  # (B, T, V)
        best = logits.topk(self.count, dim=-1).indices  # (B, T, count)
        is_mask = encoded["input_ids"] == self.tokenizer.mask_token_id
        return [
            [self._fill(text, ids[mask][:, rank].tolist()) for rank in range(self.count)]
            for text, ids, mask in zip(texts, best, is_mask, strict=True)
        ]

    def _check(self, texts: list[str]) -> None:
        for text, ids in zip(texts, self.tokenizer(texts, verbose=False)["input_ids"], strict=True):
            if self.tokenizer.mask_token_id not in ids:
                raise ValueError(
                    f"{type(self.model).__name__} fills in masks, and the text {text[:40]!r} has none; put "
                    f"{self.tokenizer.mask_token} where a word is missing"
                )
            if self.max_length is not None and len(ids) > self.max_length:
                raise ValueError(
                    f"the text {text[:40]!r} has {len(ids)} tokens, but the model's maximum is {self.max_length}; "
                    "shorten it"
                )

    def _fill(self, text: str, token_ids: list[int]) -> str:
        """The text with its masks replaced; decoding all of it would return the tokenizer's normalised text."""
        tokens = [self.tokenizer.decode([token_id]).strip().removeprefix("##") for token_id in token_ids]
        parts = text.split(self.tokenizer.mask_token)
        return "".join(part + token for part, token in zip_longest(parts, tokens, fillvalue=""))


TextWriter = Callable[[list[str]], list[list[str]]]


def load_text_writer(
    name: str,
    options: GenerationOptions,
    device: str | None = None,
    trust_remote_code: bool = False,
    only_translation: bool = False,
    dtype: str | None = None,
    engine: str | None = None,
    int8: bool = False,
) -> TranslationWriter | EngineWriter | TextContinuer | MaskFiller:
    """Load a checkpoint as the writer of its task; a head that was not saved would be random, so none is added.

    Args:
        only_translation: Reject checkpoints of any other task.
        dtype: float32, bfloat16 or auto; the checkpoint's own by default.
        engine: `ctranslate2` to translate with it.
        int8: round the weights of linear layers to 8 bits.
    """
    if engine not in (None, "ctranslate2"):
        raise ValueError(f"--engine must be ctranslate2, got {engine!r}; leave it out to run the model itself")
    torch_device = find_device("cpu" if engine else device)
    config = load_config(name, trust_remote_code)
    task = TASKS[task_of_class(saved_class(config)) or "feature_extraction"]
    if task.writer is None:
        raise ValueError(
            f"{name} holds {saved_class(config)}, which generates no text: it {task.summary}; use hf-edu "
            f"{task.verb} {name} TEXT"
        )
    if config.is_encoder_decoder:  # T5WithLMHeadModel too
        task = TASKS["translation"]
    elif only_translation:
        raise ValueError(
            f"{name} holds {saved_class(config)}, which does not translate; use hf-edu generate {name} TEXT"
        )
    model = load_as(getattr(transformers, task.auto_class), name, trust_remote_code).to(torch_device)
    tokenizer = load_tokenizer(name, trust_remote_code)
    if engine is not None:
        return EngineWriter(model, tokenizer, options, "int8" if int8 else "float32")
    model = set_precision(model, dtype, int8, generates=task is not TASKS["masked_lm"])
    return task.code("writer")(model, tokenizer, options)


def find_device(name: str | None) -> torch.device:
    """The device of `--device`; None is the accelerator if there is one, else the CPU."""
    if name is None:
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return accelerator or torch.device("cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"--device {name} is not available ({reason}); use cpu, or remove it") from None


def generate_lines(
    write: TextWriter, lines: Iterable[str], options: GenerationOptions, is_interactive: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """Yield each line with its outputs, in order; a blank line has blank outputs.

    Args:
        is_interactive: Answer every line before the next one is read.
    """
    blank = [""] * options.num_return_sequences
    for line, outputs in map_by_length(write, lines, options.batch_size, visible_length, is_interactive):
        yield line, blank if outputs is None else outputs


def _count_longer(tokenizer: Any, texts: list[str], max_length: int | None) -> int:
    """The number of texts with more tokens than the maximum."""
    if max_length is None:
        return 0
    return sum(len(ids) > max_length for ids in tokenizer(texts, verbose=False)["input_ids"])


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
