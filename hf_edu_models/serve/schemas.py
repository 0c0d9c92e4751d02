"""What clients send. Unknown fields are rejected: an option that is ignored would be a wrong answer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Texts = str | Annotated[list[str], Field(min_length=1)]
TokenIds = Annotated[list[int], Field(min_length=1)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")
    model: str | None = Field(None, description="Name of a served model; may be left out where only one is served.")


class EmbeddingsRequest(_Request):
    """OpenAI's fields, and how tokens become vectors."""

    input: Texts | TokenIds | Annotated[list[TokenIds], Field(min_length=1)]
    encoding_format: Literal["float", "base64"] = "float"
    pooling: str | list[str] = Field("mean", description="mean, max, first or last; a list returns a vector for each.")
    layer: int | list[int] = Field(-1, description="0 the embeddings, -1 the last layer; or a list.")
    normalize: bool = Field(False, description="Scale each vector to length one.")
    tokens: bool = Field(False, description="Return the tokens of each text with their vectors, too.")
    truncate: bool = Field(False, description="Cut texts that are too long instead of raising an error.")
    user: str | None = Field(None, description="Accepted for OpenAI's clients; nothing is logged by it.")


class CompletionsRequest(_Request):
    """OpenAI's fields for continuing a text."""

    prompt: Texts | TokenIds | Annotated[list[TokenIds], Field(min_length=1)]
    max_tokens: int = Field(16, ge=1)
    temperature: float = Field(1.0, ge=0, le=2, description="0 decodes greedily.")
    top_p: float = Field(1.0, gt=0, le=1)
    n: int = Field(1, ge=1, le=16)
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    echo: bool = Field(False, description="Return the prompt before its continuation.")
    stream: bool = False
    seed: int | None = None
    user: str | None = Field(None, description="Accepted for OpenAI's clients; nothing is logged by it.")


class TranslateRequest(_Request):
    text: Texts
    num_beams: int = Field(1, ge=1, le=32)
    max_new_tokens: int | None = Field(None, ge=1)


class FillMaskRequest(_Request):
    text: Texts
    top_k: int = Field(5, ge=1, le=100)


class ClassifyRequest(_Request):
    text: Texts | None = None
    text_pair: str | None = None
    sentences: list[str] | None = Field(None, description="A document that is cut into sentences already.")


class TagsRequest(_Request):
    text: Texts | None = None
    tokens: list[str] | None = Field(None, description="A text that is cut into words already.")


class AnswerRequest(_Request):
    question: str
    context: str


class AttentionRequest(_Request):
    text: str
    text_pair: str | None = None
    target: str | None = Field(None, description="The decoder's output; default the generated one.")
