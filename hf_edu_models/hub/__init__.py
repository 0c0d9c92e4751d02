"""What goes to the Hub and comes from it: cards, pushing, and weights of transformers' own models, both ways."""

from .cards import make_card, write_card
from .convert import Conversion, convert_checkpoint, from_transformers, to_transformers
from .push import Push, PushesWithCard, push_run
from .refusals import HubRefusal, HubUnreachable

__all__ = [
    "Conversion",
    "HubRefusal",
    "HubUnreachable",
    "Push",
    "PushesWithCard",
    "convert_checkpoint",
    "from_transformers",
    "make_card",
    "push_run",
    "to_transformers",
    "write_card",
]
