"""Gates of recurrent cells. Names are imported when first used."""

from ...lazy import lazy_names
from .. import names_in

__getattr__, __dir__, __all__ = lazy_names(__name__, names_in("gates"))
