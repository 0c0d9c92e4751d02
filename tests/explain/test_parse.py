"""The structural probe: trees become distances and come back, and a probe finds them only where they are."""

import json

import networkx
import numpy as np
import pytest
import torch
from attenders import ATTENDERS
from datasets import Dataset, DatasetDict
from scipy.stats import spearmanr
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli.explain import app
from hf_edu_models.data import load_treebank, train_tokenizer
from hf_edu_models.data.treebanks import check_tree, read_treebank
from hf_edu_models.explain import draw_parse_probe, draw_trees, parse_probe, untrained_copy
from hf_edu_models.explain.probes.trees import (
    attachment_score,
    chain_edges,
    gold_edges,
    mean_correlation,
    spanning_edges,
    tree_depths,
    tree_distances,
)

SLOTS = (
    ("the", "a", "this"),
    ("cat", "dog", "boy"),
    ("sees", "likes", "hits"),
    ("one", "my", "no"),
    ("mat", "hat", "bat"),
)
HEADS = [2, 3, 0, 5, 3]


def sentences(count, heads=HEADS, seed=0):
    """Words of five kinds in order, with their heads; `heads` may be None for random trees."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        tokens = [str(rng.choice(words)) for words in SLOTS] + ["."]
        rows.append({"tokens": tokens, "heads": [*(heads or random_heads(5, rng)), 3]})
    return rows


def random_heads(count, rng):
    order = rng.permutation(count)
    heads = [0] * count
    for place, word in enumerate(order[1:], start=1):
        heads[word] = int(order[rng.integers(place)]) + 1
    return heads


@pytest.fixture(scope="module")
def model_and_tokenizer(tmp_path_factory):
    texts = [" ".join(row["tokens"]) for row in sentences(50)]
    tokenizer = train_tokenizer(texts, kind="word", cache_dir=tmp_path_factory.mktemp("cache"))
    torch.manual_seed(0)
    config = hf_edu_models.EduRecurrentConfig(vocab_size=len(tokenizer), embedding_size=40, hidden_size=24)
    return hf_edu_models.EduRecurrentForCausalLM(config), tokenizer


@pytest.mark.parametrize("seed", range(5))
def test_distances_and_depths_are_those_of_the_graph(seed):
    heads = random_heads(9, np.random.default_rng(seed))
    graph = networkx.Graph((word, head - 1) for word, head in enumerate(heads) if head)
    paths = dict(networkx.all_pairs_shortest_path_length(graph))
    distances = tree_distances(heads)
    root = heads.index(0)
    for one in range(9):
        assert tree_depths(heads)[one] == paths[root][one]
        assert distances[one].tolist() == [paths[one][other] for other in range(9)]


@pytest.mark.parametrize("seed", range(3))
def test_the_spanning_tree_is_the_smallest_without_punctuation(seed):
    rng = np.random.default_rng(seed)
    tokens = ["a", ",", "b", "c", "d", "e", "."]
    points = rng.normal(size=(7, 3))
    distances = ((points[:, None] - points[None]) ** 2).sum(-1)
    graph = networkx.Graph()
    words = [0, 2, 3, 4, 5]
    graph.add_weighted_edges_from((i, j, distances[i, j]) for i in words for j in words if i < j)
    expected = {(min(edge), max(edge)) for edge in networkx.minimum_spanning_edges(graph, data=False)}
    assert spanning_edges(tokens, distances) == expected


@pytest.mark.parametrize("seed", range(3))
def test_a_tree_comes_back_from_its_distances(seed):
    tokens, heads = list("abcdefgh"), random_heads(8, np.random.default_rng(seed))
    gold = gold_edges(tokens, heads)
    assert len(gold) == 7 and spanning_edges(tokens, tree_distances(heads)) == gold
    assert attachment_score([gold], [gold]) == 1


def test_scores_by_hand():
    tokens = ["a", "b", "!", "c"]
    gold = gold_edges(tokens, [2, 0, 2, 1])
    assert gold == {(0, 1), (0, 3)} and chain_edges(tokens) == {(0, 1), (1, 3)}
    assert attachment_score([gold, {(0, 1)}], [chain_edges(tokens), {(0, 1)}]) == 2 / 3


def test_the_correlation_is_scipys_averaged_by_length():
    rng = np.random.default_rng(0)
    sizes = (4, 5, 5, 7)  # sentences of 4 words do not count
    gold, predicted = ([rng.integers(9, size=(size, size)).astype(float) for size in sizes] for _ in range(2))
    means = [
        np.mean([spearmanr(*rows).statistic for rows in zip(one, other, strict=True)])
        for one, other in zip(gold, predicted, strict=True)
    ]
    assert mean_correlation(gold, predicted) == pytest.approx((np.mean(means[1:3]) + means[3]) / 2)
    assert mean_correlation([gold[1][0]], [predicted[1][0]]) == pytest.approx(
        spearmanr(gold[1][0], predicted[1][0]).statistic
    )


def test_the_probe_finds_trees_that_the_words_tell_and_no_others(model_and_tokenizer):
    options = {"layers": [0], "train_size": 80, "test_size": 40, "epochs": 150, "control": False}
    told = parse_probe(*model_and_tokenizer, sentences(120), **options)
    assert told.best.uuas > 0.95 and told.best.distance_spearman > 0.8 and told.best.root_accuracy > 0.95
    assert told.chain == pytest.approx(3 / 4)  # but for sees - one
    hidden = parse_probe(*model_and_tokenizer, sentences(120, heads=None), **options)
    assert hidden.best.uuas < 0.7 and hidden.best.root_accuracy < 0.6


def test_layers_learn_together_as_they_do_alone(model_and_tokenizer):
    options = {"train_size": 30, "test_size": 10, "epochs": 3, "control": False}
    together = parse_probe(*model_and_tokenizer, sentences(40), **options)
    alone = parse_probe(*model_and_tokenizer, sentences(40), layers=[2], **options)
    expected, found = vars(together.layers[2]), vars(alone.layers[0])
    assert found == pytest.approx(expected, abs=0.02) and len(together.layers) == 3


def test_the_control_has_the_same_sizes_and_tables_and_other_weights(model_and_tokenizer):
    model, _ = model_and_tokenizer
    before = torch.get_rng_state()
    one, same, other = (untrained_copy(model, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    for (name, ours), theirs in zip(model.named_parameters(), one.parameters(), strict=True):
        assert ours.shape == theirs.shape and torch.equal(theirs, same.get_parameter(name))
    assert not torch.equal(one.get_input_embeddings().weight, other.get_input_embeddings().weight)
    config = hf_edu_models.EduElmoConfig(
        vocab_size=9, hidden_size=6, cell_size=8, token_encoder="characters", char_filters=[[1, 4]], max_characters=5
    )
    speller = hf_edu_models.EduElmoForPreTraining(config)
    speller.get_input_embeddings().spell_vocabulary([b"ab"] * 9)
    for ours, theirs in zip(speller.buffers(), untrained_copy(speller).buffers(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_result_has_a_control_trees_and_a_picture(model_and_tokenizer):
    result = parse_probe(*model_and_tokenizer, sentences(60), train_size=40, test_size=20, epochs=2, examples=2)
    assert len(result.untrained) == len(result.layers) == 3 and len(result.sentences) == 2
    for sentence in result.sentences:
        assert len(sentence.gold) == len(sentence.predicted) == 4 and sentence.tokens[-1] == "."
    figure = draw_parse_probe(result)
    assert list(figure.axes[0].lines[0].get_ydata()) == [each.uuas for each in result.layers]
    assert list(figure.axes[0].lines[1].get_ydata()) == [each.uuas for each in result.untrained]
    arcs = draw_trees(result.sentences[:1]).axes[0].lines
    assert len(arcs) == 8


def test_sentences_that_the_model_cannot_read_whole_are_left_out(built):
    model, tokenizer = built(next(each for each in ATTENDERS if each.name == "bert"))
    long = {"tokens": ["the"] * 60, "heads": [0, *range(1, 60)]}
    result = parse_probe(model, tokenizer, [*sentences(12), long], train_size=9, test_size=4, epochs=1, control=False)
    assert result.left_out == 1 and result.train_sentences + result.test_sentences == 12


@pytest.mark.parametrize(
    "heads, message",
    [([0, 0, 1], "one root.*got 2"), ([2, 1], "one root.*got 0"), ([0, 3, 2], "circle"), ([0, 9], "from 0 to 2")],
)
def test_heads_that_are_no_tree_are_refused(heads, message):
    with pytest.raises(ValueError, match=message):
        check_tree(heads)


def test_a_file_of_universal_dependencies_is_read(tmp_path):
    file = tmp_path / "tiny.conllu"
    rows = [("1-2", "dont", "_"), ("1", "do", "0"), ("2", "nt", "1"), ("3", "go", "1")]
    file.write_text("".join(f"{n}\t{word}\t_\t_\t_\t_\t{head}\t_\t_\t_\n" for n, word, head in rows) + "\n")
    (row,) = load_treebank(str(file))["train"]
    assert row == {"tokens": ["do", "nt", "go"], "heads": [0, 1, 1]}


def test_a_head_that_is_no_number_is_refused():
    rows = Dataset.from_list([{"tokens": ["dogs", "bark"], "heads": ["x", "0"]}])
    with pytest.raises(ValueError, match="train, row 0: the head of 'dogs' is 'x'"):
        read_treebank({"train": rows}, "test.conllu")["train"][0]


def test_a_dataset_without_heads_is_refused(tmp_path):
    Dataset.from_list([{"tokens": ["a"], "tags": ["x"]}]).to_parquet(tmp_path / "train.parquet")
    with pytest.raises(ValueError, match="needs tokens and head"):
        load_treebank(str(tmp_path))


@pytest.mark.parametrize(
    "options, message", [({"rank": 0}, "rank"), ({"epochs": 0}, "epochs"), ({"layers": [9]}, "layer must be from")]
)
def test_wrong_options_are_refused(model_and_tokenizer, options, message):
    with pytest.raises(ValueError, match=message):
        parse_probe(*model_and_tokenizer, sentences(10), **options)


def test_the_command_prints_and_draws(model_and_tokenizer, tmp_path):
    for part in model_and_tokenizer:
        part.save_pretrained(tmp_path / "model")
    rows = [{"tokens": row["tokens"], "head": row["heads"]} for row in sentences(50)]
    whole = Dataset.from_list(rows)
    DatasetDict(train=whole.select(range(35)), test=whole.select(range(35, 50))).save_to_disk(tmp_path / "trees")
    arguments = ["parse", str(tmp_path / "model"), "--dataset", str(tmp_path / "trees"), "--epochs", "2"]
    for name in ("x.json", "x.png"):
        done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / name)], env={"COLUMNS": "120"})
        assert done.exit_code == 0 and "random weights at best" in done.output, done.output
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    saved = json.loads((tmp_path / "x.json").read_text())
    expected = parse_probe(*model_and_tokenizer, load_treebank(str(tmp_path / "trees")), epochs=2)
    assert saved == json.loads(json.dumps(expected.to_dict()))
