"""Word alignments: against the model's own attentions, merged by hand; batches, shift, layers, scores, pictures."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from attenders import TRANSLATORS, by_name
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli.explain import app
from hf_edu_models.data import train_tokenizer
from hf_edu_models.explain import Alignment, align, best_layer, draw_alignments, draw_layers, score_links, symmetrize
from hf_edu_models.explain.alignment.pictures import max_panels
from hf_edu_models.metrics import load

SOURCES = ["the cat sat on the mat", "a cat", "the mat on the cat sat", "on"]
TARGETS = ["le chat noir dort", "chat", "noir le", "le chat le chat le chat"]
ROWS = [
    {"source": SOURCES[0], "target": TARGETS[0], "sure": [[0, 0], [1, 1]], "possible": [[2, 3]]},
    {"source": SOURCES[2], "target": TARGETS[2], "sure": [[1, 0]], "possible": []},
]


def token_weights(model, tokenizer, source, target):
    """(layers, heads, steps, source tokens) by a direct call of the model."""
    labels = tokenizer(text_target=target, return_tensors="pt")["input_ids"]
    inputs = tokenizer(source, return_tensors="pt")
    start = torch.full((1, 1), model.config.decoder_start_token_id)
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        outputs = model(**inputs, decoder_input_ids=torch.cat([start, labels], dim=1), output_attentions=True)
    model.set_attn_implementation(before)
    return torch.stack(outputs.cross_attentions, dim=1)[0].numpy()


def merged_by_hand(weights, source, target, shift):
    """For a character tokenizer: word by word with loops."""
    merged = np.zeros((len(target.split()), len(source.split())))
    for j, target_word in enumerate(word_positions(target)):
        for i, source_word in enumerate(word_positions(source)):
            steps = [position + shift for position in target_word]
            merged[j, i] = np.mean([sum(weights[step, position] for position in source_word) for step in steps])
    return merged


def word_positions(text):
    """The character positions of each word."""
    positions, start = [], 0
    for word in text.split(" "):
        positions.append(range(start, start + len(word)))
        start += len(word) + 1
    return positions


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("attender", **by_name(TRANSLATORS))
def test_weights_are_the_models_own_merged(built, attender, shift):
    model, tokenizer = built(attender)
    (found,) = align(model, tokenizer, SOURCES[:1], TARGETS[:1], shift=shift)
    tokens = token_weights(model, tokenizer, SOURCES[0], TARGETS[0])[-1].mean(axis=0)
    np.testing.assert_allclose(found.weights, merged_by_hand(tokens, SOURCES[0], TARGETS[0], shift), atol=1e-6)
    assert (found.source, found.target) == (SOURCES[0].split(), TARGETS[0].split())
    assert found.links == sorted((int(row.argmax()), j) for j, row in enumerate(found.weights))


@pytest.mark.parametrize("attender", **by_name(TRANSLATORS))
def test_merging_loses_nothing(built, attender):
    model, tokenizer = built(attender)
    (found,) = align(model, tokenizer, SOURCES[:1], TARGETS[:1])
    tokens = token_weights(model, tokenizer, SOURCES[0], TARGETS[0])[-1].mean(axis=0)
    inside = {position for word in word_positions(SOURCES[0]) for position in word}
    special = [position for position in range(tokens.shape[1]) if position not in inside]
    outside = [np.mean([tokens[step, special].sum() for step in word]) for word in word_positions(TARGETS[0])]
    np.testing.assert_allclose(found.outside, outside, atol=1e-6)
    np.testing.assert_allclose(found.weights.sum(axis=1) + outside, 1, atol=1e-6)


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("attender", **by_name(TRANSLATORS))
def test_a_batch_equals_its_rows(built, attender, shift):
    """Rows of all lengths, so padding changes nothing either."""
    model, tokenizer = built(attender)
    together = align(model, tokenizer, SOURCES, TARGETS, shift=shift)
    for batch_size in (1, 3):
        for one, other in zip(
            together, align(model, tokenizer, SOURCES, TARGETS, shift=shift, batch_size=batch_size), strict=True
        ):
            np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)
            assert (one.source, one.target) == (other.source, other.target)


def test_layers_and_heads_average(built):
    model, tokenizer = built(TRANSLATORS[1])
    layers, heads = range(3), range(3)

    def weights(**options):
        return align(model, tokenizer, SOURCES[:1], TARGETS[:1], **options)[0].weights

    np.testing.assert_allclose(weights(layer=1), np.mean([weights(layer=1, head=head) for head in heads], axis=0))
    np.testing.assert_allclose(weights(layer="mean"), np.mean([weights(layer=layer) for layer in layers], axis=0))
    np.testing.assert_array_equal(weights(), weights(layer=2))
    assert not np.allclose(weights(layer=0), weights(layer=1))
    for options in ({"layer": 3}, {"layer": -4}, {"head": 3}, {"layer": "last"}, {"head": True}):
        with pytest.raises(ValueError, match="must be from -3 to 2, or 'mean'"):
            weights(**options)


@pytest.mark.parametrize("attender", **by_name(TRANSLATORS))
def test_the_model_is_left_as_it_was(built, attender):
    model, tokenizer = built(attender)
    before = model.config._attn_implementation
    model.train()
    align(model, tokenizer, SOURCES[:1], TARGETS[:1])
    assert model.training and model.config._attn_implementation == before
    model.eval()


class FixedAttention(torch.nn.Module):
    """A model whose step i attends to source token i + `ahead`."""

    def __init__(self, ahead):
        super().__init__()
        self.ahead = ahead
        self.device = torch.device("cpu")
        names = {"is_encoder_decoder": True, "decoder_start_token_id": 1, "pad_token_id": 0}
        self.config = SimpleNamespace(**names, _attn_implementation="eager")

    def forward(self, input_ids, attention_mask, decoder_input_ids, **options):
        steps, tokens = decoder_input_ids.shape[1], input_ids.shape[1]
        attends = torch.arange(steps)[:, None] + self.ahead == torch.arange(tokens)[None]
        return SimpleNamespace(cross_attentions=(attends.float().expand(len(input_ids), 1, steps, tokens),))


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("kind", ["word", "char"])
def test_a_copy_is_linked_word_by_word(tmp_path, kind, shift):
    """Step i predicts token i and reads token i - 1."""
    texts = ["one two three", "four five"]
    tokenizer = train_tokenizer(texts, kind=kind, task="seq2seq", cache_dir=tmp_path)
    for found in align(FixedAttention(-1 if shift else 0), tokenizer, texts, texts, shift=shift):
        assert found.links == [(number, number) for number in range(len(found.source))]
        np.testing.assert_array_equal(found.weights, np.eye(len(found.source)))
    for found in align(FixedAttention(0), tokenizer, texts, texts, shift=True):
        assert not np.array_equal(found.weights, np.eye(len(found.source)))


def test_source_and_target_may_have_tokenizers_of_their_own(tmp_path):
    chars, words = (
        train_tokenizer(SOURCES + TARGETS, kind=kind, task="seq2seq", cache_dir=tmp_path) for kind in ("char", "word")
    )
    (found,) = align(FixedAttention(0), chars, ["ab cd"], ["le chat"], target_tokenizer=words)
    # Steps are words, source tokens are characters: the two words attend to the two characters of the first.
    np.testing.assert_array_equal(found.weights, [[1, 0], [1, 0]])


def test_the_best_layer_is_the_one_that_scores_best(built):
    model, tokenizer = built(TRANSLATORS[1])
    scores = best_layer(model, tokenizer, ROWS)
    assert [score.aer for score in scores] == sorted(score.aer for score in scores)
    assert {(score.layer, score.shift) for score in scores} == {(i, shift) for i in range(3) for shift in (False, True)}
    for score in scores:
        pairs = [row["source"] for row in ROWS], [row["target"] for row in ROWS]
        found = align(model, tokenizer, *pairs, layer=score.layer, shift=score.shift)
        expected = load("aer").compute(predictions=[each.pharaoh() for each in found], references=pharaoh_gold())
        assert (score.aer, score.precision, score.recall) == tuple(expected[k] for k in ("aer", "precision", "recall"))
    figure = draw_layers(scores, diagonal=0.5)
    assert len(figure.axes[0].lines) == 3
    with pytest.raises(ValueError, match="no rows"):
        best_layer(model, tokenizer, [])


def pharaoh_gold():
    return [{name: " ".join(f"{i}-{j}" for i, j in row[name]) for name in ("sure", "possible")} for row in ROWS]


def test_gold_links_score_without_an_error():
    assert score_links([row["sure"] for row in ROWS], ROWS) == {"aer": 0, "precision": 1, "recall": 1}
    assert score_links([[], []], ROWS)["aer"] == 1


def test_two_directions_are_symmetrized(built):
    model, tokenizer = built(TRANSLATORS[0])
    forward = align(model, tokenizer, SOURCES, TARGETS)
    backward = align(model, tokenizer, TARGETS, SOURCES)
    for method in ("intersect", "union", "grow-diag"):
        for there, back, merged in zip(forward, backward, symmetrize(forward, backward, method), strict=True):
            reverse = {(i, j) for j, i in back.links}
            assert set(there.links) & reverse <= set(merged.links) <= set(there.links) | reverse
            assert (merged.source, merged.target) == (there.source, there.target)
            np.testing.assert_allclose(merged.weights, (there.weights + back.weights.T) / 2)
    with pytest.raises(ValueError, match="pair 0 differs"):
        symmetrize(forward, forward)
    with pytest.raises(ValueError, match="4 and 3 pairs"):
        symmetrize(forward, backward[:3])


def test_models_without_cross_attention_raise_an_error(tokenizers):
    tokenizer = tokenizers["seq2seq"]
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 12}
    one_vector = hf_edu_models.EduSeq2SeqConfig(**sizes, embedding_size=10, num_hidden_layers=1, maxout_size=8)
    with pytest.raises(ValueError, match="has no cross-attention"):
        align(hf_edu_models.EduSeq2SeqForConditionalGeneration(one_vector), tokenizer, ["a"], ["le"])
    with pytest.raises(ValueError, match="has no encoder and decoder"):
        config = hf_edu_models.EduGPTConfig(**sizes, num_attention_heads=3, num_hidden_layers=1, intermediate_size=20)
        align(hf_edu_models.EduGPTForCausalLM(config), tokenizer, ["a"], ["le"])


def test_pairs_that_do_not_match_raise_an_error(built):
    model, tokenizer = built(TRANSLATORS[0])
    for sources, targets, message in (
        (["a"], ["le", "chat"], "1 sources and 2 targets"),
        ("a cat", "chat", "put a single sentence into a list"),
    ):
        with pytest.raises(ValueError, match=message):
            align(model, tokenizer, sources, targets)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        align(model, tokenizer, ["a"], ["le"], batch_size=0)
    assert align(model, tokenizer, [], []) == []


def test_an_empty_target_has_no_links(built):
    model, tokenizer = built(TRANSLATORS[0])
    (found,) = align(model, tokenizer, ["a cat"], [""])
    assert found.links == [] and found.weights.shape == (0, 2) and found.pharaoh() == ""


def test_the_picture_marks_links_and_gold_links(built):
    model, tokenizer = built(TRANSLATORS[0])
    found = align(model, tokenizer, [row["source"] for row in ROWS], [row["target"] for row in ROWS])
    figure = draw_alignments(found, ROWS)
    for axis, alignment, row in zip(figure.axes, found, ROWS, strict=False):
        np.testing.assert_array_equal(axis.images[0].get_array(), alignment.weights)
        marks = {each.get_label(): {tuple(offset) for offset in each.get_offsets()} for each in axis.collections}
        assert marks["linked by attention"] == set(alignment.links)
        assert marks["gold, sure"] == {tuple(link) for link in row["sure"]}
        assert marks.get("gold, possible", set()) == {tuple(link) for link in row["possible"]}
        assert [label.get_text() for label in axis.get_xticklabels()] == alignment.source
    with pytest.raises(ValueError, match="1 to 6 sentence pairs"):
        draw_alignments([])


def test_long_sentences_share_a_picture_with_fewer():
    short, long = (Alignment(["a"] * size, ["b"], np.ones((1, size)) / size, []) for size in (3, 50))
    assert max_panels([short] * 9) == 6 and max_panels([long] * 9) == 1 and max_panels([short, long, long]) == 2


@pytest.fixture(scope="module")
def folder(built, tmp_path_factory):
    return saved(built(TRANSLATORS[1]), tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def other_folder(built, tmp_path_factory):
    return saved(built(TRANSLATORS[0]), tmp_path_factory.mktemp("other"))


def saved(parts, folder):
    for part in parts:
        part.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def gold_file(tmp_path):
    path = tmp_path / "gold.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


def run(*arguments):
    return CliRunner().invoke(app, [*arguments], env={"COLUMNS": "120"})


def test_the_command_writes_links_and_scores(built, folder, gold_file, tmp_path):
    out = tmp_path / "deep" / "links.txt"
    done = run("align", folder, "--dataset", gold_file, "--shift", "--layer", "0", "--out", str(out))
    assert done.exit_code == 0, done.output
    pairs = [row["source"] for row in ROWS], [row["target"] for row in ROWS]
    expected = align(*built(TRANSLATORS[1]), *pairs, layer=0, shift=True)
    assert out.read_text().splitlines() == [each.pharaoh() for each in expected]
    score = score_links([each.links for each in expected], ROWS)
    assert f"{100 * score['aer']:.1f}" in done.output and f"{100 * score['recall']:.1f}" in done.output
    assert "the diagonal" in done.output


def test_the_command_writes_weights_and_pictures(built, folder, tmp_path):
    pair = ("--source", SOURCES[0], "--target", TARGETS[0])
    expected = align(*built(TRANSLATORS[1]), SOURCES[:1], TARGETS[:1])[0]
    for ending, start in ((".json", b"["), (".png", b"\x89PNG"), (".svg", b"<?xml")):
        out = tmp_path / f"links{ending}"
        assert run("align", folder, *pair, "--out", str(out)).exit_code == 0
        assert out.read_bytes().startswith(start)
    (saved,) = json.loads((tmp_path / "links.json").read_text())
    np.testing.assert_allclose(saved["weights"], expected.weights, atol=1e-6)
    assert [tuple(link) for link in saved["links"]] == expected.links
    assert expected.pharaoh() in run("align", folder, *pair).output


@pytest.mark.parametrize("join", [None, "union"])
def test_the_command_symmetrizes_two_directions(built, folder, other_folder, gold_file, tmp_path, join):
    out = tmp_path / "links.txt"
    asked = () if join is None else ("--join", join)
    done = run("align", folder, "--dataset", gold_file, "--backward", other_folder, *asked, "--out", str(out))
    assert done.exit_code == 0, done.output
    sources, targets = [row["source"] for row in ROWS], [row["target"] for row in ROWS]
    back = align(*built(TRANSLATORS[0]), targets, sources)
    joined = symmetrize(align(*built(TRANSLATORS[1]), sources, targets), back, join or "grow-diag")
    assert out.read_text().splitlines() == [each.pharaoh() for each in joined]
    for links in ([each.links for each in joined], [[(i, j) for j, i in each.links] for each in back]):
        assert f"{100 * score_links(links, ROWS)['aer']:.1f}" in done.output
    assert f"joined by {join or 'grow-diag'}" in done.output and "the diagonal" in done.output


def test_a_pair_of_words_may_have_several_links(folder, other_folder):
    """After symmetrization a target word can have several source words: the printed table shows all of them."""
    pair = ("--source", SOURCES[0], "--target", TARGETS[1])
    done = run("align", folder, *pair, "--backward", other_folder, "--join", "union")
    assert done.exit_code == 0, done.output
    (row,) = [line for line in done.output.splitlines() if "chat" in line]
    assert row.count("0.") == 6  # each of the six words attends to the only one


def test_the_command_chooses_a_layer_for_each_direction(built, folder, other_folder, gold_file):
    options = ("--dataset", gold_file, "--layer", "best", "--choose-on", "train")
    done = run("align", folder, *options, "--backward", other_folder)
    assert done.exit_code == 0 and done.output.count("choosing a layer") == 2, done.output
    back = [
        {"source": row["target"], "target": row["source"]}
        | {name: [[j, i] for i, j in row[name]] for name in ("sure", "possible")}
        for row in ROWS
    ]
    best = best_layer(*built(TRANSLATORS[0]), back)[0]
    assert f"{100 * best.aer:.1f}" in done.output.split("choosing a layer")[2]


def test_the_command_chooses_a_layer(folder, gold_file):
    done = run("align", folder, "--dataset", gold_file, "--layer", "best", "--choose-on", "train")
    assert done.exit_code == 0 and "choosing a layer" in done.output, done.output
    wrong = run("align", folder, "--dataset", gold_file, "--layer", "best")
    assert "no split 'validation'" in str(wrong.exception)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((), "one of the two"),
        (("--source", "a"), "together"),
        (("--source", "a", "--target", "b", "--dataset", "numbers"), "one of the two"),
        (("--source", "a", "--target", "b", "--out", "links.pdf"), "must end in"),
        (("--source", "a", "--target", "b", "--layer", "top"), "integer or mean or best"),
        (("--source", "a", "--target", "b", "--layer", "best"), "no split 'validation'"),
        (("--dataset", "numbers", "--source-language", "en", "--target-language", "fr"), "is built in and has no"),
        (("--dataset", "numbers", "--option", "size"), "name=value"),
        (("--source", "a", "--target", "b", "--join", "union"), "give the model that translates back"),
        (("--source", "a", "--target", "b", "--backward", "x", "--join", "sum"), "--join must be one of intersect"),
    ],
)
def test_wrong_options_raise_an_error(folder, arguments, message):
    done = run("align", folder, *arguments)
    assert isinstance(done.exception, ValueError) and message in str(done.exception)


@pytest.mark.slow
def test_a_model_trained_to_reverse_aligns_the_words(tmp_path):
    """The target is the reversed source, so the diagonal is wrong nearly everywhere."""
    from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, set_seed

    from hf_edu_models.data import collator_for, encode_corpus, load_corpus
    from hf_edu_models.explain import diagonal_links

    set_seed(0)
    corpus = load_corpus("reverse", train_size=3_000, validation_size=1, test_size=50, max_length=8, cache_dir=tmp_path)
    tokenizer = train_tokenizer(corpus, kind="word", cache_dir=tmp_path)
    names = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    sizes = {"hidden_size": 48, "embedding_size": 32, "maxout_size": 32, "encoder_hidden_size": 24}
    names["decoder_start_token_id"] = tokenizer.bos_token_id
    config = hf_edu_models.EduBahdanauConfig(vocab_size=len(tokenizer), **sizes, **names, initializer_range=0.1)
    model = hf_edu_models.EduBahdanauForConditionalGeneration(config)
    options = {"per_device_train_batch_size": 64, "learning_rate": 5e-3, "num_train_epochs": 8, "report_to": "none"}
    arguments = Seq2SeqTrainingArguments(str(tmp_path), **options, save_strategy="no", use_cpu=True, disable_tqdm=True)
    encoded = encode_corpus(corpus, tokenizer, cache_dir=tmp_path)
    collator = collator_for("translation", tokenizer)
    Seq2SeqTrainer(model, arguments, train_dataset=encoded["train"], data_collator=collator).train()

    rows = [dict(row) for row in corpus["test"]]
    for row in rows:
        last = len(row["source"].split()) - 1
        row |= {"sure": [[last - j, j] for j in range(last + 1)], "possible": []}
    found = align(model, tokenizer, [row["source"] for row in rows], [row["target"] for row in rows])
    ours = score_links([each.links for each in found], rows)["aer"]
    diagonal = score_links([diagonal_links(len(each.source), len(each.target)) for each in found], rows)["aer"]
    assert ours < 0.2 < 0.5 < diagonal
