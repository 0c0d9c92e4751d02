"""The hierarchical network against `nn.GRU` and a loop over documents and sentences, without padding or batches."""

import pytest
import torch
from tiny import CASES, inputs_for, random_ids
from torch import nn
from torch.testing import assert_close

from hf_edu_models.models.blocks_pooling import AttentionPooling, redundancy_penalty

POOLINGS = ("hierarchical", "hierarchical-mean")


def gru_of(layer):
    """torch's GRU with the weights of a layer of ours."""
    cell = layer.forward_cell
    reference = nn.GRU(cell.input_weight.shape[1], cell.state_weight.shape[1], bidirectional=True)
    names = {"weight_ih": "input_weight", "weight_hh": "state_weight", "bias_ih": "input_bias", "bias_hh": "state_bias"}
    with torch.no_grad():
        for theirs, ours in names.items():
            getattr(reference, f"{theirs}_l0").copy_(getattr(layer.forward_cell, ours))
            getattr(reference, f"{theirs}_l0_reverse").copy_(getattr(layer.backward_cell, ours))
    return reference


def read(reader, inputs, pooling):
    """One sequence (T, I): its vector and weights."""
    states, _ = gru_of(reader.layer)(inputs)
    if pooling == "mean":
        return states.mean(0), torch.full((len(states),), 1 / len(states))
    weights = torch.softmax(torch.tanh(reader.pooling.proj(states)) @ reader.pooling.query_proj.weight[0], dim=0)
    return weights @ states, weights


@pytest.mark.parametrize("form", ["eager", "fused"])
@pytest.mark.parametrize("name", POOLINGS)
def test_it_is_a_loop_over_documents_and_sentences(name, form):
    """Three documents of different sizes in one padded batch."""
    model = CASES[name].build(form=form)
    body, pooling = model.model, model.config.pooling
    documents = [[random_ids(n, seed=n + 10 * d) for n in counts] for d, counts in enumerate([(3, 1, 7), (2,), (5, 5)])]
    ids, mask = torch.zeros(3, 3, 7, dtype=torch.long), torch.zeros(3, 3, 7, dtype=torch.long)
    for row, document in enumerate(documents):
        for number, sentence in enumerate(document):
            ids[row, number, : len(sentence)], mask[row, number, : len(sentence)] = sentence, 1
    outputs = model(ids, mask, output_attentions=True)
    word_weights, sentence_weights = outputs.attentions
    for row, document in enumerate(documents):
        vectors = []
        for number, sentence in enumerate(document):
            vector, weights = read(body.word_reader, body.embed_tokens(sentence), pooling)
            vectors.append(vector)
            assert_close(word_weights[row, number, : len(sentence)], weights)
            assert not word_weights[row, number, len(sentence) :].any()
        document_vector, weights = read(body.sentence_reader, torch.stack(vectors), pooling)
        assert_close(sentence_weights[row, : len(document)], weights)
        assert not sentence_weights[row, len(document) :].any() and not word_weights[row, len(document) :].any()
        assert_close(outputs.logits[row], model.classifier(document_vector))


@pytest.mark.parametrize("name", [*POOLINGS, "hierarchical-max-lstm"])
def test_sentences_of_padding_change_nothing(name):
    model, inputs = CASES[name].build(), inputs_for(CASES[name])
    ids = torch.cat([inputs["input_ids"], random_ids(2, 2, 7, seed=4)], dim=1)
    mask = torch.ones_like(ids)
    mask[:, 3:] = 0
    expected, found = model(**inputs, output_attentions=True), model(ids, mask, output_attentions=True)
    assert_close(found.logits, expected.logits)
    for mine, theirs in zip(found.attentions, expected.attentions, strict=True):
        assert_close(mine[:, :3], theirs)
        assert not mine[:, 3:].any()


def test_the_largest_states_are_pooled():
    model, inputs = CASES["hierarchical-max-lstm"].build(), inputs_for(CASES["hierarchical-max-lstm"])
    outputs = model.model(**inputs, output_attentions=True)
    assert_close(outputs.pooler_output, outputs.last_hidden_state.amax(dim=1))
    assert_close(outputs.attentions[1].sum(-1), torch.ones(2))


@pytest.mark.parametrize("name", ["input_ids", "inputs_embeds"])
def test_texts_that_are_not_cut_into_sentences_are_rejected(name):
    given = random_ids(2, 7) if name == "input_ids" else torch.zeros(2, 7, 10)
    with pytest.raises(ValueError, match=r"documents are \(batch, sentences, tokens"):
        CASES["hierarchical"].build()(**{name: given})


def test_a_document_without_a_sentence_is_rejected():
    inputs = inputs_for(CASES["hierarchical"])
    mask = torch.ones_like(inputs["input_ids"])
    mask[1] = 0
    with pytest.raises(ValueError, match="all zeros in row 1"):
        CASES["hierarchical"].build()(**inputs, attention_mask=mask)


def test_queries_that_attend_to_different_tokens_have_no_penalty():
    torch.manual_seed(0)
    same = torch.tensor([[[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]])
    apart = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])
    assert redundancy_penalty(apart).item() == 0 < redundancy_penalty(same).item()
    pooled, weights = AttentionPooling(12, 8, num_queries=4)(torch.randn(2, 7, 12), None)
    assert pooled.shape == (2, 4, 12)
    assert_close(weights.sum(-1), torch.ones(2, 4))
