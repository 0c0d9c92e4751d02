"""What goes to the Hub and comes from it: cards, pushing, a doctor, and weights of transformers' own models."""

from .cards import make_card, write_card
from .convert import Conversion, convert_checkpoint, from_transformers, to_transformers
from .doctor import Report, diagnose
from .push import Push, PushesWithCard, push_run
from .refusals import HubRefusal, HubUnreachable

__all__ = [
    "Conversion",
    "HubRefusal",
    "HubUnreachable",
    "Push",
    "PushesWithCard",
    "Report",
    "convert_checkpoint",
    "diagnose",
    "from_transformers",
    "make_card",
    "push_run",
    "to_transformers",
    "write_card",
]
