"""To the Hub: weights, tokenizer, code, card and pictures of a run, in one commit.

What is sent is chosen by name, and everything else stays: checkpoints, optimizer states, `training_args.bin`, logs and
settings hold paths of this machine, and anything may lie in a run's folder.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi, ModelCard, get_token
from transformers.trainer_utils import HubStrategy
from transformers.utils import PushInProgress

from ..auto import LADDER
from .cards import CARD, is_ours, keep, made_for, make_card, signed
from .checkpoint import WEIGHTS_INDEX, Checkpoint, check_complete, code_files, read_checkpoint, weight_files
from .privacy import HIDDEN
from .refusals import HubRefusal, in_one_sentence

SMALL_FILES = (
    *(CARD, "LICENSE", "config.json", "generation_config.json", WEIGHTS_INDEX),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("vocab.json", "vocab.txt", "merges.txt", "spiece.model", "source.spm", "target.spm"),
)
PICTURES = (".png", ".svg", ".jpg", ".jpeg", ".html")


@dataclass(frozen=True)
class Push:
    """What goes to the Hub, or went there.

    Args:
        files: Size in bytes of each file, by its path in the repository.
        left_out: What is in the folder and stays there.
        url: Of the commit; None in a dry run.
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
) -> Push:
    """Send a run to the Hub in one commit, with a card; a card that somebody wrote by hand is sent as it is.

    Args:
        private: Only you can see it; a repository that is there already must be private.
        dry_run: Check everything, send and write nothing.
        token: Default the one of `hf auth login` or HF_TOKEN. It is used, never kept.
        revision: A branch, made if it is not there.
    """
    check_repo_id(repo_id)
    checkpoint = read_checkpoint(run)
    check_complete(checkpoint)
    made = made_for(new_card(checkpoint, repo_id), checkpoint)
    contents = published_files(checkpoint) | made
    message = message or f"{checkpoint.architecture}: weights, tokenizer, code and card"
    push = Push(repo_id, revision or "main", message, _sizes(contents), _left_out(checkpoint.folder, contents))
    if dry_run:
        return push
    token = usable_token(token)
    keep(checkpoint.folder, made)

    def ask() -> Any:
        api = HfApi(token=token, library_name="hf_edu_models")
        _prepare_repository(api, repo_id, private, revision)
        return send(api, repo_id, contents, message, revision)

    return replace(push, url=str(in_one_sentence(repo_id, token, ask).commit_url))


def check_repo_id(repo_id: str) -> None:
    if not re.fullmatch(r"[\w][\w.-]*/[\w][\w.-]*", repo_id) or "--" in repo_id or ".." in repo_id:
        raise ValueError(f"{repo_id!r} is no name on the Hub; give user/name, of letters, digits, '-', '_' and '.'")


def usable_token(token: str | None) -> str:
    """The token to use; it is never part of what is said about it."""
    token = (token or get_token() or "").strip()
    if not token:
        raise HubRefusal("there is no token for the Hub; run `hf auth login`, or set HF_TOKEN")
    # An HTTP library quotes a header that it cannot send, and the token with it.
    if not token.isascii() or not token.isprintable() or " " in token:
        raise HubRefusal("the token has signs that no token has, such as a space or a line break; copy it again")
    return token


def published_files(checkpoint: Checkpoint) -> dict[str, Path | bytes]:
    """What of a folder is for everybody, by path in the repository."""
    folder = checkpoint.folder
    files = [folder / name for name in SMALL_FILES if (folder / name).is_file()]
    files += weight_files(folder) + code_files(checkpoint)
    files += [file for file in sorted((folder / "pictures").rglob("*")) if file.suffix.lower() in PICTURES]
    return {file.relative_to(folder).as_posix(): file for file in files}


def new_card(checkpoint: Checkpoint, repo_id: str | None, licence: str | None = None) -> ModelCard | None:
    """A card for the folder, unless somebody wrote the one that is there, or changed it."""
    file = checkpoint.folder / CARD
    return None if file.is_file() and not is_ours(file) else make_card(checkpoint, repo_id=repo_id, licence=licence)


def send(
    api: HfApi,
    repo_id: str,
    contents: dict[str, Path | bytes],
    message: str,
    revision: str | None = None,
    **options: Any,
) -> Any:
    """One commit of all contents, or none.

    Sending again after a cut costs little: `create_commit` first asks which of the large files the Hub has (by their
    SHA-256), sends the others, and only then commits. What arrived before the cut is not sent twice, and until the
    commit nobody sees a part of it. Files that are the same on the Hub already are left out of the commit.
    """
    operations = [CommitOperationAdd(name, content) for name, content in sorted(contents.items())]
    return api.create_commit(repo_id, operations, commit_message=message, revision=revision, **options)


class PushesWithCard:
    """For a Trainer: `class MyTrainer(PushesWithCard, Trainer)`.

    `push_to_hub` then sends what `push_run` sends, with the same card, and a `hub_token` is in no file that Trainer
    writes: its own `training_args.bin` would hold it.
    """

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
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
        """Write our card, with what Trainer's own method may be told; one that somebody wrote is left as it is."""
        if not self._is_of_the_ladder():
            named = {"language": language, "license": license, "tags": tags, "finetuned_from": finetuned_from}
            return super().create_model_card(model_name=model_name, **named, **others)
        if others:
            raise TypeError(f"our card takes {', '.join(sorted(others))} from results.json; write it there")
        if not self.is_world_process_zero():
            return None
        self.save_state()  # the loss curve is drawn from it
        checkpoint = read_checkpoint(self.args.output_dir)
        card = new_card(checkpoint, self.hub_model_id, license)
        if card is not None:
            _tell(card, language, tags, model_name, finetuned_from)
            keep(checkpoint.folder, made_for(card, checkpoint))
        return None

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        **card: Any,
    ) -> Any:
        """Trainer's, but for what is sent: the files that `push_run` sends, and no others."""
        if not self._is_of_the_ladder():
            return super().push_to_hub(commit_message, blocking, token, revision, **card)
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        token = usable_token(token or self.args.hub_token)

        def ask() -> Any:
            if self.hub_model_id is None:
                self.init_hf_repo(token=token)
            self.save_model(_internal_call=True)
            if not self.is_world_process_zero():
                return None
            self.create_model_card(**card)
            self._finish_current_push()
            contents = published_files(read_checkpoint(self.args.output_dir))
            options = {"token": token, "run_as_future": not blocking}
            branch = revision or self.args.hub_revision
            return send(self._hub, self.hub_model_id, contents, commit_message, branch, **options)

        return in_one_sentence(self.args.hub_model_id or Path(self.args.output_dir).name, token, ask)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """During training: the files of the newest checkpoint that are for everybody.

        With `hub_strategy` "checkpoint" or "all_checkpoints" the user asks for whole checkpoints; Trainer sends them.
        """
        if self.args.hub_strategy != HubStrategy.EVERY_SAVE or not self._is_of_the_ladder():
            return super()._push_from_checkpoint(checkpoint_folder)
        is_busy = self.push_in_progress is not None and not self.push_in_progress.is_done()
        if not self.is_world_process_zero() or (is_busy and not self.args.hub_always_push):
            return None
        if is_busy:  # or the files would change while they are being sent
            self.push_in_progress.wait_until_done()
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        # Copied first: the checkpoint may be deleted before it is sent.
        for name, file in published_files(read_checkpoint(checkpoint_folder)).items():
            shutil.copy(file, Path(self.args.output_dir) / name)
        contents = published_files(read_checkpoint(self.args.output_dir))
        options = {"token": usable_token(self.args.hub_token), "run_as_future": True}
        message = f"Training in progress, step {self.state.global_step}"
        job = send(self._hub, self.hub_model_id, contents, message, self.args.hub_revision, **options)
        self.push_in_progress = PushInProgress([job])
        return None

    @cached_property
    def _hub(self) -> HfApi:
        """One for all pushes: what it does in the background it does one after another."""
        return HfApi(library_name="hf_edu_models")

    def _is_of_the_ladder(self) -> bool:
        return self.model.config.model_type in {rung.model_type for rung in LADDER}


class UnsavedToken(str):
    """A token that works as one, but is nothing in a pickle and hidden where an object is printed."""

    def __reduce_ex__(self, protocol: int) -> tuple:
        return type(None), ()

    def __deepcopy__(self, memo: dict) -> UnsavedToken:
        return self

    def __copy__(self) -> UnsavedToken:
        return self

    def __repr__(self) -> str:
        return repr(HIDDEN)


def _tell(card: ModelCard, language: Any, tags: Any, model_name: str | None, finetuned_from: str | None) -> None:
    """Put into a card what its author says about it."""
    if language is not None:
        card.data.language = language
    if tags is not None:
        card.data.tags = list(dict.fromkeys([*card.data.tags, *([tags] if isinstance(tags, str) else tags)]))
    if model_name is not None:
        card.data.model_name = model_name
    if finetuned_from is not None:
        card.data.base_model = finetuned_from
    signed(card)


def _prepare_repository(api: HfApi, repo_id: str, private: bool, revision: str | None) -> None:
    api.create_repo(repo_id, private=private or None, exist_ok=True)
    # A repository that was there keeps its visibility, and what was meant to be private would be seen by all.
    if private and not api.model_info(repo_id).private:
        raise HubRefusal(
            f"{repo_id} is there already and is public; make it private on its page, or leave out --private"
        )
    if revision is not None and revision != "main":
        api.create_branch(repo_id, branch=revision, exist_ok=True)


def _sizes(contents: dict[str, Path | bytes]) -> dict[str, int]:
    sizes = {name: len(each) if isinstance(each, bytes) else each.stat().st_size for name, each in contents.items()}
    return dict(sorted(sizes.items()))


def _left_out(folder: Path, contents: dict[str, Path | bytes]) -> list[str]:
    """What lies in the folder and is not sent: names of files, and of folders of which nothing is sent."""
    sent = {name.partition("/")[0] for name in contents}
    return sorted(entry.name + ("/" if entry.is_dir() else "") for entry in folder.iterdir() if entry.name not in sent)
