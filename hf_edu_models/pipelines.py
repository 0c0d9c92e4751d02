"""Pipelines for translation and question answering, which transformers 5 removed, under names of our own.

`import hf_edu_models` registers both. They run any model of their task, transformers' own Marian and BERT too:

    pipeline("edu-translation", model="runs/bahdanau")("ein Hund", num_beams=5)
    pipeline("edu-question-answering", model="runs/bert")(question="Who barks?", context="The dog barks.")
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
    StoppingCriteriaList,
)
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.pipelines.base import ChunkPipeline, Pipeline

from .checkpoints import length_limit, position_limit
from .data.question_answering import NOT_CONTEXT, encode_question_answering
from .explain.inference import use_eager_attention
from .models.blocks_generation import RowLengthCriteria

# Default maximum length of a translation: 3 times the source plus 100 tokens. Some outputs are much longer than their
# source (4 digits are 36 letters); a trained model emits the end-of-sequence token long before.
SOURCE_LENGTH_FACTOR, EXTRA_LENGTH = 3, 100


def default_max_new_tokens(source_length: int, positions: int | None) -> int:
    """The maximum length of a translation, unless the user or the checkpoint sets one."""
    limit = source_length * SOURCE_LENGTH_FACTOR + EXTRA_LENGTH
    return limit if positions is None else min(limit, positions)


class _TextPipeline(Pipeline):
    """Shared by both tasks: a model with a tokenizer and no other processor, and `save_pretrained`."""

    _load_tokenizer = True
    _load_processor = False
    _load_image_processor = False
    _load_video_processor = False
    _load_feature_extractor = False
    # `generate()` has a parameter of this name too; here it belongs to the pipeline.
    _non_generation_params = ("output_attentions",)

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Save the model and the tokenizer.

        The pipeline's code is not saved: loading it would require `trust_remote_code=True`, even with the package
        installed.
        """
        self.model.save_pretrained(save_directory, **kwargs)
        self.tokenizer.save_pretrained(save_directory, **kwargs)


class EduTranslationPipeline(_TextPipeline):
    """`"edu-translation"`: text to text with any encoder-decoder.

    Call it with a text or a list of texts. Options: `batch_size`, `output_attentions`, `truncation`,
    `target_tokenizer` (if the target has its own vocabulary) and every argument of `generate()`. A text returns
    `[{"translation_text": ...}]`, one entry per returned sequence. A list returns one dictionary per text, or one list
    per text if `num_return_sequences` is above 1. `output_attentions=True` adds `cross_attention`
    (layers, heads, target, source), `source_tokens` and `target_tokens`.
    """

    _pipeline_calls_generate = True

    def __init__(self, model: PreTrainedModel, *args: Any, **kwargs: Any):
        if not (model.config.is_encoder_decoder and model.can_generate()):
            raise ValueError(
                f"edu-translation needs an encoder-decoder that can generate, got {type(model).__name__}; use a "
                "checkpoint that AutoModelForSeq2SeqLM loads, such as edu_bahdanau, edu_transformer or Marian"
            )
        super().__init__(model, *args, **kwargs)

    def _sanitize_parameters(
        self, truncation: bool | None = None, target_tokenizer: Any = None, **forward: Any
    ) -> tuple[dict, dict, dict]:
        preprocess = {} if truncation is None else {"truncation": truncation}
        return preprocess, forward, {} if target_tokenizer is None else {"target_tokenizer": target_tokenizer}

    def __call__(self, inputs: Any, **kwargs: Any) -> Any:
        inputs = list(inputs) if isinstance(inputs, tuple) else inputs
        if isinstance(inputs, list) and not inputs:
            return []
        results = super().__call__(inputs, **kwargs)
        if isinstance(inputs, list) and all(len(result) == 1 for result in results):
            return [result[0] for result in results]
        return results

    def preprocess(self, text: str, truncation: bool = False) -> dict[str, Any]:
        if not isinstance(text, str):
            raise ValueError(f"edu-translation takes a text or a list of texts, got {type(text).__name__}")
        limit = length_limit(self.model.config, self.tokenizer)
        encoded = self.tokenizer(text, return_tensors="pt", verbose=False, truncation=truncation, max_length=limit)
        ids, mask = encoded["input_ids"], encoded["attention_mask"]
        if limit is not None and ids.shape[1] > limit:
            raise ValueError(
                f"the text {text[:40]!r} has {ids.shape[1]} tokens, but the model's maximum is {limit}; split it, or "
                "pass truncation=True"
            )
        if ids.shape[1] == 0:  # a batch needs at least one token per row; the output is empty anyway
            ids, mask = torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1, dtype=torch.long)
        return {"input_ids": ids, "attention_mask": mask, "is_blank": torch.tensor([not text.strip()])}

    def _forward(self, inputs: dict[str, Any], output_attentions: bool = False, **generate_kwargs: Any) -> dict:
        source = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
        options = self._prepare_generate_kwargs(generate_kwargs, return_dict_in_generate=False)
        if not _has_length(options, self.model.generation_config):
            options = self._with_default_length(source["attention_mask"], generate_kwargs)
        sequences = self.model.generate(**source, **options)  # (B * N, T)
        batch = len(source["input_ids"])
        outputs = {"sequences": sequences.unflatten(0, (batch, -1)), **inputs}
        if output_attentions:
            outputs["weights"] = self._cross_attention(source, sequences).unflatten(0, (batch, -1))
        return outputs

    def _with_default_length(self, attention_mask: torch.Tensor, generate_kwargs: dict[str, Any]) -> dict[str, Any]:
        """Options with a maximum length per row, so that a batch generates what its rows generate one by one."""
        positions = position_limit(self.model.config)
        lengths = attention_mask.sum(dim=1).tolist()
        limits = torch.tensor([default_max_new_tokens(length, positions) for length in lengths])  # (B,)
        # One more than the longest row: generate() may treat its last step specially (forced_eos_token_id).
        options = self._prepare_generate_kwargs(
            generate_kwargs, return_dict_in_generate=False, max_new_tokens=int(limits.max()) + 1
        )
        criteria = StoppingCriteriaList([*(options.get("stopping_criteria") or []), RowLengthCriteria(limits)])
        return options | {"stopping_criteria": criteria}

    def _cross_attention(self, source: dict[str, torch.Tensor], sequences: torch.Tensor) -> torch.Tensor:
        """Cross-attention weights of the generated sequences: (rows, layers, heads, target, source).

        One forward pass over the finished sequences (teacher forcing) gives the same weights as `generate()` would
        collect, without tracing every step back through `beam_indices`, for greedy, beam search and sampling alike.
        """
        repeats = len(sequences) // len(source["input_ids"])
        repeated = {name: tensor.repeat_interleave(repeats, dim=0) for name, tensor in source.items()}
        decoding = {"decoder_input_ids": sequences[:, :-1], "use_cache": False}
        with use_eager_attention(self.model):
            outputs = self.model(**repeated, **decoding, output_attentions=True, return_dict=True)
        if not outputs.cross_attentions:
            raise ValueError(f"{type(self.model).__name__} has no cross-attention; remove output_attentions")
        return torch.stack(tuple(outputs.cross_attentions), dim=1)

    def postprocess(self, outputs: dict[str, Any], target_tokenizer: Any = None) -> list[dict[str, Any]]:
        tokenizer = target_tokenizer or self.tokenizer
        results = []
        for number, sequence in enumerate(outputs["sequences"][0]):
            ids = [] if outputs["is_blank"].item() else self._generated_ids(sequence.tolist())
            result = {"translation_text": tokenizer.decode(ids, skip_special_tokens=True).strip()}
            if "weights" in outputs:
                mask = outputs["attention_mask"][0].bool() & ~outputs["is_blank"]
                result["cross_attention"] = _to_numpy(outputs["weights"][0, number][..., : len(ids), mask])
                result["source_tokens"] = self.tokenizer.convert_ids_to_tokens(outputs["input_ids"][0][mask].tolist())
                result["target_tokens"] = tokenizer.convert_ids_to_tokens(ids)
            results.append(result)
        return results

    def _generated_ids(self, sequence: list[int]) -> list[int]:
        """Token ids after the start token, up to and including the end token, without padding."""
        config, ids = self.model.generation_config, sequence[1:]
        eos_ids = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
        end = next((position for position, token_id in enumerate(ids) if token_id in eos_ids), None)
        if end is not None:
            return ids[: end + 1]
        while ids and ids[-1] == config.pad_token_id:  # stopped by its own limit while other rows went on
            ids = ids[:-1]
        return ids


class EduQuestionAnsweringPipeline(_TextPipeline, ChunkPipeline):
    """`"edu-question-answering"`: extract the answer to a question from a context.

    Call it with `question=` and `context=` (texts, lists of equal length, or one of them a list), with a dictionary of
    the two, or with a list of dictionaries. A long context is split into overlapping windows. An answer is
    `{"score", "start", "end", "answer"}`; `start` and `end` are character offsets in the context. `score` is the
    probability of the span among all spans of all windows: the scores of one question sum to 1.

    Call options:
        top_k: Number of answers; above 1 returns a list.
        handle_impossible_answer: Include "no answer", the empty text, among the candidates.
        max_answer_len, max_seq_len, doc_stride, max_question_len: Maximum tokens of an answer and of a window, tokens
            shared by neighbouring windows, and maximum tokens of the question.
        output_attentions: Add `attention` (layers, heads, tokens, tokens) of the answer's window, and its `tokens`.
    """

    def __init__(self, model: PreTrainedModel, *args: Any, **kwargs: Any):
        if "QuestionAnswering" not in type(model).__name__:
            raise ValueError(
                f"edu-question-answering needs a model with a trained question answering head, got "
                f"{type(model).__name__}; use a checkpoint saved from AutoModelForQuestionAnswering, such as edu_bert "
                "or BERT fine-tuned on SQuAD"
            )
        super().__init__(model, *args, **kwargs)
        if not self.tokenizer.is_fast:
            raise ValueError(
                f"{type(self.tokenizer).__name__} has no character offsets; use a fast tokenizer (tokenizer.json)"
            )

    def _sanitize_parameters(self, output_attentions: bool | None = None, **options: Any) -> tuple[dict, dict, dict]:
        preprocess: dict[str, Any] = {}
        postprocess: dict[str, Any] = {}
        stages = dict.fromkeys(("max_seq_len", "doc_stride", "max_question_len"), preprocess)
        stages |= dict.fromkeys(("top_k", "max_answer_len", "handle_impossible_answer"), postprocess)
        for name, value in options.items():
            if name not in stages:
                raise TypeError(f"edu-question-answering has no option {name!r}; it takes {', '.join(stages)}")
            stages[name][name] = value
        for name in ("top_k", "max_answer_len"):
            if postprocess.get(name, 1) < 1:
                raise ValueError(f"{name} must be at least 1, got {postprocess[name]}")
        forward = {} if output_attentions is None else {"output_attentions": output_attentions}
        return preprocess, forward, postprocess

    def __call__(self, *inputs: Any, question: Any = None, context: Any = None, **kwargs: Any) -> Any:
        if len(inputs) == 2 and question is None and context is None:
            question, context, inputs = *inputs, ()
        if len(inputs) > 1 or (len(inputs) == 1) == (question is not None or context is not None):
            raise ValueError("pass either question= and context=, or a dictionary of the two, or a list of such")
        examples = inputs[0] if inputs else _pair_up(question, context)
        examples = list(examples) if isinstance(examples, tuple) else examples
        return [] if isinstance(examples, list) and not examples else super().__call__(examples, **kwargs)

    def preprocess(
        self,
        example: dict[str, str],
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        max_question_len: int = 64,
    ) -> Iterator[dict[str, Any]]:
        _check_example(example)
        longest = max_seq_len or min(384, length_limit(self.model.config, self.tokenizer) or 384)
        stride = min(128, longest // 2) if doc_stride is None else doc_stride
        batch: dict[str, list] = {"id": [0], "question": [example["question"]], "context": [example["context"]]}
        batch["answers"] = [{"text": [], "answer_start": []}]
        windows = encode_question_answering(batch, self.tokenizer, longest, stride, max_question_len)
        names = [name for name in self.tokenizer.model_input_names if name in windows]
        count = len(windows["input_ids"])
        for window in range(count):
            yield {
                **{name: torch.tensor([windows[name][window]]) for name in names},
                "offset_mapping": windows["offset_mapping"][window],
                "context": example["context"],
                "is_last": window == count - 1,
            }

    def _forward(self, inputs: dict[str, Any], output_attentions: bool = False) -> dict[str, Any]:
        model_inputs = {name: inputs[name] for name in self.tokenizer.model_input_names if name in inputs}
        with use_eager_attention(self.model) if output_attentions else nullcontext():
            outputs = self.model(**model_inputs, output_attentions=output_attentions, return_dict=True)
        names = ("input_ids", "attention_mask", "offset_mapping", "context", "is_last")
        result = {"start_logits": outputs.start_logits, "end_logits": outputs.end_logits}
        if output_attentions:
            if not outputs.get("attentions"):
                raise ValueError(f"{type(self.model).__name__} returns no attention; remove output_attentions")
            result["weights"] = torch.stack(tuple(outputs.attentions), dim=1)
        return result | {name: inputs[name] for name in names}

    def postprocess(
        self,
        windows: list[dict[str, Any]],
        top_k: int = 1,
        max_answer_len: int = 30,
        handle_impossible_answer: bool = False,
    ) -> Any:
        context = windows[0]["context"]
        ranked = _rank_spans(windows, max_answer_len, handle_impossible_answer)
        answers = []
        for score, (start, end), number in islice(zip(*ranked, strict=True), top_k):
            answer = {"score": float(score), "start": int(start), "end": int(end), "answer": context[start:end]}
            answers.append(answer | self._attention_of(windows[number]))
        if not answers:
            raise ValueError(f"the context {context[:40]!r} has no token to answer with; give a longer one")
        return answers[0] if top_k == 1 else answers

    def _attention_of(self, window: dict[str, Any]) -> dict[str, Any]:
        """The attention weights of an answer's window, with its tokens."""
        if "weights" not in window:
            return {}
        mask = window["attention_mask"][0].bool()
        weights = _to_numpy(window["weights"][0][..., mask, :][..., mask])
        tokens = self.tokenizer.convert_ids_to_tokens(window["input_ids"][0][mask].tolist())
        return {"attention": weights, "tokens": tokens}


class _AutoTrainedQuestionAnswering(AutoModelForQuestionAnswering):
    """Loads only checkpoints saved with a question answering head: a newly initialised one would answer at random."""

    @classmethod
    def from_pretrained(cls, name: Any, *args: Any, **kwargs: Any) -> PreTrainedModel:
        model = super().from_pretrained(name, *args, **kwargs)
        saved = model.config.architectures or [type(model).__name__]
        if not any("QuestionAnswering" in architecture for architecture in saved):
            raise ValueError(f"{name} was saved from {saved[0]}, which has no question answering head")
        return model


def _rank_spans(
    windows: list[dict[str, Any]], max_answer_len: int, allow_no_answer: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probability, (start, end) characters and window number of every possible answer, most probable first."""
    scored = [_score_spans(window, max_answer_len) for window in windows]
    scores, spans, no_answer = zip(*scored, strict=True)
    numbers = [np.full(len(each), number) for number, each in enumerate(scores)]
    if allow_no_answer:
        # [CLS] means "not in this window"; there is no answer only if every window predicts so.
        least = int(np.argmin(no_answer))
        scores, spans = (*scores, [no_answer[least]]), (*spans, np.zeros((1, 2), dtype=int))
        numbers.append(np.array([least]))
    scores, spans, numbers = np.concatenate(scores), np.concatenate(spans), np.concatenate(numbers)
    order = np.argsort(-scores, kind="stable")
    # Windows overlap: keep the best score of each span, as `find_answers` does.
    _, kept = np.unique(spans[order], axis=0, return_index=True)
    order = order[np.sort(kept)]
    probabilities = np.exp(scores[order] - scores.max(initial=-np.inf))
    return probabilities / probabilities.sum(), spans[order], numbers[order]


def _score_spans(window: dict[str, Any], max_answer_len: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Scores and (start, end) characters of all context spans of a window, and the score of [CLS], "no answer"."""
    mask = window["attention_mask"][0].bool()
    starts, ends = (window[name][0][mask].double().numpy() for name in ("start_logits", "end_logits"))
    offsets = np.array(window["offset_mapping"])
    is_context = (offsets != NOT_CONTEXT).any(axis=1)
    lengths = np.arange(len(offsets))[None, :] - np.arange(len(offsets))[:, None] + 1
    first, last = np.nonzero(is_context[:, None] & is_context & (lengths >= 1) & (lengths <= max_answer_len))
    spans = np.stack([offsets[first, 0], offsets[last, 1]], axis=1)
    has_text = spans[:, 1] > spans[:, 0]
    return (starts[first] + ends[last])[has_text], spans[has_text], float(starts[0] + ends[0])


def _pair_up(question: Any, context: Any) -> Any:
    """An example, or a list of examples; one context may go with many questions."""
    if isinstance(question, str) and isinstance(context, str):
        return {"question": question, "context": context}
    if question is None or context is None:
        missing = "context" if context is None else "question"
        raise ValueError(f"question= and context= go together, and {missing}= is missing")
    size = len(context) if isinstance(question, str) else len(question)
    questions = [question] * size if isinstance(question, str) else question
    contexts = [context] * size if isinstance(context, str) else context
    if len(questions) != len(contexts):
        raise ValueError(
            f"{len(questions)} questions do not match {len(contexts)} contexts; pass as many of both, or one for all"
        )
    return [{"question": one, "context": other} for one, other in zip(questions, contexts, strict=True)]


def _check_example(example: Any) -> None:
    if not isinstance(example, dict) or not {"question", "context"} <= set(example):
        keys = sorted(example) if isinstance(example, dict) else type(example).__name__
        raise ValueError(f"an example is a dictionary with 'question' and 'context', got {keys}")
    for name in ("question", "context"):
        if not isinstance(example[name], str) or not example[name].strip():
            raise ValueError(f"{name} must be a text that is not empty, got {example[name]!r}")


def _to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor as an array; numpy has no bfloat16."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _has_length(options: dict[str, Any], default: Any) -> bool:
    """Whether the caller or the checkpoint sets a maximum length."""
    config = options.get("generation_config") or default
    names = ("max_length", "max_new_tokens")
    return any(options.get(name) is not None or getattr(config, name, None) is not None for name in names)


def register_pipelines() -> None:
    """Register both tasks with `transformers.pipeline`; calling it again changes nothing."""
    # AutoModel last: a model of another task still loads, and the pipeline's own error names its class.
    tasks = {
        "edu-translation": (EduTranslationPipeline, (AutoModelForSeq2SeqLM, AutoModel)),
        "edu-question-answering": (EduQuestionAnsweringPipeline, (_AutoTrainedQuestionAnswering, AutoModel)),
    }
    for task, (pipeline_class, auto_classes) in tasks.items():
        if task not in PIPELINE_REGISTRY.supported_tasks:
            PIPELINE_REGISTRY.register_pipeline(task, pipeline_class=pipeline_class, pt_model=auto_classes)


register_pipelines()
