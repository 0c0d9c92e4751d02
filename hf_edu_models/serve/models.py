"""One served model: what it can do, its checks of a request, and the functions that its batcher runs.

Checks raise ValueError with a sentence for the client before anything is queued.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import normalize
from transformers import StoppingCriteria, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

from ..checkpoints import length_limit, load_with_head, position_limit, saved_class
from ..data.sentences import cut_sentences
from ..explain import attention_maps, readable_tokens
from ..explain.hidden_states import TextEncoder, check_layer
from ..generation import GenerationOptions, MaskFiller, TranslationWriter, find_device
from ..models.blocks_sentence_embeddings import check_pooling, pool
from ..precision import set_precision
from ..prediction import Predictor, predictor_of
from ..tasks import TASKS, task_of_class
from .batching import Batcher

_PREDICTIONS = {"TextClassifier": "classify", "DocumentClassifier": "classify", "NextSentencePredictor": "classify"}
_PREDICTIONS |= {"WordTagger": "tags", "QuestionAnswerer": "answer"}
_sampling = threading.Lock()  # torch has one generator of random numbers, which a seed sets


class Embedding(NamedTuple):
    """How texts become vectors: every pooling of every layer; with `tokens` also the vector of each token."""

    poolings: tuple[str, ...]
    layers: tuple[int, ...]
    normalize: bool
    tokens: bool


class Completion(NamedTuple):
    """How prompts are continued. A completion with a `number` is in no batch with others: it has a seed or a stream."""

    max_tokens: int
    temperature: float
    top_p: float
    n: int
    stop: tuple[str, ...]
    seed: int | None
    number: int | None = None


class Translation(NamedTuple):
    num_beams: int
    max_new_tokens: int | None


class Filling(NamedTuple):
    top_k: int


class Prediction(NamedTuple):
    """Labels, tags or answers: the operation has no options."""


class Attention(NamedTuple):
    """Attention maps: one text at a time, because nothing is padded."""


@dataclass
class Text:
    """One completion: its text, why it ended, and its number of tokens."""

    text: str
    finish_reason: str
    tokens: int


class ServedModel:
    """A model, its tokenizer and its batcher.

    Args:
        name: how requests name it.
        source: a run, a folder or a Hub id.
        dtype, int8: as in `set_precision`.
        options: of the `Batcher`.
    """

    def __init__(
        self,
        name: str,
        source: str,
        device: str | None = None,
        trust_remote_code: bool = False,
        dtype: str | None = None,
        int8: bool = False,
        **options: Any,
    ):
        self.name, self.source = name, source
        model, self.tokenizer = load_with_head(source, trust_remote_code)
        self.model = set_precision(model.to(find_device(device)), dtype, int8, generates=model.can_generate())
        # Truncation and padding change a tokenizer, so the batcher's thread has one of its own.
        self._batch_tokenizer = copy.deepcopy(self.tokenizer)
        self.max_length = length_limit(model.config, self.tokenizer)
        self.task = task_of_class(saved_class(model.config)) or "feature_extraction"
        self._encoder = TextEncoder(self.model, self._batch_tokenizer)
        self._predictor = self._find_predictor()
        self.operations = self._find_operations()
        runs: dict[type, Callable[[Any, list[Any]], Sequence[Any]]] = {
            Embedding: self._embed,
            Completion: self._complete,
            Translation: self._translate,
            Filling: self._fill,
            Prediction: lambda _, rows: self._predictor(rows),
            Attention: self._attend,
        }
        self.batcher = Batcher(lambda key, values: runs[type(key)](key, values), **options)

    def _find_predictor(self) -> Any:
        row = TASKS[self.task]
        return None if row.predictor is None else predictor_of(self.model, self._batch_tokenizer)

    def _find_operations(self) -> tuple[str, ...]:
        """The routes that this model can answer."""
        found = ["embeddings"]
        writer = TASKS[self.task].writer
        if self.model.config.is_encoder_decoder and self.model.can_generate():
            found.append("translate")
        elif self.task == "language_modeling":
            found.append("completions")
        elif writer is not None:
            found.append("fill-mask")
        if self._predictor is not None:
            found.append(_PREDICTIONS.get(type(self._predictor).__name__, ""))
        try:
            if not self._encoder.reads_documents:
                self._attend(Attention(), [{"text": self.tokenizer.convert_ids_to_tokens(1) or "a"}])
                found.append("attention")
        except ValueError:  # it does not attend
            pass
        return tuple(filter(None, found))

    def require(self, operation: str) -> None:
        if operation not in self.operations:
            has = ", ".join(self.operations)
            raise ValueError(f"{self.name} holds {type(self.model).__name__}, which has no {operation}; it has {has}")

    def count_tokens(self, texts: Sequence[Any]) -> list[int]:
        """Tokens of each text; a row of a predictor has several texts."""
        return [len(ids) for ids in self.tokenizer(list(texts), verbose=False)["input_ids"]] if texts else []

    def check_length(self, length: int, text: str = "the text", limit: int | None = None) -> None:
        limit = self.max_length if limit is None else limit
        if limit is not None and length > limit:
            raise ValueError(f"{text} has {length} tokens, but the maximum of {self.name} is {limit}; shorten it")

    # Embeddings

    def token_ids(self, inputs: list[Any], truncate: bool) -> tuple[list[Any], list[int]]:
        """Token ids of texts, documents or token ids, and how many tokens each has."""
        if self._encoder.reads_documents:
            documents = [[ids for ids in self._tokenize(cut_sentences(text)) if ids] or [[0]] for text in inputs]
            return documents, [max(map(len, document)) * len(document) for document in documents]
        encoded = iter(self._tokenize([text for text in inputs if isinstance(text, str)]))
        rows: list[list[int]] = [text if isinstance(text, list) else next(encoded) for text in inputs]
        size = self.model.config.vocab_size
        for row, given in zip(rows, inputs, strict=True):
            if not row:
                raise ValueError("the input has an empty text; every text needs at least one token")
            if isinstance(given, list) and not all(0 <= number < size for number in row):
                raise ValueError(f"the input has token ids outside the vocabulary; choose 0 to {size - 1}")
        if truncate and self.max_length is not None:
            rows = [row if isinstance(given, list) else self._cut(row) for row, given in zip(rows, inputs, strict=True)]
        for number, row in enumerate(rows):
            self.check_length(len(row), f"text {number}")
        return rows, [len(row) for row in rows]

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        return self.tokenizer(texts, verbose=False)["input_ids"] if texts else []

    def _cut(self, row: list[int]) -> list[int]:
        """As the tokenizer truncates: what the template puts behind a text stays."""
        limit = self.max_length or len(row)
        if len(row) <= limit:
            return row
        last = [row[-1]] if row[-1] in self.tokenizer.all_special_ids else []
        return row[: limit - len(last)] + last

    def check_embedding(self, embedding: Embedding) -> None:
        for pooling in embedding.poolings:
            check_pooling(pooling)
        for layer in embedding.layers:
            check_layer(layer, self._num_layers)
        if embedding.tokens and self._encoder.reads_documents:
            raise ValueError(f"{self.name} reads documents of sentences, and has no vectors of single tokens")

    @cached_property
    def _num_layers(self) -> int:
        return len(self._encoder.states([[[0]] if self._encoder.reads_documents else [0]])[0])

    def _embed(self, embedding: Embedding, rows: list[Any]) -> list[dict[str, np.ndarray]]:
        """For each row `vectors` (layers * poolings, D), and `tokens` (layers, T, D) if they are asked for."""
        layers, mask = self._encoder.states(rows, last_only=embedding.layers == (-1,))
        chosen = [layers[layer].float() for layer in embedding.layers]
        size = max(layer.shape[-1] for layer in chosen)  # embeddings may be smaller than hidden states
        vectors = [pool(layer, mask, pooling) for layer in chosen for pooling in embedding.poolings]
        if embedding.normalize:
            vectors = [normalize(vector, dim=-1) for vector in vectors]
        padded = torch.stack([torch.nn.functional.pad(each, (0, size - each.shape[-1])) for each in vectors], dim=1)
        results = [{"vectors": each} for each in padded.cpu().numpy()]
        if embedding.tokens:
            for row, (result, ids) in enumerate(zip(results, rows, strict=True)):
                result["tokens"] = [layer[row, : len(ids)].cpu().numpy() for layer in chosen]
        return results

    def token_labels(self, ids: list[int]) -> list[str]:
        return list(readable_tokens(self.tokenizer, ids).labels)

    # Completions

    def check_completion(self, prompts: list[list[int]], completion: Completion) -> None:
        positions = position_limit(self.model.config)
        for number, prompt in enumerate(prompts):
            if not prompt:
                raise ValueError(f"prompt {number} has no tokens; start it with at least one word")
            total = len(prompt) + completion.max_tokens
            if positions is not None and total > positions:
                raise ValueError(
                    f"prompt {number} has {len(prompt)} tokens and max_tokens is {completion.max_tokens}: more than "
                    f"the {positions} positions of {self.name}; shorten one of them"
                )

    def _generate_options(self, completion: Completion) -> dict[str, Any]:
        options: dict[str, Any] = {"max_new_tokens": completion.max_tokens, "do_sample": completion.temperature > 0}
        if completion.temperature > 0:
            options |= {"temperature": completion.temperature, "top_p": completion.top_p, "top_k": 0}
        pad = self._batch_tokenizer.pad_token_id
        return options | {"num_return_sequences": completion.n, "pad_token_id": 0 if pad is None else pad}

    def _complete(self, completion: Completion, prompts: list[Any]) -> list[list[Text]]:
        """Continue prompts of token ids, or one `Stream`."""
        options = self._generate_options(completion)
        criteria = StoppingCriteriaList()
        if isinstance(prompts[0], Stream):  # alone in its batch
            stream: Stream = prompts[0]
            options["streamer"] = stream.streamer(self._batch_tokenizer)
            criteria.append(stream)
            prompts = [stream.prompt]
        if completion.stop:
            criteria.append(_StopAtText(self._batch_tokenizer, prompts, completion))
        if criteria:
            options["stopping_criteria"] = criteria
        length = max(map(len, prompts))
        ids = torch.zeros(len(prompts), length, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):  # padding goes to the left: new tokens continue the last one
            ids[row, length - len(prompt) :], mask[row, length - len(prompt) :] = torch.tensor(prompt), 1
        inputs = {"input_ids": ids.to(self.model.device), "attention_mask": mask.to(self.model.device)}
        with torch.no_grad(), _sampling if completion.temperature > 0 else nullcontext():
            if completion.seed is not None:
                torch.manual_seed(completion.seed)
            sequences = self.model.generate(**inputs, **options)
        groups = sequences[:, length:].unflatten(0, (len(prompts), completion.n))
        return [
            [self._read(prompt, new, completion) for new in group]
            for prompt, group in zip(prompts, groups, strict=True)
        ]

    def _read(self, prompt: list[int], new: torch.Tensor, completion: Completion) -> Text:
        ends = self.model.generation_config.eos_token_id
        ends = set(ends if isinstance(ends, list) else [ends])
        ids = new.tolist()
        end = next((position for position, token in enumerate(ids) if token in ends), None)
        ids = ids if end is None else ids[:end]
        text = _new_text(self._batch_tokenizer, prompt, ids)
        cut = _cut_at_stop(text, completion.stop)
        is_stopped = end is not None or cut != text
        return Text(cut, "stop" if is_stopped else "length", len(ids) + (end is not None))

    # Texts in, texts or labels out

    def _translate(self, translation: Translation, texts: list[str]) -> list[str]:
        options = GenerationOptions(num_beams=translation.num_beams, max_new_tokens=translation.max_new_tokens)
        writer = TranslationWriter(self.model, self._batch_tokenizer, options)
        return [outputs[0] for outputs in writer(texts)]

    def _fill(self, filling: Filling, texts: list[str]) -> list[list[str]]:
        options = GenerationOptions(num_return_sequences=filling.top_k)
        return MaskFiller(self.model, self._batch_tokenizer, options)(texts)

    def row(self, fields: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """A row of this model's predictor, and its number of tokens."""
        predictor: Predictor = self._predictor
        given = {name: value for name, value in fields.items() if value}
        row = predictor.row(given.pop("text", None) or {}, **given) if "text" in given else predictor.row(given)
        if not row:
            raise ValueError("the text is empty; it needs at least one word")
        texts = [" ".join(value) if isinstance(value, list) else value for value in row.values()]
        length = sum(self.count_tokens(texts))
        if type(predictor).__name__ == "TextClassifier":  # the others read long texts in windows or sentences
            self.check_length(length)
        return row, length

    def _attend(self, _: Attention, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [self._attention(**row) for row in rows]

    def _attention(self, text: str, text_pair: str | None = None, target: str | None = None) -> dict[str, Any]:
        maps = attention_maps(self.model, self._batch_tokenizer, text, target, text_pair)
        found = {
            name: {
                "weights": np.round(each.weights.astype(float), 4).tolist(),
                "query_tokens": each.query_tokens,
                "key_tokens": each.key_tokens,
            }
            for name, each in maps.items()
        }
        return {"text": maps.text, "target": maps.target, "attention": found}

    def close(self) -> None:
        self.batcher.close()


class _StopAtText(StoppingCriteria):
    """Ends a row when its new text has a stop string; any tokenizer will do."""

    def __init__(self, tokenizer: Any, prompts: list[list[int]], completion: Completion):
        self.tokenizer, self.prompts, self.completion = tokenizer, prompts, completion
        self.start = max(map(len, prompts))

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        rows = enumerate(input_ids[:, self.start :].tolist())
        texts = [_new_text(self.tokenizer, self.prompts[row // self.completion.n], ids) for row, ids in rows]
        ended = [_cut_at_stop(text, self.completion.stop) != text for text in texts]
        return torch.tensor(ended, device=input_ids.device)


class Stream(StoppingCriteria):
    """A prompt whose completion is sent as it is written.

    Args:
        send: takes each piece of text.
    """

    def __init__(self, prompt: list[int], stop: tuple[str, ...], send: Callable[[str], Any]):
        self.prompt, self.stop, self.send = prompt, stop, send
        self.is_cancelled = False

    def __len__(self) -> int:
        return len(self.prompt)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        return torch.full((len(input_ids),), self.is_cancelled, device=input_ids.device)

    def streamer(self, tokenizer: Any) -> _Streamer:
        return _Streamer(tokenizer, self)


class _Streamer(BaseStreamer):
    """Sends text as soon as it is complete: not half of a character, nor what may be the start of a stop string."""

    def __init__(self, tokenizer: Any, stream: Stream):
        self.tokenizer, self.stream = tokenizer, stream
        self.token_ids: list[int] | None = None  # the first that `generate()` puts is the prompt
        self.sent = 0

    def put(self, value: torch.Tensor) -> None:
        if self.token_ids is None:
            self.token_ids = []
        else:
            self.token_ids.extend(value.flatten().tolist())
            self._send(held=max(map(len, self.stream.stop), default=1) - 1)

    def end(self) -> None:
        self._send(held=0)

    def _send(self, held: int) -> None:
        text = _new_text(self.tokenizer, self.stream.prompt, self.token_ids or [])
        complete = _cut_at_stop(text, self.stream.stop)
        if complete == text:
            complete = text[: len(text) - held] if held else text.rstrip("\ufffd")
        if len(complete) > self.sent:
            self.stream.send(complete[self.sent :])
            self.sent = len(complete)


def _new_text(tokenizer: Any, prompt: list[int], token_ids: list[int]) -> str:
    """Prompt and continuation are decoded together: a space depends on the token before it."""
    start = len(tokenizer.decode(prompt, skip_special_tokens=True))
    return tokenizer.decode([*prompt, *token_ids], skip_special_tokens=True)[start:]


def _cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """The text before the first stop string."""
    return text[: min((place for each in stop if (place := text.find(each)) >= 0), default=len(text))]
