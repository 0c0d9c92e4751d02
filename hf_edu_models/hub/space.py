"""Publish a page as a static Space: the Hub serves the file, and the models run in the visitor's browser."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi

from .errors import HubRejectedError, call_hub
from .push import Push, check_repo_id, find_token

_CARD = """---
title: "{title}"  # a name may be a number
emoji: 🔬
colorFrom: blue
colorTo: yellow
sdk: static
app_file: index.html
pinned: false
{models}---

# {title}

One page in which the models run: type a text, watch every number, and switch parts of a model off. Nothing that you
type leaves the page. Made by `hf-edu lab` of `hf_edu_models`.
"""


def push_space(
    page: str | os.PathLike,
    repo_id: str,
    *,
    model: str | None = None,
    private: bool = False,
    dry_run: bool = False,
    token: str | None = None,
    message: str | None = None,
) -> Push:
    """Upload a page as the static Space `repo_id`, created if it is missing, in one commit.

    Args:
        model: the repository of the model that the page runs, which the Space names.
        private: Create a private Space; raises an error if the Space exists and is public.
        dry_run: Check everything; upload nothing.
        token: Default the one of `hf auth login` or HF_TOKEN. It is never saved.
    """
    check_repo_id(repo_id)
    title = f"Lab of {repo_id.rpartition('/')[2]}"
    card = _CARD.format(title=title, models=f"models:\n- {model}\n" if model else "")
    contents = {"README.md": card.encode(), "index.html": Path(page).read_bytes()}
    sizes = {name: len(content) for name, content in contents.items()}
    push = Push(f"spaces/{repo_id}", "main", message or f"{title}: the page", sizes, [])
    if dry_run:
        return push
    token = find_token(token)

    def upload() -> Any:
        api = HfApi(token=token, library_name="hf_edu_models")
        api.create_repo(repo_id, repo_type="space", space_sdk="static", private=private or None, exist_ok=True)
        if private and not api.space_info(repo_id).private:
            raise HubRejectedError(
                f"the Space {repo_id} exists and is public; make it private in its settings, or leave out --private"
            )
        operations = [CommitOperationAdd(name, content) for name, content in contents.items()]
        return api.create_commit(repo_id, operations, commit_message=push.message, repo_type="space")

    return replace(push, url=str(call_hub(push.repo_id, token, upload).commit_url))
