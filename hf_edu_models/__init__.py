"""The history of sequence modelling as first-class Hugging Face models; importing it registers every rung."""

from typing import Any

from .auto import LADDER as LADDER
from .auto import Rung as Rung
from .auto import find_class, public_classes, register

__version__ = "0.1.0"
register()


def __getattr__(name: str) -> Any:
    """Every configuration and model class of the ladder is a name of the package: `hf_edu_models.EduGPTForCausalLM`."""
    return __dir__() if name == "__all__" else find_class(name)


def __dir__() -> list[str]:
    return ["LADDER", "Rung", "register", *public_classes()]
