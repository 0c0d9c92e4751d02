"""Translation and question answering as pipelines: tasks that transformers 5 dropped, under names of our own.

`import hf_edu_models` registers both. They take every model of their kind, transformers' own Marian and BERT too:

    pipeline("edu-translation", model="runs/bahdanau")("ein Hund", num_beams=5)
    pipeline("edu-question-answering", model="runs/bert")(question="Who barks?", context="The dog barks.")
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.pipelines.base import ChunkPipeline, Pipeline

from .data.question_answering import NOT_CONTEXT, encode_question_answering
from .explain.showing import weights_shown

# A translation is cut at 3 times its source and 100 tokens more, unless a length is given: some tasks write much more
# than they read (4 digits are 36 letters), and a model that has learned its task stops by itself long before.
TIMES_SOURCE, MORE_THAN_SOURCE = 3, 100


class TextPipeline(Pipeline):
    """What both tasks share: a tokenizer and nothing else beside the model, and how a pipeline is saved."""

    _load_tokenizer = True
    _load_processor = False
    _load_image_processor = False
    _load_video_processor = False
    _load_feature_extractor = False
    # A pipeline's parameter here; `generate()` has one of this name too.
    _non_generation_params = ("output_attentions",)

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Save the model and the tokenizer.

        The pipeline itself stays in the package: transformers would ask for `trust_remote_code=True` even from those
        who have it installed.
        """
        self.model.save_pretrained(save_directory, **kwargs)
        self.tokenizer.save_pretrained(save_directory, **kwargs)


class EduTranslationPipeline(TextPipeline):
    """`"edu-translation"`: text to text with any encoder-decoder.

    Call it with a text or a list of texts, and with `batch_size`, `output_attentions`, `truncation`,
    `target_tokenizer` (where source and target have a vocabulary each) or anything that `generate()` takes. A text
    gives `[{"translation_text": ...}]`, one for each of `num_return_sequences`; a list gives one dictionary a text, or
    one list a text if several sequences are asked for. With `output_attentions=True` each dictionary also has
    `cross_attention` (layers, heads, target, source), `source_tokens` and `target_tokens`.
    """

    _pipeline_calls_generate = True

    def __init__(self, model: PreTrainedModel, *args: Any, **kwargs: Any):
        if not (model.config.is_encoder_decoder and model.can_generate()):
            raise ValueError(
                f"edu-translation needs an encoder-decoder that generates, and this is a {type(model).__name__}; give "
                "a checkpoint that AutoModelForSeq2SeqLM loads, such as one of edu_bahdanau, edu_transformer or Marian"
            )
        super().__init__(model, *args, **kwargs)

    def _sanitize_parameters(
        self,
        output_attentions: bool | None = None,
        truncation: bool | None = None,
        target_tokenizer: Any = None,
        **generate_kwargs: Any,
    ) -> tuple[dict, dict, dict]:
        forward = dict(generate_kwargs)
        if output_attentions is not None:
            forward["output_attentions"] = output_attentions
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
            raise ValueError(f"edu-translation takes a text or a list of texts; got a {type(text).__name__}")
        limit = source_limit(self.model.config, self.tokenizer)
        encoded = self.tokenizer(text, return_tensors="pt", verbose=False, truncation=truncation, max_length=limit)
        ids, mask = encoded["input_ids"], encoded["attention_mask"]
        if limit is not None and ids.shape[1] > limit:
            raise ValueError(
                f"the text {text[:40]!r} has {ids.shape[1]} tokens, but the model reads {limit}; split it, or cut it "
                "with truncation=True"
            )
        if ids.shape[1] == 0:  # the row must stand in its batch; its answer is empty anyway
            ids, mask = torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1, dtype=torch.long)
        return {"input_ids": ids, "attention_mask": mask, "is_blank": torch.tensor([not text.strip()])}

    def _forward(self, inputs: dict[str, Any], output_attentions: bool = False, **generate_kwargs: Any) -> dict:
        source = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
        options = self._prepare_generate_kwargs(generate_kwargs, return_dict_in_generate=False)
        if not has_length(options, self.model.generation_config):
            options = self.with_safe_length(source["attention_mask"], generate_kwargs)
        sequences = self.model.generate(**source, **options)  # (B * N, T)
        batch = len(source["input_ids"])
        outputs = {"sequences": sequences.unflatten(0, (batch, -1)), **inputs}
        if output_attentions:
            outputs["weights"] = self.look_again(source, sequences).unflatten(0, (batch, -1))
        return outputs

    def with_safe_length(self, attention_mask: torch.Tensor, generate_kwargs: dict[str, Any]) -> dict[str, Any]:
        """A limit for each row by its own source, so that a batch gives what its rows give one by one."""
        limits = attention_mask.sum(dim=1) * TIMES_SOURCE + MORE_THAN_SOURCE  # (B,)
        positions = position_limit(self.model.config)
        limits = limits if positions is None else limits.clamp(max=positions)
        # One more than any row writes: what generate() does at its last step must not reach the longest row only.
        most = int(limits.max()) + 1
        options = self._prepare_generate_kwargs(generate_kwargs, return_dict_in_generate=False, max_new_tokens=most)
        given = list(options.get("stopping_criteria") or [])
        return options | {"stopping_criteria": StoppingCriteriaList([*given, StopByRow(limits)])}

    def look_again(self, source: dict[str, torch.Tensor], sequences: torch.Tensor) -> torch.Tensor:
        """Cross-attention of the winners: (rows, layers, heads, target, source).

        The finished output is read once more, all words at once, instead of collecting weights during `generate()`:
        those are of every beam at every step and must be followed back through `beam_indices`, while this is the
        same function of the same words, costs one pass, and serves greedy, beam and sampling alike.
        """
        times = len(sequences) // len(source["input_ids"])
        repeated = {name: tensor.repeat_interleave(times, dim=0) for name, tensor in source.items()}
        with weights_shown(self.model):
            outputs = self.model(
                **repeated,
                decoder_input_ids=sequences[:, :-1],
                use_cache=False,
                output_attentions=True,
                return_dict=True,
            )
        if not outputs.cross_attentions:
            raise ValueError(
                f"{type(self.model).__name__} has no attention over its source to show; leave output_attentions out"
            )
        return torch.stack(tuple(outputs.cross_attentions), dim=1)

    def postprocess(self, outputs: dict[str, Any], target_tokenizer: Any = None) -> list[dict[str, Any]]:
        tokenizer = target_tokenizer or self.tokenizer
        results = []
        for number, sequence in enumerate(outputs["sequences"][0]):
            words = [] if outputs["is_blank"].item() else self.words_of(sequence.tolist())
            result = {"translation_text": tokenizer.decode(words, skip_special_tokens=True).strip()}
            if "weights" in outputs:
                keep = outputs["attention_mask"][0].bool() & ~outputs["is_blank"]
                result["cross_attention"] = as_array(outputs["weights"][0, number][..., : len(words), keep])
                result["source_tokens"] = self.tokenizer.convert_ids_to_tokens(outputs["input_ids"][0][keep].tolist())
                result["target_tokens"] = tokenizer.convert_ids_to_tokens(words)
            results.append(result)
        return results

    def words_of(self, sequence: list[int]) -> list[int]:
        """What was written after the start token, with the end token and without the padding behind it."""
        config, words = self.model.generation_config, sequence[1:]
        ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
        first = next((place for place, word in enumerate(words) if word in ends), None)
        if first is not None:
            return words[: first + 1]
        while words and words[-1] == config.pad_token_id:  # cut by its length, beside rows that went on
            words = words[:-1]
        return words


class StopByRow(StoppingCriteria):
    """Ends each row at its own number of new tokens."""

    def __init__(self, limits: torch.Tensor):
        self.limits = limits

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        # Beams of one source, however many are looked at, stand in neighbouring rows.
        limits = self.limits.to(input_ids.device).repeat_interleave(len(input_ids) // len(self.limits))
        return input_ids.shape[1] - 1 >= limits


class EduQuestionAnsweringPipeline(TextPipeline, ChunkPipeline):
    """`"edu-question-answering"`: where in a context the answer to a question stands.

    Call it with `question=` and `context=` (texts, or lists of equal length, or many questions on one context), with a
    dictionary of the two, or with a list of dictionaries. A context of any length is read in overlapping windows. Each
    answer is `{"score", "start", "end", "answer"}`; `start` and `end` count characters of the context. `score` is the
    probability of the span among all spans of all windows, so scores of one question add up to 1.

    Args of a call:
        top_k: How many answers; more than one gives a list.
        handle_impossible_answer: Let "no answer" compete, as the empty text.
        max_answer_len, max_seq_len, doc_stride, max_question_len: Tokens of an answer, of a window, shared by
            neighbouring windows, and of the question.
        output_attentions: Add `attention` (layers, heads, tokens, tokens) of the answer's window, and its `tokens`.
    """

    def __init__(self, model: PreTrainedModel, *args: Any, **kwargs: Any):
        if "QuestionAnswering" not in type(model).__name__:
            raise ValueError(
                f"edu-question-answering needs a model with a trained head for it, and this is a "
                f"{type(model).__name__}; give a checkpoint saved from AutoModelForQuestionAnswering, such as one of "
                "edu_bert or BERT fine-tuned on SQuAD"
            )
        super().__init__(model, *args, **kwargs)
        if not self.tokenizer.is_fast:
            raise ValueError(
                f"{type(self.tokenizer).__name__} cannot tell which characters a token covers; "
                "give a fast tokenizer (tokenizer.json)"
            )

    def _sanitize_parameters(self, output_attentions: bool | None = None, **options: Any) -> tuple[dict, dict, dict]:
        before, after = {}, {}
        places = dict.fromkeys(("max_seq_len", "doc_stride", "max_question_len"), before)
        places |= dict.fromkeys(("top_k", "max_answer_len", "handle_impossible_answer"), after)
        for name, value in options.items():
            if name not in places:
                raise TypeError(f"edu-question-answering has no option {name!r}; it takes {', '.join(places)}")
            places[name][name] = value
        for name in ("top_k", "max_answer_len"):
            if after.get(name, 1) < 1:
                raise ValueError(f"{name} must be at least 1, got {after[name]}")
        return before, {} if output_attentions is None else {"output_attentions": output_attentions}, after

    def __call__(self, *inputs: Any, question: Any = None, context: Any = None, **kwargs: Any) -> Any:
        if len(inputs) == 2 and question is None and context is None:
            question, context, inputs = *inputs, ()
        if len(inputs) > 1 or (len(inputs) == 1) == (question is not None or context is not None):
            raise ValueError("give either question= and context=, or a dictionary of the two, or a list of such")
        examples = inputs[0] if inputs else pair_up(question, context)
        examples = list(examples) if isinstance(examples, tuple) else examples
        return [] if isinstance(examples, list) and not examples else super().__call__(examples, **kwargs)

    def preprocess(
        self,
        example: dict[str, str],
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        max_question_len: int = 64,
    ) -> Iterator[dict[str, Any]]:
        check_example(example)
        limits = (384, position_limit(self.model.config), tokenizer_limit(self.tokenizer))
        longest = max_seq_len or min(limit for limit in limits if limit is not None)
        stride = min(128, longest // 2) if doc_stride is None else doc_stride
        batch = {"id": [0], "question": [example["question"]], "context": [example["context"]]}
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
        given = {name: inputs[name] for name in self.tokenizer.model_input_names if name in inputs}
        if not output_attentions:
            outputs = self.model(**given, return_dict=True)
        else:
            with weights_shown(self.model):
                outputs = self.model(**given, output_attentions=True, return_dict=True)
        result = {"start_logits": outputs.start_logits, "end_logits": outputs.end_logits}
        if output_attentions:
            if not outputs.get("attentions"):
                raise ValueError(f"{type(self.model).__name__} returns no attention; leave output_attentions out")
            result["weights"] = torch.stack(tuple(outputs.attentions), dim=1)
        kept = ("input_ids", "attention_mask", "offset_mapping", "context", "is_last")
        return result | {name: inputs[name] for name in kept}

    def postprocess(
        self,
        windows: list[dict[str, Any]],
        top_k: int = 1,
        max_answer_len: int = 30,
        handle_impossible_answer: bool = False,
    ) -> Any:
        context = windows[0]["context"]
        spans = Spans.gather([logits_of(window) for window in windows], max_answer_len, handle_impossible_answer)
        answers = []
        for score, first, last, number in spans.best(top_k):
            answer = {"score": score, "start": first, "end": last, "answer": context[first:last]}
            answers.append(answer | self.attention_of(windows[number]))
        if not answers:
            raise ValueError(f"the context {context[:40]!r} has no token to answer with; give a longer one")
        return answers[0] if top_k == 1 else answers

    def attention_of(self, window: dict[str, Any]) -> dict[str, Any]:
        """The weights that the answer came from, with the tokens that they lie between."""
        if "weights" not in window:
            return {}
        keep = window["attention_mask"][0].bool()
        weights = as_array(window["weights"][0][..., keep, :][..., keep])
        tokens = self.tokenizer.convert_ids_to_tokens(window["input_ids"][0][keep].tolist())
        return {"attention": weights, "tokens": tokens}


class AutoTrainedQuestionAnswering(AutoModelForQuestionAnswering):
    """Loads only what was saved with its answering head: a new head would answer at random."""

    @classmethod
    def from_pretrained(cls, name: Any, *args: Any, **kwargs: Any) -> PreTrainedModel:
        model = super().from_pretrained(name, *args, **kwargs)
        saved = model.config.architectures or [type(model).__name__]
        if not any("QuestionAnswering" in architecture for architecture in saved):
            raise ValueError(f"{name} was saved from {saved[0]}, which has no head for question answering")
        return model


class Spans:
    """Every span that may be an answer, once: its score, its characters and the window that scored it best."""

    def __init__(self, scores: np.ndarray, characters: np.ndarray, windows: np.ndarray):
        order = np.argsort(-scores, kind="stable")
        # Windows overlap: of the same span the best score stays, as `find_answers` has it.
        _, kept = np.unique(characters[order], axis=0, return_index=True)
        order = order[np.sort(kept)]
        self.scores, self.characters, self.windows = scores[order], characters[order], windows[order]

    @classmethod
    def gather(cls, windows: list[tuple[np.ndarray, ...]], longest: int, may_be_empty: bool) -> Spans:
        parts = [(*spans_of(*window, longest), number) for number, window in enumerate(windows)]
        scores = [part[0] for part in parts]
        characters = [part[1] for part in parts]
        numbers = [np.full(len(part[0]), part[2]) for part in parts]
        if may_be_empty:
            # [CLS], place 0, stands for "not in this window"; only if every window says so there is no answer.
            empty = [float(starts[0] + ends[0]) for starts, ends, _ in windows]
            scores.append(np.array([min(empty)]))
            characters.append(np.zeros((1, 2), dtype=int))
            numbers.append(np.array([int(np.argmin(empty))]))
        return cls(np.concatenate(scores), np.concatenate(characters), np.concatenate(numbers))

    def best(self, count: int) -> Iterator[tuple[float, int, int, int]]:
        """Probability, first character, one past the last, window: the likeliest first."""
        if len(self.scores) == 0:
            return
        shares = np.exp(self.scores - self.scores[0])
        shares = shares / shares.sum()
        for share, (first, last), window in zip(shares[:count], self.characters, self.windows, strict=False):
            yield float(share), int(first), int(last), int(window)


def spans_of(starts: np.ndarray, ends: np.ndarray, offsets: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and characters of all spans of the context in one window; unlike a search by beam it misses none."""
    inside = (offsets != NOT_CONTEXT).any(axis=1)
    lengths = np.arange(len(inside))[None, :] - np.arange(len(inside))[:, None] + 1
    first, last = np.nonzero(inside[:, None] & inside[None, :] & (lengths >= 1) & (lengths <= longest))
    characters = np.stack([offsets[first, 0], offsets[last, 1]], axis=1)
    has_text = characters[:, 1] > characters[:, 0]
    return (starts[first] + ends[last])[has_text], characters[has_text]


def logits_of(window: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start and end logits and character offsets of the real tokens, whichever side the padding is on."""
    keep = window["attention_mask"][0].bool()
    starts, ends = (window[name][0][keep].double().numpy() for name in ("start_logits", "end_logits"))
    return starts, ends, np.array(window["offset_mapping"])


def pair_up(question: Any, context: Any) -> Any:
    """A dictionary, or a list of them: one context may serve many questions."""
    if isinstance(question, str) and isinstance(context, str):
        return {"question": question, "context": context}
    if question is None or context is None:
        missing = "context" if context is None else "question"
        raise ValueError(f"question= and context= belong together, and {missing}= is missing")
    size = len(context) if isinstance(question, str) else len(question)
    questions = [question] * size if isinstance(question, str) else question
    contexts = [context] * size if isinstance(context, str) else context
    if len(questions) != len(contexts):
        raise ValueError(
            f"{len(questions)} questions do not belong to {len(contexts)} contexts; give one of each, or one for all"
        )
    return [{"question": one, "context": other} for one, other in zip(questions, contexts, strict=True)]


def check_example(example: Any) -> None:
    if not isinstance(example, dict) or not {"question", "context"} <= set(example):
        what = sorted(example) if isinstance(example, dict) else type(example).__name__
        raise ValueError(f"an example is a dictionary with 'question' and 'context'; got {what}")
    for name in ("question", "context"):
        if not isinstance(example[name], str) or not example[name].strip():
            raise ValueError(f"{name} must be a text that is not empty; got {example[name]!r}")


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """numpy has no bfloat16."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def position_limit(config: Any) -> int | None:
    """The longest sequence that a model has positions for; None for recurrent ones and for our sinusoids."""
    if getattr(config, "model_type", "") == "edu_transformer" and config.position_embedding_type == "sinusoidal":
        return None
    return getattr(config, "max_position_embeddings", None)


def tokenizer_limit(tokenizer: Any) -> int | None:
    """Tokenizers without a limit say so by a huge number."""
    return tokenizer.model_max_length if tokenizer.model_max_length < 1_000_000 else None


def source_limit(config: Any, tokenizer: Any) -> int | None:
    limits = [limit for limit in (position_limit(config), tokenizer_limit(tokenizer)) if limit is not None]
    return min(limits, default=None)


def has_length(options: dict[str, Any], default: Any) -> bool:
    """Whether the user or the checkpoint said how long an output may be."""
    config = options.get("generation_config") or default
    names = ("max_length", "max_new_tokens")
    return any(options.get(name) is not None or getattr(config, name, None) is not None for name in names)


def register_pipelines() -> None:
    """Make both tasks known to `transformers.pipeline`; calling it again changes nothing."""
    # AutoModel last: what is no model of the task still loads, and is then refused by the class in one sentence.
    tasks = {
        "edu-translation": (EduTranslationPipeline, (AutoModelForSeq2SeqLM, AutoModel)),
        "edu-question-answering": (EduQuestionAnsweringPipeline, (AutoTrainedQuestionAnswering, AutoModel)),
    }
    for task, (pipeline_class, loaders) in tasks.items():
        if task not in PIPELINE_REGISTRY.supported_tasks:
            PIPELINE_REGISTRY.register_pipeline(task, pipeline_class=pipeline_class, pt_model=loaders)


register_pipelines()
