"""Position embeddings: the formula, its law, and those of models."""

import numpy as np
import pytest
import torch
import transformers
from attenders import ATTENDERS, TRANSLATORS
from typer.testing import CliRunner

from hf_edu_models.cli.explain import app
from hf_edu_models.explain import draw_positions, position_products, position_vectors

BY_NAME = {attender.name: attender for attender in ATTENDERS}


def formula(size, length):
    """Vaswani et al. 2017, Section 3.5, element by element."""
    vectors = np.zeros((length, size))
    for position in range(length):
        for i in range(size // 2):
            angle = position / 10_000 ** (2 * i / size)
            vectors[position, 2 * i], vectors[position, 2 * i + 1] = np.sin(angle), np.cos(angle)
    return vectors


def test_sinusoids_are_the_papers():
    np.testing.assert_allclose(position_vectors(14, 9), formula(14, 9), atol=1e-6)
    halves = position_vectors(14, 9, layout="halves")
    np.testing.assert_allclose(
        halves, np.concatenate([formula(14, 9)[:, 0::2], formula(14, 9)[:, 1::2]], axis=1), atol=1e-6
    )


def test_the_product_of_sinusoids_depends_on_the_distance_alone():
    products = position_products(position_vectors(30, 40))
    for distance in range(40):
        along = np.diagonal(products, offset=distance)
        np.testing.assert_allclose(along, along[0], atol=1e-4)
    np.testing.assert_allclose(np.diagonal(products), 15, atol=1e-4)  # sin² + cos² = 1, for each of 15 frequencies
    assert products[0, 1:].max() < products[0, 0]


def test_the_transformers_own_vectors_are_the_formula(built):
    model, _ = built(BY_NAME["transformer"])
    np.testing.assert_allclose(position_vectors(model, 200), formula(12, 200), atol=1e-5)
    np.testing.assert_array_equal(position_vectors(model.get_encoder(), 5), position_vectors(model, 5))


def test_the_transformer_adds_them_to_its_token_embeddings(built):
    """The encoder's first states minus the scaled token embeddings are the position embeddings."""
    model, _ = built(BY_NAME["transformer"])
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    with torch.no_grad():
        states = model.get_encoder()(ids, output_hidden_states=True).hidden_states[0][0]
        embeddings = model.get_input_embeddings()(ids)[0] * 12**0.5
    np.testing.assert_allclose(position_vectors(model, 5), (states - embeddings).numpy(), atol=1e-5)


@pytest.mark.parametrize(
    "name, path",
    [
        ("gpt", "model.embed_positions"),
        ("gpt2", "transformer.wpe"),
        ("bert", "model.embeddings.position_embeddings"),
        ("hf-bert", "bert.embeddings.position_embeddings"),
        ("marian", "model.encoder.embed_positions"),
    ],
)
def test_a_table_is_shown_as_it_is(built, name, path):
    model, _ = built(BY_NAME[name])
    table = model.get_submodule(path).weight.detach().numpy()
    np.testing.assert_array_equal(position_vectors(model, len(table)), table)
    with pytest.raises(ValueError, match=f"has {len(table)} positions, got length {len(table) + 1}"):
        position_vectors(model, len(table) + 1)


def test_marians_sinusoids_are_ours_in_halves(built):
    model, _ = built(BY_NAME["marian"])
    np.testing.assert_allclose(position_vectors(model, 20), position_vectors(12, 20, layout="halves"), atol=1e-5)


@pytest.mark.parametrize("head", ["BartModel", "RobertaModel"])
def test_rows_kept_for_padding_are_no_positions(head):
    names = {"BartModel": {"d_model": 12, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 3}}
    other = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 20}
    heads = {"decoder_attention_heads": 3, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20}
    settings = names[head] | heads if head in names else other
    config = getattr(transformers, head).config_class(vocab_size=30, max_position_embeddings=20, **settings)
    torch.manual_seed(0)
    model = getattr(transformers, head)(config)
    table = next(module for name, module in model.named_modules() if "position" in name).weight.detach().numpy()
    np.testing.assert_array_equal(position_vectors(model, 5), table[2:7])  # both have two such rows by default


def test_wrong_models_and_sizes_raise_an_error(built):
    with pytest.raises(ValueError, match="has no position embeddings"):
        position_vectors(built(TRANSLATORS[0])[0], 5)
    for size, length, message in ((7, 5, "even"), (0, 5, "even"), (8, 0, "length must be at least 1")):
        with pytest.raises(ValueError, match=message):
            position_vectors(size, length)
    with pytest.raises(ValueError, match="interleaved or halves"):
        position_vectors(8, 5, layout="thirds")


def test_the_picture_shows_vectors_and_products():
    vectors = position_vectors(16, 12)
    left, middle, right = draw_positions(vectors).axes[:3]
    np.testing.assert_array_equal(left.images[0].get_array(), vectors)
    np.testing.assert_array_equal(middle.images[0].get_array(), position_products(vectors))
    assert [line.get_label() for line in right.lines] == ["position 0", "position 6", "position 11"]
    assert len(draw_positions(vectors[:1]).axes[2].lines) == 1


def test_the_command_draws(built, tmp_path):
    model, tokenizer = built(BY_NAME["bert"])
    model.save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    for arguments, output in (
        (["--size", "32", "--length", "20"], "20 positions x 32"),
        ([str(tmp_path / "bert")], "90 positions x 12"),  # all that there are
    ):
        done = CliRunner().invoke(
            app, ["positions", *arguments, "--out", str(tmp_path / "x.png")], env={"COLUMNS": "200"}
        )
        assert done.exit_code == 0 and output in done.output, done.output
        assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    wrong = CliRunner().invoke(app, ["positions", "--out", str(tmp_path / "x.png")])
    assert "one of the two" in str(wrong.exception)
