"""Word vectors in the formats of word2vec, GloVe, gensim and sentence-transformers, and as our own checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.word_vectors import plain_words
from ..models.blocks_subwords import SubwordEmbedding

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_LONGEST_WORD = 2**16  # bytes; a file of another kind has no space for longer than that


@dataclass(frozen=True)
class WordVectors:
    """Words in the order of the file, and their vectors (words, size) as float32."""

    words: list[str]
    vectors: np.ndarray


def vectors_of(model: PreTrainedModel, tokenizer: Any) -> WordVectors:
    """The input embeddings of a model's tokens but the special ones; of two tokens of one text, the first."""
    import torch

    rows: dict[str, int] = {}
    for token_id, word in enumerate(plain_words(tokenizer)):
        if word is not None and word.strip():
            rows.setdefault(word.replace(" ", "_").replace("\n", "\\n"), token_id)
    embeddings = model.get_input_embeddings()
    with torch.no_grad():  # called, not read: a word may have n-grams
        vectors = embeddings(torch.tensor(list(rows.values()), device=embeddings.weight.device))
    return WordVectors(list(rows), vectors.float().cpu().numpy())


def read_vectors(source: str | Path) -> WordVectors:
    """Vectors from a file (word2vec text or binary, GloVe, gensim KeyedVectors), a run, a folder or a Hub id."""
    path = Path(source)
    if not path.is_file():
        from ..checkpoints import load_model

        return vectors_of(*load_model(str(source)))
    with path.open("rb") as file:
        start = file.read(_LONGEST_WORD)
    if start[:1] == b"\x80":  # of a pickle
        return _read_gensim(path)
    first = start.partition(b"\n")[0].split()
    if len(first) != 2 or not all(part.isdigit() for part in first):
        return _read_text(path, has_header=False)
    if _is_text(start):
        return _read_text(path, has_header=True)
    return _read_binary(path)


def _is_text(start: bytes) -> bool:
    """Whether the first words of a file with a header are followed by numbers that can be read."""
    fields = start.partition(b"\n")[2].partition(b"\n")[0].split()
    try:
        return len(fields) > 1 and all(float(each) == float(each) for each in fields[1:])
    except ValueError:
        return False


def _read_text(path: Path, has_header: bool) -> WordVectors:
    words, rows = [], []
    size = 0
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if has_header and number == 1:
                size = int(line.split()[1])
                continue
            fields = line.rstrip(" \r\n").split(" ")
            size = size or len(fields) - 1
            word, values = " ".join(fields[:-size]), fields[-size:]
            try:
                rows.append(np.array(values, np.float32))
            except ValueError:
                values = []
            if len(values) != size or size < 2 or not word:
                raise ValueError(
                    f"{path}, line {number}: a word and {max(size, 2)} numbers are needed, separated by spaces; got "
                    f"{line[:40]!r}"
                )
            words.append(word)
    if not words:
        raise ValueError(f"{path} has no vectors; give a file of word2vec, GloVe or gensim")
    return WordVectors(words, np.stack(rows))


def _read_binary(path: Path) -> WordVectors:
    with path.open("rb") as file:
        count, size = map(int, file.readline().split())
        words: list[str] = []
        vectors: Any = np.empty((count, size), np.float32)
        for row in range(count):
            letters = bytearray()
            while (letter := file.read(1)) not in (b" ", b"") and len(letters) < _LONGEST_WORD:
                letters += letter
            values = file.read(4 * size)
            if len(values) < 4 * size:
                raise ValueError(
                    f"{path} ends after {row} of {count} vectors of size {size}; copy or download it again"
                )
            words.append(letters.lstrip(b"\n").decode("utf-8", errors="replace"))
            vectors[row] = np.frombuffer(values, "<f4")
    return WordVectors(words, vectors)


def _read_gensim(path: Path) -> WordVectors:
    keyed = _gensim().KeyedVectors.load(str(path))
    keyed = getattr(keyed, "wv", keyed)  # a whole model has them inside
    return WordVectors(list(keyed.index_to_key), np.asarray(keyed.vectors, np.float32))


def _gensim() -> Any:
    try:
        from gensim import models
    except ImportError:
        raise ValueError("gensim's files need gensim; pip install gensim, or use word2vec's format") from None
    return models


def _save_text(found: WordVectors, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{len(found.words)} {found.vectors.shape[1]}\n")
        for word, vector in zip(found.words, found.vectors, strict=True):
            file.write(f"{word} {' '.join(map(repr, vector.tolist()))}\n")


def _save_binary(found: WordVectors, path: Path) -> None:
    with path.open("wb") as file:
        file.write(f"{len(found.words)} {found.vectors.shape[1]}\n".encode())
        for word, vector in zip(found.words, found.vectors, strict=True):
            file.write(word.encode() + b" " + vector.astype("<f4").tobytes() + b"\n")


def _save_gensim(found: WordVectors, path: Path) -> None:
    keyed = _gensim().KeyedVectors(found.vectors.shape[1], count=0)
    keyed.add_vectors(found.words, found.vectors)
    keyed.save(str(path))


FORMATS: dict[str, Callable[[WordVectors, Path], None]] = {
    "word2vec": _save_text,
    "word2vec-binary": _save_binary,
    "gensim": _save_gensim,
}


def save_static_embedding(model: PreTrainedModel, tokenizer: Any, folder: Path) -> None:
    """A sentence-transformers model that averages the vectors of a text's tokens; unknown words count as zero."""
    import torch

    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import StaticEmbedding
    except ImportError:
        raise ValueError("sentence-transformers is not installed; pip install sentence-transformers") from None
    embeddings = model.get_input_embeddings()
    with torch.no_grad():
        vectors = embeddings(torch.arange(len(tokenizer), device=embeddings.weight.device)).float().cpu()
    vectors[tokenizer.all_special_ids] = 0
    static = StaticEmbedding(tokenizer.backend_tokenizer, embedding_weights=vectors.numpy())
    SentenceTransformer(modules=[static], device="cpu").save(str(folder))


def model_of(found: WordVectors) -> tuple[PreTrainedModel, Any]:
    """A model of this package with these vectors, and its tokenizer, which knows these words."""
    from ..data.tokenization import tokenizer_of_words
    from ..models.configuration_word_vectors import EduWordVectorsConfig
    from ..models.modeling_word_vectors import EduWordVectorsModel

    tokenizer = tokenizer_of_words(found.words)
    config = EduWordVectorsConfig.for_tokenizer(tokenizer, hidden_size=found.vectors.shape[1])
    model = EduWordVectorsModel(config).eval()
    copy_vectors(model, plain_words(tokenizer), found)
    return model, tokenizer


def copy_vectors(model: PreTrainedModel, words: list[str | None], found: WordVectors) -> int:
    """Copy the vectors of the words that a model's tokens are, as written or lowercased; returns how many were found.

    Args:
        words: of each token, by id; None for special tokens.
    """
    import torch

    embeddings = model.get_input_embeddings()
    size = embeddings.weight.shape[1]
    if found.vectors.shape[1] != size:
        raise ValueError(
            f"the vectors have size {found.vectors.shape[1]}, but those of {type(model).__name__} have {size}; set "
            "its embedding_size or hidden_size, or use other vectors"
        )
    if isinstance(embeddings, SubwordEmbedding):
        raise ValueError("a model with n-grams makes a vector from its parts; set num_buckets to 0 to copy vectors")
    rows = {word: row for row, word in reversed([*enumerate(found.words)])}
    pairs = [(token, rows.get(word, rows.get(word.lower()))) for token, word in enumerate(words) if word is not None]
    known = torch.tensor([(token, row) for token, row in pairs if row is not None], dtype=torch.long).view(-1, 2)
    with torch.no_grad():
        embeddings.weight[known[:, 0]] = torch.from_numpy(found.vectors)[known[:, 1]].to(embeddings.weight)
    return len(known)
