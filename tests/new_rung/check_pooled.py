"""A document's embedding is the mean over sentences of the mean over tokens."""

import torch
from tiny import CASES, inputs_for
from torch.testing import assert_close


def test_the_mean_of_means():
    model, inputs = CASES["pooled"].build(), inputs_for(CASES["pooled"])
    body = model.model
    rows = []
    for document in inputs["input_ids"]:
        rows.append(torch.stack([body.layer.proj(body.embed_tokens(ids).mean(0)).tanh() for ids in document]).mean(0))
    assert_close(body(**inputs).pooler_output, torch.stack(rows))
