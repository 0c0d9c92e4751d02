"""A small finished run: Bahdanau on `dates`, with all the files that a run saves."""

import shutil

import pytest
import torch
import transformers
from finished_run import RESULTS

from hf_edu_models import EduBahdanauConfig, EduBahdanauForConditionalGeneration
from hf_edu_models.data import collator_for, encode_corpus, load_corpus, train_tokenizer
from hf_edu_models.run_folder import write_results, write_settings


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory):
    """Read-only: tests that change files use `run`, a copy."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("runs") / "dates-small"
    options = {"languages": ("en_US",), "cache_dir": tmp_path_factory.mktemp("cache")}
    corpus = load_corpus("dates", train_size=60, validation_size=10, test_size=10, **options)
    tokenizer = train_tokenizer(corpus, kind="char", rung="bahdanau", cache_dir=options["cache_dir"])
    encoded = encode_corpus(corpus, tokenizer)
    sizes = {"hidden_size": 12, "embedding_size": 10, "maxout_size": 8, "initializer_range": 0.3}
    model = EduBahdanauForConditionalGeneration(EduBahdanauConfig(vocab_size=len(tokenizer), **sizes))
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=6, logging_steps=2, eval_strategy="steps", eval_steps=3, save_steps=6, report_to="none"
    )
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        data_collator=collator_for("translation", tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()
    trainer.save_state()
    write_settings(folder, RESULTS["settings"])
    write_results(folder, RESULTS)
    return folder


@pytest.fixture
def run(trained_run, tmp_path):
    return shutil.copytree(trained_run, tmp_path / trained_run.name)
