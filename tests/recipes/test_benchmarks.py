"""The benchmarks that need no other system run, and their figures obey the laws that need no clock."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "recipes" / "benchmarks"
RUNGS = {"feedforward", "recurrent", "seq2seq", "bahdanau", "transformer", "gpt", "bert"}


def run(name, *options):
    command = [sys.executable, str(BENCHMARKS / name), *map(str, options)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def scaling(folder, *options):
    file = folder / "figures.json"
    sizes = ("--hidden", 64, "--layers", 1, "--vocab", 50, "--batch", 1, "--length", 8)
    run("bench_scaling.py", "--rounds", 1, *sizes, *options, "--json", file)
    return json.loads(file.read_text())


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_scaling_measures_every_rung_at_every_size(tmp_path):
    picture = tmp_path / "figures.png"
    growths = scaling(tmp_path, "--lengths", 16, 8, 32, "--batches", 1, 3, "--picture", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    for axis, sizes in (("length", [8, 16, 32]), ("batch", [1, 3])):
        own = [growth for growth in growths if growth["axis"] == axis]
        assert {growth["rung"] for growth in own} == RUNGS
        for growth in own:
            assert growth["sizes"] == sizes and min(growth["seconds"]) > 0
            assert growth["memory"] == sorted(growth["memory"])  # more tokens, more memory
            assert all(value is None or value >= 0 for value in growth["resident"])
            assert growth["cost_a_token"][0] == growth["memory_a_token"][0] == 1


def test_only_eager_attention_holds_all_weights(tmp_path):
    """The memory of sdpa grows linearly, that of eager quadratically."""
    growths = scaling(tmp_path, "--rungs", "transformer", "gpt", "bert", "--lengths", 256, 1024, "--batches")
    slopes = {(growth["rung"], growth["attention"]): growth["exponents"]["memory"]["all"] for growth in growths}
    for rung in ("transformer", "gpt", "bert"):
        assert slopes[rung, "sdpa"] < 1.05 < 1.1 < slopes[rung, "eager"]


def test_exponent_is_the_power(load):
    benchmark = load("bench_scaling")
    sizes = [64, 128, 512]
    for power in (0, 1, 1.5, 2):
        values = [3 * size**power for size in sizes]
        assert benchmark.exponent(sizes, values) == pytest.approx(power)
        expected = [size ** (power - 1) / sizes[0] ** (power - 1) for size in sizes]
        assert benchmark.a_token(sizes, values) == pytest.approx(expected)
    assert benchmark.exponent([64], [1.0]) is None


def test_scaling_checks_its_options_first(load, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bench_scaling.py", "--picture", "figures.txt"])
    with pytest.raises(SystemExit, match="does not end in"):
        load("bench_scaling").main()


def test_three_ways_to_train_end_with_the_same_weights(tmp_path):
    file = tmp_path / "figures.json"
    run("bench_trainer.py", "--sizes", "tiny", "--steps", 8, "--rounds", 1, "--skip-memory", "--json", file)
    rows = json.loads(file.read_text())
    assert [row["task"] for row in rows] == ["translation", "texts"]
    for row in rows:
        assert set(row["seconds"]) == {"bare", "transformers", "ours"}
        assert set(row["differences"]) == {"transformers", "ours"} and max(row["differences"].values()) < 1e-6


def test_other_batches_are_detected(load):
    trainer = load("bench_trainer")
    args = type("Arguments", (), {"steps": 6})
    work = trainer.Work(args, "texts", "tiny")
    _, weights = trainer.train("bare", work)
    assert trainer.difference(weights, weights) == 0
    work.rows = work.rows.select(reversed(range(len(work.rows))))  # the same rows in another order
    with pytest.raises(SystemExit, match="not do the same work"):
        trainer.difference(weights, trainer.train("bare", work)[1])
    torch.testing.assert_close(work.model().state_dict(), work.model().state_dict(), rtol=0, atol=0)


@pytest.mark.slow
def test_peak_memory_is_that_of_a_new_process(load):
    trainer = load("bench_trainer")
    buffer = torch.ones(2**29, dtype=torch.uint8)  # half a gigabyte in this process, which the other one must not count
    args = type("Arguments", (), {"steps": 6, "threads": 1})
    assert 2**27 < trainer.peak_of(args, "texts", "tiny", "bare") < trainer.own_peak() - len(buffer) // 4


def test_startup_measures_every_command(tmp_path):
    file = tmp_path / "figures.json"
    run("bench_startup.py", "--rounds", 1, "--json", file)
    rows = {row["command"]: row for row in json.loads(file.read_text())}
    assert min(row["seconds"] for row in rows.values()) > 0
    assert rows["from transformers import AutoConfig"]["ratio"] == 1
    assert {"pass", "import hf_edu_models", "hf-edu --help"} < set(rows)


def test_startup_counts_cpu_time_and_reports_a_failure(load):
    benchmark = load("bench_startup")
    assert benchmark.cpu_seconds("import time; time.sleep(2)") < 1  # no test depends on a clock: sleep takes no CPU
    with pytest.raises(SystemExit, match="no_such_module"):
        benchmark.cpu_seconds("import no_such_module")


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no count of resident memory")
def test_resident_growth_is_that_of_the_peak(load):
    measure = load("interleaved").resident_growth
    kept = measure(lambda: torch.ones(2**26, dtype=torch.uint8))  # freed when the function returns
    assert 0.9 * 2**26 < kept < 2**27 and measure(lambda: None) < 2**22


def test_training_has_a_share_of_the_best_peak(tmp_path):
    file = tmp_path / "figures.json"
    run("bench_training.py", "--rungs", "gpt", "--rounds", 1, "--cpu-kernels", "onednn:20,20,20", "--json", file)
    (row,) = json.loads(file.read_text())
    rates = {name: share * max(row["peaks"].values()) * row["seconds"][name] for name, share in row["shares"].items()}
    assert rates["MKL"] == pytest.approx(rates["chosen"])  # the same products, however long they take
    assert len(row["peaks"]) == 2 and min(row["seconds"].values()) > 0


def test_every_encoder_gives_our_vectors(tmp_path):
    file = tmp_path / "figures.json"
    pytest.importorskip("sentence_transformers")
    run("bench_encode.py", "--texts", 5, "--batch", 2, "--vocab", 50, "--rounds", 1, "--json", file)
    rows = {row["system"]: row for row in json.loads(file.read_text())}
    assert {"ours", "ours, bfloat16", "sentence-transformers"} <= set(rows)
    for name, row in rows.items():
        assert row["difference"] < (0.1 if "bfloat16" in name else 1e-4)
