"""Tests of data use a cache of their own."""

import pytest


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    import datasets

    folder = tmp_path_factory.getbasetemp() / "datasets_cache"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
    datasets.disable_progress_bars()


@pytest.fixture(scope="session")
def story_corpus(tmp_path_factory):
    from hf_edu_models.data import load_corpus

    folder = tmp_path_factory.mktemp("stories")
    return load_corpus("stories", train_size=120, validation_size=20, test_size=20, cache_dir=folder)


@pytest.fixture(scope="session")
def bert_tokenizer(story_corpus):
    from hf_edu_models.data import train_tokenizer

    return train_tokenizer(story_corpus, kind="wordpiece", vocab_size=300, rung="bert", lowercase=True)
