"""Streams: the same examples as prepared data, each row once in an epoch, exact positions, disjoint processes."""

import json
from dataclasses import asdict
from itertools import islice

import datasets
import pytest

from hf_edu_models.data import build_nsp_pairs, contiguous_streams, encode_corpus, group_into_blocks, train_tokenizer
from hf_edu_models.data.split_sizes import cut_missing
from hf_edu_models.data.streaming import Position, StreamedExamples

DOCUMENTS, SENTENCES = 9, 5
TEXTS = [f"story {document} says {sentence} ." for document in range(DOCUMENTS) for sentence in range(SENTENCES)]
ROWS = datasets.Dataset.from_dict({"text": TEXTS, "document": [number // SENTENCES for number in range(len(TEXTS))]})
PAIRS = datasets.Dataset.from_dict({"source": TEXTS, "target": TEXTS[::-1]})


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return train_tokenizer(ROWS, "word", 60, rung="bert", cache_dir=tmp_path_factory.mktemp("cache"))


ENCODERS = {
    "blocks": (ROWS, lambda rows, tokenizer, **options: group_into_blocks(rows, tokenizer, 7, **options)),
    "streams": (ROWS, lambda rows, tokenizer, **options: contiguous_streams(rows, tokenizer, 2, 3, **options)),
    "sentence pairs": (
        ROWS,
        lambda rows, tokenizer, **options: build_nsp_pairs(rows, tokenizer, max_length=16, **options),
    ),
    "translation": (PAIRS, lambda rows, tokenizer, **options: encode_corpus(rows, tokenizer, **options)),
}


def streamed(name, tokenizer) -> StreamedExamples:
    rows, encode = ENCODERS[name]
    return encode(rows.to_iterable_dataset(num_shards=1), tokenizer)


def examples_of(stream: StreamedExamples, buffer_size: int, **options):
    """Example by example, with the position after each."""
    return ((example, position) for (example,), position in stream.read(1, buffer_size, **options))


def as_text(examples) -> list[str]:
    return [json.dumps({key: list(value) if hasattr(value, "__len__") else value for key, value in sorted(row.items())})
            for row in examples]  # fmt: skip


@pytest.mark.parametrize("name", ENCODERS)
def test_one_chunk_has_the_examples_of_prepared_data(name, tokenizer, tmp_path):
    rows, encode = ENCODERS[name]
    prepared = as_text(encode(rows, tokenizer, cache_dir=tmp_path))
    stream = streamed(name, tokenizer)
    first = as_text(example for example, _ in islice(examples_of(stream, len(rows)), len(prepared)))
    assert sorted(first) == sorted(prepared)
    assert (first == prepared) == (not stream.is_shuffled)
    assert as_text(stream) == prepared


def texts(num_shards: int = 1) -> StreamedExamples:
    return StreamedExamples(ROWS.to_iterable_dataset(num_shards), lambda chunk, seed: chunk[:])


def test_an_epoch_reads_every_row_once_and_the_next_in_another_order():
    rows = [example["text"] for example, _ in islice(examples_of(texts(), 20), 2 * len(TEXTS))]
    first, second = rows[: len(TEXTS)], rows[len(TEXTS) :]
    assert sorted(first) == sorted(second) == sorted(TEXTS)
    assert first != TEXTS and first != second
    assert sorted(first[:20]) == sorted(TEXTS[:20])  # shuffled within a buffer
    other = [example["text"] for example, _ in islice(examples_of(texts(), 20, seed=1), len(TEXTS))]
    assert other != first


@pytest.mark.parametrize("name", ENCODERS)
def test_a_saved_position_continues_exactly(name, tokenizer):
    """Through JSON, inside of chunks and at the borders of chunks and epochs."""
    stream, count = streamed(name, tokenizer), 90
    examples = list(islice(examples_of(stream, 20), count))
    expected = as_text(example for example, _ in examples)
    assert examples[-1][1].epoch > 0
    borders = [n for n, (_, position) in enumerate(examples, start=1) if position.taken == 1]
    for taken in {1, 2, 30, *borders, *(n - 1 for n in borders[1:])}:
        position = examples[taken - 1][1]
        start = Position(**json.loads(json.dumps(asdict(position))))
        rest = as_text(example for example, _ in islice(examples_of(streamed(name, tokenizer), 20, start=start), 8))
        assert rest[: count - taken] == expected[taken : taken + 8]


@pytest.mark.parametrize("num_shards", [1, 2, 4])
def test_processes_divide_the_chunks(num_shards):
    """By files where two processes can divide them, else every second chunk; neighbouring rows stay together."""
    both = []
    for rank in range(2):
        reader = examples_of(texts(num_shards), 5, rank=rank, world_size=2)
        epoch = [(example["text"], position) for example, position in islice(reader, len(TEXTS))]
        own = [text for text, position in epoch if position.epoch == 0]
        both.append(own)
        chunks = [sorted(TEXTS.index(text) for text in own[start : start + 5]) for start in range(0, len(own) - 4, 5)]
        assert any(chunk == list(range(chunk[0], chunk[0] + 5)) for chunk in chunks)
    assert sorted(both[0] + both[1]) == sorted(TEXTS)


def test_a_process_without_rows_raises():
    with pytest.raises(ValueError, match=r"finds no chunk of the stream.*--buffer_size"):
        next(examples_of(texts(), 100, rank=1, world_size=2))


def test_a_chunk_that_is_too_small_is_left_out(tokenizer, capsys, monkeypatch):
    """45 rows in chunks of 40: the last 5 are one document, which has no other to take random segments from."""
    monkeypatch.setattr("hf_edu_models.data.notes._printed", set())
    stream = streamed("sentence pairs", tokenizer)
    epochs = [position.epoch for _, position in islice(examples_of(stream, 40), 60)]
    assert max(epochs) > 0 and "a chunk of 5 rows is left out" in capsys.readouterr().err
    with pytest.raises(ValueError, match="that can be encoded"):
        next(examples_of(stream, 5))


def test_sentence_pairs_are_other_ones_in_every_epoch(tokenizer):
    """A text of the same rows, but another border or partner."""
    stream = streamed("sentence pairs", tokenizer)
    epochs: dict[int, list] = {0: [], 1: []}
    for example, position in islice(examples_of(stream, len(ROWS)), 100):
        epochs.setdefault(position.epoch, []).append(example)
    assert sorted(as_text(epochs[0])) != sorted(as_text(epochs[1]))
    labels = [example["next_sentence_label"] for example in epochs[0]]
    assert 0 < sum(labels) < len(labels)


def test_no_split_is_cut_from_files_that_processes_divide(monkeypatch):
    stream = ROWS.to_iterable_dataset(num_shards=2)
    assert len(list(cut_missing({"train": stream}, {"validation": 4}, seed=0, streaming=True)["validation"])) == 4
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"stream of 2 files.*validation\.txt"):
        cut_missing({"train": stream}, {"validation": 4}, seed=0, streaming=True)


def test_batches_continue_over_borders():
    batches = [batch for batch, _ in islice(texts().read(7, 20), 13)]
    assert {len(batch) for batch in batches} == {7}
    rows = [example["text"] for batch in batches for example in batch]
    assert rows == [example["text"] for example, _ in islice(examples_of(texts(), 20), 91)]
