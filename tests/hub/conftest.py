"""One finished run, small and real: Bahdanau on `dates`, with everything that a run leaves in its folder."""

import shutil

import pytest
import torch
import transformers

from hf_edu_models import EduBahdanauConfig, EduBahdanauForConditionalGeneration
from hf_edu_models.data import collator_for, encode_corpus, load_corpus, train_tokenizer
from hf_edu_models.training.run_folder import write_results, write_settings

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
RESULTS = {
    "rung": "bahdanau",
    "model_type": "edu_bahdanau",
    "architecture": "EduBahdanauForConditionalGeneration",
    "recipe": "04_bahdanau.py",
    "preset": "dates",
    "command": "python recipes/04_bahdanau.py --preset dates --seed 1",
    "task": "translation",
    "data": {"name": "dates", "sizes": {"train": 60, "validation": 10, "test": 10}},
    "init_from": None,
    "parameters": 12_345_678,
    "seconds": 812.4,
    "steps": 6,
    "epochs": 1.0,
    "seed": 1,
    "machine": {"device": "cpu", "threads": 2, "processes": 1},
    "versions": {"hf_edu_models": "0.1.0", "torch": "2.13.0", "transformers": "5.22.2", "python": "3.11.2"},
    "settings": {"learning_rate": 0.003, "num_train_epochs": 1},
    "main_score": "bleu",
    "scores": {
        "test": {"bleu": 34.2187, "bleu_interval": [33.1, 35.2], "bleu_signature": SIGNATURE, "exact_match": 0.25},
        "validation": {"bleu": 35.5, "bleu_signature": SIGNATURE, "exact_match": 0.5, "runtime": 3.0},
    },
    "samples": [{"source": "Mon, 5/6/1935", "reference": "1935-05-06", "prediction": "1935-06-05"}],
    "published": [{"system": "RNNsearch", "score": 28.3, "metric": "bleu", "source": "a paper", "note": "lowercased"}],
    "licence": "apache-2.0",
}


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory):
    """Never changed: tests take `run`, a copy."""
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
