"""The routes of `hf-edu serve`.

`/v1/embeddings`, `/v1/completions` and `/v1/models` have the form of OpenAI's API, errors too: its clients work.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from ..cpu_kernels import enabled
from .batching import QueueFull
from .guard import Guard
from .metrics import Metrics
from .models import (
    Attention,
    Completion,
    Embedding,
    Filling,
    Prediction,
    ServedModel,
    Stream,
    Text,
    Translation,
)
from .schemas import (
    AnswerRequest,
    AttentionRequest,
    ClassifyRequest,
    CompletionsRequest,
    EmbeddingsRequest,
    FillMaskRequest,
    TagsRequest,
    TranslateRequest,
)

_MODEL_SETTINGS = (
    *("device", "trust_remote_code", "dtype", "int8"),
    *("max_batch_size", "max_batch_tokens", "max_waiting"),
)
_NO_LIMIT = 2**31
_requests = itertools.count()
Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True)
class ServeSettings:
    """
    Args:
        models: name of each model and the run, folder or Hub id that it is loaded from.
        dtype, int8: of all models, as in `set_precision`.
        max_batch_size, max_batch_tokens, max_waiting: of each model's `Batcher`.
        max_bytes: of a request's body.
        max_inputs: texts in a request.
        timeout: seconds until a request that waits is answered with 504.
        token: what clients must send as `Authorization: Bearer TOKEN`.
    """

    models: dict[str, str]
    device: str | None = None
    trust_remote_code: bool = False
    dtype: str | None = None
    int8: bool = False
    cpu_kernels: str = "auto"
    max_batch_size: int = 32
    max_batch_tokens: int = 8192
    max_waiting: int = 4096
    max_bytes: int = 4 * 2**20
    max_inputs: int = 2048
    timeout: float = 60.0
    token: str | None = field(default=None, repr=False)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def create_app(settings: ServeSettings) -> FastAPI:
    """Load the models and build the app; no request is accepted before they are loaded."""
    metrics = Metrics()
    models: dict[str, ServedModel] = {}

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with enabled(settings.cpu_kernels):
            for name, source in settings.models.items():
                options = {each: getattr(settings, each) for each in _MODEL_SETTINGS}
                options |= {"on_batch": metrics.batch_sizes(name), "loop": asyncio.get_running_loop()}
                models[name] = ServedModel(name, source, **options)
                metrics.watch_queue(name, models[name].batcher)
            gc.freeze()  # the models are no garbage: without this every collection visits their modules
            yield
            for model in models.values():  # what was accepted is answered
                model.close()
            gc.unfreeze()

    # Its pages of documentation load scripts from the network; /openapi.json has the schema.
    app = FastAPI(title="hf_edu_models", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(Guard, token=settings.token, max_bytes=settings.max_bytes, metrics=metrics)
    app.state.models = models
    _add_error_handlers(app)
    _add_routes(app, settings, models, metrics)
    return app


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return _error(400, "the body is not JSON")
        name = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
        return _error(400, f"{name}: {first['msg'].lower()}", param=name)

    @app.exception_handler(ValueError)
    async def wrong(request: Request, error: ValueError) -> Response:
        return _error(400, str(error))

    @app.exception_handler(QueueFull)
    async def full(request: Request, error: QueueFull) -> Response:
        return _error(503, str(error), headers={"Retry-After": "1"})

    @app.exception_handler(TimeoutError)
    async def late(request: Request, error: TimeoutError) -> Response:
        return _error(504, "the model did not answer in time; try again, or send fewer texts at once")

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return _error(error.status_code, str(error.detail))

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return _error(500, f"the model failed: {type(error).__name__}; the server's log has the traceback")


def _error(status: int, message: str, param: str | None = None, headers: dict[str, str] | None = None) -> Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    body = {"error": {"message": message, "type": kind, "param": param, "code": status}}
    return JSONResponse(body, status, headers)


def _body_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """What /openapi.json says of a body that `_read_body` reads."""
    content = {"application/json": {"schema": schema.model_json_schema()}}
    return {"requestBody": {"content": content, "required": True}}


class _PlainRoute(APIRoute):
    """A route whose function reads the request itself, without FastAPI's dependencies; it stays in the schema."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.endpoint


async def _read_body(request: Request, schema: type[Body]) -> Body:
    """The body of a request as pydantic reads it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a page in a browser cannot send this type to another address unasked
        raise ValueError(f"the Content-Type is {kind or 'missing'}; send application/json")
    try:
        return schema.model_validate_json(await request.body())
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from None


def _add_routes(app: FastAPI, settings: ServeSettings, models: dict[str, ServedModel], metrics: Metrics) -> None:
    def find(name: str | None, operation: str) -> ServedModel:
        if name is None:
            able = [model for model in models.values() if operation in model.operations]
            if len(able) == 1:
                return able[0]
            names = ", ".join(model.name for model in able) or f"none of {', '.join(models)}"
            raise ValueError(f"name the model: {names} can answer /{operation}")
        if name not in models:
            raise HTTPException(404, f"the model {name!r} is not served; choose one of {', '.join(models)}")
        models[name].require(operation)
        return models[name]

    def check_count(inputs: Sequence[Any]) -> None:
        if len(inputs) > settings.max_inputs:
            raise ValueError(f"{len(inputs)} texts are above the limit of {settings.max_inputs}; send fewer at once")

    async def run(model: ServedModel, key: Hashable, values: list[Any], lengths: list[int]) -> list[Any]:
        check_count(values)
        metrics.tokens.labels(model.name).inc(sum(lengths))
        future = model.batcher.submit(key, values, lengths)
        timer = asyncio.get_running_loop().call_later(settings.timeout, _expire, future)
        try:
            return await future  # if its client hangs up or the time is over, what has not started is not run
        finally:
            timer.cancel()

    @app.get("/health")
    async def health() -> dict:
        """Answers as soon as the models are loaded."""
        return {"status": "ok", "models": list(models)}

    @app.get("/metrics")
    async def prometheus() -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/v1/models")
    async def list_models() -> dict:
        data = [
            {"id": model.name, "object": "model", "created": 0, "owned_by": "hf_edu_models"}
            | {"operations": list(model.operations), "max_length": model.max_length}
            for model in models.values()
        ]
        return {"object": "list", "data": data}

    async def embeddings(http_request: Request) -> Response:
        """A vector for each text; several poolings and layers, and the vectors of the tokens, in one call."""
        request = await _read_body(http_request, EmbeddingsRequest)
        model = find(request.model, "embeddings")
        inputs = _inputs(request.input)
        check_count(inputs)
        embedding = Embedding(
            tuple(_as_list(request.pooling)), tuple(_as_list(request.layer)), request.normalize, request.tokens
        )
        model.check_embedding(embedding)
        rows, lengths = model.token_ids(inputs, request.truncate)
        results = await run(model, embedding, rows, lengths)
        names = [{"layer": layer, "pooling": pooling} for layer in embedding.layers for pooling in embedding.poolings]
        write = _to_base64 if request.encoding_format == "base64" else np.ascontiguousarray  # which orjson writes
        data = []
        for index, (ids, result) in enumerate(zip(rows, results, strict=True)):
            vectors = [write(vector) for vector in result["vectors"]]
            item = {"object": "embedding", "index": index, "embedding": vectors[0]}
            if len(names) > 1:
                item["embeddings"] = [name | {"embedding": vector} for name, vector in zip(names, vectors, strict=True)]
            if request.tokens:
                item["tokens"] = model.token_labels(ids)
                item["token_embeddings"] = [
                    {"layer": layer, "embeddings": [write(vector) for vector in vectors]}
                    for layer, vectors in zip(embedding.layers, result["tokens"], strict=True)
                ]
            data.append(item)
        total = sum(lengths)
        usage = {"prompt_tokens": total, "total_tokens": total}
        answer = {"object": "list", "data": data, "model": model.name, "usage": usage}
        return Response(orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")

    options: dict[str, Any] = {"openapi_extra": _body_schema(EmbeddingsRequest), "methods": ["POST"]}
    app.router.add_api_route("/v1/embeddings", embeddings, route_class_override=_PlainRoute, **options)

    @app.post("/v1/completions")
    async def completions(request: CompletionsRequest) -> Response:
        """Continue texts; with `stream` the words are sent as they are written."""
        model = find(request.model, "completions")
        prompts = [
            model.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else prompt
            for prompt in _inputs(request.prompt)
        ]
        is_alone = request.stream or request.seed is not None
        stop = tuple(each for each in _as_list(request.stop or []) if each)
        completion = Completion(
            request.max_tokens,
            request.temperature,
            request.top_p,
            request.n,
            stop,
            request.seed,
            next(_requests) if is_alone else None,
        )
        model.check_completion(prompts, completion)
        lengths = [len(prompt) for prompt in prompts]
        if request.stream:
            if len(prompts) > 1 or request.n > 1 or request.echo:
                raise ValueError("stream takes one prompt, n 1 and no echo; send a request for each")
            return StreamingResponse(_stream(model, prompts[0], completion, run), media_type="text/event-stream")
        results: list[list[Text]] = await run(model, completion, prompts, lengths)
        starts = [prompt if request.echo else "" for prompt in _inputs(request.prompt)]
        starts = [text if isinstance(text, str) else model.tokenizer.decode(text) for text in starts]
        choices = [
            _choice(index, start + text.text, text.finish_reason)
            for index, (start, text) in enumerate(
                (start, text) for start, texts in zip(starts, results, strict=True) for text in texts
            )
        ]
        new = sum(text.tokens for texts in results for text in texts)
        usage = {"prompt_tokens": sum(lengths), "completion_tokens": new, "total_tokens": sum(lengths) + new}
        return JSONResponse(_completion(model, choices) | {"usage": usage})

    @app.post("/translate")
    async def translate(request: TranslateRequest) -> dict:
        model, texts = find(request.model, "translate"), _as_list(request.text)
        lengths = model.count_tokens(texts)
        for number, length in enumerate(lengths):
            model.check_length(length, f"text {number}")
        key = Translation(request.num_beams, request.max_new_tokens)
        return {"model": model.name, "translations": await run(model, key, texts, lengths)}

    @app.post("/fill-mask")
    async def fill_mask(request: FillMaskRequest) -> dict:
        model, texts = find(request.model, "fill-mask"), _as_list(request.text)
        results = await run(model, Filling(request.top_k), texts, model.count_tokens(texts))
        return {"model": model.name, "fillings": results}

    async def predict(operation: str, name: str | None, rows: list[dict[str, Any]]) -> dict:
        model = find(name, operation)
        checked = [model.row(row) for row in rows]
        results = await run(model, Prediction(), [row for row, _ in checked], [length for _, length in checked])
        return {"model": model.name, "predictions": results}

    @app.post("/classify")
    async def classify(request: ClassifyRequest) -> dict:
        fields = request.model_dump(exclude={"model", "text"})
        return await predict("classify", request.model, [fields | {"text": text} for text in _as_list(request.text)])

    @app.post("/tags")
    async def tags(request: TagsRequest) -> dict:
        rows = [{"text": text, "tokens": request.tokens} for text in _as_list(request.text)]
        return await predict("tags", request.model, rows)

    @app.post("/answer")
    async def answer(request: AnswerRequest) -> dict:
        return await predict("answer", request.model, [request.model_dump(exclude={"model"})])

    @app.post("/attention")
    async def attention(request: AttentionRequest) -> dict:
        """The attention weights of every layer and head, (layers, heads, queries, keys)."""
        model = find(request.model, "attention")
        row = request.model_dump(exclude={"model"})
        [length] = model.count_tokens([request.text])
        model.check_length(length)
        [result] = await run(model, Attention(), [row], [length])
        return {"model": model.name} | result


def _expire(future: asyncio.Future) -> None:
    if not future.done():
        future.set_exception(TimeoutError())


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _inputs(value: Any) -> list[Any]:
    """The inputs of a request; one list of token ids is one input."""
    return [value] if isinstance(value, str) or isinstance(value[0], int) else value


def _to_base64(vector: Any) -> str:
    """Little-endian float32, as OpenAI's client decodes it."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _choice(index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "finish_reason": finish_reason, "logprobs": None}


def _completion(model: ServedModel, choices: list[dict[str, Any]]) -> dict[str, Any]:
    head = {"id": f"cmpl-{uuid4().hex}", "object": "text_completion", "created": int(time.time())}
    return head | {"model": model.name, "choices": choices}


async def _stream(model: ServedModel, prompt: list[int], completion: Completion, run: Any) -> AsyncIterator[str]:
    """Server-sent events: one for each piece of text, then the reason of the end."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[str | None] = asyncio.Queue()
    head = _completion(model, [])
    stream = Stream(prompt, completion.stop, lambda text: loop.call_soon_threadsafe(pieces.put_nowait, text))
    task = asyncio.ensure_future(run(model, completion, [stream], [len(prompt)]))
    task.add_done_callback(lambda _: pieces.put_nowait(None))
    try:
        while (piece := await pieces.get()) is not None:
            yield _event(head | {"choices": [_choice(0, piece, None)]})
        try:
            [[text]] = task.result()
        except Exception as error:
            yield _event({"error": {"message": str(error) or type(error).__name__, "type": "server_error"}})
            return
        yield _event(head | {"choices": [_choice(0, "", text.finish_reason)]})
        yield "data: [DONE]\n\n"
    finally:  # the client is gone, or all is sent
        stream.is_cancelled = True
        task.cancel()


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"
