"""Laws of the built-in corpora: one correct answer, disjoint splits, reproducible by seed, cached."""

import collections
import datetime
import re

import pytest
from babel.dates import format_date
from num2words import num2words

import hf_edu_models.data.builtin.dates as builtin_dates
import hf_edu_models.data.builtin.numbers as builtin_numbers
from hf_edu_models.data import BUILTINS, load_corpus
from hf_edu_models.data.builtin import Builtin
from hf_edu_models.data.builtin.numbers import links, words_of
from hf_edu_models.data.cache import build_once, code_version, content_of

SMALL = {"train_size": 300, "validation_size": 60, "test_size": 60}


@pytest.fixture(scope="module")
def dates(tmp_path_factory):
    return load_corpus(
        "dates", train_size=6_000, validation_size=300, test_size=300, cache_dir=tmp_path_factory.mktemp("d")
    )


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    return load_corpus("numbers", **SMALL, cache_dir=tmp_path_factory.mktemp("n"))


def without_leading_zeros(text):
    return re.sub(r"(?<![0-9])0(?=[0-9])", "", text)


def test_no_date_string_has_two_answers(dates):
    """Exhaustive for two years: every day in every format of every language."""
    formats = builtin_dates.formats_of(builtin_dates.LOCALES)
    for year in (2004, 2035):
        meanings = collections.defaultdict(set)
        day = datetime.date(year, 1, 1)
        while day.year == year:
            for each in formats:
                meanings[without_leading_zeros(format_date(day, each.pattern, locale=each.language))].add(day)
            day += datetime.timedelta(days=1)
        assert any(len(days) > 1 for days in meanings.values()), (
            "some strings of these formats are ambiguous, so the test can fail"
        )
        rows = [row for split in dates.values() for row in split if row["target"].startswith(str(year))]
        assert len(rows) > 10
        for row in rows:
            assert meanings[without_leading_zeros(row["source"])] == {datetime.date.fromisoformat(row["target"])}, row


@pytest.mark.parametrize("text", ["3/4/2021", "03/04/2021", "04/03/2021", "Thu, 04/03/2021"])
def test_an_ambiguous_date_has_two_readings_unless_it_has_a_weekday(text):
    found = builtin_dates.readings(text, builtin_dates.formats_of(builtin_dates.LOCALES))
    assert len(found) == (1 if text.startswith("Thu") else 2)


def test_dates_are_written_in_many_languages_and_scripts(dates):
    languages = set(dates["train"]["language"])
    assert languages == set(builtin_dates.LOCALES) and len(languages) >= 8
    text = "".join(dates["train"]["source"])
    for script in ("Март", "年", "년", "مار", "בינואר", "जनवरी", "Μαΐου"):
        assert script.lower() in text.lower()


def test_dates_share_no_day_between_splits(dates):
    days = [set(split["target"]) for split in dates.values()]
    assert not days[0] & days[1] and not days[0] & days[2] and not days[1] & days[2]
    sources = [source for split in dates.values() for source in split["source"]]
    assert len(sources) == len(set(sources)) == 6_600


@pytest.mark.parametrize("name", BUILTINS)
def test_sizes_seed_and_splits(name, tmp_path):
    first = load_corpus(name, **SMALL, seed=1, cache_dir=tmp_path / "a")
    again = load_corpus(name, **SMALL, seed=1, cache_dir=tmp_path / "b")
    other = load_corpus(name, **SMALL, seed=2, cache_dir=tmp_path / "a")
    counted = "document" if name == "stories" else None
    for split, size in (("train", 300), ("validation", 60), ("test", 60)):
        assert len(set(first[split]["document"]) if counted else first[split]) == size
        assert first[split].to_dict() == again[split].to_dict() != other[split].to_dict()


@pytest.mark.parametrize("name", BUILTINS)
def test_a_split_of_size_0_does_not_exist(name, tmp_path):
    corpus = load_corpus(name, train_size=30, validation_size=0, test_size=0, cache_dir=tmp_path)
    assert list(corpus) == ["train"]
    with pytest.raises(ValueError, match=r"every split of .* has the size 0"):
        load_corpus(name, train_size=0, validation_size=0, test_size=0, cache_dir=tmp_path)


@pytest.mark.parametrize("name", BUILTINS)
def test_generated_once(name, tmp_path, monkeypatch):
    made = load_corpus(name, **SMALL, cache_dir=tmp_path)

    def never(*args, **kwargs):
        raise AssertionError("generated again")

    monkeypatch.setattr("hf_edu_models.data.builtin._as_datasets", never)
    assert load_corpus(name, **SMALL, cache_dir=tmp_path)["train"].to_dict() == made["train"].to_dict()
    with pytest.raises(AssertionError, match=r"generated again"):
        load_corpus(name, **(SMALL | {"train_size": 301}), cache_dir=tmp_path)


def test_a_failed_build_leaves_no_cache_entry(tmp_path):
    def build(folder):
        (folder / "half").write_text("half")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        build_once(tmp_path / "entry", build)
    assert list(tmp_path.iterdir()) == []
    build_once(tmp_path / "entry", lambda folder: (folder / "whole").write_text("whole"))
    build_once(tmp_path / "entry", build)
    assert [file.name for file in (tmp_path / "entry").iterdir()] == ["whole"]


def test_two_processes_may_build_the_same_cache_entry(tmp_path):
    def build(folder):
        (folder / "file").write_text("mine")
        (tmp_path / "entry").mkdir()  # another process was faster
        (tmp_path / "entry" / "file").write_text("theirs")

    assert (build_once(tmp_path / "entry", build) / "file").read_text() == "theirs"
    assert [each.name for each in tmp_path.iterdir()] == ["entry"]


def test_equal_values_have_the_same_hash_whatever_their_arrow_layout(tmp_path):
    import datasets

    rows = {"text": [f"s{i}" * (i % 5) for i in range(25_000)], "number": [i // 7 for i in range(25_000)]}
    whole = datasets.Dataset.from_dict(rows)
    parts = [
        datasets.Dataset.from_dict({k: v[part] for k, v in rows.items()}) for part in (slice(9_999), slice(9_999, None))
    ]
    concatenated = datasets.concatenate_datasets(parts)
    reversed_twice = whole.select(range(24_999, -1, -1)).select(range(24_999, -1, -1))
    whole.to_parquet(str(tmp_path / "x.parquet"))
    read = load_corpus(tmp_path / "x.parquet", columns={"text": "text", "number": "number"})["train"]
    keys = {content_of(each, ["text", "number"]) for each in (whole, concatenated, reversed_twice, read)}
    assert len(keys) == 1
    assert content_of(whole.select(range(24_999)), ["text", "number"]) not in keys
    assert content_of(reversed_twice.select(range(24_999, -1, -1)), ["text", "number"]) not in keys


def test_code_version_depends_on_the_source():
    assert code_version(builtin_dates) != code_version(builtin_numbers)
    assert code_version(builtin_dates) == code_version(builtin_dates)


def test_numbers_are_those_of_num2words(numbers):
    for row in numbers["train"]:
        language, *digits = row["source"].split()
        assert language == row["language"]
        written = num2words(int("".join(digits)), lang=language)
        assert row["target"].split() == re.sub(r"[-,]", " ", written).split()


@pytest.mark.parametrize("language", builtin_numbers.LINKED_LANGUAGES)
def test_every_word_has_a_link_and_every_nonzero_digit_a_sure_one(language):
    for number in [*range(0, 130), *range(131, 1_000, 37), *range(1_001, 999_999, 7_919), 1_000_000, 20_300_004]:
        sure, possible = links(number, language)
        words, digits = words_of(number, language), str(number)
        assert {j for _, j in sure + possible} == set(range(len(words))), (number, words)
        nonzero = {i for i, digit in enumerate(digits) if digit != "0"} if number else {0}
        assert {i for i, _ in sure} == nonzero == {i for i, _ in sure + possible}, (number, words)
        assert not {tuple(link) for link in sure} & {tuple(link) for link in possible}


@pytest.mark.parametrize(
    ("number", "language", "sure", "possible"),
    [
        (342, "en", {"3": "three hundred", "4": "forty", "2": "two"}, {"3": "and"}),
        (71, "fr", {"7": "soixante onze", "1": "onze"}, {"7": "et", "1": "et"}),
        (12_345, "pl", {"1": "dwanaście", "2": "dwanaście", "3": "trzysta", "4": "czterdzieści", "5": "pięć"},
         {"1": "tysięcy", "2": "tysięcy"}),
        (20_001, "es", {"2": "veinte mil", "1": "uno"}, {}),
    ],
)  # fmt: skip
def test_links_are_those_of_a_human_annotator(number, language, sure, possible):
    words = words_of(number, language)
    for found, expected in zip(links(number, language), (sure, possible), strict=True):
        words_of_digit = collections.defaultdict(list)
        for i, j in found:
            words_of_digit[str(number)[i]].append(words[j])
        assert {digit: " ".join(each) for digit, each in words_of_digit.items()} == expected


def test_links_are_swapped_when_digits_are_the_target(tmp_path):
    row = builtin_numbers.make_row(342, "en", "to_words")
    back = builtin_numbers.make_row(342, "en", "to_digits")
    assert (row["source"], row["target"]) == (back["target"], back["source"])
    assert sorted([j, i] for i, j in back["sure"]) == row["sure"]
    both = load_corpus("numbers", **SMALL, direction="to_digits", maximum=9_999, cache_dir=tmp_path)
    answers = collections.defaultdict(set)
    for split in both.values():
        for source, target in zip(split["source"], split["target"], strict=True):
            answers[source].add(target)
    assert max(map(len, answers.values())) == 1


def test_numbers_share_no_number_between_splits(numbers):
    seen = [{row.split(" ", 1)[1] for row in split["source"]} for split in numbers.values()]
    assert not seen[0] & seen[1] and not seen[0] & seen[2] and not seen[1] & seen[2]


@pytest.mark.parametrize("name", ["copy", "reverse"])
def test_copy_and_reverse(name, tmp_path):
    corpus = load_corpus(name, **SMALL, min_length=3, max_length=9, symbols=5, cache_dir=tmp_path)
    sources = [source for split in corpus.values() for source in split["source"]]
    assert len(sources) == len(set(sources))
    lengths = {len(source.split()) for source in sources}
    assert min(lengths) >= 3 and max(lengths) == 9
    assert {symbol for source in sources for symbol in source.split()} == set("abcde")
    for row in corpus["train"]:
        assert row["target"] == (row["source"] if name == "copy" else row["source"][::-1])


def test_stories_are_documents_in_order(story_corpus):
    documents = {}
    for split in story_corpus.values():
        for row in split:
            documents.setdefault(row["document"], []).append(row["text"])
    assert len(documents) == 160
    assert len({" ".join(story) for story in documents.values()}) == 160
    for story in documents.values():
        assert 6 <= len(story) <= 14
        assert re.search(r"was a|was once|lived", story[0]) and re.search(r"no more|never lost|went home", story[-1])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dates", {"languages": ["en_US", "klingon"]}, "klingon.*babel"),
        ("dates", {"languages": []}, "at least one"),
        ("dates", {"languages": ["en_US"], "train_size": 10**6}, "only .* not 1000000"),
        ("numbers", {"languages": ["de"]}, "links for the languages"),
        ("numbers", {"direction": "sideways"}, "to_words, to_digits"),
        ("numbers", {"maximum": 9}, "too many"),
        ("copy", {"min_length": 5, "max_length": 4}, "min_length <= max_length, got 5 and 4"),
        ("reverse", {"symbols": 1, "max_length": 5}, "too few sequences"),
        ("copy", {"symbols": 63}, "from 1 to 62, got 63"),
        ("stories", {"min_sentences": 2}, "4 <= min_sentences"),
        ("dates", {"train_size": -1}, "0 or more; got -1"),
    ],
)
def test_invalid_options_raise(name, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load_corpus(name, cache_dir=tmp_path, **options)


def test_a_new_built_in_corpus_is_one_row(monkeypatch, tmp_path):
    """Columns of any type, options from the signature, labels as classes, links that are all empty."""

    def generate(sizes, seed, word="a"):
        return {
            split: {"text": [word] * size, "label": ["yes", "no"] * (size // 2), "sure": [[]] * size}
            for split, size in sizes.items()
        }

    monkeypatch.setitem(BUILTINS, "mine", Builtin(generate, (6, 2, 2), "a word"))
    corpus = load_corpus("mine", word="b", cache_dir=tmp_path)
    assert {split: len(rows) for split, rows in corpus.items()} == {"train": 6, "validation": 2, "test": 2}
    assert corpus["train"][0] == {"text": "b", "label": 1, "sure": []}
    assert corpus["train"].features["label"].names == ["no", "yes"]
    with pytest.raises(TypeError, match=r"mine has no option 'words'; it takes word"):
        load_corpus("mine", words=3, cache_dir=tmp_path)


def test_an_unknown_option_raises(tmp_path):
    with pytest.raises(TypeError, match=r"dates has no option 'max_length'; it takes languages"):
        load_corpus("dates", max_length=3, cache_dir=tmp_path)
