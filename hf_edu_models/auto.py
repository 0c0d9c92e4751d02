"""The ladder: every rung (model family) in teaching order, and all registration with transformers.

Tables, `hf-edu ladder`, tokenizers, cards and tests are made from the rows of `LADDER`. Registration costs no import of
torch or transformers: it happens when transformers' own Auto classes are imported, and a modeling file is imported when
one of its classes is first used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .lazy import when_imported

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from .models.configuration_base import EduConfig

# Sizes of the axes of example inputs; all differ, so that a swapped axis shows.
AXES = {"batch": 2, "sentences": 3, "choices": 4, "source": 5, "target": 7, "tokens": 7, "features": 6, "horizon": 9}
TOKENS = {"input_ids": ("batch", "tokens")}
_SOURCE_AND_TARGET = {"input_ids": ("batch", "source"), "decoder_input_ids": ("batch", "target")}


@dataclass(frozen=True)
class TinyVariant:
    """A configuration worth testing beside a rung's default one.

    Args:
        settings: fields of the configuration that differ from the rung's `tiny`.
        heads: suffixes of the heads to test it with; default the rung's first head after `Model`.
    """

    settings: Mapping[str, Any]
    heads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rung:
    """One model family.

    Args:
        name: the stem of its files; `model_type` is `edu_` + name.
        prefix: of its class names: `EduGPT` + `Config`, `Model`, `ForCausalLM`.
        year: of the paper; the recipe is `recipes/YEAR_name.py`, the card `hub_cards/YEAR_name.md`.
        papers: authors and year of each paper, and where it can be read.
        idea: what is new, in a few words.
        tokenizer: special tokens and template of its tokenizer, a key of `data.tokenization.TEMPLATES`; None if it
            reads no text.
        tiny: configuration of a model that is small enough for tests.
        inputs: each input of `forward` that holds token ids, and its axes, keys of `AXES`; a task whose inputs are real
            numbers names them itself (`tasks.Task.values`).
        lora_targets: names of the modules that PEFT's LoRA adapts unless it is told others.
        variants: more configurations for tests, by name.
    """

    name: str
    prefix: str
    year: int
    papers: Mapping[str, str]
    idea: str
    tokenizer: str | None
    tiny: Mapping[str, Any]
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: TOKENS)
    lora_targets: tuple[str, ...] = ()
    variants: Mapping[str, TinyVariant] = field(default_factory=dict)

    @property
    def paper(self) -> str:
        """Authors and years."""
        return "; ".join(self.papers)

    @property
    def number(self) -> int:
        return LADDER.index(self) + 1

    @property
    def model_type(self) -> str:
        return f"edu_{self.name}"

    @property
    def config(self) -> type[EduConfig]:
        """Its configuration class, whose `heads` map Auto classes to the names of our classes."""
        return getattr(import_module(f".models.configuration_{self.name}", __package__), f"{self.prefix}Config")

    def head(self, auto_name: str) -> type[PreTrainedModel]:
        """The class that answers to an Auto class."""
        module = import_module(f".models.modeling_{self.name}", __package__)
        return getattr(module, self.config.heads[auto_name])

    @property
    def heads(self) -> dict[str, type[PreTrainedModel]]:
        """Auto class name to our class."""
        return {auto_name: self.head(auto_name) for auto_name in self.config.heads}

    @property
    def class_names(self) -> list[str]:
        """The names of its models, those with an Auto class first."""
        return [*self.config.heads.values(), *self.config.heads_without_auto_class]


_SMALL = {"vocab_size": 29, "dropout": 0.0}
_RECURRENT = _SMALL | {"embedding_size": 10, "hidden_size": 12, "num_hidden_layers": 2, "initializer_range": 0.4}
_AWD = {
    "lock_dropout_masks": True,
    "activation_regularization": 2.0,
    "temporal_activation_regularization": 1.0,
}
_SERIES = {"num_input_channels": AXES["features"], "prediction_length": AXES["horizon"]}
_ATTENTION = _SMALL | {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "attention_dropout": 0.0,
}
_CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification")
LADDER: tuple[Rung, ...] = (
    Rung(
        name="kernel",
        prefix="EduKernel",
        year=1964,
        papers={
            "Nadaraya 1964": "https://doi.org/10.1137/1109020",
            "Watson 1964": "https://www.jstor.org/stable/25049340",
        },
        idea="a prediction is a weighted mean of what was seen",
        tokenizer=None,
        tiny={"input_size": 6, "width": 1.5, "learn_width": True, "num_memories": 11},
        inputs={},
        variants={
            "epanechnikov": TinyVariant({"kernel": "epanechnikov", "width": 3.0}),
            "projected": TinyVariant({"projection_size": 5, "learn_width": False}),
        },
    ),
    Rung(
        name="feedforward",
        prefix="EduFeedForward",
        year=2003,
        papers={
            "Bengio 2003": "https://www.jmlr.org/papers/v3/bengio03a.html",
            "Iyyer 2015": "https://aclanthology.org/P15-1162/",
        },
        idea="words are vectors; fixed window",
        tokenizer="language_modeling",
        tiny=_SMALL | {"embedding_size": 10, "hidden_size": 12, "window_size": 3},
        lora_targets=("hidden_proj", "lm_head", "proj", "score"),
        variants={"indirect": TinyVariant({"direct_connections": False})},
    ),
    Rung(
        name="recurrent",
        prefix="EduRecurrent",
        year=2010,
        papers={
            "Elman 1990": "https://doi.org/10.1207/s15516709cog1402_1",
            "Hochreiter & Schmidhuber 1997": "https://doi.org/10.1162/neco.1997.9.8.1735",
            "Mikolov 2010": "https://www.isca-archive.org/interspeech_2010/mikolov10_interspeech.html",
            "Cho 2014": "https://arxiv.org/abs/1406.1078",
        },
        idea="a state carries the past; gates keep it",
        tokenizer="language_modeling",
        tiny=_RECURRENT | _SERIES,
        lora_targets=("embed_tokens", "lm_head"),
        variants={
            "rnn": TinyVariant({"cell_type": "rnn"}),
            "gru": TinyVariant({"cell_type": "gru"}),
            "lstm-window": TinyVariant({"attention_window": 4}),
            "lags": TinyVariant(
                {"attention_window": 4, "attention_lag_bias": True}, ("ForCausalLM", "ForTimeSeriesPrediction")
            ),
            "gru-window": TinyVariant({"attention_window": 4, "cell_type": "gru"}),
            "gru-bidirectional": TinyVariant({"cell_type": "gru", "bidirectional": True}, _CLASSIFIERS),
            "lstm-bidirectional": TinyVariant({"bidirectional": True}, _CLASSIFIERS),
            "mean": TinyVariant({"pooling": "mean"}, ("ForSequenceClassification",)),
            "max": TinyVariant({"pooling": "max"}, ("ForSequenceClassification",)),
            "concat": TinyVariant({"pooling": "concat", "bidirectional": True}, ("ForSequenceClassification",)),
            "awd-lstm": TinyVariant(_AWD, ("ForCausalLM", "ForTokenClassification", "ForTimeSeriesPrediction")),
            "ulmfit": TinyVariant(
                _AWD | {"pooling": "concat", "classifier_hidden_size": 11}, ("ForSequenceClassification",)
            ),
            "hops": TinyVariant(
                {"pooling": "attention", "attention_size": 8, "num_hops": 4, "redundancy_weight": 0.1},
                ("ForSequenceClassification",),
            ),
            "label-attention": TinyVariant(
                {"pooling": "label_attention", "attention_size": 8, "bidirectional": True},
                ("ForSequenceClassification",),
            ),
        },
    ),
    Rung(
        name="word_vectors",
        prefix="EduWordVectors",
        year=2013,
        papers={
            "Mikolov 2013": "https://arxiv.org/abs/1310.4546",
            "Pennington 2014": "https://aclanthology.org/D14-1162/",
            "Bojanowski 2017": "https://arxiv.org/abs/1607.04606",
        },
        idea="a word is known by its company; the vectors are all",
        tokenizer="language_modeling",
        tiny=_SMALL | {"hidden_size": 12, "window_size": 3},
        lora_targets=("embed_tokens", "lm_head"),
        variants={"ngrams": TinyVariant({"num_buckets": 31})},
    ),
    Rung(
        name="seq2seq",
        prefix="EduSeq2Seq",
        year=2014,
        papers={
            "Sutskever 2014": "https://arxiv.org/abs/1409.3215",
            "Cho 2014": "https://arxiv.org/abs/1406.1078",
        },
        idea="encode, then decode; one context vector",
        tokenizer="seq2seq",
        tiny=_RECURRENT | {"maxout_size": 9},
        lora_targets=("embed_tokens", "lm_head"),
        inputs=_SOURCE_AND_TARGET,
        variants={
            "gru": TinyVariant({"cell_type": "gru"}),
            "cho": TinyVariant(
                {"cell_type": "gru", "num_hidden_layers": 1, "context_every_step": True, "reverse_source": False}
            ),
            "cho-lstm": TinyVariant({"context_every_step": True}),
        },
    ),
    Rung(
        name="bahdanau",
        prefix="EduBahdanau",
        year=2015,
        papers={
            "Bahdanau 2015": "https://arxiv.org/abs/1409.0473",
            "Luong 2015": "https://arxiv.org/abs/1508.04025",
        },
        idea="look back at every source state",
        tokenizer="seq2seq",
        tiny=_SMALL | {"embedding_size": 10, "hidden_size": 12, "maxout_size": 9, "initializer_range": 0.4},
        lora_targets=("state_proj", "word_proj", "context_proj", "lm_head"),
        inputs=_SOURCE_AND_TARGET,
        variants={
            f"{score}-{cell}": TinyVariant({"attention_score": score, "cell_type": cell, "readout": readout})
            for score, cell, readout in (
                ("additive", "lstm", "linear"),
                ("additive", "rnn", "maxout"),
                ("dot", "gru", "linear"),
                ("scaled_dot", "lstm", "maxout"),
                ("general", "gru", "maxout"),
                ("cosine", "rnn", "maxout"),
                ("projected", "gru", "linear"),
            )
        }
        | {"sparsemax": TinyVariant({"attention_normalizer": "sparsemax", "attention_score": "projected"})},
    ),
    Rung(
        name="hierarchical",
        prefix="EduHierarchical",
        year=2016,
        papers={
            "Yang 2016": "https://aclanthology.org/N16-1174/",
        },
        idea="attention over words, then over sentences",
        tokenizer="language_modeling",
        tiny=_SMALL | {"embedding_size": 10, "hidden_size": 6, "attention_size": 8, "initializer_range": 0.4},
        lora_targets=("embed_tokens", "proj", "classifier"),
        inputs={"input_ids": ("batch", "sentences", "tokens")},
        variants={
            "mean": TinyVariant({"pooling": "mean"}),
            "max-lstm": TinyVariant({"pooling": "max", "cell_type": "lstm"}),
        },
    ),
    Rung(
        name="transformer",
        prefix="EduTransformer",
        year=2017,
        papers={
            "Vaswani 2017": "https://arxiv.org/abs/1706.03762",
        },
        idea="attention alone; positions; heads",
        tokenizer="seq2seq",
        tiny=_ATTENTION,
        lora_targets=("qkv_proj", "q_proj", "kv_proj"),
        inputs=_SOURCE_AND_TARGET,
        variants={
            "marian": TinyVariant(
                {"sinusoid_layout": "halves", "attention_bias": True, "logits_bias": True, "hidden_act": "silu"}
            ),
            "pre-norm": TinyVariant(
                {
                    "norm_first": True,
                    "position_embedding_type": "learned",
                    "max_position_embeddings": 40,
                    "share_embeddings": False,
                }
            ),
            "concat": TinyVariant({"head_aggregation": "concat", "tie_word_embeddings": False}),
            "mean": TinyVariant({"head_aggregation": "mean", "decoder_layers": 1}),
            "diverse": TinyVariant({"head_diversity_weight": 0.5}),
        },
    ),
    Rung(
        name="elmo",
        prefix="EduElmo",
        year=2018,
        papers={
            "Peters 2018": "https://arxiv.org/abs/1802.05365",
        },
        idea="two language models read both ways; every layer counts",
        tokenizer="language_modeling",
        tiny=_SMALL | {"hidden_size": 12, "cell_size": 18, "num_hidden_layers": 2, "initializer_range": 0.4},
        lora_targets=("embed_characters", "proj", "lm_head", "classifier", "score"),
        variants={
            "characters": TinyVariant(
                {
                    "token_encoder": "characters",
                    "char_embedding_size": 10,
                    "char_filters": [[1, 4], [3, 5]],
                    "max_characters": 8,
                },
                ("ForPreTraining", "ForTokenClassification"),
            ),
            "sum": TinyVariant({"layer_mix": "sum2", "pooling": "last"}, ("ForSequenceClassification",)),
            "concat": TinyVariant({"layer_mix": "concat3", "pooling": "attention", "attention_size": 8}, _CLASSIFIERS),
        },
    ),
    Rung(
        name="gpt",
        prefix="EduGPT",
        year=2018,
        papers={
            "Radford 2018": "https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf",
            "Radford 2019": "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
        },
        idea="decoder only, pre-train on text",
        tokenizer="language_modeling",
        tiny=_ATTENTION | {"max_position_embeddings": 40},
        lora_targets=("qkv_proj",),
        variants={
            "post-norm": TinyVariant({"norm_first": False}),
            "mean": TinyVariant({"head_aggregation": "mean", "head_diversity_weight": 0.5}),
            "auxiliary": TinyVariant({"lm_loss_weight": 0.5}, ("ForSequenceClassification",)),
        },
    ),
    Rung(
        name="bert",
        prefix="EduBert",
        year=2019,
        papers={
            "Devlin 2019": "https://arxiv.org/abs/1810.04805",
        },
        idea="both directions; masked tokens; next sentence; fine-tune",
        tokenizer="bert",
        tiny=_ATTENTION | {"max_position_embeddings": 40, "initializer_range": 0.3},
        lora_targets=("qkv_proj",),
        variants={
            "pre-norm": TinyVariant({"norm_first": True}, ("ForMaskedLM",)),
            "concat": TinyVariant(
                {"head_aggregation": "concat", "head_diversity_weight": 0.5},
                ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForMultipleChoice"),
            ),
        },
    ),
    Rung(
        name="transformer_xl",
        prefix="EduTransformerXL",
        year=2019,
        papers={
            "Dai 2019": "https://arxiv.org/abs/1901.02860",
        },
        idea="attention remembers the segment before; relative positions",
        tokenizer="language_modeling",
        tiny=_ATTENTION | {"memory_length": 40},
        lora_targets=("q_proj", "kv_proj"),
    ),
)
TABLE_MARKS = ("<!-- ladder -->", "<!-- /ladder -->")


def register() -> None:
    """Make every rung known to transformers' Auto classes; calling it again changes nothing."""
    when_imported("transformers.models.auto.configuration_auto", _register_configs)
    when_imported("transformers.models.auto.modeling_auto", _register_heads)
    when_imported("transformers.pipelines", _register_pipelines)
    when_imported("peft.utils.constants", _register_lora_targets)
    for rung in LADDER:
        # What is marked so is saved with its code.
        when_imported(f"{__package__}.models.configuration_{rung.name}", partial(_mark_config, rung))
        when_imported(f"{__package__}.models.modeling_{rung.name}", partial(_mark_heads, rung))


def _register_configs() -> None:
    from transformers import AutoConfig

    for rung in LADDER:
        AutoConfig.register(rung.model_type, rung.config, exist_ok=True)


def _register_heads() -> None:
    """Put our heads into the Auto mappings, to be imported when they are asked for.

    A modeling file cannot be imported here: transformers itself may be in the middle of an import that leads here.
    """
    from transformers.models.auto import modeling_auto

    from .models.configuration_base import add_class_names

    for rung in LADDER:
        for auto_name in rung.config.heads:
            mapping = getattr(modeling_auto, auto_name)._model_mapping
            if not isinstance(mapping._extra_content, _LazyHeads):
                mapping._extra_content = _LazyHeads(mapping._extra_content)
            mapping._extra_content[rung.config] = partial(rung.head, auto_name)
        add_class_names(rung.config)


def _register_pipelines() -> None:
    import_module(".pipelines", __package__)


def _register_lora_targets() -> None:
    """What `LoraConfig()` without target modules adapts."""
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as targets

    targets.update({rung.model_type: list(rung.lora_targets) for rung in LADDER if rung.lora_targets})


def _mark_config(rung: Rung) -> None:
    rung.config.register_for_auto_class()


def _mark_heads(rung: Rung) -> None:
    for auto_name, head in rung.heads.items():
        head.register_for_auto_class(auto_name)


class _LazyHeads(dict):
    """Configuration class to model class, or to a function that imports it; readers always get the class."""

    def __getitem__(self, config: type) -> Any:
        value = super().__getitem__(config)
        if isinstance(value, partial):
            self[config] = value = value()
        return value

    def values(self) -> Any:
        return [self[config] for config in self]

    def items(self) -> Any:
        return [(config, self[config]) for config in self]


def find_class(name: str) -> type:
    """A configuration or model class of the ladder by its name."""
    for rung in LADDER:
        if name == f"{rung.prefix}Config":
            return rung.config
        if name.startswith(rung.prefix) and name in rung.class_names:
            return getattr(import_module(f".models.modeling_{rung.name}", __package__), name)
    raise AttributeError(f"{__package__} has no {name!r}; `hf-edu ladder --classes` lists its classes")


def public_classes() -> list[str]:
    """The names of all configuration and model classes."""
    heads = (name for rung in LADDER for name in rung.class_names)
    return sorted([*(f"{rung.prefix}Config" for rung in LADDER), *heads])


def find_rung(model_type: str) -> Rung | None:
    """The rung of a `model_type`; None if it is not one of ours."""
    return next((rung for rung in LADDER if rung.model_type == model_type), None)


def reads_documents(model_type: str) -> bool:
    """Whether the inputs of a rung are documents of sentences, (B, N, T)."""
    rung = find_rung(model_type)
    return rung is not None and "sentences" in rung.inputs.get("input_ids", ())


def markdown_table(folder: str) -> str:
    """The ladder as the README and `models/README.md` show it; links start at `folder`."""
    rows = ["| year | rung | paper | new idea | heads |", "|---|---|---|---|---|"]
    for rung in LADDER:
        file = f"[`{rung.name}`]({folder}modeling_{rung.name}.py)"
        heads = ", ".join(f"`{name}`" for name in rung.class_names)
        papers = "; ".join(f"[{name}]({address})" for name, address in rung.papers.items())
        rows.append(f"| {rung.year} | {file} | {papers} | {rung.idea} | {heads} |")
    return "\n".join(rows)


def pages_with_table() -> Iterator[tuple[Path, str]]:
    """Each page that shows the ladder, and the folder that its links start at."""
    package = Path(__file__).parent
    yield package.parent / "README.md", "hf_edu_models/models/"
    yield package / "models/README.md", ""


def write_tables() -> None:
    """Write the table between the marks of every page that shows it."""
    for page, folder in pages_with_table():
        before, _, after = page.read_text().partition(TABLE_MARKS[0])
        after = after.partition(TABLE_MARKS[1])[2]
        page.write_text(f"{before}{TABLE_MARKS[0]}\n{markdown_table(folder)}\n{TABLE_MARKS[1]}{after}")
