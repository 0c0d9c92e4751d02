"""Blocks contain the whole text, and contiguous streams continue from batch to batch."""

import datasets
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from transformers import default_data_collator
from transformers.loss.loss_utils import ForCausalLMLoss

from hf_edu_models import EduFeedForwardConfig, EduFeedForwardForCausalLM
from hf_edu_models.data import collator_for, contiguous_streams, encode_corpus, group_into_blocks, token_stream
from hf_edu_models.data import train_tokenizer as train

LINES = ["To be, or not to be:", "that is the question.", "", "Whether 'tis nobler", "in the mind to suffer"] * 7


@pytest.fixture(scope="module")
def text():
    return datasets.Dataset.from_dict({"text": LINES})


@pytest.fixture(scope="module", params=["char", "bpe", "word", "unigram"])
def tokenizer(request):
    return train(["\n".join(LINES)], request.param, 600)


def test_the_stream_is_the_text(text, tokenizer):
    tokens = token_stream(text, tokenizer)
    assert tokens[0] == tokenizer.bos_token_id and tokens[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(tokens, skip_special_tokens=True).removeprefix(" ") == "\n".join(LINES)


def test_documents_are_between_start_and_end_tokens(tokenizer):
    rows = datasets.Dataset.from_dict({"document": ["a", "a", "b"], "text": ["To be", "or", "not"]})
    tokens = token_stream(rows, tokenizer, join=" ").tolist()
    start, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    assert tokens.count(start) == tokens.count(end) == 2
    middle = tokens.index(end)
    assert tokens[middle + 1] == start
    assert tokenizer.decode(tokens[: middle + 1], skip_special_tokens=True).removeprefix(" ") == "To be or"


@pytest.mark.parametrize("size", [2, 7, 64])
def test_blocks_contain_every_token_once(text, tokenizer, size, tmp_path):
    blocks = group_into_blocks(text, tokenizer, size, cache_dir=tmp_path)["input_ids"][:]
    tokens = token_stream(text, tokenizer)
    flat = np.concatenate(blocks)
    assert len(tokens) - len(flat) <= 1 and (flat == tokens[: len(flat)]).all()
    assert all(len(block) == size for block in blocks[:-1]) and 2 <= len(blocks[-1]) <= size
    full = group_into_blocks(text, tokenizer, size, drop_last=True, cache_dir=tmp_path)["input_ids"]
    assert {len(block) for block in full} == {size}


@pytest.mark.parametrize(("size", "overlap"), [(2, 1), (9, 1), (9, 4), (9, 8), (64, 32)])
def test_with_an_overlap_every_token_is_scored_once_with_enough_context(text, tokenizer, size, overlap, tmp_path):
    rows = group_into_blocks(text, tokenizer, size, overlap=overlap, cache_dir=tmp_path)
    tokens, start, scored = token_stream(text, tokenizer), 0, []
    for number, row in enumerate(rows):
        ids, labels = np.asarray(row["input_ids"]), np.asarray(row["labels"])
        assert (ids == tokens[start : start + len(ids)]).all() and len(ids) <= size
        counted = np.flatnonzero(labels[1:] != -100) + 1
        assert (labels[counted] == ids[counted]).all() and counted[0] == (overlap if number else 1)
        scored += list(start + counted)
        start += size - overlap
    assert scored == list(range(1, len(tokens)))


def test_with_an_overlap_a_fixed_window_model_has_the_loss_of_the_whole_text(text, tokenizer, tmp_path):
    torch.manual_seed(0)
    config = EduFeedForwardConfig(vocab_size=len(tokenizer), window_size=4, embedding_size=8, hidden_size=8)
    model, collator = EduFeedForwardForCausalLM(config).eval(), collator_for("language_modeling", tokenizer)
    rows = group_into_blocks(text, tokenizer, 10, overlap=4, cache_dir=tmp_path)
    batch = collator([rows[number] for number in range(len(rows))])  # the last one is shorter
    whole = torch.as_tensor(token_stream(text, tokenizer))[None].long()
    torch.testing.assert_close(model(**batch).loss, model(whole, labels=whole).loss)
    plain = collator([dict(row) for row in group_into_blocks(text, tokenizer, 10, cache_dir=tmp_path)])
    assert not torch.isclose(model(**plain).loss, model(whole, labels=whole).loss), (
        "without an overlap the losses must differ, or this test shows nothing"
    )


def test_the_train_split_has_no_overlap(text, tokenizer, tmp_path):
    corpus = datasets.DatasetDict({"train": text, "test": text})
    blocks = group_into_blocks(corpus, tokenizer, 8, overlap=4, cache_dir=tmp_path)
    assert blocks["train"].column_names == ["input_ids"]
    assert blocks["test"].column_names == ["input_ids", "labels"]


def test_streams_continue(text, tokenizer, tmp_path):
    batch_size, block_size = 3, 5
    rows = contiguous_streams(text, tokenizer, batch_size, block_size, cache_dir=tmp_path)
    batches = list(DataLoader(rows, batch_size=batch_size, collate_fn=default_data_collator))
    assert all(batch["input_ids"].shape == (batch_size, block_size) for batch in batches)
    tokens = torch.as_tensor(token_stream(text, tokenizer))
    for row in range(batch_size):
        stream = torch.cat([batch["input_ids"][row] for batch in batches])
        following = torch.cat([batch["shift_labels"][row] for batch in batches])
        start = row * len(stream)
        assert torch.equal(stream, tokens[start : start + len(stream)])
        assert torch.equal(following, tokens[start + 1 : start + 1 + len(stream)])
    assert len(tokens) - batch_size * len(stream) <= batch_size * block_size


def test_the_causal_loss_uses_shift_labels(text, tokenizer, tmp_path):
    """The mean loss over the blocks of a stream is the loss of the whole stream."""
    rows = contiguous_streams(text, tokenizer, 1, 4, cache_dir=tmp_path).with_format("torch")
    size = len(tokenizer)
    torch.manual_seed(0)
    table = torch.randn(size, size)
    losses = [
        ForCausalLMLoss(
            table[row["input_ids"]][None], row["labels"][None], size, shift_labels=row["shift_labels"][None]
        )
        for row in rows
    ]
    tokens = torch.as_tensor(token_stream(text, tokenizer)).long()[: 4 * len(rows) + 1]
    whole = torch.nn.functional.cross_entropy(table[tokens[:-1]], tokens[1:])
    torch.testing.assert_close(torch.stack(losses).mean(), whole)


def test_the_collator_pads_the_last_block_with_ignored_labels(text, tokenizer, tmp_path):
    blocks = encode_corpus(text, tokenizer, max_length=9, cache_dir=tmp_path)
    last = [blocks[0], blocks[len(blocks) - 1]]
    batch = collator_for("language_modeling", tokenizer)(last)
    short = len(blocks[len(blocks) - 1]["input_ids"])
    assert batch["labels"].shape == (2, 9)
    assert (batch["labels"][1, short:] == -100).all() and (batch["attention_mask"][1, short:] == 0).all()


def test_blocks_are_cached_by_content(text, tokenizer, tmp_path, monkeypatch):
    made = group_into_blocks(text, tokenizer, 8, cache_dir=tmp_path).to_dict()
    monkeypatch.setattr("hf_edu_models.data.language_modeling.token_stream", lambda *args: pytest.fail("made again"))
    same = datasets.Dataset.from_dict(text.to_dict())
    assert group_into_blocks(same, tokenizer, 8, cache_dir=tmp_path).to_dict() == made
    with pytest.raises(pytest.fail.Exception):
        group_into_blocks(same, tokenizer, 8, join=" ", cache_dir=tmp_path)


def test_invalid_arguments_raise(text, tokenizer, tmp_path):
    with pytest.raises(ValueError, match=r"block_size must be a whole number of 2 or more, got 1"):
        group_into_blocks(text, tokenizer, 1, cache_dir=tmp_path)
    with pytest.raises(ValueError, match=r"overlap of 8 leaves no new token in a block of 8"):
        group_into_blocks(text, tokenizer, 8, overlap=8, cache_dir=tmp_path)
    with pytest.raises(ValueError, match=r"do not fill one block of 100000"):
        group_into_blocks(text, tokenizer, 100_000, drop_last=True, cache_dir=tmp_path)
    with pytest.raises(ValueError, match=r"do not fill 1000 streams of 50"):
        contiguous_streams(text, tokenizer, 1000, 50, cache_dir=tmp_path)
    with pytest.raises(ValueError, match=r"reads the column 'text'; the corpus has words"):
        group_into_blocks(datasets.Dataset.from_dict({"words": ["a"]}), tokenizer, 5, cache_dir=tmp_path)
    with pytest.raises(ValueError, match=r"has no text"):
        group_into_blocks(
            datasets.Dataset.from_dict({"text": ["", ""]}), train(["a"], "char", 20), 5, join="", cache_dir=tmp_path
        )


@pytest.mark.parametrize("kind", ["word", "char", "wordpiece", "bpe", "unigram"])
def test_the_separator_of_rows_is_never_an_unknown_token(kind):
    rows = ["the cat sat", "a dog ran", "the dog sat"]
    corpus = datasets.Dataset.from_dict({"text": rows, "document": [0, 0, 1]})
    tokenizer = train({"train": corpus}, kind, 400, rung="gpt")
    tokens = token_stream(corpus, tokenizer)
    assert tokenizer.unk_token_id not in tokens.tolist()
    join = "\n" if kind in ("char", "bpe", "unigram") else " "
    text = tokenizer.decode(tokens.tolist(), skip_special_tokens=True)
    assert f"the cat sat{join}a dog ran" in text
