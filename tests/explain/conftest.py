import sys
from pathlib import Path

import pytest

from hf_edu_models.data import train_tokenizer

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))  # `from tiny import ...` in this folder's tests
sys.path.insert(0, str(Path(__file__).parent))  # `from attenders import ...`

from attenders import TEXTS, Attender


@pytest.fixture(scope="session")
def tokenizers(tmp_path_factory):
    """A character tokenizer for each task."""
    folder = tmp_path_factory.mktemp("cache")
    tasks = ("seq2seq", "language_modeling", "bert")
    return {task: train_tokenizer(TEXTS, kind="char", task=task, cache_dir=folder) for task in tasks}


@pytest.fixture(scope="session")
def built(tokenizers):
    """A function that returns an attender's model and tokenizer, built once."""
    models = {}

    def build(attender: Attender):
        if attender.name not in models:
            models[attender.name] = attender.build(tokenizers[attender.task])
        return models[attender.name], tokenizers[attender.task]

    return build
