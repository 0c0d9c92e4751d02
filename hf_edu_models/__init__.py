"""The history of sequence modelling as first-class Hugging Face models; importing it registers every rung."""

from . import pipelines  # noqa: F401  registers edu-translation and edu-question-answering
from .auto import LADDER, Rung, register

register()
__version__ = "0.1.0"
# Every configuration and model class of the ladder is a name of the package: `hf_edu_models.EduRecurrentForCausalLM`.
_classes = {rung.config.__name__: rung.config for rung in LADDER}
_classes |= {head.__name__: head for rung in LADDER for head in rung.heads.values()}
globals().update(_classes)
__all__ = ["LADDER", "Rung", "register", *sorted(_classes)]
