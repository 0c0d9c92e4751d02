"""What goes to the Hub and comes from it: for now, weights of transformers' own models, both ways."""

from .convert import Conversion, convert_checkpoint, from_transformers, to_transformers

__all__ = ["Conversion", "convert_checkpoint", "from_transformers", "to_transformers"]
