"""JoeyNMT 2.3's part of `equal_budget.py`: its settings, and what runs in its own environment.

    PEER/bin/python equal_budget_joeynmt.py vocabulary settings.yaml
    PEER/bin/python equal_budget_joeynmt.py train settings.yaml race.json
    PEER/bin/python equal_budget_joeynmt.py translate settings.yaml CHECKPOINT OUTPUT

Imports only the standard library at the top: `equal_budget.py` imports the clock and the settings, without JoeyNMT.
"""

import functools
import importlib.metadata
import json
import sys
import time
from collections import Counter
from pathlib import Path

NEVER = 10**9  # steps between validations: the clock decides
REPORT_EVERY = 15  # seconds between records of the steps


class Clock:
    """Decides when to validate and records when each checkpoint was written; the same for both systems.

    A validation starts early enough for its checkpoint to be written just before a multiple of `every` or a mark.
    """

    def __init__(self, folder: str, name: str, every: float, marks: list[float]):
        self.folder, self.name = Path(folder), name
        rounds = int(max(marks) / every)
        points = {60 * mark for mark in marks} | {60 * every * number for number in range(1, rounds + 1)}
        self.points = sorted(points)
        self.margin = 0.2 * 60 * every  # estimated time of a validation before the first one
        self.began = self.validating_since = self.reported = 0.0

    def start(self, versions: dict) -> None:
        """Wait until all systems are ready for their first step."""
        (self.folder / f"{self.name}.ready").touch()
        while not (self.folder / "go").exists():
            time.sleep(0.05)
        self.began = time.monotonic()
        self.note(0, 0.0, versions=versions)

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def is_due(self) -> bool:
        """Whether to validate now; removes the points that are reached."""
        reached = self.elapsed() + self.margin
        if not self.points or self.points[0] > reached:
            return False
        self.points = [point for point in self.points if point > reached]
        self.validating_since = self.elapsed()
        return True

    def tick(self, steps: int, epochs: float) -> None:
        if self.elapsed() - self.reported >= REPORT_EVERY:
            self.note(steps, epochs)

    def note_checkpoint(self, steps: int, epochs: float, checkpoint: str, bleu: float) -> None:
        self.note(steps, epochs, checkpoint=checkpoint, bleu=bleu)
        self.margin = 1.5 * (self.elapsed() - self.validating_since)

    def note(self, steps: int, epochs: float, **more) -> None:
        self.reported = self.elapsed()
        line = {"seconds": round(self.reported, 2), "steps": steps, "epochs": round(epochs, 3), **more}
        with open(self.folder / f"{self.name}.jsonl", "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


def small_settings(rung: str) -> dict:
    """Model and training of JoeyNMT's configs/rnn_small.yaml or configs/transformer_small.yaml."""
    training = {
        "optimizer": "adam", "adam_betas": [0.9, 0.999], "learning_rate": 0.005, "learning_rate_min": 0.0001,
        "clip_grad_val": 1.0, "weight_decay": 0.0, "label_smoothing": 0.0, "batch_size": 10, "batch_type": "sentence",
        "normalization": "batch", "scheduling": "plateau", "patience": 5, "decrease_factor": 0.5,
        "early_stopping_metric": "loss",
    }  # fmt: skip
    return {"model": _small_rnn() if rung == "bahdanau" else _small_transformer(), "training": training}


def _small_rnn() -> dict:
    both = {"type": "recurrent", "rnn_type": "gru", "hidden_size": 30, "dropout": 0.2}
    vectors = {"embedding_dim": 16, "scale": False}
    return {
        "initializer": "xavier_uniform", "init_gain": 1.0, "bias_initializer": "zeros",
        "embed_initializer": "normal", "embed_init_weight": 0.1, "embed_init_gain": 1.0,
        "init_rnn_orthogonal": False, "lstm_forget_gate": 1.0, "tied_embeddings": False, "tied_softmax": False,
        "encoder": both | {"embeddings": dict(vectors), "bidirectional": True, "num_layers": 3},
        "decoder": both | {
            "embeddings": dict(vectors), "hidden_dropout": 0.2, "num_layers": 2, "input_feeding": True,
            "init_hidden": "last", "attention": "bahdanau",
        },
    }  # fmt: skip


def _small_transformer() -> dict:
    half = {
        "type": "transformer", "num_layers": 3, "num_heads": 4, "hidden_size": 64, "ff_size": 128, "dropout": 0.1,
        "layer_norm": "pre", "activation": "relu",
    }  # fmt: skip
    return {
        "initializer": "xavier_uniform", "init_gain": 1.0, "bias_initializer": "zeros",
        "embed_initializer": "xavier_uniform", "embed_init_gain": 1.0, "tied_embeddings": False, "tied_softmax": True,
        "encoder": half | {"embeddings": {"embedding_dim": 64, "scale": True}},
        "decoder": half | {"embeddings": {"embedding_dim": 64, "scale": True}},
    }  # fmt: skip


def same_settings(rung: str, ours: dict) -> dict:
    """JoeyNMT with our sizes, batch size and learning rate; everything else is as in its small settings.

    Args:
        ours: Fields of our model's configuration and training settings by name.
    """
    settings = small_settings(rung)
    (_resize_rnn if rung == "bahdanau" else _resize_transformer)(settings["model"], ours)
    training = settings["training"]
    del training["clip_grad_val"]
    training |= {
        "adam_betas": [ours["adam_beta1"], ours["adam_beta2"]], "learning_rate": ours["learning_rate"],
        "learning_rate_min": 1e-8, "clip_grad_norm": ours["max_grad_norm"], "weight_decay": ours["weight_decay"],
        "label_smoothing": ours["label_smoothing"], "normalization": "tokens", "early_stopping_metric": "bleu",
        "patience": 2,  # validations; a short race has few
    }  # fmt: skip
    if ours["max_tokens"]:
        training |= {"batch_size": ours["max_tokens"], "batch_type": "token"}
    else:
        training["batch_size"] = ours["per_device_train_batch_size"]
    if ours["lr_scheduler_type"] == "inverse_sqrt":
        training |= {"scheduling": "warmupinversesquareroot", "learning_rate_warmup": ours["warmup_steps"]}
    return settings


def _resize_rnn(model: dict, ours: dict) -> None:
    """One decoder layer, as ours, whose initial state is a projection of the encoder's last."""
    vectors = {"embedding_dim": ours["embedding_size"], "scale": False}
    both = {"rnn_type": ours["cell_type"], "dropout": ours["dropout"]}
    model["encoder"] |= both | {
        "embeddings": dict(vectors), "hidden_size": ours["encoder_hidden_size"], "num_layers": ours["num_hidden_layers"]
    }  # fmt: skip
    model["decoder"] |= both | {
        "embeddings": dict(vectors), "hidden_size": ours["hidden_size"], "num_layers": 1,
        "hidden_dropout": ours["dropout"], "init_hidden": "bridge",
    }  # fmt: skip


def _resize_transformer(model: dict, ours: dict) -> None:
    half = {
        "num_heads": ours["num_attention_heads"], "hidden_size": ours["hidden_size"], "dropout": ours["dropout"],
        "ff_size": ours["intermediate_size"], "layer_norm": "pre" if ours["norm_first"] else "post",
        "activation": ours["hidden_act"],
    }  # fmt: skip
    for side, layers in (("encoder", ours["num_hidden_layers"]), ("decoder", ours["decoder_layers"])):
        vectors = {"embedding_dim": ours["hidden_size"], "scale": ours["scale_embeddings"]}
        model[side] |= half | {"embeddings": vectors, "num_layers": layers}
    model |= {"tied_embeddings": ours["share_embeddings"], "tied_softmax": ours["tie_word_embeddings"]}


def full_settings(core: dict, folder: Path, ours: dict) -> dict:
    """All settings of JoeyNMT: `core` has model and training; data, vocabulary and validation are ours."""

    def side(language: str) -> dict:
        tokens = {"codes": str(folder / "codes.txt"), "pretokenizer": "moses", "num_merges": ours["vocab_size"]}
        return {
            "lang": language, "level": "bpe", "lowercase": ours["lowercase"], "max_length": ours["max_length"],
            "min_length": 1, "tokenizer_type": "subword-nmt", "tokenizer_cfg": tokens,
            "voc_file": str(folder / "vocabulary.txt"),
        }  # fmt: skip

    splits = {name: str(folder / name) for name in ("train", "dev", "test")}
    testing = {
        "beam_size": ours["num_beams"], "beam_alpha": 1.0, "batch_size": ours["per_device_eval_batch_size"],
        "batch_type": "sentence", "eval_metrics": ["bleu"], "max_output_length": ours["max_length"],
        "sacrebleu_cfg": {"tokenize": "13a", "lowercase": ours["lowercase"]},
    }  # fmt: skip
    own = {"epochs": 10**6, "validation_freq": NEVER, "logging_freq": 100, "keep_best_ckpts": -1}
    own["print_valid_sents"] = []  # each would be drawn, which takes time
    return {
        "name": "equal_budget", "joeynmt_version": "2.3.0", "model_dir": str(folder / "model"), "use_cuda": False,
        "fp16": False, "random_seed": ours["seed"],
        "data": splits | {"dataset_type": "plain", "src": side(ours["source"]), "trg": side(ours["target"])},
        "testing": testing, "training": core["training"] | own, "model": core["model"],
    }  # fmt: skip


def make_vocabulary(settings: dict) -> None:
    """Train a joint BPE on the train split as JoeyNMT pre-tokenizes it, and write its vocabulary."""
    from joeynmt.tokenizers import BasicTokenizer
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.learn_bpe import learn_bpe

    texts = []
    for side in (settings["data"]["src"], settings["data"]["trg"]):
        prepare = BasicTokenizer("word", side["lowercase"], pretokenizer="moses", lang=side["lang"]).pre_process
        lines = Path(f"{settings['data']['train']}.{side['lang']}").read_text("utf-8").split("\n")
        texts += [prepare(line) for line in lines if line]
    codes, size = side["tokenizer_cfg"]["codes"], side["tokenizer_cfg"]["num_merges"]
    with open(codes, "w", encoding="utf-8") as stream:
        learn_bpe(texts, stream, size, total_symbols=True)
    with open(codes, encoding="utf-8") as stream:
        segment = BPE(stream).process_line
        counts = Counter(subword for text in texts for subword in segment(text).split())
    Path(side["voc_file"]).write_text("\n".join(subword for subword, _ in counts.most_common()) + "\n", "utf-8")


def patch_plateau_schedule() -> None:
    """JoeyNMT 2.3 passes `verbose` to ReduceLROnPlateau, which torch has removed."""
    import inspect

    from joeynmt import builders

    plateau = builders.ReduceLROnPlateau
    if "verbose" in inspect.signature(plateau).parameters:
        return

    @functools.wraps(plateau, updated=())
    def patched(*args, verbose=False, **kwargs):
        return plateau(*args, **kwargs)

    builders.ReduceLROnPlateau = patched


def train(settings: dict, race: dict) -> None:
    """JoeyNMT's own training, validated at the times of the clock."""
    from joeynmt import training
    from joeynmt.helpers import make_model_dir
    from joeynmt.helpers_for_ddp import get_logger

    patch_plateau_schedule()
    clock = Clock(race["folder"], "joeynmt", race["every"], race["marks"])

    class TimedTraining(training.TrainManager):
        rows = all_rows = 0

        @property
        def epochs(self) -> float:
            return self.rows / self.all_rows

        def train_and_validate(self, train_data, valid_data) -> None:
            self.all_rows = len(train_data)
            clock.start({name: importlib.metadata.version(name) for name in ("joeynmt", "torch")})
            super().train_and_validate(train_data, valid_data)

        def _train_step(self, batch):
            done = super()._train_step(batch)
            self.rows += batch.nseqs
            clock.tick(self.stats.steps, self.epochs)
            self.args = self.args._replace(validation_freq=1 if clock.is_due() else NEVER)
            return done

        def _validate(self, valid_data) -> None:
            super()._validate(valid_data)
            clock.note_checkpoint(self.stats.steps, self.epochs, f"{self.stats.steps}.ckpt", self.last_bleu)

        def _add_report(self, valid_scores, new_best=False) -> None:
            self.last_bleu = valid_scores["bleu"]
            super()._add_report(valid_scores, new_best)

    training.TrainManager = TimedTraining
    make_model_dir(Path(settings["model_dir"]), overwrite=True)
    get_logger("", log_file=str(Path(settings["model_dir"]) / "train.log"))
    training.train(rank=0, world_size=None, cfg=settings, skip_test=True)


def translate(settings: dict, checkpoint: str, output: str) -> None:
    """Translate the test split with JoeyNMT's beam search into OUTPUT.test."""
    from joeynmt.prediction import test

    patch_plateau_schedule()
    settings["testing"]["load_model"] = checkpoint
    settings["data"]["dev"] = None
    test(settings, output_path=output)


def main() -> None:
    import yaml

    action, file, *rest = sys.argv[1:]
    settings = yaml.safe_load(Path(file).read_text("utf-8"))
    if action == "vocabulary":
        make_vocabulary(settings)
    elif action == "train":
        train(settings, json.loads(Path(rest[0]).read_text("utf-8")))
    else:
        translate(settings, *rest)


if __name__ == "__main__":
    main()
