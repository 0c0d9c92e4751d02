"""Data for BERT: next and random segments, their lengths, the masking probabilities, the cache."""

# ruff: noqa: RUF001 (other scripts)
import math
import random
import time
from itertools import pairwise

import datasets
import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForPreTraining, DataCollatorForLanguageModeling

from hf_edu_models.data import DataCollatorForPreTraining, build_nsp_pairs, cut_sentences, train_tokenizer
from hf_edu_models.data.masking import draw_spans
from hf_edu_models.data.pretraining import truncate_pair


def make_documents(count=60, seed=0):
    """Every token names its document and its sentence, so that a pair can be checked."""
    rng = random.Random(seed)
    rows = {"document": [], "text": []}
    for document in range(count):
        for sentence in range(rng.randint(2, 20)):
            rows["document"].append(f"doc{document}")
            rows["text"].append(" ".join([f"d{document}s{sentence}"] * rng.randint(1, 9)))
    return datasets.Dataset.from_dict(rows)


@pytest.fixture(scope="module")
def documents():
    return make_documents()


@pytest.fixture(scope="module")
def tokenizer(documents):
    return train_tokenizer(documents, "word", 5_000, rung="bert")


@pytest.fixture(scope="module")
def pairs(documents, tokenizer, tmp_path_factory):
    return build_nsp_pairs(documents, tokenizer, max_length=64, repeats=30, cache_dir=tmp_path_factory.mktemp("nsp"))


def read(row, tokenizer):
    """Sentences (document, number) of both segments, each once, in order."""
    segments = [[], []]
    for token, segment in zip(row["input_ids"], row["token_type_ids"], strict=True):
        name = tokenizer.convert_ids_to_tokens(token)
        if name.startswith("▁d"):
            position = tuple(map(int, name.removeprefix("▁d").split("s")))
            if not segments[segment] or segments[segment][-1] != position:
                segments[segment].append(position)
    return segments


def is_near(count, total, probability, limit=4.5):
    """Whether a count fits a probability; fails by chance once in 100,000."""
    return abs(count - total * probability) <= limit * math.sqrt(total * probability * (1 - probability))


def test_next_segments_follow_and_random_ones_are_from_another_document(pairs, tokenizer):
    for row in pairs.select(range(3_000)):
        first, second = read(row, tokenizer)
        for segment in (first, second):
            assert len({document for document, _ in segment}) == 1
            assert [number for _, number in segment] == list(range(segment[0][1], segment[0][1] + len(segment)))
        if row["next_sentence_label"] == 0:
            gap = second[0][1] - first[-1][1]
            # A truncated pair may have lost whole sentences where the segments meet.
            assert second[0][0] == first[0][0] and (gap == 1 or (gap > 1 and len(row["input_ids"]) == 64))
        else:
            assert first[0][0] != second[0][0]


def test_random_segments_are_from_the_same_corpus(documents, tokenizer, tmp_path):
    """Otherwise the style of the corpora would tell the two classes apart."""
    corpus_of = {f"doc{number}": number % 2 for number in range(60)} | {"doc7": 2}
    corpora = [corpus_of[name] for name in documents["document"]]
    joined = documents.add_column("corpus", corpora)
    built = build_nsp_pairs(joined, tokenizer, max_length=64, repeats=10, cache_dir=tmp_path)
    drawn = set()
    for row in built.filter(lambda row: row["next_sentence_label"] == 1):
        first, second = (f"doc{segment[0][0]}" for segment in read(row, tokenizer))
        drawn.add((corpus_of[first], corpus_of[second]))
        assert first != second
    assert drawn == {(0, 0), (1, 1), (2, 0), (2, 1)}  # the only document of its corpus has candidates in the others


def test_pairs_have_the_form_of_bert(pairs, tokenizer):
    for row in pairs.select(range(500)):
        ids, types = row["input_ids"], row["token_type_ids"]
        middle = ids.index(tokenizer.sep_token_id)
        assert ids[0] == tokenizer.cls_token_id and ids[-1] == tokenizer.sep_token_id
        assert types == [0] * (middle + 1) + [1] * (len(ids) - middle - 1)
        assert ids.count(tokenizer.sep_token_id) == 2 and 5 <= len(ids) <= 64


def test_half_of_the_pairs_are_next(pairs):
    labels = np.array(pairs["next_sentence_label"])
    assert len(labels) > 2_000 and is_near(labels.sum(), len(labels), 0.5)


def test_pairs_have_the_full_length_but_for_the_short_ones(tokenizer, tmp_path):
    """Documents much longer than a sequence, so that only a shorter random length gives short pairs."""
    rows = {"document": [], "text": []}
    for document in range(12):
        rows["document"] += [str(document)] * 400
        rows["text"] += [f"d{document}s1"] * 400
    long = datasets.Dataset.from_dict(rows)
    built = build_nsp_pairs(long, tokenizer, max_length=40, repeats=20, cache_dir=tmp_path)
    lengths = np.array([len(ids) for ids in built["input_ids"]])
    # A pair at the end of a document may be short: few of 400 sentences.
    short = (lengths < 40).mean()
    never = build_nsp_pairs(long, tokenizer, max_length=40, repeats=20, short_probability=0, cache_dir=tmp_path)
    ended = np.mean([len(ids) < 40 for ids in never["input_ids"]])
    expected = 0.1 * 36 / 37 + ended  # the longest of the 37 shorter lengths is the full one
    assert abs(short - expected) < 0.02 and ended < 0.08
    always = build_nsp_pairs(long, tokenizer, max_length=40, short_probability=1, cache_dir=tmp_path)
    assert {len(ids) for ids in always["input_ids"]} >= set(range(5, 41))


def test_every_sentence_is_in_a_first_or_second_segment(pairs, documents, tokenizer):
    seen = {position for row in pairs for segment in read(row, tokenizer) for position in segment}
    expected = {tuple(map(int, text.split()[0].removeprefix("d").split("s"))) for text in documents["text"]}
    assert seen == expected


def test_truncate_pair_equals_removing_tokens_one_by_one():
    for first in range(1, 30):
        for second in range(1, 30):
            for max_tokens in range(2, 40):
                a, b = first, second
                while a + b > max_tokens:
                    a, b = (a - 1, b) if a > b else (a, b - 1)
                assert truncate_pair(first, second, max_tokens) == (a, b)


def test_truncation_removes_tokens_from_both_ends(tokenizer, tmp_path):
    texts = [" ".join(f"d{document}s{word}" for word in range(19)) for document in range(50)]
    long = datasets.Dataset.from_dict({"document": [i // 2 for i in range(50)], "text": texts})
    tokenizer = train_tokenizer(long, "word", 5_000, rung="bert")
    built = build_nsp_pairs(long, tokenizer, max_length=23, repeats=10, short_probability=0, cache_dir=tmp_path)
    starts = [read(row, tokenizer)[0][0][1] for row in built]
    assert {len(ids) for ids in built["input_ids"]} == {23}
    assert np.mean(starts) == pytest.approx(9 / 2, abs=0.5)  # 19 tokens to 10: half of 9


def test_pairs_do_not_depend_on_the_number_of_processes(documents, tokenizer, tmp_path):
    one = build_nsp_pairs(documents, tokenizer, max_length=48, cache_dir=tmp_path / "one")
    two = build_nsp_pairs(documents, tokenizer, max_length=48, num_proc=2, cache_dir=tmp_path / "two")
    assert one.to_dict() == two.to_dict()
    other = build_nsp_pairs(documents, tokenizer, max_length=48, seed=1, cache_dir=tmp_path / "one")
    assert other.to_dict() != one.to_dict()


def test_pairs_are_cached_by_content(documents, tokenizer, tmp_path, monkeypatch):
    made = build_nsp_pairs(documents, tokenizer, cache_dir=tmp_path)
    tokenizer(["use", "changes the state of a tokenizer"], padding=True, truncation=True, max_length=4)
    same = datasets.Dataset.from_dict(documents.to_dict())
    monkeypatch.setattr("hf_edu_models.data.pretraining._write_pairs", lambda *args: pytest.fail("built again"))
    start = time.perf_counter()
    assert build_nsp_pairs(same, tokenizer, cache_dir=tmp_path).to_dict() == made.to_dict()
    assert time.perf_counter() - start < 2
    changed = documents.to_dict()
    changed["text"][0] += " d0s0"
    with pytest.raises(pytest.fail.Exception, match=r"built again"):
        build_nsp_pairs(datasets.Dataset.from_dict(changed), tokenizer, cache_dir=tmp_path)
    assert not [folder for folder in (tmp_path / "nsp").iterdir() if folder.name.startswith(".")]


def test_three_forms_of_documents_give_the_same_pairs(tokenizer, tmp_path):
    rows = make_documents(6)
    groups = {}
    for row in rows:
        groups.setdefault(row["document"], []).append(row["text"])
    as_lists = datasets.Dataset.from_dict({"sentences": list(groups.values())})
    lines = [line for group in groups.values() for line in [*group, ""]]
    as_lines = datasets.Dataset.from_dict({"text": lines})
    built = [build_nsp_pairs(each, tokenizer, cache_dir=tmp_path).to_dict() for each in (rows, as_lists, as_lines)]
    assert built[0] == built[1] == built[2]


def test_paragraphs_are_split_into_sentences(tokenizer, tmp_path):
    assert cut_sentences("One. Two! 3.5 is a number.  Why?") == ["One.", "Two!", "3.5 is a number.", "Why?"]
    assert cut_sentences('He said "no." She left.') == ['He said "no."', "She left."]
    assert cut_sentences("一。 二！") == ["一。", "二！"]
    one_row = datasets.Dataset.from_dict({"document": ["a", "b"], "text": ["d1s1 . d1s2 .", "d2s1 . d2s2 ."]})
    with pytest.raises(ValueError, match=r"2 document.* and 2 sentence"):
        build_nsp_pairs(one_row, tokenizer, cache_dir=tmp_path)
    assert len(build_nsp_pairs(one_row, tokenizer, split_sentences=True, cache_dir=tmp_path)) == 2


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ({"text": ["a", "b"]}, {}, "where documents end"),
        ({"text": ["a", "b"], "document": [1, 1]}, {}, "two documents or more"),
        ({"words": ["a"]}, {}, "'text' or 'sentences'; the corpus has words"),
        ({"text": ["a"], "document": [1]}, {"max_length": 4}, "5 or more, got 4"),
        ({"text": ["a"], "document": [1]}, {"short_probability": 2}, "short_probability must be from 0 to 1, got 2"),
        ({"text": ["a"], "document": [1]}, {"repeats": 0}, "repeats must be 1 or more, got 0"),
    ],
)
def test_invalid_corpora_raise(rows, options, message, tokenizer, tmp_path):
    with pytest.raises(ValueError, match=message):
        build_nsp_pairs(datasets.Dataset.from_dict(rows), tokenizer, cache_dir=tmp_path, **options)


def test_a_tokenizer_without_cls_raises(documents, tmp_path):
    with pytest.raises(ValueError, match=r"rung='bert'"):
        build_nsp_pairs(documents, train_tokenizer(["a"], "word", 20), cache_dir=tmp_path)


def masked_batches(tokenizer, story_corpus, tmp_path, batches=20, **options):
    built = build_nsp_pairs(story_corpus["train"], tokenizer, max_length=96, repeats=4, cache_dir=tmp_path)
    collator = DataCollatorForPreTraining(tokenizer, seed=3, **options)
    for start in range(0, batches * 16, 16):
        rows = [built[position % len(built)] for position in range(start, start + 16)]
        batch = collator(rows)
        original = DataCollatorForLanguageModeling(tokenizer, mlm=False)([dict(row) for row in rows])["input_ids"]
        yield batch, original


def counts_of(batches, tokenizer):
    ordinary = chosen = masked = kept = replaced = 0
    special_ids = torch.tensor(tokenizer.all_special_ids)
    for batch, original in batches:
        special = torch.isin(original, special_ids)
        picked = batch["labels"] != -100
        assert not (picked & special).any(), "special tokens and padding are never predicted"
        assert torch.equal(batch["labels"][picked], original[picked])
        assert torch.equal(batch["input_ids"][~picked], original[~picked])
        now, before = batch["input_ids"][picked], original[picked]
        assert not torch.isin(now[now != tokenizer.mask_token_id], special_ids).any()
        ordinary += int((~special).sum())
        chosen += int(picked.sum())
        masked += int((now == tokenizer.mask_token_id).sum())
        kept += int((now == before).sum())
        replaced += int(((now != before) & (now != tokenizer.mask_token_id)).sum())
    return ordinary, chosen, masked, kept, replaced


@pytest.mark.parametrize("options", [{}, {"whole_word_mask": True}, {"masking": "words"}])
def test_masking_probabilities_are_those_of_the_paper(options, bert_tokenizer, story_corpus, tmp_path):
    batches = masked_batches(bert_tokenizer, story_corpus, tmp_path, **options)
    ordinary, chosen, masked, kept, replaced = counts_of(batches, bert_tokenizer)
    same_by_chance = 0.1 / (len(bert_tokenizer) - 5)  # a random token may be the same token
    # All subwords of a word are masked together, so the variance is larger than for single tokens.
    assert is_near(chosen, ordinary, 0.15, limit=9 if options else 4.5)
    assert is_near(masked, chosen, 0.8)
    assert is_near(kept, chosen, 0.1 + same_by_chance)
    assert is_near(replaced, chosen, 0.1 - same_by_chance)


@pytest.mark.parametrize("probability", [0.15, 0.3])
def test_spans_keep_the_masking_probabilities(probability, bert_tokenizer, story_corpus, tmp_path):
    options = {"masking": "spans", "mlm_probability": probability}
    batches = masked_batches(bert_tokenizer, story_corpus, tmp_path, **options)
    ordinary, chosen, masked, kept, replaced = counts_of(batches, bert_tokenizer)
    # The number of tokens of each row is fixed but for its last word; replacements are drawn for whole spans.
    assert is_near(chosen, ordinary, probability, limit=2)
    same_by_chance = 0.1 / (len(bert_tokenizer) - 5)
    assert is_near(masked, chosen, 0.8, limit=12)
    assert is_near(kept, chosen, 0.1 + same_by_chance, limit=12)
    assert is_near(replaced, chosen, 0.1 - same_by_chance, limit=12)


def test_spans_are_neighbouring_whole_words_and_bounded():
    """Words of one to three tokens, with special tokens after each 40th."""
    words, position = [], 0
    for number in range(400):
        position += number % 40 == 0
        words.append((position, position + 1 + number % 3))
        position = words[-1][1]
    starts, ends = {start: number for number, (start, _) in enumerate(words)}, {end for _, end in words}
    generator, tokens, lengths = torch.Generator().manual_seed(0), [], []
    for _ in range(300):
        spans = sorted(draw_spans(words, 30.5, generator))
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
        for start, end in spans:
            inside = [word for word in words if start <= word[0] < end]
            assert start in starts and end in ends and 1 <= len(inside) <= 10
            assert sum(b - a for a, b in inside) == end - start, "no special token is inside"
            lengths.append(len(inside))
        tokens.append(sum(end - start for start, end in spans))
    assert min(tokens) >= 28 and max(tokens) <= 33 and np.mean(tokens) == pytest.approx(30.5, abs=0.2)
    assert 10 in lengths and 3 < np.mean(lengths) < 3.8  # the last span and those at the end of a text are cut
    assert list(draw_spans([], 0.0)) == []


def test_spans_are_longer_than_masked_words(bert_tokenizer, story_corpus, tmp_path):
    def mean_run(masking):
        counts = [0, 0]
        for batch, _ in masked_batches(bert_tokenizer, story_corpus, tmp_path, batches=5, masking=masking):
            picked = batch["labels"] != -100
            counts[0] += int(picked.sum())
            counts[1] += int((picked[:, 1:] & ~picked[:, :-1]).sum())
        return counts[0] / counts[1]

    assert mean_run("spans") > 1.8 * mean_run("words")


def test_other_masking_probabilities(bert_tokenizer, story_corpus, tmp_path):
    options = {"mlm_probability": 0.4, "mask_replace_prob": 0.5, "random_replace_prob": 0.5}
    batches = masked_batches(bert_tokenizer, story_corpus, tmp_path, **options)
    ordinary, chosen, masked, kept, _ = counts_of(batches, bert_tokenizer)
    assert is_near(chosen, ordinary, 0.4) and is_near(masked, chosen, 0.5) and kept < 0.02 * chosen


@pytest.mark.parametrize("masking", ["words", "spans"])
def test_whole_word_masking_masks_all_subwords_of_a_word(masking, bert_tokenizer, story_corpus, tmp_path):
    subwords = 0
    for batch, original in masked_batches(bert_tokenizer, story_corpus, tmp_path, masking=masking):
        for labels, ids in zip(batch["labels"].tolist(), original.tolist(), strict=True):
            tokens = bert_tokenizer.convert_ids_to_tokens(ids)
            for position in range(1, len(tokens)):
                if tokens[position].startswith("##") and tokens[position - 1] not in ("[CLS]", "[SEP]"):
                    subwords += 1
                    assert (labels[position] == -100) == (labels[position - 1] == -100)
    assert subwords > 1_000


def test_without_whole_word_masking_subwords_are_masked_independently(bert_tokenizer, story_corpus, tmp_path):
    """The assertion of the test above fails here, so it can fail."""
    with pytest.raises(AssertionError):
        for batch, original in masked_batches(bert_tokenizer, story_corpus, tmp_path):
            for labels, ids in zip(batch["labels"].tolist(), original.tolist(), strict=True):
                tokens = bert_tokenizer.convert_ids_to_tokens(ids)
                for position in range(1, len(tokens)):
                    if tokens[position].startswith("##") and tokens[position - 1] not in ("[CLS]", "[SEP]"):
                        assert (labels[position] == -100) == (labels[position - 1] == -100)


def test_masks_are_dynamic_and_reproducible(bert_tokenizer):
    rows = [{"input_ids": list(range(5, 60)), "token_type_ids": [0] * 55, "next_sentence_label": 1}] * 4
    collator = DataCollatorForPreTraining(bert_tokenizer, seed=1)
    first, second = collator(rows), collator(rows)
    assert not torch.equal(first["labels"], second["labels"])
    again = DataCollatorForPreTraining(bert_tokenizer, seed=1)(rows)
    assert all(torch.equal(first[name], again[name]) for name in first)
    arrays = DataCollatorForPreTraining(bert_tokenizer, seed=1, return_tensors="np")(rows)
    assert all(isinstance(arrays[name], np.ndarray) and (arrays[name] == again[name].numpy()).all() for name in again)


def test_the_collator_rejects_what_transformers_rejects(bert_tokenizer):
    with pytest.raises(ValueError, match=r"mask token"):
        DataCollatorForPreTraining(train_tokenizer(["a"], "word", 20))
    with pytest.raises(ValueError, match=r"mlm=False"):
        DataCollatorForPreTraining(bert_tokenizer, mlm=False)
    with pytest.raises(ValueError, match=r"should not exceed 1"):
        DataCollatorForPreTraining(bert_tokenizer, mask_replace_prob=0.8, random_replace_prob=0.3)
    with pytest.raises(ValueError, match=r"masking must be one of tokens, words, phrases, spans; got 'lines'"):
        DataCollatorForPreTraining(bert_tokenizer, masking="lines")
    char = train_tokenizer(["abc def"], "char", 30, rung="bert")
    with pytest.raises(ValueError, match=r"where words begin"):
        DataCollatorForPreTraining(char, whole_word_mask=True)([{"input_ids": [5, 6, 7]}])


def test_transformers_own_bert_learns_from_it(bert_tokenizer, story_corpus, tmp_path):
    built = build_nsp_pairs(story_corpus["train"], bert_tokenizer, max_length=64, cache_dir=tmp_path)
    batch = DataCollatorForPreTraining(bert_tokenizer, seed=0)([built[position] for position in range(8)])
    torch.manual_seed(0)
    model = BertForPreTraining(
        BertConfig(
            vocab_size=len(bert_tokenizer),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=24,
        )
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(15):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
