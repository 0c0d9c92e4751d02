"""A local Hub and the real client: config, revision, streaming and a missing dataset."""

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import hf_edu_models.data

CARD = """---
configs:
- config_name: en
  data_files:
  - {split: train, path: en/train.jsonl}
  - {split: validation, path: en/dev.jsonl}
---
"""
FILES = {
    "README.md": CARD,
    "en/train.jsonl": '{"sentence": "good", "label": "pos"}\n{"sentence": "bad", "label": "neg"}\n',
    "en/dev.jsonl": '{"sentence": "fine", "label": "pos"}\n',
}
COMMIT = "a" * 40


class Hub(http.server.BaseHTTPRequestHandler):
    """The requests that loading one dataset makes."""

    def log_message(self, *args):
        pass

    def answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path = self.path.split("?")[0]
        self.server.requests.append(path)
        if "owner/reviews" not in path:
            return self.answer(404, b"{}", X_Error_Code="RepoNotFound", Content_Type="application/json")
        if path.startswith("/api/datasets/owner/reviews/tree/"):
            rows = [
                {"type": "file", "path": p, "oid": "b" * 40, "size": len(FILES[p])} for p in FILES if p[:3] == "en/"
            ]
            return self.answer(200, json.dumps(rows).encode(), Content_Type="application/json")
        if path.startswith("/api/datasets/owner/reviews"):
            about = {"id": "owner/reviews", "sha": COMMIT, "private": False, "tags": [], "downloads": 0, "likes": 0}
            about["siblings"] = [{"rfilename": name} for name in FILES]
            return self.answer(200, json.dumps(about).encode(), Content_Type="application/json")
        name = path.split("/resolve/")[-1].partition("/")[2]
        if name not in FILES:
            return self.answer(404, b"{}", X_Error_Code="EntryNotFound", Content_Type="application/json")
        body = FILES[name].encode()
        return self.answer(200, body, ETag=f'"{hashlib.sha1(body).hexdigest()}"', X_Repo_Commit=COMMIT)

    do_HEAD = do_POST = do_GET


@pytest.fixture
def hub():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.requests = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()


CODE = """
import json
from hf_edu_models.data import load_corpus
found = load_corpus("owner/reviews", config="en", revision="v1")
stream = load_corpus("owner/reviews", config="en", revision="v1", streaming=True, label_names=["pos", "neg"])
mistakes = []
for name, options in (("owner/nothing", {}), ("owner/reviews", {"config": "xx"})):
    try:
        load_corpus(name, **options)
    except Exception as problem:
        mistakes.append(f"{type(problem).__name__}: {problem}")
rows = {split: list(data) for split, data in found.items()}
print(json.dumps([rows, list(stream["train"]), mistakes]))
"""


def test_config_revision_streaming_and_a_missing_name(hub, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.endswith("OFFLINE")}
    environment |= {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HOME": str(tmp_path),
        "HF_DATASETS_CACHE": str(tmp_path / "datasets"),
        "HF_HUB_DISABLE_XET": "1",
        "PYTHONPATH": str(Path(hf_edu_models.data.__file__).parents[2]),
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows, stream, mistakes = json.loads(done.stdout.splitlines()[-1])
    assert rows == {
        "train": [{"text": "good", "label": 1}, {"text": "bad", "label": 0}],
        "validation": [{"text": "fine", "label": 1}],
    }
    assert stream == [{"text": "good", "label": 0}, {"text": "bad", "label": 1}]
    assert any("/resolve/v1/" in path for path in hub.requests), "the revision was requested"
    assert mistakes[0].startswith("FileNotFoundError: 'owner/nothing' is not a built-in corpus (dates, ")
    assert "'xx' not found. Available: ['en']" in mistakes[1]
