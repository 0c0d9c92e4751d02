"""`equal_budget.py`, as far as it runs without JoeyNMT."""

import importlib
import json

import pytest
import yaml

from hf_edu_models.training.presets import recipes_folder


@pytest.fixture(scope="module")
def equal_budget():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(recipes_folder() / "benchmarks"))
        yield importlib.import_module("equal_budget")


@pytest.fixture(scope="module")
def peer(equal_budget):
    return importlib.import_module("equal_budget_joeynmt")


@pytest.fixture
def rows(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    for split, count in (("train", 7), ("validation", 3), ("test", 4)):
        pairs = [{"de": f"Satz {number}\u2028hier", "en": f"Row {number}"} for number in range(count)]
        if split == "train":
            pairs.append({"de": "", "en": "nothing to read"})
        text = "".join(json.dumps(pair) + "\n" for pair in pairs)
        (folder / f"{split}.jsonl").write_text(text, "utf-8")
    return folder


@pytest.fixture
def prepared(equal_budget, rows, tmp_path, monkeypatch):
    """Prepare a race; its folder, JoeyNMT's settings and the calls of JoeyNMT."""

    def prepare(*words):
        called = []
        monkeypatch.setattr(equal_budget, "call_peer", lambda command, *words: called.append(words))
        out = tmp_path / "race"
        options = [
            "--peer-python",
            "peer",
            "--dataset",
            str(rows),
            "--minutes",
            "1",
            "--threads",
            "1",
            "--only",
            "score",
        ]
        command = equal_budget.parse_command([*options, "--out", str(out), *words])
        equal_budget.prepare(command)
        return out, yaml.safe_load((out / "joeynmt" / "settings.yaml").read_text("utf-8")), called

    return prepare


def test_the_best_checkpoint_is_the_best_of_those_written_in_time(equal_budget):
    def written(seconds, bleu):
        return {"seconds": seconds, "steps": seconds, "epochs": 0.5, "checkpoint": f"at-{seconds}", "bleu": bleu}

    start = {"seconds": 0, "steps": 0, "epochs": 0}
    records = [start, written(30, 4.0), written(60, 9.0), written(90, 9.0), written(119, 7.0), written(121, 30.0)]
    assert equal_budget.best_before(records, 0.4) is None
    assert equal_budget.best_before(records, 0.5)["checkpoint"] == "at-30"
    assert equal_budget.best_before(records, 2)["checkpoint"] == "at-60"
    assert equal_budget.best_before(records, 3)["checkpoint"] == "at-121"
    assert equal_budget.last_before(records, 2)["steps"] == 119


def test_the_clock_asks_for_a_checkpoint_before_every_round_time_and_mark(peer, tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(peer.time, "monotonic", lambda: now)
    (tmp_path / "go").touch()
    clock = peer.Clock(tmp_path, "ours", every=2, marks=[3, 5])
    clock.start({"torch": "any"})
    due = []
    while now < 1000 + 5 * 60:
        now += 1
        if clock.is_due():
            due.append(now - 1000)
            now += 10  # a validation
            clock.note_checkpoint(1, 0.1, "one", 2.0)
    records = [json.loads(line) for line in (tmp_path / "ours.jsonl").read_text("utf-8").splitlines()]
    written = [record["seconds"] for record in records if "checkpoint" in record]
    assert len(due) == len(written) == 4
    for point, seconds in zip((120, 180, 240, 300), written, strict=True):
        assert point - 20 <= seconds <= point
    assert (tmp_path / "ours.ready").exists() and records[0]["versions"] == {"torch": "any"}


def test_both_read_the_same_rows(equal_budget, prepared):
    out, settings, called = prepared("--test-size", "2")
    for split, theirs, count in (("train", "train", 7), ("validation", "dev", 3), ("test", "test", 2)):
        ours = equal_budget.Dataset.from_parquet(str(out / "data" / f"{split}.parquet"), keep_in_memory=True)
        for language in ("de", "en"):
            lines = (out / "joeynmt" / f"{theirs}.{language}").read_text("utf-8").splitlines()
            assert lines == list(ours[language])
            assert len(lines) == count and all(lines)
    assert settings["data"]["train"] == str(out / "joeynmt" / "train")
    assert [words[0] for words in called] == ["vocabulary"]


def test_small_settings_keep_the_size_of_our_vocabulary(prepared):
    _, settings, _ = prepared("--rung", "transformer", "--", "--vocab_size", "77")
    for side, language in (("src", "de"), ("trg", "en")):
        assert settings["data"][side]["lang"] == language
        assert settings["data"][side]["tokenizer_cfg"]["num_merges"] == 77
    assert settings["data"]["src"]["voc_file"] == settings["data"]["trg"]["voc_file"]
    assert settings["model"]["encoder"]["hidden_size"] == 64 and settings["training"]["batch_size"] == 10
    assert not settings["use_cuda"] and not settings["fp16"]
    assert settings["training"]["keep_best_ckpts"] == -1


@pytest.mark.parametrize("rung", ["bahdanau", "transformer"])
def test_same_settings_have_our_sizes(prepared, rung):
    sizes = {"hidden_size": 24, "dropout": 0.25}
    sizes |= {"embedding_size": 10, "encoder_hidden_size": 14} if rung == "bahdanau" else {"num_attention_heads": 3}
    flags = ["--model", *(f"{name}={value}" for name, value in sizes.items()), "--max_tokens", "321"]
    _, settings, _ = prepared("--rung", rung, "--peer-size", "same", "--", *flags, "--learning_rate", "0.0123")
    encoder, decoder = settings["model"]["encoder"], settings["model"]["decoder"]
    assert decoder["hidden_size"] == 24 and encoder["dropout"] == decoder["dropout"] == 0.25
    if rung == "bahdanau":
        assert encoder["hidden_size"] == 14 and encoder["embeddings"]["embedding_dim"] == 10
    else:
        assert encoder["hidden_size"] == encoder["embeddings"]["embedding_dim"] == 24 and encoder["num_heads"] == 3
    training = settings["training"]
    assert (training["batch_size"], training["batch_type"], training["learning_rate"]) == (321, "token", 0.0123)


def test_a_folder_with_a_race_is_not_raced_in_again(prepared, tmp_path):
    (tmp_path / "race").mkdir()
    (tmp_path / "race" / "joeynmt.jsonl").write_text("{}\n", "utf-8")
    with pytest.raises(ValueError, match="already has a race of joeynmt"):
        prepared()


def test_the_table_has_a_line_for_each_mark(equal_budget):
    scored = {"bleu": 12.345, "bleu_interval": [11.0, 13.0], "bleu_signature": "case:lc"}
    ours = {"steps": 1234, "epochs": 2.0, "best": {"bleu": 13.5}, "test": scored}
    theirs = {"steps": 99, "epochs": 0.25, "best": None, "test": None}
    marks = [{"minutes": 10.0, "ours": ours, "joeynmt": theirs}]
    lines = equal_budget.table({"systems": {"ours": {}, "joeynmt": {}}, "marks": marks}).split("\n")
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells == ["10", "12.35 [11.0, 13.0]", "13.50", "1,234", "2.0", "no checkpoint yet", "", "99", "0.2"]
    assert len({line.count("|") for line in lines[:3]}) == 1
    assert "case:lc" in lines[-1]
