"""What a run starts from: a new tokenizer and new weights, or those of an earlier run (`--init-from`)."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, AutoTokenizer, PreTrainedModel

from ..data.tokenization import train_tokenizer
from .arguments import RecipeArguments


def tokenizer_for(args: RecipeArguments, corpus: Any, rung: str) -> Any:
    """The tokenizer of `--init-from`, or one that is trained on the corpus."""
    if args.init_from is not None:
        return AutoTokenizer.from_pretrained(args.init_from)
    return train_tokenizer(corpus, args.tokenizer, args.vocab_size, lowercase=args.lowercase, rung=rung)


def model_for(auto_class: Any, config: Any, args: RecipeArguments) -> PreTrainedModel:
    """A new model, or the one of `--init-from` with this head: its sizes are its own, `--model` changes the rest."""
    if args.init_from is None:
        return auto_class.from_config(config)
    own = AutoConfig.from_pretrained(args.init_from)
    if own.model_type != config.model_type:
        raise ValueError(
            f"{args.init_from} is a {own.model_type}, but this recipe trains a {config.model_type}; use its own recipe"
        )
    labels = {"id2label": config.id2label, "label2id": config.label2id, "problem_type": config.problem_type}
    for name, value in (labels | args.model).items():
        setattr(own, name, value)
    return auto_class.from_pretrained(args.init_from, config=own)


def label_settings(corpus: Any, column: str = "label") -> dict[str, Any]:
    """What a classifier's configuration says of its labels: their names, or that there is one number to predict."""
    feature = corpus["train"].features[column]
    inner = getattr(feature, "feature", None)
    names = getattr(inner or feature, "names", None)
    if names is None:
        return {"num_labels": 1, "problem_type": "regression"}
    settings = {"id2label": dict(enumerate(names)), "label2id": {name: place for place, name in enumerate(names)}}
    return settings | (
        {"problem_type": "multi_label_classification"} if inner is not None and column == "label" else {}
    )


def token_ids(tokenizer: Any, *names: str) -> dict[str, int]:
    """The ids of a tokenizer's special tokens as a configuration takes them: `token_ids(tokenizer, "pad", "bos")`."""
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in names if name != "decoder_start"}
    return ids | ({"decoder_start_token_id": tokenizer.bos_token_id} if "decoder_start" in names else {})
