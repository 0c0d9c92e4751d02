"""Tokens by words: whatever the tokenizer, words are separated by spaces."""

import numpy as np
import pytest

from hf_edu_models.data import KINDS, train_tokenizer
from hf_edu_models.explain.word_tokens import encode_words

TEXT = "Le  chat's noir, été 😀  dort !"


@pytest.fixture(scope="module")
def by_kind(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    texts = [TEXT, "le chien dort , le chat aussi", "un été noir"] * 3
    return {kind: train_tokenizer(texts, kind=kind, vocab_size=400, task="seq2seq", cache_dir=folder) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_those_between_spaces_and_tokens_spell_them(by_kind, kind):
    tokenizer = by_kind[kind]
    encoded = encode_words(tokenizer, TEXT)
    assert encoded.words == TEXT.split()
    assert encoded.input_ids == tokenizer(TEXT)["input_ids"]
    shares = encoded.membership.sum(axis=1)
    assert set(shares.tolist()) <= {0.0, 1.0}
    offsets = tokenizer(TEXT, return_offsets_mapping=True)["offset_mapping"]
    for (start, end), share, row in zip(offsets, shares, encoded.membership, strict=True):
        subword = TEXT[start:end].strip()
        assert bool(subword) == bool(share)
        if subword:
            assert subword in encoded.words[row.argmax()]
    assert (encoded.membership.sum(axis=0) > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_of_words_is_encoded_as_the_text(by_kind, kind):
    text = "le chat dort !"
    as_text, as_list = encode_words(by_kind[kind], text), encode_words(by_kind[kind], text.split())
    assert as_list.input_ids == as_text.input_ids
    np.testing.assert_array_equal(as_list.membership, as_text.membership)


def test_a_word_of_a_list_may_have_a_space_inside(by_kind):
    encoded = encode_words(by_kind["word"], ["le", "chat dort", "!"])
    assert encoded.words == ["le", "chat dort", "!"]
    assert encoded.membership.argmax(axis=1)[:4].tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_first_tokens_are_the_first_of_their_words(by_kind, kind):
    encoded = encode_words(by_kind[kind], TEXT)
    for word, first in enumerate(encoded.first_tokens()):
        assert np.flatnonzero(encoded.membership[:, word])[0] == first


def test_a_word_without_a_token_has_no_first_one(by_kind):
    encoded = encode_words(by_kind["wordpiece"], "chat \u0007 dort")  # WordPiece cleans control characters away
    assert encoded.words == ["chat", "\u0007", "dort"]
    assert encoded.first_tokens().tolist() == [0, -1, 1]


class WithoutOffsets:
    """A slow tokenizer: it has no offset mapping."""

    is_fast = False

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, *args, **options):
        assert not options.get("return_offsets_mapping")
        return self.tokenizer(*args, **options)


def test_tokenizers_without_offsets_encode_word_by_word(by_kind):
    tokenizer = by_kind["word"]
    expected, found = encode_words(tokenizer, TEXT := "le chat dort"), encode_words(WithoutOffsets(tokenizer), TEXT)
    assert found.input_ids == expected.input_ids and found.words == expected.words
    np.testing.assert_array_equal(found.membership, expected.membership)


def test_tokenizers_without_offsets_that_split_differently_raise_an_error(by_kind):
    with pytest.raises(ValueError, match="fast tokenizer"):
        encode_words(WithoutOffsets(by_kind["char"]), "le chat")  # the space is a token of the text, not of its words
