"""The parts of every rung are those of its modules, with their sizes; the picture has all of them."""

import pytest
from torch import nn
from typer.testing import CliRunner

from hf_edu_models import (
    EduBertConfig,
    EduElmoConfig,
    EduGPTConfig,
    EduRecurrentConfig,
    EduTransformerConfig,
    EduTransformerXLConfig,
)
from hf_edu_models.auto import LADDER
from hf_edu_models.cli.commands import app
from hf_edu_models.explain import config_of, draw_architecture, find_parts
from hf_edu_models.plotting import render_figure


def texts(figure):
    return [text.get_text() for axis in figure.axes for text in axis.texts]


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_every_head_is_drawn_with_the_sizes_of_its_layers(rung):
    for head in rung.heads.values():
        config = rung.config(**rung.tiny)
        root = find_parts(config, head.__name__)
        figure = draw_architecture(root, "title")
        drawn = texts(figure)
        for module in head(config).modules():
            if type(module) is nn.Embedding:
                assert any(line.startswith(f"{module.num_embeddings:,} ") for line in drawn)
        linear = {
            f"{each.in_features:,} → {each.out_features:,}"
            for each in head(config).modules()
            if isinstance(each, nn.Linear)
        }
        assert {line for part in root for line in part.lines if "→" in line} <= linear
        width, height = figure.get_size_inches()
        assert width < 30 and height < 30
    assert render_figure(figure, "svg").startswith(b"<?xml")


def test_layers_repeat_and_residual_connections_follow_the_configuration():
    base = EduTransformerConfig(decoder_layers=4)
    encoder, decoder = [part for part in find_parts(base) if part.kind.endswith("Layer")]
    assert (encoder.repeats, decoder.repeats) == (6, 4)
    assert [part.kind for part in encoder.parts] == ["MultiHeadAttention", "PostNorm", "FeedForward", "PostNorm"]
    assert [part.name for part in decoder.parts if part.kind == "MultiHeadAttention"] == [
        "self_attention",
        "cross_attention",
    ]
    assert [part.is_causal for part in decoder.parts if part.kind == "MultiHeadAttention"] == [True, False]
    [layer] = [part for part in find_parts(EduGPTConfig(norm_first=True)) if part.kind.endswith("Layer")]
    assert [part.kind for part in layer.parts] == ["PreNorm", "MultiHeadAttention", "PreNorm", "FeedForward"]


def test_cells_show_their_equations_and_gates():
    for cell, gate, equation in (
        ("lstm", "forget", "c_t = f_t"),
        ("gru", "update", "z_t = sigmoid"),
        ("rnn", "tanh", "h_t ="),
    ):
        drawn = texts(draw_architecture(find_parts(EduRecurrentConfig(cell_type=cell)), "title"))
        assert any(line.startswith(equation) for line in drawn), cell
        assert gate in drawn and any("unrolled" in line for line in drawn)
        assert sum(line.startswith("h_t =") for line in drawn) == 1  # and not that of another paper


def test_statistics_of_data_and_tied_embeddings_fit_the_twin():
    """As the runs of the recipes for forecasts and of ULMFiT have them."""
    series = EduRecurrentConfig(num_input_channels=1, input_mean=[0.5], input_std=[2.0])
    assert find_parts(series, "EduRecurrentForTimeSeriesPrediction").parts
    tied = EduRecurrentConfig(embedding_size=20, hidden_size=20, tie_word_embeddings=True)
    assert "10,000 × 20" in [line for part in find_parts(tied) for line in part.lines]  # noqa: RUF001


def test_elmo_reads_both_ways_with_projected_lstms():
    root = find_parts(EduElmoConfig())
    drawn = texts(draw_architecture(root, "title"))
    assert [part.name for part in root if part.kind == "ProjectedLSTMCell"] == ["forward_lm", "backward_lm"]
    assert "forget" in drawn and "LSTM" in drawn
    assert any(line.startswith("c_t = f_t") for line in drawn) and "r_t = W_r h_t" in drawn


def test_masks_and_summed_embeddings():
    bert = texts(draw_architecture(find_parts(EduBertConfig()), "title"))
    assert bert.count("+") == 2 and any("every real token is seen" in line for line in bert)
    assert any("look-ahead mask" in line for line in texts(draw_architecture(find_parts(EduGPTConfig()), "title")))


def test_the_mask_of_transformer_xl_has_its_memory():
    drawn = texts(draw_architecture(find_parts(EduTransformerXLConfig()), "title"))
    assert "memory" in drawn and "8 heads of 64" in drawn and "+" not in drawn  # positions are not added to embeddings


def test_the_command(tmp_path):
    out = tmp_path / "gru.svg"
    command = ["draw", "recurrent", "--model", "cell_type=gru", "--model", "hidden_size=77", "--out", str(out)]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0 and out.stat().st_size > 1000
    config, head = config_of("recurrent", {"hidden_size": 77})
    assert config.hidden_size == 77 and head is None
    for wrong, message in (
        (["--model", "hidden_size"], "name=value"),
        (["--head", "EduNone"], "has no head 'EduNone'"),
    ):
        with pytest.raises(ValueError, match=message):
            CliRunner().invoke(app, ["draw", "recurrent", *wrong, "--out", str(out)], catch_exceptions=False)
