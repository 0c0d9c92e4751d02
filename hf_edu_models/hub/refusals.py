"""One sentence for each way in which a Hub says no, or does not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

from .privacy import HIDDEN, without_secrets

Answer = TypeVar("Answer")
BY_STATUS = {
    401: "the Hub does not accept this token; make one with the right to write at huggingface.co/settings/tokens, "
    "then run `hf auth login` or set HF_TOKEN",
    403: "this token may not write to {repo_id}: either somebody else owns it, or the token can only read",
    404: "the Hub has no {repo_id} that this token may see, or not that revision of it",
    409: "{repo_id} changed while this was sent; send it again",
    413: "a file is too large for the Hub",
    429: "the Hub asks to wait: too many requests; try again in some minutes",
}


class HubRefusal(ValueError):
    """The Hub answered, and the answer was no."""


class HubUnreachable(ConnectionError):
    """The Hub did not answer, or the line was cut; the same command may be given again."""


def in_one_sentence(repo_id: str, token: str, ask: Callable[[], Answer]) -> Answer:
    """What `ask` gives; what goes wrong on the way to the Hub becomes one sentence without the token.

    The original error is not chained to it: what it quotes of a request may hold the token.
    """
    try:
        return ask()
    except Exception as problem:
        sentence = explain(problem, repo_id)
        if sentence is None:
            raise
    raise type(sentence)(without_secrets(str(sentence)).replace(token, HIDDEN))


def explain(problem: BaseException, repo_id: str) -> HubRefusal | HubUnreachable | None:
    """What an error means to the user; None where it is no matter of the Hub."""
    for error in chain(problem):
        if isinstance(error, OfflineModeIsEnabled):
            return HubUnreachable("HF_HUB_OFFLINE is set, so nothing is sent; unset it and try again")
        if isinstance(error, HfHubHTTPError):
            return _answer(error, repo_id)
        if type(error).__module__.partition(".")[0].startswith("httpx") or isinstance(error, ConnectionError):
            return HubUnreachable(
                f"the Hub cannot be reached or cut the line ({type(error).__name__}); look at the network and give the "
                "same command again: files that have arrived are not sent twice"
            )
    if isinstance(problem, ValueError) and "metadata in README.md" in str(problem):
        return HubRefusal(f"the Hub does not take the card: {' '.join(str(problem).split())}")
    return None


def chain(problem: BaseException | None) -> Iterator[BaseException]:
    """An error, what caused it, and so on: uploads in threads wrap what went wrong."""
    while problem is not None:
        yield problem
        problem = problem.__cause__ or problem.__context__


def _answer(error: HfHubHTTPError, repo_id: str) -> HubRefusal | HubUnreachable:
    status = error.response.status_code
    if status >= 500:
        return HubUnreachable(f"the Hub has trouble of its own (it answered {status}); try again later")
    said = " ".join((error.server_message or "").split())
    text = BY_STATUS.get(status, f"the Hub answered {status} for {{repo_id}}").format(repo_id=repo_id)
    return HubRefusal(f"{text} (it said: {said})" if said else text)
