"""The ladder: every rung in teaching order. All registration, every table and `hf-edu ladder` are made from it."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import transformers
from transformers import AutoConfig, PreTrainedModel

from .models.configuration_bahdanau import EduBahdanauConfig
from .models.configuration_base import EduConfig
from .models.configuration_bert import EduBertConfig
from .models.configuration_feedforward import EduFeedForwardConfig
from .models.configuration_gpt import EduGPTConfig
from .models.configuration_recurrent import EduRecurrentConfig
from .models.configuration_seq2seq import EduSeq2SeqConfig
from .models.configuration_transformer import EduTransformerConfig


@dataclass(frozen=True)
class Rung:
    """One step of the ladder.

    Args:
        config: the rung's configuration; its `heads` say which class answers to which Auto class.
        paper: who and when.
        idea: what is new, in a few words.
    """

    config: type[EduConfig]
    paper: str
    idea: str

    @property
    def number(self) -> int:
        return LADDER.index(self) + 1

    @property
    def model_type(self) -> str:
        return self.config.model_type

    @property
    def stem(self) -> str:
        return self.model_type.removeprefix("edu_")

    @property
    def heads(self) -> dict[str, type[PreTrainedModel]]:
        """Auto class name to our class."""
        module = import_module(f".models.modeling_{self.stem}", __package__)
        return {auto_name: getattr(module, name) for auto_name, name in self.config.heads.items()}


LADDER = (
    Rung(EduFeedForwardConfig, "Bengio 2003", "words are vectors; fixed window"),
    Rung(
        EduRecurrentConfig,
        "Elman 1990; Hochreiter & Schmidhuber 1997; Cho 2014",
        "a state carries the past; gates keep it",
    ),
    Rung(EduSeq2SeqConfig, "Sutskever 2014; Cho 2014", "encode, then decode; one context vector"),
    Rung(EduBahdanauConfig, "Bahdanau 2015; Luong 2015", "look back at every source state"),
    Rung(EduTransformerConfig, "Vaswani 2017", "attention alone; positions; heads"),
    Rung(EduGPTConfig, "Radford 2018, 2019", "decoder only, pre-train on text"),
    Rung(EduBertConfig, "Devlin 2019", "both directions; masked words; next sentence; fine-tune"),
)


TABLE_MARKS = ("<!-- ladder -->", "<!-- /ladder -->")


def register() -> None:
    """Make every rung known to transformers' Auto classes; calling it again changes nothing."""
    for rung in LADDER:
        AutoConfig.register(rung.model_type, rung.config, exist_ok=True)
        rung.config.register_for_auto_class()
        for auto_name, model_class in rung.heads.items():
            getattr(transformers, auto_name).register(rung.config, model_class, exist_ok=True)
            model_class.register_for_auto_class(auto_name)


def markdown_table(folder: str) -> str:
    """The ladder as the README and `models/README.md` show it; links start at `folder`."""
    rows = ["| rung | file | paper | new idea | heads |", "|---|---|---|---|---|"]
    for rung in LADDER:
        file = f"[`modeling_{rung.stem}.py`]({folder}modeling_{rung.stem}.py)"
        heads = ", ".join(f"`{name}`" for name in rung.config.heads.values())
        rows.append(f"| {rung.number} | {file} | {rung.paper} | {rung.idea} | {heads} |")
    return "\n".join(rows)


def write_tables() -> None:
    """Put the table between the marks of every page that shows it."""
    package = Path(__file__).parent
    for page, folder in {
        package.parent / "README.md": "hf_edu_models/models/",
        package / "models/README.md": "",
    }.items():
        before, _, after = page.read_text().partition(TABLE_MARKS[0])
        after = after.partition(TABLE_MARKS[1])[2]
        page.write_text(f"{before}{TABLE_MARKS[0]}\n{markdown_table(folder)}\n{TABLE_MARKS[1]}{after}")
