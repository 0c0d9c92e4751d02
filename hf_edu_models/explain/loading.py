"""A model and its tokenizer from a folder or the Hub, as the class that attends and, where it can, generates."""

from __future__ import annotations

from typing import Any


def load_model(name: str, trust_remote_code: bool = False) -> tuple[Any, Any]:
    """The model, in evaluation mode, and its tokenizer.

    Args:
        name: a run's folder, any checkpoint's folder, or a Hub id.
        trust_remote_code: run the code that lies beside the weights.
    """
    from transformers import AutoConfig, AutoTokenizer

    import hf_edu_models  # noqa: F401  (registers every rung)

    from ..hub.convert import quiet

    options = {"trust_remote_code": trust_remote_code}
    try:
        config = AutoConfig.from_pretrained(name, **options)
        with quiet():
            model = auto_class(config).from_pretrained(name, **options)
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
    except OSError as problem:
        sentence = str(problem).strip().splitlines()[0]
        raise FileNotFoundError(f"no model with its tokenizer can be loaded from {name!r}: {sentence}") from None
    return model.eval(), tokenizer


def auto_class(config: Any) -> Any:
    """The Auto class whose head writes, where the checkpoint has one; a reader's head adds nothing to see."""
    import transformers

    if getattr(config, "is_encoder_decoder", False):
        return transformers.AutoModelForSeq2SeqLM
    name = (getattr(config, "architectures", None) or [""])[0]
    if name.endswith(("ForCausalLM", "LMHeadModel")):
        return transformers.AutoModelForCausalLM
    return transformers.AutoModel
