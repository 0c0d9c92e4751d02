"""Tiny saved models of every task that the server answers."""

import pytest
import torch

import hf_edu_models
from hf_edu_models.data import train_tokenizer
from hf_edu_models.serve import ServeSettings, create_app

TEXTS = ["the cat sat on the mat", "a dog", "two dogs run in the park and one barks", "birds sing"] * 3
SIZES = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
RECURRENT = {"hidden_size": 12, "embedding_size": 10, "initializer_range": 0.4}
HEADS = {
    "bert": ("bert", "EduBertModel", SIZES | {"max_position_embeddings": 24}),
    "gpt": ("gpt", "EduGPTForCausalLM", SIZES | {"max_position_embeddings": 40}),
    "bahdanau": ("bahdanau", "EduBahdanauForConditionalGeneration", RECURRENT | {"maxout_size": 9}),
    "mlm": ("bert", "EduBertForMaskedLM", SIZES | {"max_position_embeddings": 24}),
    "labels": ("bert", "EduBertForSequenceClassification", SIZES | {"max_position_embeddings": 24, "num_labels": 3}),
    "tagger": ("recurrent", "EduRecurrentForTokenClassification", RECURRENT | {"num_labels": 3}),
    "reader": ("bert", "EduBertForQuestionAnswering", SIZES | {"max_position_embeddings": 24}),
    "han": ("hierarchical", "EduHierarchicalForSequenceClassification", RECURRENT | {"hidden_size": 6}),
}


def save_tiny(folder, rung, head, settings):
    head = getattr(hf_edu_models, head)
    tokenizer = train_tokenizer(TEXTS, kind="word", rung=rung)
    torch.manual_seed(0)
    model = head(head.config_class.for_tokenizer(tokenizer, **settings)).eval()
    for parameter in model.parameters():
        if parameter.abs().max() < 0.2:
            torch.nn.init.uniform_(parameter, -0.5, 0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """The folder of each tiny model, by name."""
    folder = tmp_path_factory.mktemp("served")
    return {name: save_tiny(folder / name, *head) for name, head in HEADS.items()}


@pytest.fixture(scope="session")
def client(served):
    from starlette.testclient import TestClient

    settings = ServeSettings(models=served, max_inputs=64, max_bytes=100_000, cpu_kernels="off")
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client
