"""Neighbours of a word, and one word in several contexts."""

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli.explain import app
from hf_edu_models.data import KINDS, train_tokenizer
from hf_edu_models.explain import draw_contexts, in_contexts, nearest

TEXTS = ["the bank of the river", "money in the bank , the Bank", "the dog and the cat", "Paris and the river"]
SENTENCES = ["the river bank", "the bank and the money", "Bank of the dog"]
STATIC, DEEP = ("feedforward", "recurrent"), ("gpt", "bert", "transformer")
SIZES = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
HEADS = {
    "feedforward": ("EduFeedForwardForCausalLM", {"hidden_size": 12, "embedding_size": 10, "window_size": 3}),
    "recurrent": ("EduRecurrentForCausalLM", {"hidden_size": 12, "embedding_size": 10, "num_hidden_layers": 2}),
    "gpt": ("EduGPTForCausalLM", SIZES),
    "bert": ("EduBertModel", SIZES),
    "transformer": ("EduTransformerForConditionalGeneration", SIZES),
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return train_tokenizer(TEXTS, kind="word", task="bert", cache_dir=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def models(tokenizer):
    torch.manual_seed(0)
    built = {}
    for name, (head, settings) in HEADS.items():
        model_class = getattr(hf_edu_models, head)
        built[name] = model_class(model_class.config_class(vocab_size=len(tokenizer) + 3, **settings)).eval()
    return built


def test_the_nearest_are_those_of_the_greatest_cosine(models, tokenizer):
    model = models["bert"]
    table = model.get_input_embeddings().weight
    found = nearest(model, tokenizer, "bank", k=4)
    number = tokenizer.convert_tokens_to_ids("▁bank")
    cosines = torch.cosine_similarity(table[number][None], table).tolist()
    allowed = [i for i in range(len(tokenizer)) if i != number and i not in tokenizer.all_special_ids]
    best = sorted(allowed, key=lambda i: -cosines[i])[:4]
    assert [each.token for each in found.neighbours] == tokenizer.convert_ids_to_tokens(best)
    np.testing.assert_allclose([each.similarity for each in found.neighbours], [cosines[i] for i in best], atol=1e-6)
    assert found.tokens == ["▁bank"]
    assert [each.text for each in found.neighbours] == [each.token.lstrip("▁") for each in found.neighbours]


def test_a_planted_twin_is_the_nearest(models, tokenizer):
    model = models["recurrent"]
    table = model.get_input_embeddings().weight.data
    dog, cat = tokenizer.convert_tokens_to_ids(["▁dog", "▁cat"])
    table[dog] = 3 * table[cat]
    best = nearest(model, tokenizer, "dog", k=1).neighbours[0]
    assert best.text == "cat" and best.similarity == pytest.approx(1)


def test_no_more_neighbours_than_tokens(models, tokenizer):
    found = nearest(models["gpt"], tokenizer, "bank", k=10_000)
    assert len(found.neighbours) == len(tokenizer) - len(tokenizer.all_special_ids) - 1
    assert all(-1 <= each.similarity <= 1 + 1e-9 for each in found.neighbours)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_tokenizer_finds_the_words_own_tokens(kind, tmp_path):
    tokenizer = train_tokenizer(TEXTS, kind=kind, vocab_size=400, task="seq2seq", cache_dir=tmp_path)
    torch.manual_seed(0)
    config = hf_edu_models.EduRecurrentConfig(vocab_size=len(tokenizer), hidden_size=12, embedding_size=10)
    found = nearest(hf_edu_models.EduRecurrentForCausalLM(config), tokenizer, "river", k=3)
    assert tokenizer.convert_tokens_to_string(found.tokens).strip() == "river"
    assert len(found.neighbours) == 3 and not set(found.tokens) & {each.token for each in found.neighbours}
    if kind in ("word", "wordpiece", "bpe"):
        assert len(found.tokens) == 1


def test_another_case_is_tried(models, tokenizer):
    assert nearest(models["bert"], tokenizer, "Dog").tokens == ["▁dog"]
    assert nearest(models["bert"], tokenizer, "paris").tokens == ["▁Paris"]
    assert nearest(models["bert"], tokenizer, "Bank").tokens == ["▁Bank"]  # known as written


@pytest.mark.parametrize("word, message", [("rivers", "it knows river"), ("", "one word"), ("the dog", "one word")])
def test_an_unknown_word_raises_an_error(models, tokenizer, word, message):
    with pytest.raises(ValueError, match=message):
        nearest(models["bert"], tokenizer, word)


def test_a_tokenizer_of_another_model_raises_an_error(models, tmp_path):
    other = train_tokenizer(TEXTS, kind="bpe", vocab_size=300, task="bert", cache_dir=tmp_path)
    for call in (
        lambda: nearest(models["bert"], other, "dog"),
        lambda: in_contexts(models["bert"], other, "dog", TEXTS[2:3]),
    ):
        with pytest.raises(ValueError, match="same checkpoint"):
            call()


@pytest.mark.parametrize("name", HEADS)
def test_the_embedding_table_is_independent_of_context(models, tokenizer, name):
    found = in_contexts(models[name], tokenizer, "bank", SENTENCES[:2], layer="static")
    number = tokenizer.convert_tokens_to_ids("▁bank")
    own = models[name].get_input_embeddings().weight[number].detach().numpy()
    np.testing.assert_allclose(found.vectors, [own, own], atol=1e-6)
    np.testing.assert_allclose(found.similarities, 1)


@pytest.mark.parametrize("name", STATIC)
def test_embeddings_without_positions_are_equal_and_hidden_states_differ(models, tokenizer, name):
    below, above = (in_contexts(models[name], tokenizer, "bank", SENTENCES[:2], layer=layer) for layer in (0, -1))
    np.testing.assert_allclose(below.vectors[0], below.vectors[1], atol=1e-7)
    assert above.similarities[0, 1] < 1 - 1e-6


@pytest.mark.parametrize("name", DEEP)
def test_hidden_states_depend_on_the_context(models, tokenizer, name):
    """The same words before it and after it: only the rest of the sentence differs."""
    same_position = ["the bank of the river", "the bank of the dog"]
    below, above = (in_contexts(models[name], tokenizer, "bank", same_position, layer=layer) for layer in (0, -1))
    np.testing.assert_allclose(below.vectors[0], below.vectors[1], atol=1e-6)
    differs = np.abs(above.vectors[0] - above.vectors[1]).max() > 1e-6
    assert differs == (name != "gpt")  # which is causal: it has not read the end yet


def test_vectors_are_the_models_own(models, tokenizer):
    sentence, model = SENTENCES[1], models["bert"]
    with torch.no_grad():
        states = model(**tokenizer(sentence, return_tensors="pt"), output_hidden_states=True).hidden_states
    position = tokenizer.tokenize(sentence).index("▁bank") + 1  # after [CLS]
    for layer in (0, 1, 2):
        found = in_contexts(model, tokenizer, "bank", SENTENCES[:2], layer=layer)
        np.testing.assert_allclose(found.vectors[1], states[layer][0, position].numpy(), atol=1e-6)


def test_a_word_of_several_tokens_has_their_mean(models, tmp_path):
    chars = train_tokenizer(["the dog and"], kind="char", task="bert", cache_dir=tmp_path)
    found = in_contexts(models["bert"], chars, "dog", ["the dog and"], layer="static")
    table = models["bert"].get_input_embeddings().weight
    np.testing.assert_allclose(
        found.vectors[0], table[chars.convert_tokens_to_ids(list("dog"))].mean(dim=0).detach().numpy(), atol=1e-6
    )


def test_every_occurrence_counts_whole_words_only(models, tokenizer):
    found = in_contexts(models["bert"], tokenizer, "the", ["the dog and the cat , then", "The cat"])
    assert found.sentences == ["the dog and the cat , then"] * 2 + ["The cat"]
    assert found.vectors.shape == (3, 12) and found.similarities.shape == (3, 3)
    with pytest.raises(ValueError, match="'ank' is not in the sentence"):
        in_contexts(models["bert"], tokenizer, "ank", SENTENCES)


@pytest.mark.parametrize("layer", [3, -4, "last", True])
def test_an_unknown_layer_raises_an_error(models, tokenizer, layer):
    with pytest.raises(ValueError, match="layer must be from -3 to 2"):
        in_contexts(models["bert"], tokenizer, "bank", SENTENCES, layer=layer)


def test_the_picture_shows_the_cosines(models, tokenizer):
    found = in_contexts(models["bert"], tokenizer, "bank", [*SENTENCES, "the $ bank $ " + "and the river " * 20])
    axis = draw_contexts(found).axes[0]
    np.testing.assert_array_equal(axis.images[0].get_array(), found.similarities)
    assert [text.get_text() for text in axis.texts][:4] == [f"{value:.2f}" for value in found.similarities[0]]
    assert max(len(label.get_text()) for label in axis.get_yticklabels()) < 70


def test_the_commands_print_and_draw(models, tokenizer, tmp_path):
    for part in (models["bert"], tokenizer):
        part.save_pretrained(tmp_path / "bert")
    folder, out = str(tmp_path / "bert"), tmp_path / "x.svg"

    def run(*arguments):
        return CliRunner().invoke(app, [*arguments], env={"COLUMNS": "120"})

    done = run("neighbours", folder, "bank", "-k", "3")
    assert done.exit_code == 0 and nearest(models["bert"], tokenizer, "bank").neighbours[2].text in done.output
    done = run("contexts", folder, "bank", *SENTENCES, "--out", str(out))
    assert done.exit_code == 0 and SENTENCES[1] in done.output and out.read_text().startswith("<?xml")
    assert "1.00" in run("contexts", folder, "bank", *SENTENCES, "--layer", "static").output
    assert "integer or static" in str(run("contexts", folder, "bank", *SENTENCES, "--layer", "top").exception)
