"""Token vectors from characters: convolutions over a token's spelling, and highway layers.

Characters are the bytes of UTF-8, so there are 256 of them for every language, and none is unknown. The model keeps the
spelling of its whole vocabulary, so that token ids are all that it needs; it can spell any other word, too.

Shapes: B batch, T tokens, U words to spell, M characters of a token, E character embedding, D hidden size.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import initialization as init

_PADDING, _START, _END, _SYMBOLS = 0, 257, 258, 259  # byte b is b + 1


class HighwayGate(nn.Linear):
    """W_T, b_T; at first b_T is -2, so that most of x is carried."""


class Highway(nn.Module):
    """Srivastava et al. 2015, arXiv:1505.00387, Eq. (3): y = H(x) * T(x) + x * (1 - T(x))

    H(x) = relu(W_H x + b_H); the transform gate T(x) = sigmoid(W_T x + b_T) lets x through while b_T is negative.
    """

    def __init__(self, size: int):
        super().__init__()
        self.transform = nn.Linear(size, size)  # W_H, b_H
        self.gate = HighwayGate(size, size)  # W_T, b_T

    def forward(self, inputs: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(inputs))  # (U, D)  T(x)
        return torch.relu(self.transform(inputs)) * gate + inputs * (1 - gate)


class CharacterEmbedding(nn.Module):
    """x_k of a token from its characters (Kim et al. 2016, arXiv:1508.06615; Peters et al. 2018, Section 3.4).

    Convolutions of several widths over the characters' embeddings, the largest value of each over all positions,
    highway layers, a projection. `spellings` holds the characters of every token of the vocabulary; before
    `spell_vocabulary` a token is spelled by its id.
    """

    spellings: Tensor

    def __init__(
        self,
        vocab_size: int,
        embedding_dim: int,
        char_embedding_size: int,
        char_filters: Sequence[Sequence[int]],
        num_highway_layers: int,
        max_characters: int,
        implementation: str = "fused",
    ):
        super().__init__()
        self.embedding_dim, self.max_characters = embedding_dim, max_characters
        self.implementation = implementation
        self.embed_characters = nn.Embedding(_SYMBOLS, char_embedding_size)
        self.convolutions = nn.ModuleList(nn.Conv1d(char_embedding_size, count, width) for width, count in char_filters)
        self.widths = [width for width, _ in char_filters]
        size = sum(count for _, count in char_filters)
        self.highways = nn.ModuleList(Highway(size) for _ in range(num_highway_layers))
        self.proj = nn.Linear(size, embedding_dim)
        self.register_buffer("spellings", self.spell(map(str, range(vocab_size))))

    def spell(self, words) -> Tensor:
        """The characters of words (strings or bytes): start, bytes, end, padding; a long word is cut."""
        limit = self.max_characters - 2
        rows = []
        for word in words:
            content = (word.encode() if isinstance(word, str) else word)[:limit]
            rows.append([_START, *(byte + 1 for byte in content), _END, *[_PADDING] * (limit - len(content))])
        return torch.tensor(rows, dtype=torch.int16, device=self.embed_characters.weight.device)

    def spell_vocabulary(self, tokens: Sequence[str | bytes]) -> None:
        """Set the spelling of every token, in the order of the ids; one with a space before it starts a word."""
        if len(tokens) != len(self.spellings):
            raise ValueError(
                f"{len(tokens)} spellings are given, but the vocabulary has {len(self.spellings)} tokens; call "
                "resize_token_embeddings first, or check the tokenizer"
            )
        self.spellings = self.spell(tokens)

    def resize(self, vocab_size: int) -> None:
        """Cut the vocabulary, or add tokens that are spelled by their ids until `spell_vocabulary` is called."""
        new = list(map(str, range(len(self.spellings), vocab_size)))
        self.spellings = (
            torch.cat([self.spellings[:vocab_size], self.spell(new)]) if new else self.spellings[:vocab_size]
        )

    def encode(self, characters: Tensor) -> Tensor:
        """Vectors (..., D) of characters (..., M), such as `spell` gives for words outside of the vocabulary."""
        spelled = characters.reshape(-1, characters.shape[-1]).long()  # (U, M)
        is_real = (spelled != _PADDING)[:, None]
        embedded = self.embed_characters(spelled).transpose(1, 2) * is_real  # (U, E, M)
        pooled = []
        for convolution, width in zip(self.convolutions, self.widths, strict=True):
            # Each character starts a window; behind the end of the token there are zeros.
            windows = convolution(F.pad(embedded, (0, width - 1)))
            windows = windows.masked_fill(~is_real, torch.finfo(windows.dtype).min)
            pooled.append(torch.relu(windows.amax(dim=-1)))
        vectors = torch.cat(pooled, dim=-1)  # (U, D)
        for highway in self.highways:
            vectors = highway(vectors)
        return self.proj(vectors).unflatten(0, characters.shape[:-1])

    def forward(self, input_ids: Tensor) -> Tensor:
        """Vectors (B, T, D) of token ids; `fused` spells each distinct token once."""
        if self.implementation == "eager" or torch.compiler.is_compiling():
            return self.encode(self.spellings[input_ids])
        distinct, places = input_ids.unique(return_inverse=True)
        spelled = self.spellings[distinct]
        longest = int((spelled != _PADDING).sum(dim=1).max())
        return self.encode(spelled[:, :longest])[places]


def init_characters(module: nn.Module, bound: float) -> None:
    """Weights uniform in plus and minus `bound`, biases zero but those of the highway gates; ids as spellings."""
    if isinstance(module, CharacterEmbedding):
        init.copy_(module.spellings, module.spell(map(str, range(len(module.spellings)))))
    elif isinstance(module, nn.Conv1d | HighwayGate):
        init.uniform_(module.weight, -bound, bound)
        init.constant_(module.bias, -2.0 if isinstance(module, HighwayGate) else 0.0)
