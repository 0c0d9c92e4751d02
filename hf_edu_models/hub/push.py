"""Push a run to the Hub: weights, tokenizer, code, card and pictures in one commit.

Only files with known names are uploaded. Checkpoints, optimizer states, `training_args.bin`, logs and settings contain
paths of this machine and stay, and so does everything else in the folder.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi, get_token
from transformers.trainer_utils import HubStrategy
from transformers.utils import PushInProgress

from ..auto import find_rung
from ..checkpoints import WEIGHTS_INDEX, Checkpoint, check_complete, code_files, read_checkpoint, weight_files
from ..manifest import MANIFEST, make_manifest, rewriting
from ..redaction import REDACTED
from ..run_folder import RESULTS, SETTINGS, STATE, write_results
from .cards.card import CARD, card_files, write_files
from .errors import TIMEOUT, HubRejectedError, call_hub

_SMALL_FILES = (
    *(CARD, "LICENSE", "config.json", "generation_config.json", WEIGHTS_INDEX),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("vocab.json", "vocab.txt", "merges.txt", "spiece.model", "source.spm", "target.spm"),
)
_PICTURES = (".png", ".svg", ".jpg", ".jpeg", ".html")
_AnyTrainer: Any = object  # to the type checker, a class with every attribute of the Trainer that a mixin is mixed into


@dataclass(frozen=True)
class Push:
    """An upload, planned or done.

    Args:
        files: Size in bytes of each file, by its path in the repository.
        left_out: Files and folders of the run that are not uploaded.
        url: URL of the commit; None in a dry run.
    """

    repo_id: str
    revision: str
    message: str
    files: dict[str, int]
    left_out: list[str]
    url: str | None = None


def push_run(
    run: str | os.PathLike,
    repo_id: str,
    *,
    private: bool = False,
    dry_run: bool = False,
    token: str | None = None,
    revision: str | None = None,
    message: str | None = None,
    space: str | None = None,
) -> Push:
    """Upload a run to the Hub in one commit, with a new card unless the card was written or changed by hand.

    Args:
        private: Create a private repository; raises an error if the repository exists and is public.
        dry_run: Check everything; upload and write nothing.
        token: Default the one of `hf auth login` or HF_TOKEN. It is never saved.
        revision: Branch, created if missing; default main.
        space: The Space with the run's lab, which the card links.
    """
    check_repo_id(repo_id)
    _check_inside(Path(run), [Path(run) / name for name in (RESULTS, SETTINGS, STATE)])  # what the card shows
    checkpoint = read_checkpoint(run)
    check_complete(checkpoint)
    generated = card_files(checkpoint, repo_id=repo_id, space=space)
    public = _public_files(checkpoint)
    contents = public | generated | {MANIFEST: _manifest_of(public)}
    if (checkpoint.folder / MANIFEST).is_file():
        generated[MANIFEST] = contents[MANIFEST]
    message = message or f"{checkpoint.architecture}: weights, tokenizer, code and card"
    push = Push(repo_id, revision or "main", message, _sizes(contents), _left_out(checkpoint.folder, contents))
    if dry_run:
        return push
    token = find_token(token)
    write_files(checkpoint.folder, generated)
    if space is not None and checkpoint.results:
        write_results(checkpoint.folder, checkpoint.results | {"space": space})  # for later cards

    def upload() -> Any:
        api = HfApi(token=token, library_name="hf_edu_models")
        _prepare_repository(api, repo_id, private, revision)
        return _commit(api, repo_id, contents, message, revision)

    return replace(push, url=str(call_hub(repo_id, token, upload).commit_url))


def check_repo_id(repo_id: str) -> None:
    if not re.fullmatch(r"[\w][\w.-]*/[\w][\w.-]*", repo_id) or "--" in repo_id or ".." in repo_id:
        raise ValueError(f"{repo_id!r} is not a repository id; use user/name with letters, digits, '-', '_' and '.'")


def find_token(token: str | None) -> str:
    """The token to use; no error message contains it."""
    token = (token or get_token() or "").strip()
    if not token:
        raise HubRejectedError("there is no token for the Hub; run `hf auth login`, or set HF_TOKEN")
    # An HTTP library quotes a header that it cannot send, and the token with it.
    if not token.isascii() or not token.isprintable() or " " in token:
        raise HubRejectedError("the token contains invalid characters, such as a space or a line break; copy it again")
    return token


def _public_files(checkpoint: Checkpoint) -> dict[str, Path | bytes]:
    """The files of a folder that are uploaded, by path in the repository."""
    folder = checkpoint.folder
    files = [folder / name for name in _SMALL_FILES if (folder / name).is_file()]
    files += weight_files(folder) + code_files(checkpoint)
    files += [file for file in sorted((folder / "pictures").rglob("*")) if file.suffix.lower() in _PICTURES]
    _check_inside(folder, files)
    return {file.relative_to(folder).as_posix(): file for file in files}


def _check_inside(folder: Path, files: list[Path]) -> None:
    """Raise an error if a file is a link out of the folder: what it leads to may be private."""
    for file in files:
        if not file.resolve().is_relative_to(folder.resolve()):
            name = file.relative_to(folder)
            raise ValueError(
                f"{name} leads out of {folder}, to {file.resolve()}, so nothing is uploaded; copy that file into the "
                f"folder, or remove {name}"
            )


def _manifest_of(public: dict[str, Path | bytes]) -> bytes:
    """Digests of all files that a model is loaded from; card and pictures may be edited on the Hub."""
    return make_manifest({name: each for name, each in public.items() if name != CARD and "/" not in name})


def _sizes(contents: dict[str, Path | bytes]) -> dict[str, int]:
    sizes = {name: len(each) if isinstance(each, bytes) else each.stat().st_size for name, each in contents.items()}
    return dict(sorted(sizes.items()))


def _left_out(folder: Path, contents: dict[str, Path | bytes]) -> list[str]:
    """Files that are not uploaded, and folders of which no file is."""
    uploaded = {name.partition("/")[0] for name in contents}
    entries = (entry for entry in folder.iterdir() if entry.name not in uploaded)
    return sorted(entry.name + ("/" if entry.is_dir() else "") for entry in entries)


def _prepare_repository(api: HfApi, repo_id: str, private: bool, revision: str | None) -> None:
    api.create_repo(repo_id, private=private or None, exist_ok=True)
    # An existing repository keeps its visibility, and a model that is meant to be private would become public.
    if private and not api.model_info(repo_id, timeout=TIMEOUT).private:
        raise HubRejectedError(
            f"{repo_id} exists and is public; make it private in its settings on the Hub, or leave out --private"
        )
    if revision is not None and revision != "main":
        api.create_branch(repo_id, branch=revision, exist_ok=True)


def _commit(
    api: HfApi, repo_id: str, contents: dict[str, Path | bytes], message: str, revision: str | None, **options: Any
) -> Any:
    """Upload all files in one commit, or none.

    Another try after a lost connection costs little: `create_commit` asks the Hub by SHA-256 which large files it has,
    uploads the others, and then commits. Until then nobody sees any of them. Unchanged files are no part of the commit.
    """
    operations = [CommitOperationAdd(name, content) for name, content in sorted(contents.items())]
    return api.create_commit(repo_id, operations, commit_message=message, revision=revision, **options)


class PushWithCardMixin(_AnyTrainer):
    """For a Trainer: `class MyTrainer(PushWithCardMixin, Trainer)`.

    `push_to_hub` uploads the files that `push_run` uploads, with the same card, and no file that Trainer writes
    contains the `hub_token`: its own `training_args.bin` would.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if self.args.hub_token is not None:
            self.args.hub_token = UnsavedToken(self.args.hub_token)

    def create_model_card(
        self,
        language: str | None = None,
        license: str | None = None,
        tags: str | list[str] | None = None,
        model_name: str | None = None,
        finetuned_from: str | None = None,
        **others: Any,
    ) -> None:
        """Write our card, with the arguments of Trainer's own method; a card that was written by hand is kept."""
        metadata = {"language": language, "tags": tags, "model_name": model_name}
        if not self._is_on_ladder():
            return super().create_model_card(license=license, finetuned_from=finetuned_from, **metadata, **others)
        if others:
            raise TypeError(f"the card reads {', '.join(sorted(others))} from results.json; write it there")
        if not self.is_world_process_zero():
            return None
        self.save_state()  # the loss curve is drawn from it
        checkpoint = read_checkpoint(self.args.output_dir)
        metadata |= {"repo_id": self.hub_model_id, "licence": license, "base_model": finetuned_from}
        write_files(checkpoint.folder, card_files(checkpoint, **metadata))
        return None

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        **card: Any,
    ) -> Any:
        """As Trainer's, but uploads the files that `push_run` uploads and no others."""
        if not self._is_on_ladder():
            return super().push_to_hub(commit_message, blocking, token, revision, **card)
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        token = find_token(token or self.args.hub_token)

        def upload() -> Any:
            if self.hub_model_id is None:
                self.init_hf_repo(token=token)
            self.save_model(_internal_call=True)
            if not self.is_world_process_zero():
                return None
            self.create_model_card(**card)
            self._finish_current_push()
            return self._upload_output_dir(commit_message, revision, token=token, run_as_future=not blocking)

        return call_hub(self.args.hub_model_id or Path(self.args.output_dir).name, token, upload)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """During training: the public files of the newest checkpoint.

        With `hub_strategy` "checkpoint" or "all_checkpoints" the user asks for whole checkpoints; Trainer uploads them.
        """
        if self.args.hub_strategy != HubStrategy.EVERY_SAVE or not self._is_on_ladder():
            return super()._push_from_checkpoint(checkpoint_folder)
        is_uploading = self.push_in_progress is not None and not self.push_in_progress.is_done()
        if not self.is_world_process_zero() or (is_uploading and not self.args.hub_always_push):
            return None
        if is_uploading:  # or the files would change during their upload
            self.push_in_progress.wait_until_done()
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        # Copied first: the checkpoint may be deleted before it is uploaded.
        with rewriting(Path(self.args.output_dir)):
            for name, file in _public_files(read_checkpoint(checkpoint_folder)).items():
                shutil.copy(file, Path(self.args.output_dir) / name)
        message = f"Training in progress, step {self.state.global_step}"
        job = self._upload_output_dir(message, token=find_token(self.args.hub_token), run_as_future=True)
        self.push_in_progress = PushInProgress([job])
        return None

    def _upload_output_dir(self, message: str | None, revision: str | None = None, **options: Any) -> Any:
        contents = _public_files(read_checkpoint(self.args.output_dir))
        contents[MANIFEST] = _manifest_of(contents)
        return _commit(self._hub, self.hub_model_id, contents, message, revision or self.args.hub_revision, **options)

    @cached_property
    def _hub(self) -> HfApi:
        """One for all pushes: it runs its background jobs one after another."""
        return HfApi(library_name="hf_edu_models")

    def _is_on_ladder(self) -> bool:
        return find_rung(self.model.config.model_type) is not None


PushesWithCard = PushWithCardMixin  # former name


class UnsavedToken(str):
    """A token that is None when unpickled and is redacted when printed."""

    def __reduce_ex__(self, protocol: int) -> tuple:
        return type(None), ()

    def __deepcopy__(self, memo: dict) -> UnsavedToken:
        return self

    def __copy__(self) -> UnsavedToken:
        return self

    def __repr__(self) -> str:
        return repr(REDACTED)
