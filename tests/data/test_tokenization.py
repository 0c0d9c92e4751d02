"""Round trip, special tokens, and loading with nothing but transformers."""

# ruff: noqa: RUF001 (other scripts)
import subprocess
import sys
import unicodedata

import pytest
from transformers import AutoTokenizer

from hf_edu_models.data import KINDS, kind_of, load_corpus, normalise, train_tokenizer

LANGUAGES = [
    "Hello, world! Don't stop-believing (now).",
    "Der Hund läuft über die Straße; «schön», nicht?",
    "L'été, ça va très bien – n'est-ce pas ?",
    "¿Dónde está la niña? ¡Aquí!",
    "Привет, мир! Ещё один день.",
    "Καλημέρα, κόσμε· τι κάνεις;",
    "今日は良い天気です。明日も？",
    "我爱北京天安门，你呢？",
    "오늘은 날씨가 좋습니다.",
    "مرحبا بالعالم، كيف حالك؟",
    "שלום עולם, מה שלומך?",
    "नमस्ते दुनिया, कैसे हो?",
    "สวัสดีชาวโลก",
    "İstanbul'da ışık vardı",
    "Xin chào thế giới, đường phố",
    "გამარჯობა მსოფლიო",
]
UGLY = [
    "",
    " ",
    "   ",
    "\n",
    " leading",
    "trailing ",
    "two  spaces   three",
    "tab\there",
    "line\nbreak\r\n",
    "cafe\u0301 e\u0301 decomposed",
    "👩‍👩‍👧‍👦 👍🏽 family",
    "\u200bzero\u200dwidth\ufeff",
    "▁mark ▁▁ of▁space",
    "##pieces # # ##",
    "Ġ Ċ byte marks",
    "<0x41> <0xE2> bytes written out",
    "x</s>y <s> z <pad>",
    "[SEP] a [CLS] [MASK]b",
    "A" * 300,
    "\x00\x01 control \x7f",
    "a\u00a0b\u3000c\u202fd",
    "…—–“”„‘’",
    "1,234.56 € ½ ① ﬁne",
    "http://x.y/z?q=1&b=2#frag",
    "ß ẞ ǆ ŉ K",
]
UNSEEN = ["ⵣⴰⵡⴰⵍ ᚠᚢᚦ 𐍈", "qwxz jjkk 龘", "unseen ☃ snow"]


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module", params=["seq2seq", "bert", "gpt"])
def rung(request):
    return request.param


@pytest.fixture(scope="module", params=[False, True], ids=["cased", "lower"])
def trained(kind, rung, request):
    return train_tokenizer(LANGUAGES * 2 + UGLY, kind, 1_500, rung=rung, lowercase=request.param), request.param


def test_round_trip(trained, tmp_path):
    tokenizer, _ = trained
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for text in LANGUAGES + UGLY + UNSEEN:
        ids = tokenizer(text)["input_ids"]
        assert ids == loaded(text)["input_ids"]
        assert loaded.decode(ids, skip_special_tokens=True) == normalise(text, loaded), repr(text)


def test_lossless_kinds_lose_nothing(trained):
    """Compared with plain Python, independent of `normalise`."""
    tokenizer, lowercase = trained
    lost = {"bpe": lambda text: text, "unigram": lambda text: text.replace("▁", " ").removeprefix(" ")}
    kind = kind_of(tokenizer)
    continues = tokenizer.sep_token == "<sep>" and kind in ("unigram", "word")  # one of a language model
    texts = LANGUAGES + UNSEEN + UGLY if kind in lost else LANGUAGES
    for text in texts:
        if any(token in text for token in tokenizer.all_special_tokens):
            continue
        expected = unicodedata.normalize("NFC", text)
        expected = unicodedata.normalize("NFC", expected.lower()) if lowercase else expected
        if "Σ" in expected or "Σ" in text:
            continue  # Python lowers a final sigma by context
        got = tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True)
        if continues and expected:
            assert got.startswith(" ")
            got = got[1:]
        if kind == "whitespace":
            assert got.split() == expected.split()
        elif kind == "wordpiece":
            assert "".join(got.split()).casefold()[:3] == "".join(bare(expected, lowercase).split()).casefold()[:3]
        else:
            assert got == lost.get(kind, lambda text: text)(expected), repr(text)


def test_a_continuation_keeps_its_first_space(kind):
    """A program that decodes only the new tokens, as transformers' pipeline does, must not glue them to the prompt."""
    tokenizer = train_tokenizer(LANGUAGES, kind, 1_500, rung="gpt")
    ids = tokenizer(LANGUAGES[0], add_special_tokens=False)["input_ids"]
    glued = tokenizer.decode(ids[:3]) + tokenizer.decode(ids[3:])
    assert (glued == tokenizer.decode(ids)) == (kind not in ("wordpiece", "whitespace"))  # their spaces are not tokens


def bare(text, lowercase):
    """BERT strips accents together with case."""
    if not lowercase:
        return text
    return "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")


def test_unknown_words_are_left_out():
    word = train_tokenizer(["the cat sat"], "word", 50)
    assert normalise("the dog sat", word) == word.decode(word("the dog sat")["input_ids"], skip_special_tokens=True)
    assert word.convert_ids_to_tokens(word("the dog sat")["input_ids"]) == ["<s>", "▁the", "<unk>", "▁sat"]
    char = train_tokenizer(["abc"], "char", 50)
    assert char.decode(char("axbyc")["input_ids"], skip_special_tokens=True) == "abc" == normalise("axbyc", char)


def test_whitespace_keeps_the_tokens_of_a_tokenized_text():
    """And the newline between two rows, which a language model reads as the end of a line."""
    texts = ["mr. <unk> 's n.v. N", "", "= Title @-@ ="]
    tokenizer = train_tokenizer(texts, "whitespace", 50, rung="recurrent")
    ids = tokenizer("\n".join(texts), add_special_tokens=False)["input_ids"]
    lines = ["mr.", "<unk>", "'s", "n.v.", "N", "\n", "\n", "=", "Title", "@-@", "="]
    assert tokenizer.convert_ids_to_tokens(ids) == lines
    assert kind_of(tokenizer) == "whitespace"
    assert tokenizer.convert_tokens_to_ids("<unk>") == tokenizer.unk_token_id  # spelled out, and no second one
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))


def test_special_tokens_of_each_rung():
    texts = ["a b c d e"] * 3
    bert = train_tokenizer(texts, "wordpiece", 40, rung="bert")
    assert [bert.pad_token, bert.unk_token, bert.cls_token, bert.sep_token, bert.mask_token] == [
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
    ]  # fmt: skip
    pair = bert("a b", "c")
    assert bert.convert_ids_to_tokens(pair["input_ids"]) == ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"]
    assert pair["token_type_ids"] == [0, 0, 0, 0, 1, 1]
    seq2seq = train_tokenizer(texts, "word", 40, rung="bahdanau")
    assert seq2seq.convert_ids_to_tokens(seq2seq("a b")["input_ids"]) == ["▁a", "▁b", "</s>"]
    both = seq2seq("a", text_target="b c")
    assert seq2seq.convert_ids_to_tokens(both["labels"]) == ["▁b", "▁c", "</s>"]
    assert seq2seq.bos_token == "<s>" and seq2seq.bos_token_id not in both["labels"]
    causal = train_tokenizer(texts, "word", 40, rung="gpt")
    assert causal.convert_ids_to_tokens(causal("a b")["input_ids"]) == ["<s>", "▁a", "▁b"]
    assert causal.eos_token == "</s>"
    for tokenizer in (bert, seq2seq, causal):
        assert tokenizer.pad_token_id == 0 and tokenizer.unk_token_id == 1
        assert len(set(tokenizer.all_special_ids)) == len(tokenizer.all_special_tokens)


def test_the_default_template_depends_on_the_columns(tmp_path):
    corpus = load_corpus("copy", train_size=50, validation_size=5, test_size=5, cache_dir=tmp_path)
    assert (
        train_tokenizer(corpus, "char", 60)("a b")["input_ids"][-1] == train_tokenizer(corpus, "char", 60).eos_token_id
    )
    stories = load_corpus("stories", train_size=5, validation_size=2, test_size=2, cache_dir=tmp_path)
    tokenizer = train_tokenizer(stories, "word", 200)
    assert tokenizer("Once")["input_ids"][0] == tokenizer.bos_token_id


def test_only_the_train_split_is_seen():
    import datasets

    splits = {"train": ["seen"], "test": ["hidden"]}
    corpus = datasets.DatasetDict({name: datasets.Dataset.from_dict({"text": each}) for name, each in splits.items()})
    vocabulary = train_tokenizer(corpus, "word", 100).get_vocab()
    assert "▁seen" in vocabulary and "▁hidden" not in vocabulary


def test_separate_vocabularies():
    import datasets

    corpus = datasets.Dataset.from_dict({"source": ["hund katze"], "target": ["dog cat"]})
    source, target = train_tokenizer(corpus, "word", 50, joint=False)
    assert "▁hund" in source.get_vocab() and "▁hund" not in target.get_vocab() and "▁dog" in target.get_vocab()
    assert len(train_tokenizer(corpus, "word", 50)) == len(set(source.get_vocab()) | set(target.get_vocab()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_vocabulary_is_at_most_vocab_size(kind):
    tokenizer = train_tokenizer(LANGUAGES, kind, 700)
    assert len(tokenizer) <= 700
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))


@pytest.mark.parametrize("rung", ["gpt", "bert"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_texts_give_the_same_tokenizer(kind, rung, tmp_path):
    """Trained again each time, not loaded from the cache."""
    texts = LANGUAGES * 2 + UGLY
    options = {"kind": kind, "vocab_size": 1_000, "rung": rung}
    made = [train_tokenizer(texts, **options, cache_dir=tmp_path / name) for name in ("a", "b", "c")]
    assert made[0].get_vocab() == made[1].get_vocab() == made[2].get_vocab()
    assert len({tokenizer.backend_tokenizer.to_str() for tokenizer in made}) == 1


def test_a_tokenizer_is_trained_once(tmp_path, monkeypatch):
    made = train_tokenizer(iter(LANGUAGES), "bpe", 400, cache_dir=tmp_path)
    monkeypatch.setattr("hf_edu_models.data.tokenization._train", lambda *args: pytest.fail("trained again"))
    again = train_tokenizer(list(LANGUAGES), "bpe", 400, cache_dir=tmp_path)
    assert again.backend_tokenizer.to_str() == made.backend_tokenizer.to_str()
    with pytest.raises(pytest.fail.Exception):
        train_tokenizer(LANGUAGES[1:], "bpe", 400, cache_dir=tmp_path)


def test_min_frequency_and_model_max_length():
    tokenizer = train_tokenizer(["a a b"], "word", 50, min_frequency=2, model_max_length=7)
    assert "▁b" not in tokenizer.get_vocab() and tokenizer.model_max_length == 7


def test_loads_without_the_package(tmp_path):
    train_tokenizer(LANGUAGES, "unigram", 800, rung="transformer").save_pretrained(tmp_path)
    code = (
        "import sys; from transformers import AutoTokenizer; "
        f"t = AutoTokenizer.from_pretrained({str(tmp_path)!r}); "
        "assert t.decode(t('Привет, мир!')['input_ids'], skip_special_tokens=True) == 'Привет, мир!'; "
        "assert t.pad_token_id == 0 and t.eos_token == '</s>'; "
        "assert not any(name.startswith('hf_edu_models') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


@pytest.mark.parametrize(
    ("corpus", "options", "message"),
    [
        (["a"], {"kind": "sentencepiece"}, "kind must be one of wordpiece, bpe.*got 'sentencepiece'"),
        (["a"], {"kind": "bpe", "vocab_size": 100}, "vocab_size 100 is too small for bpe"),
        (LANGUAGES, {"kind": "unigram", "vocab_size": 300}, "vocab_size 300 is too small for unigram: 256 bytes"),
        (LANGUAGES, {"kind": "wordpiece", "vocab_size": 50}, "vocab_size 50 is too small for wordpiece: 5 special"),
        (["a"], {"kind": "unigram", "min_frequency": 2}, "has no min_frequency, got 2"),
        (["a"], {"kind": "word", "vocab_size": 0}, "above 0, got 0"),
        (["a"], {"rung": "poetry"}, "rung must be one of feedforward.*got 'poetry'"),
        (["a"], {"task": "poetry"}, "task must be one of .*got 'poetry'"),
        (["a"], {"rung": "bert", "task": "seq2seq"}, "give one of them"),
        (["a"], {"joint": False}, "needs the columns 'source' and 'target'"),
        ([""], {"kind": "word"}, "no text to learn"),
        ({"test": ["a"]}, {}, "split 'train' alone; the corpus has test"),
    ],
)
def test_invalid_arguments_raise(corpus, options, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer(corpus, **options)


def test_a_single_text_raises():
    with pytest.raises(TypeError, match=r"a list of texts"):
        train_tokenizer("just a text")
