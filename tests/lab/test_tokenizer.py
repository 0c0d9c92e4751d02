"""The page's tokenizers give the ids, offsets and texts of the `tokenizers` library, in one start of Node."""

import json
import random
import shutil
import subprocess
import unicodedata
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertTokenizer, GPT2Tokenizer

from hf_edu_models.data import train_tokenizer
from hf_edu_models.data.tokenization import KINDS

if shutil.which("node") is None:
    pytest.skip("no node is installed, which runs the page's modules", allow_module_level=True)

TEXTS = [
    "",
    " ",
    "The cat sat on the mat.",
    "  two  spaces,\tone tab\nand a newline \r\n",
    "Hello, (you)! it's 12:45 \u2013 don't…",
    "naïve café Ångström e\u0301a\u0323\u0301 q\u0307\u0323",
    "İstanbul ΣΑΣ ﬁne Ⅷ ½ ²³ ㍿ ｶﾞ",
    "ভালো বাংলা हिन्दी தமிழ் ไทย ລາວ မြန်မာ",
    "שָׁלוֹם עולם مرحبا بالعالم \u200fRTL\u200e \u202eevil\u202c",
    "漢字かな交じり文。𠮷野家 한국어 한",
    "😀👩‍👩‍👧‍👦 🇩🇪 👍🏽 e\ufe0f",
    "<script>alert('1')</script> & <b> </style> <!-- {{x}} ${y} `z` \\",
    "\x00\x01\x07\x1b[31m\x7f\x85\x0b\x0c\xa0\u2028\u2029\ufeff\ufffd\u200b\u200d\xad",
    "<s></s><pad> x<unk>y [CLS][SEP] [MASK]ed [mask] <sep>",
    "▁under▁ ▁▁ Ġbyte ##piece ## <0x41>",
    "a" * 150 + " " + "bc" * 60,
    "constructor __proto__ toString hasOwnProperty valueOf",
    "\u0345\u0334a\u0334\u0345\u0301\u0344 \u1100\u1161\u11a8 \uac01\u11a8 \u0958 \u2126",
]
LEARNED = [
    *TEXTS[:12],
    "the cat and the dog sat on mats; cats that don't sit",
    "Müller isst Äpfel im Garten, über 1234 Bäume",
]


def random_texts(count, seed=0):
    """Texts of characters from everywhere, that Python's tables of Unicode know."""
    generator = random.Random(seed)
    alphabets = [
        "abc XYZ,.'-12 \n",
        [chr(code) for code in range(0x300, 0x370)] + list("aeoąệ각"),
        [chr(code) for code in range(0x20, 0x3000)],
        [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000],
        ["<s>", "</s>", "[MASK]", " ", "▁", "new", "a", "<unk>", "##", "NEW"],
    ]
    alphabets = [[each for each in letters if unicodedata.category(each[0]) != "Cn"] for letters in alphabets]
    return ["".join(generator.choices(generator.choice(alphabets), k=generator.randrange(40))) for _ in range(count)]


def trained(kind, template, lowercase):
    size = {"bpe": 400, "unigram": 700}.get(kind, 500)
    made = train_tokenizer(LEARNED, kind=kind, vocab_size=size, task=template, lowercase=lowercase).backend_tokenizer
    made.add_tokens(["new", AddedToken("tight", single_word=True), AddedToken("<cut>", lstrip=True, rstrip=True)])
    return made


def byte_level(add_prefix_space, trim_offsets):
    """As GPT-2 and RoBERTa."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    specials = ["<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=specials, show_progress=False
    )
    made.train_from_iterator(LEARNED, trainer)
    made.post_processor = processors.ByteLevel(trim_offsets=trim_offsets, add_prefix_space=add_prefix_space)
    return made


def roberta():
    made = byte_level(True, True)
    made.post_processor = processors.RobertaProcessing(
        ("</s>", 1), ("<s>", 0), trim_offsets=True, add_prefix_space=True
    )
    return made


def bert(**options):
    made = train_tokenizer(LEARNED, kind="wordpiece", vocab_size=500, rung="bert").backend_tokenizer
    made.normalizer = normalizers.BertNormalizer(**options)
    made.decoder = decoders.WordPiece(cleanup=True)
    made.post_processor = processors.BertProcessing(
        ("[SEP]", made.token_to_id("[SEP]")), ("[CLS]", made.token_to_id("[CLS]"))
    )
    return made


def words(normalizer, pre_tokenizer, decoder=None):
    """A vocabulary of few words, to test what comes before it: every other word is unknown."""
    made = Tokenizer(models.WordLevel({"<unk>": 0, "cat": 1, "a": 2}, unk_token="<unk>"))
    made.normalizer, made.pre_tokenizer = normalizer, pre_tokenizer
    if decoder is not None:
        made.decoder = decoder
    return made


def bpe(**options):
    """Without bytes: characters, unknown ones among them."""
    made = Tokenizer(models.BPE(unk_token="<unk>", **options))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    suffix = {"end_of_word_suffix": options["end_of_word_suffix"]} if "end_of_word_suffix" in options else {}
    made.train_from_iterator(
        ["the cat sat on the mat"] * 3,
        trainers.BpeTrainer(vocab_size=60, special_tokens=["<unk>"], show_progress=False, **suffix),
    )
    made.decoder = decoders.BPEDecoder(suffix=options.get("end_of_word_suffix", "</w>"))
    return made


def all_tokenizers():
    made = {
        f"{kind}-{template}{'-lower' if lowercase else ''}": trained(kind, template, lowercase)
        for kind in KINDS
        for template, lowercase in (("language_modeling", False), ("seq2seq", False), ("bert", True))
    }
    made |= {f"gpt2-{space}-{trim}": byte_level(space, trim) for space in (False, True) for trim in (False, True)}
    made |= {"roberta": roberta(), "bert-cased": bert(lowercase=False), "bert-accents": bert(strip_accents=False)}
    made["bert-plain"] = bert(clean_text=False, handle_chinese_chars=False, strip_accents=True)
    made |= {"bpe": bpe(), "bpe-fused": bpe(fuse_unk=True), "bpe-suffix": bpe(end_of_word_suffix="</w>")}
    pre = pre_tokenizers
    for name in ("NFC", "NFD", "NFKC", "NFKD"):
        made[name] = words(getattr(normalizers, name)(), pre.WhitespaceSplit())
    steps = [
        normalizers.NFD(),
        normalizers.StripAccents(),
        normalizers.Replace("a", "xyz"),
        normalizers.Replace(Regex(r"\d+"), ""),
    ]
    made["sequence"] = words(normalizers.Sequence(steps), pre.Whitespace())
    made["strip"] = words(
        normalizers.Sequence([normalizers.Strip(), normalizers.Prepend("▁"), normalizers.Lowercase()]), pre.Digits()
    )
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        made[behavior] = words(
            None, pre.Sequence([pre.Punctuation(behavior), pre.Split(" ", behavior), pre.Digits(True)])
        )
        made[f"{behavior}-regex"] = words(None, pre.Split(Regex(r"\w+|[\s\D]"), behavior, invert=True))
    for scheme in ("always", "first", "never"):
        metaspace = {"replacement": "▁", "prepend_scheme": scheme}
        made[f"metaspace-{scheme}"] = words(None, pre.Metaspace(**metaspace), decoders.Metaspace(**metaspace))
    vocab = json.loads(byte_level(False, False).to_str())["model"]
    made["GPT2Tokenizer"] = GPT2Tokenizer(
        vocab=vocab["vocab"], merges=[tuple(pair) for pair in vocab["merges"]]
    ).backend_tokenizer
    made["BertTokenizer"] = BertTokenizer(vocab=bert(lowercase=True).get_vocab()).backend_tokenizer
    made["delimiter"] = words(None, pre.CharDelimiterSplit("-"))
    return made


@pytest.fixture(scope="module")
def compared():
    """For each tokenizer, the encodings of the library and ours."""
    tokenizers = all_tokenizers()
    rows = [(text, None) for text in (*TEXTS, *random_texts(200))]
    rows += [(one, other) for one, other in zip(TEXTS, reversed(TEXTS), strict=True)]
    files = [json.loads(each.to_str()) for each in tokenizers.values()]
    script = Path(__file__).with_name("tokenize.mjs")
    request = json.dumps({"tokenizers": files, "texts": rows})
    done = subprocess.run(["node", script], input=request, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    return tokenizers, rows, dict(zip(tokenizers, json.loads(done.stdout)["encodings"], strict=True))


def test_ids_tokens_offsets_and_texts_are_those_of_the_library(compared):
    tokenizers, rows, ours = compared
    assert len(tokenizers) > 35
    for name, tokenizer in tokenizers.items():
        for (text, pair), found in zip(rows, ours[name], strict=True):
            encoding = tokenizer.encode(text, pair)
            expected = {
                "ids": encoding.ids,
                "tokens": encoding.tokens,
                "offsets": [list(each) for each in encoding.offsets],
                "typeIds": encoding.type_ids,
                "text": tokenizer.decode(encoding.ids),
                "whole": tokenizer.decode(encoding.ids, skip_special_tokens=False),
            }
            for field, value in expected.items():
                assert found[field] == value, (name, field, text, pair, encoding.tokens, encoding.offsets, found)
