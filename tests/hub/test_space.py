"""`hf-edu push RUN user/name --space` on a small Hub on loopback: the model, its lab as a static Space, the link."""

import json
import subprocess
import sys
from pathlib import Path

import yaml
from loopback_hub import LoopbackHub
from test_push import FALSE_TOKEN, TOKEN, assert_no_token, environment, everything_in

from hf_edu_models.lab import build_lab
from hf_edu_models.run_folder import read_results


def push(run, url, home, *more, token=TOKEN):
    command = [Path(sys.executable).with_name("hf-edu"), "push", run, "ada/dates", "--space", *more]
    variables = environment(url, home, HF_TOKEN=token)
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=200)


def test_the_lab_becomes_a_static_space_that_the_card_links(run, tmp_path):
    with LoopbackHub({TOKEN: "ada"}) as hub:
        planned = push(run, hub.url, tmp_path / "home", "--dry-run")
        assert planned.returncode == 0 and "to spaces/ada/dates" in planned.stdout, planned.stderr
        assert not hub.repositories
        rejected = push(run, hub.url, tmp_path / "home", token=FALSE_TOKEN)
        assert rejected.returncode == 2 and rejected.stderr.count("\n") <= 2
        done = push(run, hub.url, tmp_path / "home")
        assert done.returncode == 0, done.stderr
        assert "spaces/ada/dates has 2 files" in done.stdout
        files = hub.files("spaces/ada/dates")
        assert files.keys() == {"README.md", "index.html"}
        facts = yaml.safe_load(files["README.md"].decode().split("---")[1])
        assert facts["sdk"] == "static" and facts["app_file"] == "index.html" and facts["models"] == ["ada/dates"]
        assert files["index.html"] == build_lab([run], tmp_path / "lab.html").path.read_bytes()
        assert b"huggingface.co/spaces/ada/dates" in hub.files("ada/dates")["README.md"]
        assert read_results(run)["space"] == "ada/dates"
        again = push(run, hub.url, tmp_path / "home")
        assert again.returncode == 0, again.stderr
        assert_no_token(done.stdout, done.stderr, everything_in(run, tmp_path))


def test_a_run_without_a_lab_is_not_pushed(run, tmp_path):
    tokenizer = run / "tokenizer.json"
    content = json.loads(tokenizer.read_text("utf-8"))
    content["model"]["type"] = "Mystery"
    tokenizer.write_text(json.dumps(content))
    (run / "manifest.json").unlink(missing_ok=True)
    with LoopbackHub({TOKEN: "ada"}) as hub:
        done = push(run, hub.url, tmp_path / "home")
        assert done.returncode == 2 and "has no model Mystery" in done.stderr, done.stderr
        assert not hub.repositories
