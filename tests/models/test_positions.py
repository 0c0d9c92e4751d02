"""First vectors of positions: the Transformer's sinusoids as a start for tables that learn."""

import pytest
import torch
from torch.testing import assert_close

import hf_edu_models
from hf_edu_models.hub import to_transformers
from hf_edu_models.models.blocks_positions import LearnedPositions, SinusoidalPositions
from tests.models.tiny import BERT, GPT

BODIES = {"EduBertModel": BERT, "EduGPTModel": GPT}


def build(name, **changes):
    body = getattr(hf_edu_models, name)
    return body(body.config_class(**BODIES[name] | {"initializer_range": 0.3} | changes))


def table_of(model):
    (table,) = (module for module in model.modules() if isinstance(module, LearnedPositions))
    return table.weight


@pytest.mark.parametrize("name", BODIES)
def test_sinusoids_are_a_start_as_wide_as_a_words_numbers(name):
    table = table_of(build(name, position_init="sinusoidal"))
    assert_close(table, 2 * 0.3 * SinusoidalPositions(12)(torch.arange(40)))
    assert table.requires_grad


@pytest.mark.parametrize("name", BODIES)
def test_only_a_start_of_sinusoids_shows_who_is_whose_neighbour(name):
    """In sinusoids the product of two positions depends on their distance alone."""

    def spread(table):
        products = table @ table.T
        return max(products.diagonal(distance).std().item() for distance in range(20))

    assert spread(table_of(build(name, position_init="sinusoidal"))) < 1e-5
    assert spread(table_of(build(name))) > 0.1


@pytest.mark.parametrize("name", BODIES)
def test_what_positions_have_learnt_survives_saving(name, tmp_path):
    model = build(name, position_init="sinusoidal")
    table_of(model).data.normal_()
    model.save_pretrained(tmp_path)
    assert torch.equal(table_of(type(model).from_pretrained(tmp_path)), table_of(model))


@pytest.mark.parametrize("name", BODIES)
def test_an_odd_size_has_one_wave_without_its_partner(name):
    table = table_of(build(name, position_init="sinusoidal", hidden_size=15))
    assert_close(table[:, -1], 2 * 0.3 * torch.sin(torch.arange(40) / 10_000 ** (14 / 15)))


def test_transformers_own_models_take_the_weights_all_the_same():
    model = hf_edu_models.EduBertForMaskedLM(hf_edu_models.EduBertConfig(**BERT, position_init="sinusoidal")).eval()
    input_ids = torch.tensor([[5, 6, 7, 8]])
    assert_close(to_transformers(model).eval()(input_ids).logits, model(input_ids).logits)
