"""A run that reads long texts in windows: its scores are repeated, and new texts are read in windows, too."""

import pytest

from hf_edu_models.prediction import load_predictor
from hf_edu_models.training import read_results
from hf_edu_models.training.evaluate_checkpoint import EvaluationRequest, score_checkpoint


def test_a_run_with_windows_is_evaluated_and_predicts_with_windows(run_recipe, tmp_path, monkeypatch):
    options = (
        "--max_length",
        "8",
        "--window_stride",
        "2",
        "--model",
        "window_pooling=max",
        "max_position_embeddings=16",
    )
    run = run_recipe("bert-finetune", "--preset", "smoke", *options, "--output_dir", str(tmp_path / "windows"))
    monkeypatch.chdir(tmp_path)
    results = read_results(run)
    scored = score_checkpoint(EvaluationRequest(str(run)))
    assert scored.scores["loss"] == pytest.approx(results["scores"]["test"]["loss"], rel=1e-4)
    predictor = load_predictor(str(run))
    text = "The violin was safe and Cora smiled . What a dreadful day in the village , said Ida ."
    windows = predictor.collate([{"text": text}])["input_ids"]
    assert windows.shape[1] > 2 and windows.shape[2] == 8  # of the length in training, not of the positions
    assert predictor([{"text": text}]) and not predictor.num_truncated


def test_wrong_uses_are_one_sentence(run_recipe, tmp_path):
    for options, sentence in (
        (("--window_stride", "48"), "window_stride must be at least 0 and below max_length 48"),
        (("--window_stride", "2", "--max_tokens", "64"), "leave it out with --window_stride"),
    ):
        run = run_recipe("bert-finetune", "--preset", "smoke", "--out", str(tmp_path / "run"), *options, check=False)
        assert run.returncode == 2 and sentence in " ".join(run.stderr.split())
