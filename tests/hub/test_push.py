"""Pushing to a small Hub on loopback, end to end, in processes of its own as users run it."""

import copy
import hashlib
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from huggingface_hub import ModelCard, get_session
from huggingface_hub.errors import HfHubHTTPError
from loopback_hub import LoopbackHub

from hf_edu_models.hub import PushWithCardMixin, errors, push_run
from hf_edu_models.hub.errors import HubRejectedError, HubUnreachableError, call_hub
from hf_edu_models.hub.push import UnsavedToken
from hf_edu_models.manifest import write_manifest

TOKEN, FALSE_TOKEN = "hf_" + "goodToken" * 4, "hf_" + "falseToken" * 4
NOT_UPLOADED = (
    "results.json",
    "settings.yaml",
    "trainer_state.json",
    "training_args.bin",
    "checkpoint-6/",
    "notes.txt",
)


def environment(url: str, home: Path, **more) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "ONEDNN_MAX_CPU_ISA") if name in os.environ}
    settings = {"HF_ENDPOINT": url, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(home), "OMP_NUM_THREADS": "1"}
    return inherited | settings | {"HF_HUB_DISABLE_TELEMETRY": "1", "COLUMNS": "200"} | more


def everything_in(*folders: Path) -> bytes:
    return b"".join(file.read_bytes() for folder in folders for file in folder.rglob("*") if file.is_file())


def assert_no_token(*texts: str | bytes) -> None:
    for text in texts:
        text = text.encode() if isinstance(text, str) else text
        assert TOKEN.encode() not in text and FALSE_TOKEN.encode() not in text


PUSHES = """
import contextlib, io, json, sys, time
time.sleep = lambda seconds: None  # huggingface_hub waits between attempts
import huggingface_hub
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, Trainer, TrainingArguments
from hf_edu_models import cli
from hf_edu_models.data import collator_for
from hf_edu_models.hub import PushWithCardMixin, push_run

run, trained, good, false = sys.argv[1:]
report = {}

def attempt(name, *arguments, **options):
    try:
        done = push_run(*arguments, **options)
        report[name] = [done.url, done.files, done.left_out, done.message]
    except Exception as problem:
        report[name] = [type(problem).__name__, str(problem)]
        assert problem.__cause__ is None and problem.__context__ is None, "a chained error may quote the token"

def command(name, *arguments):
    sys.argv = ["hf-edu", *arguments]
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        try:
            cli.main()
        except SystemExit as end:
            report[name] = [end.code, stderr.getvalue()]

attempt("connection lost", run, "ada/cut", token=good)
attempt("resumed", run, "ada/cut", token=good)
attempt("no token", run, "ada/dates")
attempt("false token", run, "ada/dates", token=false)
attempt("invalid token", run, "ada/dates", token=good + "\\nX")
attempt("other account", run, "bob/dates", token=good)
attempt("public", run, "ada/dates", token=good, message="first")
attempt("again", run, "ada/dates", token=good, message="second")
attempt("private over public", run, "ada/dates", token=good, private=True)
attempt("private", run, "ada/hidden", token=good, private=True)
attempt("branch", run, "ada/dates", token=good, revision="trial", message="third")

class CardTrainer(PushWithCardMixin, Trainer):
    pass

tokenizer = AutoTokenizer.from_pretrained(run)
trainer = CardTrainer(
    model=AutoModelForSeq2SeqLM.from_pretrained(run),
    args=TrainingArguments(
        trained, max_steps=2, logging_steps=1, save_steps=1, report_to="none", use_cpu=True,
        push_to_hub=True, hub_always_push=True, hub_model_id="ada/trained", hub_token=good,
    ),
    train_dataset=[{"input_ids": [5, 6, 7], "labels": [7, 6, 2]} for _ in range(4)],
    processing_class=tokenizer,
    data_collator=collator_for("translation", tokenizer),
)
with contextlib.redirect_stdout(sys.stderr):
    trainer.train()
    trainer.push_to_hub("by Trainer", tags="mine", license="mit")
    print(trainer.args, repr(trainer.args.hub_token), vars(trainer.args))

import os
os.environ["HF_TOKEN"] = false
command("rejected", "push", run, "ada/dates")
huggingface_hub.constants.ENDPOINT = "http://127.0.0.1:9"
command("unreachable", "push", run, "ada/dates")
json.dump(report, sys.stdout)
"""


@dataclass
class Story:
    """One Hub after a push that was killed and many pushes of another process, which reports their results."""

    hub: LoopbackHub
    run: Path
    trained: Path
    after_kill: Counter
    commits_after_kill: int
    report: dict


@pytest.fixture(scope="module")
def story(trained_run, tmp_path_factory):
    parent = tmp_path_factory.mktemp("pushes")
    run = shutil.copytree(trained_run, parent / "dates-small")
    (run / "notes.txt").write_text("nobody's business")
    with LoopbackHub({TOKEN: "ada"}) as hub:
        hub.cut_in((run / "model.safetensors").read_bytes(), times=1_000)
        output = push_and_kill(hub, run, environment(hub.url, parent / "home", HF_TOKEN=TOKEN))
        after, commits = Counter(hub.received), len(hub.repositories["ada/cut"].branches["main"])

        hub.cuts_left = 7  # six attempts of the next push, and the first of the one after
        command = [sys.executable, "-c", PUSHES, run, parent / "trained", TOKEN, FALSE_TOKEN]
        variables = environment(hub.url, parent / "home")
        done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300)
        assert done.returncode == 0, done.stderr
        assert_no_token(output, done.stdout, done.stderr, everything_in(parent))
        yield Story(hub, run, parent / "trained", after, commits, json.loads(done.stdout))


def push_and_kill(hub: LoopbackHub, run: Path, variables: dict[str, str]) -> bytes:
    """Kill a push during the upload of the weights, after the picture has been uploaded."""
    command = [Path(sys.executable).with_name("hf-edu"), "push", run, "ada/cut"]
    process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    was_cut = hub.was_cut.wait(timeout=200)
    process.kill()
    output = process.communicate()[0]
    assert was_cut, output.decode()
    return output


def test_after_a_lost_connection_only_missing_files_are_uploaded(story):
    weights = hashlib.sha256((story.run / "model.safetensors").read_bytes()).hexdigest()
    assert story.commits_after_kill == 1, "no commit before all files are uploaded"
    assert sum(story.after_kill.values()) == 1 and weights not in story.after_kill
    kind, sentence = story.report["connection lost"]
    assert kind == "HubUnreachableError" and "same command again" in sentence and "\n" not in sentence
    url, files, *_ = story.report["resumed"]
    assert url.startswith(story.hub.url) and story.hub.cuts_left == 0
    assert story.hub.files("ada/cut").keys() == files.keys()
    (picture,) = story.after_kill
    assert story.hub.received[picture] == 1 and story.hub.received[weights] == 1, "no file was uploaded twice"
    uploads = [path for method, path in story.hub.requests if (method, path) == ("PUT", f"/lfs/{picture}")]
    assert len(uploads) == 1, "nor did the client try to"


def test_one_commit_has_weights_tokenizer_code_card_and_pictures(story):
    report, hub, run = story.report, story.hub, story.run
    url, files, left_out, message = report["public"]
    commits = hub.repositories["ada/dates"].branches["main"]
    assert [commit.message for commit in commits] == ["start", "first"] and message == "first"
    assert url.endswith(commits[-1].sha)
    there = hub.files("ada/dates")
    digests = json.loads(there["manifest.json"])["files"]
    assert all(digests[name]["sha256"] == hashlib.sha256(there[name]).hexdigest() for name in digests)
    assert set(there) - set(digests) == {"README.md", "pictures/loss.png", "manifest.json"}
    same = {name: content for name, content in there.items() if name != "manifest.json"}
    assert same == {name: (run / name).read_bytes() for name in same}, "folder and Hub have the same files"
    assert {name: len(content) for name, content in there.items()} == files
    expected = {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "README.md"}
    assert expected | {"pictures/loss.png", "modeling_bahdanau.py", "configuration_base.py"} <= set(files)
    assert left_out == sorted(NOT_UPLOADED)


def test_the_card_on_the_hub_loads_from_its_repository(story):
    hub = story.hub
    card = ModelCard(hub.files("ada/dates")["README.md"].decode())
    assert card.data.model_name == "dates" and 'name = "ada/dates"' in card.text


def test_pushing_again_makes_no_commit_and_no_upload(story):
    report, hub = story.report, story.hub
    assert report["again"][0] == report["public"][0]
    assert set(hub.received.values()) == {1}, "every large file was uploaded once, however often it was pushed"


def test_a_private_push_never_becomes_public(story):
    report, hub = story.report, story.hub
    assert hub.repositories["ada/hidden"].private and not hub.repositories["ada/dates"].private
    kind, sentence = report["private over public"]
    assert kind == "HubRejectedError" and "is public" in sentence


def test_a_missing_branch_is_created(story):
    hub = story.hub
    branches = hub.repositories["ada/dates"].branches
    assert set(branches) == {"main", "trial"}
    assert hub.files("ada/dates", "trial").keys() == hub.files("ada/dates").keys()


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("no token", "hf auth login"),
        ("false token", "rejects this token"),
        ("invalid token", "copy it again"),
        ("other account", "no write access to bob/dates"),
    ],
)
def test_a_rejection_is_one_sentence(case, message, story):
    report, hub = story.report, story.hub
    kind, sentence = report[case]
    assert kind == "HubRejectedError" and message in sentence and "\n" not in sentence
    assert "bob/dates" not in hub.repositories


@pytest.mark.parametrize(
    ("case", "code", "message"), [("rejected", 2, "rejects this token"), ("unreachable", 3, "cannot be reached")]
)
def test_exit_codes_distinguish_rejected_from_unreachable(case, code, message, story):
    exit_code, stderr = story.report[case]
    assert exit_code == code and message in stderr and "Traceback" not in stderr


LOAD_WITHOUT_PACKAGE = """
import json, sys

class NoPackage:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hf_edu_models":
            raise ImportError("not installed")

sys.meta_path.insert(0, NoPackage())
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

model = AutoModelForSeq2SeqLM.from_pretrained("ada/dates", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("ada/dates", trust_remote_code=True)
inputs = tokenizer(json.loads(sys.argv[1]), padding=True, return_tensors="pt")
outputs = model.generate(**inputs, num_beams=3, max_new_tokens=9)
json.dump(tokenizer.batch_decode(outputs, skip_special_tokens=True), sys.stdout)
"""
TEXTS = ["Mon, 5/6/1935", "January 2, 2041"]


def test_the_model_loads_from_the_hub_and_generates_the_same_text(story, tmp_path):
    """Without a token, a cache or the package."""
    hub, run = story.hub, story.run
    command = [sys.executable, "-c", LOAD_WITHOUT_PACKAGE, json.dumps(TEXTS)]
    variables = environment(hub.url, tmp_path / "home")
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(run)
    tokenizer = transformers.AutoTokenizer.from_pretrained(run)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    ours = tokenizer.batch_decode(model.generate(**inputs, num_beams=3, max_new_tokens=9), skip_special_tokens=True)
    assert json.loads(done.stdout) == ours and any(ours)
    assert list((tmp_path / "home").rglob("model.safetensors"))


def test_trainer_uploads_the_files_that_push_run_uploads(story):
    """And no file that Trainer writes contains the token, not even `training_args.bin`."""
    hub, out = story.hub, story.trained
    commits = hub.repositories["ada/trained"].branches["main"]
    in_progress = [f"Training in progress, step {step}" for step in (1, 2)]
    assert [commit.message for commit in commits] == ["start", *in_progress, "by Trainer"]
    assert not {"training_args.bin", "trainer_state.json"} & {name for commit in commits for name in commit.files}
    files = hub.files("ada/trained")
    planned = push_run(out, "ada/trained", dry_run=True)
    assert set(files) == set(planned.files) and {"checkpoint-2/", "training_args.bin"} <= set(planned.left_out)
    card = ModelCard(files["README.md"].decode())
    assert "mine" in card.data.tags and card.data.license == "mit" and 'name = "ada/trained"' in card.text
    assert files["pictures/loss.png"].startswith(b"\x89PNG")
    saved = torch.load(out / "training_args.bin", weights_only=False)
    assert saved.hub_token is None and saved.hub_model_id == "ada/trained"


def test_an_unsaved_token_is_neither_pickled_nor_printed():
    token = UnsavedToken(TOKEN)
    assert f"Bearer {token}" == f"Bearer {TOKEN}" and copy.deepcopy(token) == copy.copy(token) == TOKEN
    assert TOKEN not in repr({"hub_token": token})
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(token, protocol)) is None


def test_trainer_writes_its_own_card_for_other_models(tmp_path):
    class CardTrainer(PushWithCardMixin, transformers.Trainer):
        pass

    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 20}
    model = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=30, **sizes))
    arguments = transformers.TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    CardTrainer(model=model, args=arguments).create_model_card(model_name="theirs")
    assert "generated_from_trainer" in ModelCard.load(tmp_path / "README.md").data.tags


def test_a_dry_run_uploads_and_writes_nothing(run):
    """It needs no token and no Hub: this process is offline, and a request would raise."""
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*")}
    planned = push_run(run, "ada/dates", dry_run=True)
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*")} == before
    assert planned.url is None and "README.md" in planned.files and "pictures/loss.png" in planned.files


def test_a_card_that_was_written_by_hand_is_uploaded_unchanged(run):
    (run / "README.md").write_text("---\nlicense: mit\n---\nMine.\n")
    planned = push_run(run, "ada/dates", dry_run=True)
    assert planned.files["README.md"] == (run / "README.md").stat().st_size
    assert "pictures/loss.png" not in planned.files, "no card shows it"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: (run / "model.safetensors").unlink(), "has no model.safetensors"),
        (lambda run: (run / "model.safetensors").write_bytes(b"half"), "truncated or not a safetensors file"),
        (lambda run: (run / "blocks_masks.py").unlink(), "lacks blocks_masks.py"),
        (lambda run: change(run, auto_map={}), "names no code for AutoModelForSeq2SeqLM"),
        (lambda run: change(run, hidden_size=14), "does not load as EduBahdanauForConditionalGeneration"),
        (lambda run: change(run, num_hidden_layers=2), "lacks"),
    ],
)
def test_an_incomplete_checkpoint_is_not_pushed(damage, message, run):
    damage(run)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        push_run(run, "ada/dates", dry_run=True)


def change(run: Path, **settings) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | settings))


@pytest.mark.parametrize("name", ["dates", "a/b/c", "ada/", "ada/two words", "ada/x--y", "../x"])
def test_an_invalid_repo_id_raises_an_error(name, run):
    with pytest.raises(ValueError, match="user/name"):
        push_run(run, name, dry_run=True)


PRIVATE = "private text of another folder"


def link(name):
    def damage(run):
        (run.parent / "private").write_text(PRIVATE)
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(run.parent / "private")

    return damage


def link_pictures(run):
    (run.parent / "album").mkdir()
    (run.parent / "album" / "me.png").write_text(PRIVATE)
    (run / "pictures").symlink_to(run.parent / "album")


def name_other_weights(name):
    def damage(run):
        shutil.copy(run / "model.safetensors", run.parent / "other.safetensors")
        index = {"metadata": {}, "weight_map": {"a": name.replace("PARENT", str(run.parent))}}
        (run / "model.safetensors.index.json").write_text(json.dumps(index))

    return damage


OUTSIDE = {
    **{name: link(name) for name in ("vocab.txt", "LICENSE", "README.md", "results.json", "pictures/me.png")},
    "pictures": link_pictures,
    "blocks_masks.py": link("blocks_masks.py"),
    "../other.safetensors": name_other_weights("../other.safetensors"),
    "/other.safetensors": name_other_weights("PARENT/other.safetensors"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_nothing_outside_of_the_folder_is_pushed(name, run):
    OUTSIDE[name](run)
    with pytest.raises(ValueError, match=r"leads out of|outside of its folder") as error:
        push_run(run, "ada/dates", dry_run=True)
    assert name in str(error.value) and PRIVATE not in str(error.value)


def test_a_link_inside_of_the_folder_is_pushed(run):
    (run / "pictures").mkdir()
    (run / "mine.png").write_bytes(b"png")
    (run / "pictures" / "mine.png").symlink_to(run / "mine.png")
    assert "pictures/mine.png" in push_run(run, "ada/dates", dry_run=True).files


def test_a_damaged_model_is_not_pushed(run):
    write_manifest(run, ["model.safetensors", "config.json"])
    push_run(run, "ada/dates", dry_run=True)
    change(run, hidden_size=12, note=1)
    with pytest.raises(ValueError, match=r"is damaged: config.json has .*; use .*checkpoint-6.* --accept"):
        push_run(run, "ada/dates", dry_run=True)


def test_a_hub_that_never_answers_ends_with_a_sentence(run, monkeypatch):
    """It accepts the connection and stays silent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(errors, "TIMEOUT", 0.3)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        with pytest.raises(HubUnreachableError, match=r"has not answered for 0\.3 seconds; run the same"):
            push_run(run, "ada/dates", token=TOKEN)
    get_session().timeout = None


@pytest.mark.parametrize(
    ("status", "kind"), [(429, HubUnreachableError), (503, HubUnreachableError), (403, HubRejectedError)]
)
def test_too_many_requests_means_try_again(status, kind):
    def request():
        response = SimpleNamespace(status_code=status, headers={}, request=None)
        error = HfHubHTTPError.__new__(HfHubHTTPError)
        error.response, error.server_message = response, None
        raise error

    with pytest.raises(kind) as error:
        call_hub("ada/dates", TOKEN, request)
    assert status != 429 or "try again in a few minutes" in str(error.value)
