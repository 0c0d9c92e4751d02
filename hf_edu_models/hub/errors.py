"""Errors of the Hub, each as one sentence without the token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from huggingface_hub import get_session
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

from ..redaction import REDACTED, redact_text

_Result = TypeVar("_Result")
_BY_STATUS = {
    401: "the Hub rejects this token; create one with write access at huggingface.co/settings/tokens, then run "
    "`hf auth login` or set HF_TOKEN",
    403: "this token has no write access to {repo_id}: it belongs to another account, or the token is read-only",
    404: "the Hub has no {repo_id} that this token can see, or not that revision",
    409: "{repo_id} changed during the upload; push again",
    413: "a file is too large for the Hub",
}
TIMEOUT = 60.0  # seconds without a byte from the Hub; huggingface_hub itself waits forever


class HubRejectedError(ValueError):
    """The Hub rejects the request: token, repository or card are not valid."""


class HubUnreachableError(ConnectionError):
    """The Hub does not answer, or the connection was lost; trying again may help."""


HubRefusal, HubUnreachable = HubRejectedError, HubUnreachableError  # former names


def call_hub(repo_id: str, token: str, request: Callable[[], _Result]) -> _Result:
    """Return `request()`; an error of the Hub becomes one sentence without the token.

    The original error is not chained: it may quote the token with the request.
    """
    get_session().timeout = TIMEOUT  # stays set, for uploads in the background
    try:
        return request()
    except Exception as error:
        explained = _explain(error, repo_id)
        if explained is None:
            raise
    raise type(explained)(redact_text(str(explained)).replace(token, REDACTED))


def _explain(error: BaseException, repo_id: str) -> HubRejectedError | HubUnreachableError | None:
    """The error for the user; None if the Hub did not cause it."""
    for cause in _causes(error):
        if isinstance(cause, OfflineModeIsEnabled):
            return HubUnreachableError("HF_HUB_OFFLINE is set, so nothing is uploaded; unset it and try again")
        if isinstance(cause, HfHubHTTPError):
            return _explain_status(cause, repo_id)
        if type(cause).__name__.endswith("Timeout"):
            return HubUnreachableError(f"the Hub has not answered for {TIMEOUT:g} seconds; run the same command again")
        if type(cause).__module__.partition(".")[0].startswith("httpx") or isinstance(cause, ConnectionError):
            return HubUnreachableError(
                f"the Hub cannot be reached, or the connection was lost ({type(cause).__name__}); check the network "
                "and run the same command again: finished files are not uploaded twice"
            )
    if isinstance(error, ValueError) and "metadata in README.md" in str(error):
        return HubRejectedError(f"the Hub rejects the model card: {' '.join(str(error).split())}")
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that caused it: uploads in threads wrap the original one."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _explain_status(error: HfHubHTTPError, repo_id: str) -> HubRejectedError | HubUnreachableError:
    status = error.response.status_code
    if status == 429:
        return HubUnreachableError("the Hub limits the number of requests; try again in a few minutes")
    if status >= 500:
        return HubUnreachableError(f"the Hub has an internal error (status {status}); try again later")
    text = _BY_STATUS.get(status, f"the Hub returned status {status} for {{repo_id}}").format(repo_id=repo_id)
    message = " ".join((error.server_message or "").split())
    return HubRejectedError(f"{text} (the Hub's message: {message})" if message else text)
