"""The manifest: what is listed is verified, by `hf-edu check` and by every loader."""

import json
import pickle
import shutil
import subprocess
import sys

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from hf_edu_models import EduGPTConfig, EduGPTForCausalLM
from hf_edu_models.checkpoints import load_model, load_tokenizer, load_with_head
from hf_edu_models.cli import app
from hf_edu_models.data import train_tokenizer
from hf_edu_models.manifest import MANIFEST, find_damage, read_manifest, rewriting, sha256, write_manifest
from hf_edu_models.redaction import make_visible
from hf_edu_models.training import RecipeArguments, model_for, tokenizer_for

SIZES = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 16}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "gpt"
    tokenizer = train_tokenizer(["a cat", "a dog"] * 3, "char", rung="gpt", cache_dir=folder.parent / "cache")
    EduGPTForCausalLM(EduGPTConfig.for_tokenizer(tokenizer, **SIZES)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def model(saved, tmp_path):
    """With a manifest, which `save_pretrained` alone does not write."""
    folder = shutil.copytree(saved, tmp_path / "gpt")
    write_manifest(folder)
    return folder


def flip(file):
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)


def initialise_from(folder):
    args = RecipeArguments(dataset="reverse", init_from=str(folder))
    tokenizer_for(args, None, "gpt")
    model_for(transformers.AutoModelForCausalLM, EduGPTConfig(), args)


LOADERS = [lambda folder: load_model(str(folder)), lambda folder: load_with_head(str(folder)), initialise_from]


@pytest.mark.parametrize("load", LOADERS, ids=["load_model", "load_with_head", "init_from"])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "modeling_gpt.py"])
def test_every_loader_names_a_damaged_file(load, name, model):
    load(model)
    flip(model / name)
    with pytest.raises(ValueError, match=rf"{name} has changed since it was saved; .*hf-edu check .* --accept"):
        load(model)


def test_a_tokenizer_alone_is_verified_too(model):
    flip(model / "model.safetensors")
    load_tokenizer(str(model))
    flip(model / "tokenizer.json")
    with pytest.raises(ValueError, match=r"tokenizer.json has changed"):
        load_tokenizer(str(model))


@pytest.mark.parametrize("load", LOADERS[1:], ids=["load_with_head", "init_from"])
def test_a_missing_weight_is_not_replaced_by_random_numbers(load, model):
    (model / MANIFEST).unlink()
    weights = load_file(model / "model.safetensors")
    gone = next(name for name in weights if "attention" in name or "attn" in name)
    del weights[gone]
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=rf"lacks 1 weights of EduGPTForCausalLM, such as {gone}"):
        load(model)


class Stranger:
    pass


@pytest.mark.parametrize("content", ["objects", "garbage", "empty"])
@pytest.mark.parametrize("load", LOADERS, ids=["load_model", "load_with_head", "init_from"])
def test_a_strangers_pickle_is_one_sentence(content, load, model):
    (model / MANIFEST).unlink()
    (model / "model.safetensors").unlink()
    file = model / "pytorch_model.bin"
    if content == "objects":
        torch.save({"weight": Stranger()}, file)
    else:
        file.write_bytes(pickle.dumps("x" * 99)[:50] if content == "garbage" else b"")
    with pytest.raises(ValueError) as error:
        load(model)
    assert str(model) in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 500


def test_check_prints_what_is_damaged(model):
    def check(*options):
        return CliRunner().invoke(app, ["check", str(model), *options])

    assert check().exit_code == 0 and "verified" in check().output
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"dropout": 0.25}))
    changed = check()
    assert changed.exit_code == 1 and "damaged: config.json has" in changed.output
    assert check("--accept").exit_code == 0 and check().exit_code == 0
    assert load_with_head(str(model))[0].config.dropout == 0.25
    (model / MANIFEST).unlink()
    assert check().exit_code == 0 and "not verified" in check().output
    (model / "model.safetensors").write_bytes(b"half")
    assert check().exit_code == 1 and "model.safetensors is truncated" in check().output
    assert "no digests" in str(check("--accept").exception)


def test_check_looks_at_every_checkpoint(model):
    for step in (3, 6):
        shutil.copytree(model, model / f"checkpoint-{step}", ignore=shutil.ignore_patterns("checkpoint-*", MANIFEST))
        for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
            torch.save({}, model / f"checkpoint-{step}" / name)
        (model / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        write_manifest(model / f"checkpoint-{step}")
    run = CliRunner().invoke(app, ["check", str(model)], env={"COLUMNS": "200"})
    assert run.exit_code == 0 and run.output.count("verified") == 3
    flip(model / "checkpoint-6" / "optimizer.pt")
    run = CliRunner().invoke(app, ["check", str(model)], env={"COLUMNS": "200"})
    assert run.exit_code == 1 and run.output.count("verified") == 2
    with pytest.raises(ValueError, match=r"checkpoint-3 is damaged: .*; use .*checkpoint-6"):  # weights of 6 are fine
        torch.save({}, model / "checkpoint-6" / "optimizer.pt")
        write_manifest(model / "checkpoint-6")
        flip(model / "checkpoint-3" / "model.safetensors")
        load_model(str(model / "checkpoint-3"))


def test_a_manifest_never_leads_out_of_its_folder(model):
    (model.parent / "private").write_text("x")
    write_manifest(model, ["config.json", "../private"])
    assert find_damage(model) == "../private is outside of the folder"


def test_a_download_in_the_cache_of_the_hub_is_verified(model, tmp_path):
    """Its files are links to files that are named by their digests."""
    snapshot, blobs = tmp_path / "snapshots" / "abc", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for file in model.iterdir():
        shutil.copy(file, blobs / sha256(file))
        (snapshot / file.name).symlink_to(blobs / sha256(file))
    load_model(str(snapshot))
    assert CliRunner().invoke(app, ["check", str(snapshot)]).exit_code == 0
    flip(blobs / sha256(model / "model.safetensors"))
    assert CliRunner().invoke(app, ["check", str(snapshot)]).exit_code == 1


def test_files_that_are_replaced_get_new_digests(model):
    before = read_manifest(model)
    with rewriting(model):
        assert not (model / MANIFEST).exists(), "a crash here leaves no wrong digests"
        (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    after = read_manifest(model)
    assert before.keys() == after.keys() and find_damage(model) is None
    assert [name for name in after if after[name] != before[name]] == ["config.json"]
    (model / MANIFEST).write_text("half")
    with rewriting(model):  # saving a model must not fail because of it
        pass
    assert not (model / MANIFEST).exists()


def test_the_digest_is_that_of_sha256sum(model):
    try:
        printed = subprocess.run(["sha256sum", model / "config.json"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        pytest.skip("there is no sha256sum here")
    assert printed.split()[0] == sha256(model / "config.json") == sha256((model / "config.json").read_bytes())


def test_invisible_characters_become_visible():
    assert make_visible("a\x1b[2Jb\u202ec\x07\r\x9b\u2028\ud800") == r"a\x1b[2Jb\u202ec\x07\r\x9b\u2028\ud800"
    plain = "tab\t, line\n, Straße, 你好, e\u0301, a\u200cb, 👩\u200d🚀"
    assert make_visible(plain) == plain


def test_hf_edu_data_shows_no_control_characters(tmp_path):
    (tmp_path / "train.jsonl").write_text(json.dumps({"text": "clear \x1b[2J screen \u202e", "label": "\x1b[31mred"}))
    command = [sys.executable, "-c", "from hf_edu_models.cli import main; main()", "data", "train.jsonl"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "\x1b" not in run.stdout and "\u202e" not in run.stdout
    assert r"\x1b[2J screen \u202e" in run.stdout and r"\x1b[31mred" in run.stdout


def test_the_sample_table_shows_no_control_characters(capsys):
    from hf_edu_models.training.run import print_results

    samples = [{"so\x1burce": "\x1b[2Jx", "labels": ["\u202ea", "b"]}]
    print_results({"parameters": 1, "seconds": 1, "architecture": "A", "scores": {}, "samples": samples})
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\u202e" not in out and r"\x1b[2Jx" in out and r"so\x1burce" in out
