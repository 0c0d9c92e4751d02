"""What every request passes: the token, the limit of its size, and the clock."""

from __future__ import annotations

import hmac
import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .metrics import Metrics

_OPEN = ("/health",)  # for load balancers, which have no token


class Guard:
    """ASGI middleware.

    Args:
        token: `Authorization: Bearer TOKEN` is required if it is not None.
        max_bytes: of a body; a larger one is answered with 413 before it is read to its end.
    """

    def __init__(self, app: Any, token: str | None, max_bytes: int, metrics: Metrics):
        self.app, self.max_bytes, self.metrics = app, max_bytes, metrics
        self.token = None if token is None else token.encode()

    async def __call__(self, scope: dict, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, seen = time.perf_counter(), 500, 0
        headers = dict(scope["headers"])

        async def send_and_note(message: dict) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        async def receive_limited() -> dict:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.max_bytes:
                raise _TooLargeError
            return message

        try:
            length = headers.get(b"content-length", b"0")
            if not self._is_allowed(scope["path"], headers):
                await _reject(send_and_note, 401, "the request needs the header Authorization: Bearer TOKEN")
            elif not length.isdigit() or int(length) > self.max_bytes:
                await self._reject_size(send_and_note)
            else:
                await self.app(scope, receive_limited, send_and_note)
        except _TooLargeError:
            await self._reject_size(send_and_note)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.observe(route, status, time.perf_counter() - start)

    def _is_allowed(self, path: str, headers: dict[bytes, bytes]) -> bool:
        if self.token is None or path in _OPEN:
            return True
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        return kind.lower() == b"bearer" and hmac.compare_digest(given, self.token)

    async def _reject_size(self, send: Any) -> None:
        await _reject(send, 413, f"the body is above {self.max_bytes} bytes; send fewer texts at once")


class _TooLargeError(Exception):
    pass


async def _reject(send: Any, status: int, message: str) -> None:
    body = json.dumps({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": status}})
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})
