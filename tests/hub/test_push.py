"""Pushing, end to end, against a small Hub on loopback; each push in a process of its own, as users have it."""

import copy
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub import ModelCard
from loopback_hub import LoopbackHub

from hf_edu_models.hub import PushesWithCard, push_run
from hf_edu_models.hub.push import UnsavedToken

TOKEN, FALSE_TOKEN = "hf_" + "goodToken" * 4, "hf_" + "falseToken" * 4
STAYS = ("results.json", "settings.yaml", "trainer_state.json", "training_args.bin", "checkpoint-6/", "notes.txt")


def environment(url: str, home: Path, **more) -> dict[str, str]:
    keep = {name: os.environ[name] for name in ("PATH", "ONEDNN_MAX_CPU_ISA") if name in os.environ}
    settings = {"HF_ENDPOINT": url, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(home), "OMP_NUM_THREADS": "1"}
    return keep | settings | {"HF_HUB_DISABLE_TELEMETRY": "1", "COLUMNS": "200"} | more


def everything_in(*folders: Path) -> bytes:
    return b"".join(file.read_bytes() for folder in folders for file in folder.rglob("*") if file.is_file())


def assert_no_token(*texts: str | bytes) -> None:
    for text in texts:
        text = text.encode() if isinstance(text, str) else text
        assert TOKEN.encode() not in text and FALSE_TOKEN.encode() not in text


PUSHES = """
import contextlib, io, json, sys, time
time.sleep = lambda seconds: None  # huggingface_hub waits between tries
import huggingface_hub
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, Trainer, TrainingArguments
from hf_edu_models import cli
from hf_edu_models.data import collator_for
from hf_edu_models.hub import PushesWithCard, push_run

run, trained, good, false = sys.argv[1:]
report = {}

def attempt(name, *arguments, **options):
    try:
        done = push_run(*arguments, **options)
        report[name] = [done.url, done.files, done.left_out, done.message]
    except Exception as problem:
        report[name] = [type(problem).__name__, str(problem)]
        assert problem.__cause__ is None and problem.__context__ is None, "a chained error may quote the token"

def verb(name, *arguments):
    sys.argv = ["hf-edu", *arguments]
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            cli.main()
        except SystemExit as end:
            report[name] = [end.code, said.getvalue()]

attempt("cut for good", run, "ada/cut", token=good)
attempt("resumed", run, "ada/cut", token=good)
attempt("no token", run, "ada/dates")
attempt("false token", run, "ada/dates", token=false)
attempt("odd token", run, "ada/dates", token=good + "\\nX")
attempt("somebody else's", run, "bob/dates", token=good)
attempt("public", run, "ada/dates", token=good, message="first")
attempt("again", run, "ada/dates", token=good, message="second")
attempt("private over public", run, "ada/dates", token=good, private=True)
attempt("private", run, "ada/hidden", token=good, private=True)
attempt("branch", run, "ada/dates", token=good, revision="trial", message="third")

class CardTrainer(PushesWithCard, Trainer):
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
verb("refused", "push", run, "ada/dates")
huggingface_hub.constants.ENDPOINT = "http://127.0.0.1:9"
verb("dead line", "push", run, "ada/dates")
json.dump(report, sys.stdout)
"""


@dataclass
class Story:
    """What happened on one Hub: a push that was killed, and then what one process reports of many pushes."""

    hub: LoopbackHub
    run: Path
    trained: Path
    after_the_kill: Counter
    commits_after_the_kill: int
    report: dict


@pytest.fixture(scope="module")
def story(trained_run, tmp_path_factory):
    place = tmp_path_factory.mktemp("pushes")
    run = shutil.copytree(trained_run, place / "dates-small")
    (run / "notes.txt").write_text("nobody's business")
    with LoopbackHub({TOKEN: "ada"}) as hub:
        hub.cut_in((run / "model.safetensors").read_bytes(), times=1_000)
        said = push_and_kill(hub, run, environment(hub.url, place / "home", HF_TOKEN=TOKEN))
        after, commits = Counter(hub.received), len(hub.repositories["ada/cut"].branches["main"])

        hub.cuts_left = 7  # six tries of the next push, and the first of the one after
        command = [sys.executable, "-c", PUSHES, run, place / "trained", TOKEN, FALSE_TOKEN]
        variables = environment(hub.url, place / "home")
        done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300)
        assert done.returncode == 0, done.stderr
        assert_no_token(said, done.stdout, done.stderr, everything_in(place))
        yield Story(hub, run, place / "trained", after, commits, json.loads(done.stdout))


def push_and_kill(hub: LoopbackHub, run: Path, variables: dict[str, str]) -> bytes:
    """Kill a push in the middle of the weights, when the picture is there already."""
    command = [Path(sys.executable).with_name("hf-edu"), "push", run, "ada/cut"]
    process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    was_cut = hub.was_cut.wait(timeout=200)
    process.kill()
    said = process.communicate()[0]
    assert was_cut, said.decode()
    return said


def test_after_a_cut_only_the_rest_is_sent(story):
    weights = hashlib.sha256((story.run / "model.safetensors").read_bytes()).hexdigest()
    assert story.commits_after_the_kill == 1, "until all is there nothing is seen"
    assert sum(story.after_the_kill.values()) == 1 and weights not in story.after_the_kill
    kind, sentence = story.report["cut for good"]
    assert kind == "HubUnreachable" and "same command again" in sentence and "\n" not in sentence
    url, files, *_ = story.report["resumed"]
    assert url.startswith(story.hub.url) and story.hub.cuts_left == 0
    assert story.hub.files("ada/cut").keys() == files.keys()
    (picture,) = story.after_the_kill
    assert story.hub.received[picture] == 1 and story.hub.received[weights] == 1, "nothing arrived twice"
    uploads = [path for method, path in story.hub.requests if (method, path) == ("PUT", f"/lfs/{picture}")]
    assert len(uploads) == 1, "nor was it offered again"


def test_one_commit_holds_weights_tokenizer_code_card_and_pictures(story):
    report, hub, run = story.report, story.hub, story.run
    url, files, left_out, message = report["public"]
    commits = hub.repositories["ada/dates"].branches["main"]
    assert [commit.message for commit in commits] == ["start", "first"] and message == "first"
    assert url.endswith(commits[-1].sha)
    there = hub.files("ada/dates")
    assert there == {name: (run / name).read_bytes() for name in files}, "the folder and the Hub hold the same"
    assert {name: len(content) for name, content in there.items()} == files
    wanted = {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "README.md"}
    assert wanted | {"pictures/loss.png", "modeling_bahdanau.py", "configuration_base.py"} <= set(files)
    assert left_out == sorted(STAYS)


def test_the_card_on_the_hub_names_the_place_where_it_is(story):
    hub = story.hub
    card = ModelCard(hub.files("ada/dates")["README.md"].decode())
    assert card.data.model_name == "dates" and 'name = "ada/dates"' in card.text


def test_nothing_new_is_no_commit_and_no_upload(story):
    report, hub = story.report, story.hub
    assert report["again"][0] == report["public"][0]
    assert set(hub.received.values()) == {1}, "every large file came once, however often it was pushed"


def test_private_is_private(story):
    report, hub = story.report, story.hub
    assert hub.repositories["ada/hidden"].private and not hub.repositories["ada/dates"].private
    kind, sentence = report["private over public"]
    assert kind == "HubRefusal" and "is public" in sentence


def test_a_branch_is_made(story):
    hub = story.hub
    branches = hub.repositories["ada/dates"].branches
    assert set(branches) == {"main", "trial"}
    assert hub.files("ada/dates", "trial").keys() == hub.files("ada/dates").keys()


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("no token", "hf auth login"),
        ("false token", "does not accept this token"),
        ("odd token", "copy it again"),
        ("somebody else's", "may not write to bob/dates"),
    ],
)
def test_a_refusal_is_one_sentence(case, words, story):
    report, hub = story.report, story.hub
    kind, sentence = report[case]
    assert kind == "HubRefusal" and words in sentence and "\n" not in sentence
    assert "bob/dates" not in hub.repositories


@pytest.mark.parametrize(
    ("case", "code", "words"), [("refused", 2, "does not accept this token"), ("dead line", 3, "cannot be reached")]
)
def test_exit_codes_tell_a_refusal_from_a_dead_line(case, code, words, story):
    found, said = story.report[case]
    assert found == code and words in said and "Traceback" not in said


STRANGER = """
import json, sys

class NoPackage:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hf_edu_models":
            raise ImportError("not here")

sys.meta_path.insert(0, NoPackage())
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

model = AutoModelForSeq2SeqLM.from_pretrained("ada/dates", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("ada/dates", trust_remote_code=True)
inputs = tokenizer(json.loads(sys.argv[1]), padding=True, return_tensors="pt")
words = tokenizer.batch_decode(model.generate(**inputs, num_beams=3, max_new_tokens=9), skip_special_tokens=True)
json.dump(words, sys.stdout)
"""
TEXTS = ["Mon, 5/6/1935", "January 2, 2041"]


def test_a_stranger_loads_it_from_the_hub_and_gets_the_same_words(story, tmp_path):
    """With no token, an empty cache, and no package."""
    hub, run = story.hub, story.run
    command = [sys.executable, "-c", STRANGER, json.dumps(TEXTS)]
    variables = environment(hub.url, tmp_path / "home")
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(run)
    tokenizer = transformers.AutoTokenizer.from_pretrained(run)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    ours = tokenizer.batch_decode(model.generate(**inputs, num_beams=3, max_new_tokens=9), skip_special_tokens=True)
    assert json.loads(done.stdout) == ours and any(ours)
    assert list((tmp_path / "home").rglob("model.safetensors"))


def test_trainer_pushes_what_push_run_pushes(story):
    """And no file that Trainer writes holds the token, though `training_args.bin` is made from its arguments."""
    hub, out = story.hub, story.trained
    commits = hub.repositories["ada/trained"].branches["main"]
    on_the_way = [f"Training in progress, step {step}" for step in (1, 2)]
    assert [commit.message for commit in commits] == ["start", *on_the_way, "by Trainer"]
    assert not {"training_args.bin", "trainer_state.json"} & {name for commit in commits for name in commit.files}
    files = hub.files("ada/trained")
    planned = push_run(out, "ada/trained", dry_run=True)
    assert set(files) == set(planned.files) and {"checkpoint-2/", "training_args.bin"} <= set(planned.left_out)
    card = ModelCard(files["README.md"].decode())
    assert "mine" in card.data.tags and card.data.license == "mit" and 'name = "ada/trained"' in card.text
    assert files["pictures/loss.png"].startswith(b"\x89PNG")
    saved = torch.load(out / "training_args.bin", weights_only=False)
    assert saved.hub_token is None and saved.hub_model_id == "ada/trained"


def test_an_unsaved_token_is_a_token_until_it_is_saved():
    token = UnsavedToken(TOKEN)
    assert f"Bearer {token}" == f"Bearer {TOKEN}" and copy.deepcopy(token) == copy.copy(token) == TOKEN
    assert TOKEN not in repr({"hub_token": token})
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(token, protocol)) is None


def test_a_trainer_of_other_models_keeps_its_own_card(tmp_path):
    class CardTrainer(PushesWithCard, transformers.Trainer):
        pass

    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 20}
    model = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=30, **sizes))
    arguments = transformers.TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    CardTrainer(model=model, args=arguments).create_model_card(model_name="theirs")
    assert "generated_from_trainer" in ModelCard.load(tmp_path / "README.md").data.tags


def test_a_dry_run_sends_and_writes_nothing(run):
    """No token and no Hub are needed for it: this process is offline, and a request would raise."""
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*")}
    planned = push_run(run, "ada/dates", dry_run=True)
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*")} == before
    assert planned.url is None and "README.md" in planned.files and "pictures/loss.png" in planned.files


def test_a_card_by_hand_is_sent_as_it_is(run):
    (run / "README.md").write_text("---\nlicense: mit\n---\nMine.\n")
    planned = push_run(run, "ada/dates", dry_run=True)
    assert planned.files["README.md"] == (run / "README.md").stat().st_size
    assert "pictures/loss.png" not in planned.files, "nothing shows it"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda run: (run / "model.safetensors").unlink(), "has no model.safetensors"),
        (lambda run: (run / "model.safetensors").write_bytes(b"half"), "not a whole file of weights"),
        (lambda run: (run / "blocks_masks.py").unlink(), "lacks blocks_masks.py"),
        (lambda run: change(run, auto_map={}), "names no code for AutoModelForSeq2SeqLM"),
        (lambda run: change(run, hidden_size=14), "does not load as EduBahdanauForConditionalGeneration"),
        (lambda run: change(run, num_hidden_layers=2), "lacks"),
    ],
)
def test_a_folder_that_nobody_could_load_is_not_pushed(damage, words, run):
    damage(run)
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        push_run(run, "ada/dates", dry_run=True)


def change(run: Path, **settings) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | settings))


@pytest.mark.parametrize("name", ["dates", "a/b/c", "ada/", "ada/two words", "ada/x--y", "../x"])
def test_a_name_that_the_hub_cannot_have_is_refused(name, run):
    with pytest.raises(ValueError, match="user/name"):
        push_run(run, name, dry_run=True)
