"""Model cards, pushing to the Hub, and its errors. Names are imported when first used."""

from __future__ import annotations

from ..lazy import lazy_names

_HOMES = {
    "make_card": "cards.card",
    "write_card": "cards.card",
    "HubRejectedError": "errors",
    "HubUnreachableError": "errors",
    "Push": "push",
    "PushWithCardMixin": "push",
    "push_run": "push",
    "push_space": "space",
    # Former names, for code that imports them from `hub`; the last six have packages of their own.
    "HubRefusal": "errors",
    "HubUnreachable": "errors",
    "PushesWithCard": "push",
    "Conversion": "..convert",
    "convert_checkpoint": "..convert",
    "from_transformers": "..convert",
    "to_transformers": "..convert",
    "Report": "..doctor",
    "diagnose": "..doctor",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
