"""Continued pre-training: another text, the same tokenizer, from the weights of a run."""

import json

import torch
from safetensors.torch import load_file

from hf_edu_models.training import read_results


def test_it_keeps_the_tokenizer_and_starts_from_the_weights(smoke, run_recipe, tmp_path):
    """With a learning rate of zero nothing moves; the new text has words that the tokenizer has never seen."""
    first, text = smoke("bert-pretrain"), tmp_path / "domain.txt"
    lines = [f"zymurgy{number % 7} inhibits the quixotic enzyme{number % 5} ." for number in range(80)]
    text.write_text("\n".join(lines), "utf-8")
    options = ["--init-from", first, "--dataset", text, "--task", "language_modeling", "--validation_size", "10"]
    options += ["--test_size", "10", "--objective", "masked_lm", "--max_steps", "2", "--learning_rate", "0"]
    second = run_recipe("bert-pretrain", "--preset", "smoke", *options, "--output_dir", str(tmp_path / "domain"))
    vocabularies = [json.loads((run / "tokenizer.json").read_text("utf-8"))["model"] for run in (first, second)]
    assert vocabularies[0] == vocabularies[1]
    before, after = (load_file(run / "model.safetensors") for run in (first, second))
    assert all(torch.equal(after[name], before[name]) for name in after)
    assert read_results(second)["init_from"] == first.name
