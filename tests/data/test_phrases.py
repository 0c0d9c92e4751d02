"""Masking of whole phrases: which words are phrases, and that they are masked together."""

import random

import pytest
import torch

from hf_edu_models.data import DataCollatorForPreTraining, train_tokenizer
from hf_edu_models.data.normalization import continuation_table
from hf_edu_models.data.phrases import PhraseTable, find_phrases, words_of

NOUNS = ["king", "river", "house", "dog", "garden", "bridge", "window", "letter"]


def sentences(count=600, seed=0):
    """Nouns in any order, and among them New York City, which always stays together."""
    draw = random.Random(seed)
    rows = [draw.choices(NOUNS, k=9) for _ in range(count)]
    return [" ".join([*row[:4], "New York City", *row[4:], ". New paper"]) for row in rows]


def test_neighbours_by_chance_are_no_phrase_and_a_name_of_three_words_is_one():
    names = {"New York", "York City", "New York City", "New paper"}
    assert set(find_phrases(sentences(), threshold=3)) == names


def test_a_rare_pair_is_no_phrase():
    texts = [*sentences(), *["Ada Lovelace"] * 5]
    assert "Ada Lovelace" not in find_phrases(texts, threshold=3)
    assert "Ada Lovelace" in find_phrases(texts, threshold=3, min_count=2)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "word"])
def test_the_table_finds_the_phrase_in_a_tokenised_sentence(kind):
    tokenizer = train_tokenizer(sentences(), kind, 60 if kind in ("wordpiece", "word") else 320, rung="bert")
    continues = continuation_table(tokenizer)
    table = PhraseTable(["New York", "New York City", "king"], tokenizer, continues)
    ids = tokenizer("the king saw New York City and New York", add_special_tokens=False)["input_ids"]
    words = words_of(ids, continues)
    sizes = table.group(words)
    assert sum(sizes) == len(words) and sorted(sizes)[-2:] == [2, 3]
    start = sum(sizes[: sizes.index(3)])
    assert tokenizer.decode([t for word in words[start : start + 3] for t in word]).strip() == "New York City"


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(sentences(), "wordpiece", 60, rung="bert")


def masked(tokenizer, phrases, probability=0.15, masking="phrases"):
    collate = DataCollatorForPreTraining(
        tokenizer, masking=masking, phrases=phrases, mlm_probability=probability, seed=0
    )
    rows = [{"input_ids": ids} for ids in tokenizer(sentences())["input_ids"]]
    return collate(rows), torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row["input_ids"]) for row in rows], True, tokenizer.pad_token_id
    )


@pytest.mark.parametrize("probability", [0.15, 0.3])
def test_a_phrase_is_masked_whole_or_not_at_all_and_the_rate_is_kept(probability, tokenizer):
    batch, ids = masked(tokenizer, ["New York City"], probability)
    phrase = tokenizer(" New York City", add_special_tokens=False)["input_ids"]
    size, together, found = len(phrase), set(), 0
    for row, labels in zip(ids.tolist(), batch["labels"].tolist(), strict=True):
        for start in range(len(row)):
            if row[start : start + size] == phrase:
                flags = {label != -100 for label in labels[start : start + size]}
                assert len(flags) == 1
                together |= flags
                found += flags == {True}
    assert together == {True, False}
    assert found / len(ids) == pytest.approx(probability, abs=0.05)
    ordinary = ~torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
    assert float((batch["labels"] != -100).sum() / ordinary.sum()) == pytest.approx(probability, abs=0.02)
    assert bool((batch["labels"][~ordinary] == -100).all())


def test_words_alone_do_not_keep_the_phrase_together(tokenizer):
    """The law above fails for them, so it can fail."""
    batch, ids = masked(tokenizer, (), masking="words")
    phrase = tokenizer(" New York City", add_special_tokens=False)["input_ids"]
    flags = [
        {label != -100 for label in labels[start : start + len(phrase)]}
        for row, labels in zip(ids.tolist(), batch["labels"].tolist(), strict=True)
        for start in range(len(row))
        if row[start : start + len(phrase)] == phrase
    ]
    assert any(len(each) == 2 for each in flags)


def test_without_phrases_it_is_whole_word_masking(tokenizer):
    with pytest.raises(ValueError, match="needs phrases="):
        DataCollatorForPreTraining(tokenizer, masking="phrases")
    with pytest.raises(ValueError, match="other maskings take none"):
        DataCollatorForPreTraining(tokenizer, masking="words", phrases=["New York"])
    words, _ = masked(tokenizer, (), masking="words")
    unknown, _ = masked(tokenizer, ["not there"])
    assert all(torch.equal(words[name], unknown[name]) for name in words)
