"""A small Hub on loopback: the endpoints that huggingface_hub and transformers use to push and to load a model.

It stores repositories in memory, checks tokens and owners, counts uploads, and can drop the connection during one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

LARGE = (".safetensors", ".png")  # stored as large files (LFS)
REPO = r"(?P<repo>[\w.-]+/[\w.-]+)"  # of a Space: `spaces/user/name` in `repositories`


@dataclass
class Commit:
    sha: str
    message: str
    files: dict[str, bytes]


@dataclass
class Repository:
    private: bool = False
    branches: dict[str, list[Commit]] = field(default_factory=lambda: {"main": [Commit("0" * 40, "start", {})]})

    def commit_of(self, revision: str) -> Commit | None:
        if revision in self.branches:
            return self.branches[revision][-1]
        every = [commit for branch in self.branches.values() for commit in branch]
        return next((commit for commit in every if commit.sha == revision), None)


class LoopbackHub:
    """`with LoopbackHub({"token": "user"}) as hub:` serves at `hub.url`.

    Args:
        tokens: The user of each token.
    """

    def __init__(self, tokens: dict[str, str]):
        self.tokens = tokens
        self.repositories: dict[str, Repository] = {}
        self.blobs: dict[str, bytes] = {}
        self.received: Counter[str] = Counter()  # complete large files, by SHA-256
        self.requests: list[tuple[str, str]] = []
        self.cut_blob: str | None = None  # the large file during whose upload the connection is dropped
        self.cuts_left = 0
        self.was_cut = threading.Event()
        self.another_uploaded = threading.Event()
        self.lock = threading.Lock()

    def __enter__(self) -> LoopbackHub:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"hub": self}))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def cut_in(self, content: bytes, times: int) -> None:
        """Drop the connection during the next `times` uploads of a file; another file is uploaded before."""
        self.cut_blob, self.cuts_left = sha256(content), times

    def files(self, repo_id: str, revision: str = "main") -> dict[str, bytes]:
        return self.repositories[repo_id].commit_of(revision).files


class HTTPError(Exception):
    def __init__(self, status: int, message: str, code: str | None = None):
        self.status, self.message, self.code = status, message, code


class Handler(BaseHTTPRequestHandler):
    hub: LoopbackHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments) -> None:
        """Log nothing."""

    def route(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.query = parse_qs(urlsplit(self.path).query)
        self.hub.requests.append((self.command, path))
        for method, pattern, handle in ROUTES:
            found = re.fullmatch(pattern, path)
            if method == self.command and found:
                try:
                    groups = found.groupdict()
                    if groups.pop("kind", None) in ("spaces", "spaces/"):
                        groups["repo"] = f"spaces/{groups['repo']}"
                    handle(self, **groups)
                except HTTPError as error:
                    self.send_error_json(error)
                return
        self.read_body()
        self.send_error_json(HTTPError(404, f"no such endpoint: {self.command} {path}"))

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = route

    def send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_json(self, content, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send(status, json.dumps(content).encode(), {"Content-Type": "application/json", **(headers or {})})

    def send_error_json(self, error: HTTPError) -> None:
        headers = {"X-Error-Message": error.message} | ({"X-Error-Code": error.code} if error.code else {})
        self.send_json({"error": error.message}, error.status, headers)

    def read_chunks(self):
        """The body of the request, with a length or in chunks."""
        if "chunked" in (self.headers.get("Transfer-Encoding") or ""):
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            chunk = self.rfile.read(min(left, 4096))
            if not chunk:
                raise ConnectionError("the client closed the connection")
            left -= len(chunk)
            yield chunk

    def read_body(self) -> bytes:
        return b"".join(self.read_chunks())

    def user(self) -> str:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token not in self.hub.tokens:
            raise HTTPError(401, "Invalid username or password.")
        return self.hub.tokens[token]

    def repository(self, repo: str, write: bool = False) -> Repository:
        found = self.hub.repositories.get(repo)
        owner = repo.removeprefix("spaces/").partition("/")[0]
        if found is None:
            raise HTTPError(404, "Repository not found", "RepoNotFound")
        if write and self.user() != owner:
            raise HTTPError(403, "Forbidden: you are not allowed to write to this repository")
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if found.private and self.hub.tokens.get(token) != owner:
            raise HTTPError(404, "Repository not found", "RepoNotFound")
        return found

    def commit(self, repo: str, revision: str) -> Commit:
        found = self.repository(repo).commit_of(revision)
        if found is None:
            raise HTTPError(404, "Revision not found", "RevisionNotFound")
        return found

    def whoami(self) -> None:
        self.send_json({"type": "user", "name": self.user(), "orgs": [], "auth": {"type": "access_token"}})

    def create(self) -> None:
        request = json.loads(self.read_body())
        user = self.user()
        owner = request.get("organization") or user
        is_space = request.get("type") == "space"
        repo = f"{'spaces/' if is_space else ''}{owner}/{request['name']}"
        if is_space and request.get("sdk") != "static":
            raise HTTPError(400, "this Hub has static Spaces only")
        if owner != user:
            raise HTTPError(403, f"You don't have the rights to create a model under the namespace {owner}")
        if repo in self.hub.repositories:
            self.send_json({"error": "You already created this model repo", "url": f"{self.hub.url}/{repo}"}, 409)
            return
        is_private = request.get("private") is True or request.get("visibility") == "private"
        self.hub.repositories[repo] = Repository(private=is_private)
        self.send_json({"url": f"{self.hub.url}/{repo}", "name": repo, "id": "1"})

    def validate(self) -> None:
        errors = card_errors(json.loads(self.read_body())["content"])
        messages = [{"message": message} for message in errors]
        self.send_json({"errors": messages, "warnings": []}, 400 if errors else 200)

    def branch(self, repo: str, revision: str) -> None:
        self.read_body()
        repository = self.repository(repo, write=True)
        if revision in repository.branches:
            raise HTTPError(409, "Reference already exists")
        repository.branches[revision] = list(repository.branches["main"])
        self.send_json({})

    def preupload(self, repo: str, revision: str) -> None:
        requested = json.loads(self.read_body())["files"]
        self.repository(repo, write=True)
        there = self.commit(repo, revision).files
        entries = []
        for each in requested:
            path = each["path"]
            mode = "lfs" if path.endswith(LARGE) else "regular"
            oid = file_id(path, there[path]) if path in there else None
            entries.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        self.send_json({"files": entries})

    def batch(self, repo: str) -> None:
        requested = json.loads(self.read_body())["objects"]
        self.repository(repo, write=True)
        objects = []
        for each in requested:
            actions = {
                "upload": {"href": f"{self.hub.url}/lfs/{each['oid']}"},
                "verify": {"href": f"{self.hub.url}/lfs/{each['oid']}/verify"},
            }
            objects.append(each | ({} if each["oid"] in self.hub.blobs else {"actions": actions}))
        self.send_json({"transfer": "basic", "objects": objects})

    def upload(self, oid: str) -> None:
        if oid == self.hub.cut_blob and self.hub.cuts_left:
            return self.drop_connection()
        content = self.read_body()
        if sha256(content) != oid:
            raise HTTPError(400, "the content does not match its SHA-256")
        with self.hub.lock:
            self.hub.blobs[oid] = content
            self.hub.received[oid] += 1
        self.hub.another_uploaded.set()
        self.send(200, b"")

    def drop_connection(self) -> None:
        """Read the first chunk, then close the connection, after another file has been uploaded."""
        self.hub.another_uploaded.wait(timeout=20)
        next(self.read_chunks())
        self.hub.cuts_left -= 1
        self.hub.was_cut.set()
        self.close_connection = True
        self.connection.close()

    def verify(self, oid: str) -> None:
        size = json.loads(self.read_body())["size"]
        if len(self.hub.blobs.get(oid, b"")) != size:
            raise HTTPError(422, "the size does not match")
        self.send_json({})

    def make_commit(self, repo: str, revision: str) -> None:
        lines = [json.loads(line) for line in self.read_body().splitlines()]
        repository = self.repository(repo, write=True)
        before = self.commit(repo, revision)
        files, message = dict(before.files), ""
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                message = value["summary"]
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.blobs[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
            else:
                raise HTTPError(400, f"unknown key {line['key']}")
        sha = hashlib.sha1(f"{before.sha}{sorted(files)}{message}".encode()).hexdigest()
        repository.branches[revision].append(Commit(sha, message, files))
        url = f"{self.hub.url}/{repo}/commit/{sha}"
        self.send_json({"success": True, "commitUrl": url, "commitOid": sha, "hookOutput": ""})

    def info(self, repo: str, revision: str = "main") -> None:
        commit = self.commit(repo, revision)
        siblings = [{"rfilename": path} for path in sorted(commit.files)]
        facts = {"_id": "1", "id": repo.removeprefix("spaces/"), "sha": commit.sha, "siblings": siblings, "tags": []}
        self.send_json(facts | {"private": self.hub.repositories[repo].private})

    def tree(self, repo: str, revision: str, folder: str | None = None) -> None:
        files = self.commit(repo, revision).files
        under = f"{folder}/" if folder else ""
        inside = {path: content for path, content in files.items() if path.startswith(under)}
        if folder and not inside:
            raise HTTPError(404, f"{folder} does not exist", "EntryNotFound")
        self.send_json([entry(path, content) for path, content in sorted(inside.items())])

    def resolve(self, repo: str, revision: str, path: str) -> None:
        commit = self.commit(repo, revision)
        if path not in commit.files:
            raise HTTPError(404, f"{path} does not exist", "EntryNotFound")
        content = commit.files[path]
        headers = {"ETag": f'"{file_id(path, content)}"', "X-Repo-Commit": commit.sha}
        if path.endswith(LARGE):
            headers |= {"X-Linked-ETag": headers["ETag"], "X-Linked-Size": str(len(content))}
        self.send(200, content, headers)


ROUTES = (
    ("GET", r"/api/whoami-v2", Handler.whoami),
    ("POST", r"/api/repos/create", Handler.create),
    ("POST", r"/api/validate-yaml", Handler.validate),
    ("POST", rf"/api/(?P<kind>models|spaces)/{REPO}/branch/(?P<revision>.+)", Handler.branch),
    ("POST", rf"/api/(?P<kind>models|spaces)/{REPO}/preupload/(?P<revision>.+)", Handler.preupload),
    ("POST", rf"/api/(?P<kind>models|spaces)/{REPO}/commit/(?P<revision>.+)", Handler.make_commit),
    ("POST", rf"/(?P<kind>spaces/)?{REPO}\.git/info/lfs/objects/batch", Handler.batch),
    ("PUT", r"/lfs/(?P<oid>\w+)", Handler.upload),
    ("POST", r"/lfs/(?P<oid>\w+)/verify", Handler.verify),
    ("GET", rf"/api/(?P<kind>models|spaces)/{REPO}", Handler.info),
    ("GET", rf"/api/(?P<kind>models|spaces)/{REPO}/revision/(?P<revision>[^/]+)", Handler.info),
    ("GET", rf"/api/(?P<kind>models|spaces)/{REPO}/tree/(?P<revision>[^/]+)(?:/(?P<folder>.+))?", Handler.tree),
    ("GET", rf"/(?P<kind>spaces/)?{REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", Handler.resolve),
    ("HEAD", rf"/(?P<kind>spaces/)?{REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", Handler.resolve),
)


def card_errors(content: str) -> list[str]:
    """Errors for which the Hub is known to reject the metadata of a card."""
    front = re.match(r"\s*---\n(.*?)\n---\s*(\n|$)", content, flags=re.DOTALL)
    if front is None:
        return []
    try:
        data = yaml.safe_load(front.group(1)) or {}
    except yaml.YAMLError as error:
        return [f"the metadata is not YAML: {error}"]
    errors = []
    for field_name, pattern in (("license", r"[a-z0-9.-]+"), ("pipeline_tag", r"[a-z0-9-]+")):
        if field_name in data and not re.fullmatch(pattern, str(data[field_name])):
            errors.append(f'"{field_name}" is not valid')
    if data.get("license") == "other" and "license_name" not in data:
        errors.append('"license_name" is required if "license" is other')
    languages = data.get("language", [])
    for language in [languages] if isinstance(languages, str) else languages:
        if not re.fullmatch(r"[a-z]{2,3}|code|multilingual", language):
            errors.append('"language" must be ISO 639 codes')
    for field_name in ("datasets", "base_model"):
        values = data.get(field_name, [])
        for value in [values] if isinstance(values, str) else values:
            if not re.fullmatch(r"(?:[\w-][\w.-]*/)?[\w.-]+", value):
                errors.append(f'"{field_name}" must be Hub ids')
    return errors + model_index_errors(data.get("model-index", []))


def model_index_errors(index: list) -> list[str]:
    errors = []
    for model in index:
        if not model.get("name"):
            errors.append('"model-index[0].name" is required')
        for result in model.get("results", []):
            if not result.get("task", {}).get("type"):
                errors.append('"task.type" is required')
            dataset = result.get("dataset", {})
            if not dataset.get("name") or not re.fullmatch(r"(?:[\w-]+/)?[\w.-]+", dataset.get("type", "")):
                errors.append('"dataset.name" and "dataset.type" are required')
            for metric in result.get("metrics", []):
                if not metric.get("type") or not isinstance(metric.get("value"), int | float | str):
                    errors.append('"metric.type" and "metric.value" are required')
    return errors


def entry(path: str, content: bytes) -> dict:
    large = {"lfs": {"oid": sha256(content), "size": len(content), "pointerSize": 100}} if path.endswith(LARGE) else {}
    return {"type": "file", "path": path, "size": len(content), "oid": git_hash(content)} | large


def file_id(path: str, content: bytes) -> str:
    return sha256(content) if path.endswith(LARGE) else git_hash(content)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_hash(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
