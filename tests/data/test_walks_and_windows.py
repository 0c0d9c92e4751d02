"""Blocks, windows and negatives of word vectors, co-occurrences, and the walks of node2vec."""

from collections import Counter

import datasets
import numpy as np
import pytest
import torch

from hf_edu_models.data import (
    DataCollatorForWordVectors,
    count_pairs,
    count_words,
    encode_words,
    plain_words,
    read_graph,
    train_tokenizer,
)
from hf_edu_models.data.graphs import make_graph, random_walks, score_nodes, walks_as_corpus
from hf_edu_models.data.word_vectors import WordRows

TEXTS = ["a b c d e f g h i j k l m", "b a", "", "a unseen b unseen c", "c"]


@pytest.fixture
def tokenizer():
    return train_tokenizer([TEXTS[0]], "word", 40, rung="word_vectors")


def collate(tokenizer, rows, seed=0, **options):
    torch.manual_seed(seed)
    options = {"counts": np.arange(len(tokenizer)) + 1, "sample": 0, "block_size": 4, "window_size": 3} | options
    collator = DataCollatorForWordVectors(tokenizer, **options)
    return collator([{"input_ids": np.array(row)} for row in rows])


def test_rows_are_known_words_in_pieces_and_documents_are_joined(tokenizer):
    corpus = datasets.Dataset.from_dict({"text": TEXTS})
    names = plain_words(tokenizer)

    def words(rows):
        return [[names[token] for token in row["input_ids"]] for row in rows]

    assert words(encode_words(corpus, tokenizer, 6)) == [[*"abcdef"], [*"ghijkl"], [*"ba"], [*"abc"]]
    joined = corpus.add_column("document", [0, 1, 1, 1, 2])
    assert words(encode_words(joined, tokenizer, 6)) == [[*"abcdef"], [*"ghijkl"], [*"baabc"]]
    with pytest.raises(ValueError, match="no text has two known words; lower --min_count, or give more text"):
        encode_words(datasets.Dataset.from_dict({"text": ["unseen", "a"]}), tokenizer, 6)


def test_a_block_has_the_words_of_one_row_and_windows_of_every_size(tokenizer):
    batch = collate(tokenizer, [range(5, 15), [5, 6], [7]], in_order=True)
    mask = batch["attention_mask"].bool()
    assert [row[keep].tolist() for row, keep in zip(batch["input_ids"], mask, strict=True)] == [
        [5, 6, 7, 8], [9, 10, 11, 12], [13, 14], [5, 6],
    ]  # fmt: skip
    assert torch.equal(batch["labels"], batch["input_ids"].masked_fill(~mask, -100))
    sizes = collate(tokenizer, [range(5, 15)] * 50)["window_sizes"]
    assert set(sizes.flatten().tolist()) == {1, 2, 3}


def test_negatives_are_drawn_in_proportion_to_a_power_of_the_count(tokenizer):
    counts = np.zeros(len(tokenizer))
    counts[[5, 6, 7]] = 1, 16, 81
    drawn = Counter(collate(tokenizer, [[5, 6]] * 200, counts=counts, negatives=100)["negative_ids"].flatten().tolist())
    expected = np.array([1, 8, 27]) / 36  # count^0.75
    np.testing.assert_allclose([drawn[5] / 20000, drawn[6] / 20000, drawn[7] / 20000], expected, atol=0.015)


def test_frequent_words_are_left_out_as_often_as_in_gensim(tokenizer):
    gensim = pytest.importorskip("gensim.models")
    counts = np.zeros(len(tokenizer), int)
    counts[[5, 6, 7]] = 9000, 900, 100
    collator = DataCollatorForWordVectors(tokenizer, counts, sample=0.01)
    model = gensim.Word2Vec(sample=0.01, min_count=1, vector_size=2)
    model.build_vocab_from_freq({"a": 9000, "b": 900, "c": 100})
    for word, token in zip("abc", (5, 6, 7), strict=True):
        assert float(collator.keep[token]) == pytest.approx(model.wv.get_vecattr(word, "sample_int") / 2**32, rel=1e-3)
    torch.manual_seed(0)
    found = collator([{"input_ids": np.array([5, 7] * 5000)}])
    kept = Counter(found["input_ids"][found["labels"] != -100].tolist())
    assert kept[5] / 5000 == pytest.approx(float(collator.keep[5]), abs=0.02) and kept[7] == 5000


def test_wrong_counts_and_settings(tokenizer):
    with pytest.raises(ValueError, match="counts are all zero; count the words of the train split"):
        collate(tokenizer, [[5, 6]], counts=np.zeros(9))
    with pytest.raises(ValueError, match="block_size must be at least 1, got 0"):
        collate(tokenizer, [[5, 6]], block_size=0)
    with pytest.raises(ValueError, match="no word of the corpus occurs 7 times; lower the minimum count"):
        train_tokenizer(TEXTS, "word", 40, min_frequency=7)


def test_pairs_are_counted_by_distance_in_both_directions():
    rows = datasets.Dataset.from_dict({"input_ids": [[1, 2, 3, 1], [2, 3]]})
    found = count_pairs(rows, 4, 2)
    pairs = {}
    for row in found:
        pairs |= {
            (int(i), int(j)): float(x) for i, j, x in zip(*(row[name] for name in found.column_names), strict=True)
        }
    assert pairs == {(1, 2): 1.5, (2, 1): 1.5, (1, 3): 1.5, (3, 1): 1.5, (2, 3): 2.0, (3, 2): 2.0}
    assert count_words(rows, 4).tolist() == [0, 2, 2, 2]


def test_word_rows_are_the_rows_of_a_dataset():
    rows = datasets.Dataset.from_dict({"input_ids": [[1, 2, 3, 1], [2, 3], [5]]})
    for dataset in (rows, rows.select([2, 0])):
        found = WordRows(dataset)
        assert [found[n]["input_ids"].tolist() for n in range(len(found))] == dataset["input_ids"][:]


def path_graph():
    """t - v, v - x (a neighbour of t), v - y (not one)."""
    return make_graph([*"vvvt"], [*"txyx"])


@pytest.mark.parametrize("p, q", [(1.0, 1.0), (4.0, 0.5), (0.25, 2.0)])
def test_walks_turn_back_and_explore_as_p_and_q_say(p, q):
    walks = [*random_walks(path_graph(), walks=300, length=30, return_p=p, inout_q=q)]
    following = Counter(walk[n + 2] for walk in walks for n in range(28) if walk[n : n + 2] == [*"tv"])
    weights = np.array([1 / p, 1.0, 1 / q])
    found = np.array([following[each] for each in "txy"]) / sum(following.values())
    np.testing.assert_allclose(found, weights / weights.sum(), atol=0.03)
    assert Counter(walk[0] for walk in walks) == dict.fromkeys("tvxy", 300)


def test_karate_is_zacharys():
    graph = read_graph("karate")
    degrees = np.diff(graph.starts)
    assert len(graph.nodes) == 34 and degrees.sum() == 2 * 78 and (degrees[0], degrees[33]) == (16, 17)
    assert Counter(graph.labels) == {"Mr. Hi": 17, "Officer": 17}
    corpus = walks_as_corpus(graph, walks=2, length=9)
    assert len(corpus["train"]) == 68 and len(corpus["test"]) == 34
    assert all(len(text.split()) == 9 for text in corpus["train"]["text"])


def test_graphs_from_files_and_their_mistakes(tmp_path):
    edges = tmp_path / "graph.txt"
    edges.write_text("0 1 2.5\n1 2 1\n")
    graph = read_graph(edges)
    assert graph.nodes == ["0", "1", "2"] and graph.weights.tolist() == [2.5, 2.5, 1, 1]
    (tmp_path / "graph.csv").write_text("source,target\n0,1\n")
    (tmp_path / "nodes.csv").write_text("node,label\n0,a\n1,b\n2,a\n7,b\n")
    with pytest.raises(ValueError, match="2 of 4 nodes have no edge, such as 2: no walk reaches them; leave them out"):
        read_graph(tmp_path / "graph.csv", labels=tmp_path / "nodes.csv")
    for options in ({"return_p": 0}, {"inout_q": -1}, {"length": 1}):
        with pytest.raises(ValueError, match="p and q must be above 0"):
            next(random_walks(graph, **options))
    with pytest.raises(ValueError, match="nowhere is no file and no folder; give the edges of a graph, or karate"):
        read_graph("nowhere")


def test_nodes_are_scored_on_the_half_that_was_not_trained_on():
    labels = ["a", "b"] * 20
    vectors = np.array([[1.0 if label == "a" else -1.0, 0.0] for label in labels])
    assert score_nodes(vectors, labels) == {"f1_micro": 1.0, "f1_macro": 1.0}
    noise = np.random.default_rng(0).normal(size=(400, 2))
    assert score_nodes(noise, ["a", "b"] * 200)["f1_micro"] < 0.65
