"""The results.json of the small run."""

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
RESULTS = {
    "rung": "bahdanau",
    "model_type": "edu_bahdanau",
    "architecture": "EduBahdanauForConditionalGeneration",
    "recipe": "2015_bahdanau.py",
    "preset": "dates",
    "command": "python recipes/2015_bahdanau.py --preset dates --seed 1",
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
