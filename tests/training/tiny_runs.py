"""Small runs, each with something that could differ after resuming, and ways to kill them.

They run in processes of their own: a server imports the libraries once and forks a process for each run.
"""

import multiprocessing
import os
import signal
import socket
import sys
from pathlib import Path

import torch
from datasets import ClassLabel, Dataset, Features, List, Value
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast, TrainerCallback, default_data_collator

import hf_edu_models
from hf_edu_models.data import DataCollatorForPreTraining
from hf_edu_models.data.streaming import StreamedExamples
from hf_edu_models.training import (
    EduSeq2SeqTrainer,
    EduTrainer,
    MultiTaskTrainer,
    ProfessorForcingTrainer,
    TaskOfRun,
    TruncatedBPTTTrainer,
)
from hf_edu_models.training.arguments import RecipeArguments, RunArguments
from hf_edu_models.training.run import start_run

VOCAB_SIZE = 23
STREAMS, WINDOW, WINDOWS = 4, 6, 5  # all sizes differ
SIZES = {"vocab_size": VOCAB_SIZE, "dropout": 0.2}
RECURRENT = SIZES | {"embedding_size": 10, "hidden_size": 12, "initializer_range": 0.3}
ATTENTION = SIZES | {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
AWD = {
    "lock_dropout_masks": True, "embedding_dropout": 0.1, "weight_dropout": 0.3, "activation_regularization": 2.0,
    "temporal_activation_regularization": 1.0,
}  # fmt: skip

forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(["hf_edu_models.training.run", "hf_edu_models.training.trainers", "datasets"])


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"}
    names = [*special.values(), *(f"w{number}" for number in range(len(special), VOCAB_SIZE))]
    whole = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="w4"))
    whole.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=whole, **special)


def pairs(count: int, seed: int = 0) -> Dataset:
    """Sources and targets of different lengths: only losses weighted by tokens add up over batches."""
    draw = torch.Generator().manual_seed(seed)

    def words() -> list[int]:
        length = int(torch.randint(2, 9, (1,), generator=draw))
        return torch.randint(4, VOCAB_SIZE, (length,), generator=draw).tolist()

    sources, targets = [words() for _ in range(count)], [[*words(), 2] for _ in range(count)]
    masks = [[1] * len(source) for source in sources]
    return Dataset.from_dict({"input_ids": sources, "attention_mask": masks, "labels": targets})


def sentences(count: int) -> Dataset:
    rows = pairs(count)
    return rows.remove_columns("labels").add_column("token_type_ids", [[0] * len(ids) for ids in rows["input_ids"]])


def streams(count: int = STREAMS, windows: int = WINDOWS, seed: int = 0) -> Dataset:
    """Rows as `contiguous_streams` makes them, of random tokens."""
    draw = torch.Generator().manual_seed(seed)
    words = torch.randint(4, VOCAB_SIZE, (count, windows * WINDOW + 1), generator=draw)
    rows = {"input_ids": words[:, :-1], "labels": words[:, :-1], "shift_labels": words[:, 1:]}
    cut = {name: ids.reshape(count, windows, WINDOW).transpose(0, 1).reshape(-1, WINDOW) for name, ids in rows.items()}
    return Dataset.from_dict({name: ids.tolist() for name, ids in cut.items()})


def translator(kind: str = "transformer"):
    if kind == "bahdanau":
        config = hf_edu_models.EduBahdanauConfig(**RECURRENT, maxout_size=9)
        return hf_edu_models.EduBahdanauForConditionalGeneration(config)
    return hf_edu_models.EduTransformerForConditionalGeneration(hf_edu_models.EduTransformerConfig(**ATTENTION))


def language_model(**changes):
    config = hf_edu_models.EduRecurrentConfig(**(RECURRENT | {"num_hidden_layers": 2} | changes))
    return hf_edu_models.EduRecurrentForCausalLM(config)


def model_with_memory():
    config = hf_edu_models.EduTransformerXLConfig(**ATTENTION, memory_length=WINDOW, initializer_range=0.3)
    return hf_edu_models.EduTransformerXLForCausalLM(config)


def masked_model():
    config = hf_edu_models.EduBertConfig(**ATTENTION, max_position_embeddings=16, initializer_range=0.3)
    return hf_edu_models.EduBertForMaskedLM(config)


def translating(training_args, model=None, rows=22, metrics=None):
    data = {"train_dataset": pairs(rows) if isinstance(rows, int) else rows, "eval_dataset": pairs(6, seed=1)}
    collator = DataCollatorForSeq2Seq(tokenizer())
    model = model or translator()
    return EduSeq2SeqTrainer(
        model, training_args, **data, data_collator=collator, processing_class=tokenizer(), compute_metrics=metrics
    )


def taught(training_args, kind: str = "seq2seq"):
    """By professor forcing: an encoder-decoder, or a language model."""
    torch.manual_seed(training_args.seed)
    options = {"data_collator": DataCollatorForSeq2Seq(tokenizer()), "processing_class": tokenizer()}
    if kind == "seq2seq":
        config = hf_edu_models.EduSeq2SeqConfig(**RECURRENT, num_hidden_layers=1)
        model, rows = hf_edu_models.EduSeq2SeqForConditionalGeneration(config), pairs(22)
    else:
        model, rows = language_model(), pairs(22).map(lambda row: {"labels": row["input_ids"]})
    return ProfessorForcingTrainer(model, training_args, train_dataset=rows, eval_dataset=rows, **options)


def streamed_states():
    """Streams of two windows in each chunk; the state is carried over the borders of chunks."""
    return StreamedExamples(streams().to_iterable_dataset(), lambda chunk, seed: chunk[:], is_shuffled=False)


def streaming(training_args, model=None, rows=None, **options):
    data = {"train_dataset": rows or streams(), "eval_dataset": streams(seed=1)}
    model = model or language_model()
    return TruncatedBPTTTrainer(model, training_args, **data, data_collator=default_data_collator, **options)


def masking(training_args, rows=None):
    collator = DataCollatorForPreTraining(tokenizer(), mlm_probability=0.4)
    data = {"train_dataset": sentences(24) if rows is None else rows, "eval_dataset": sentences(6)}
    return EduTrainer(masked_model(), training_args, **data, data_collator=collator)


def labelled() -> dict[str, dict[str, Dataset]]:
    """Two tasks: a class for a text, a tag for each token; the splits of each."""
    moods, tags = ClassLabel(names=["glad", "sad"]), List(ClassLabel(names=["O", "B-X"]))
    tasks: dict[str, dict[str, Dataset]] = {"moods": {}, "names": {}}
    for split, count in (("train", 20), ("validation", 6)):
        words = [[f"w{number}" for number in ids] for ids in pairs(count, seed=len(split))["input_ids"]]
        rows = {"text": [" ".join(row) for row in words], "label": [len(row) % 2 for row in words]}
        tasks["moods"][split] = Dataset.from_dict(rows, Features({"text": Value("string"), "label": moods}))
        rows = {"tokens": words, "tags": [[int(word[-1]) % 2 for word in row] for row in words]}
        tasks["names"][split] = Dataset.from_dict(rows, Features({"tokens": List(Value("string")), "tags": tags}))
    return tasks


def joint(training_args, dropout: float | None = None):
    kinds = {"moods": ("classification", "accuracy"), "names": ("token_classification", "f1")}
    args = RecipeArguments(dataset="moods+names", max_length=12)
    tasks = {name: TaskOfRun(name, args, corpus, *kinds[name], weight=0.5) for name, corpus in labelled().items()}
    for task in tasks.values():
        task.encode(tokenizer())
    sizes = ATTENTION if dropout is None else ATTENTION | {"dropout": dropout, "attention_dropout": dropout}
    heads = {name: task.head for name, task in tasks.items()}
    torch.manual_seed(training_args.seed)
    config = hf_edu_models.EduBertConfig(**sizes, max_position_embeddings=16, initializer_range=0.3, tasks=heads)
    model = hf_edu_models.EduBertForMultiTask(config)
    return MultiTaskTrainer(model=model, args=training_args, tasks=tasks, processing_class=tokenizer())


class Marks:
    """A score that rises, falls and rises again with every evaluation, for early stopping."""

    scores = [1.0, 3.0, 2.0, 2.5, 5.0] + 9 * [4.0]

    def __init__(self, training_args):
        self.steps = training_args.eval_steps
        self.trainer = None

    def __call__(self, prediction):
        return {"mark": self.scores[int(self.trainer.state.global_step / self.steps) - 1]}


def impatient(training_args):
    marks = Marks(training_args)
    marks.trainer = translating(training_args, metrics=marks)
    return marks.trainer


STEPS = {"save_strategy": "steps", "save_steps": 3, "logging_steps": 2, "eval_strategy": "no", "learning_rate": 0.01}
BATCH = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4}
EARLY = {"eval_strategy": "steps", "eval_steps": 3, "early_stopping_patience": 2, "metric_for_best_model": "mark"}
CASES = {
    "random order": (translating, {"num_train_epochs": 3}),
    "grouped by length": (translating, {"num_train_epochs": 3, "train_sampling_strategy": "group_by_length"}),
    "length buckets": (
        lambda args: translating(args, translator("bahdanau"), 40),
        {"num_train_epochs": 3, "max_tokens": 40},
    ),
    "masked language modelling": (masking, {"num_train_epochs": 3}),
    "carried state": (streaming, {"num_train_epochs": 4}),
    "carried memory": (lambda args: streaming(args, model_with_memory()), {"num_train_epochs": 4}),
    "AWD-LSTM": (lambda args: streaming(args, language_model(**AWD)), {"num_train_epochs": 4}),
    # 6 batches in twos, and 5 in twos with one left over
    "accumulated": (translating, {"num_train_epochs": 4, "gradient_accumulation_steps": 2}),
    "accumulated states": (streaming, {"num_train_epochs": 5, "gradient_accumulation_steps": 2}),
    "early stopping": (impatient, {"num_train_epochs": 6} | EARLY),
    # 26 rows in chunks of 10, 10 and 6: batches of 4 cross the borders of chunks and epochs
    "streamed": (lambda args: masking(args, sentences(26).to_iterable_dataset()), {"max_steps": 18, "buffer_size": 10}),
    "streamed states": (lambda args: streaming(args, rows=streamed_states()), {"max_steps": 12, "buffer_size": 8}),
    "streamed and accumulated": (
        lambda args: translating(args, rows=pairs(26).to_iterable_dataset()),
        {"max_steps": 9, "buffer_size": 10, "gradient_accumulation_steps": 2},
    ),
    # Sizes that two processes share out evenly
    "shared pairs": (lambda args: translating(args, rows=24), {"num_train_epochs": 3}),
    "shared buckets": (lambda args: translating(args, translator("bahdanau"), 60), {"max_tokens": 40}),
    "tasks": (joint, {"num_train_epochs": 3, "gradient_accumulation_steps": 2}),
    "professor forcing": (taught, {"num_train_epochs": 3, "gradient_accumulation_steps": 2, "professor_forcing": 0.5}),
    "teacher forcing": (
        lambda args: translating(args, translator("bahdanau")),
        {"num_train_epochs": 3, "teacher_forcing": "linear", "teacher_forcing_end": 0.2},
    ),
    "unfreezing": (
        translating,
        {"num_train_epochs": 3, "unfreeze_every": 0.5, "layer_lr_decay": 0.5, "slanted_triangular": 0.3},
    ),
}


def write_checkpoint(folder: Path) -> None:
    """A checkpoint with all of its parts, of no content."""
    folder.mkdir()
    for name in ("adapter_model.json", "optimizer.json", "scheduler.json", "rng_state.json"):
        (folder / name).write_text("{}")
    (folder / "trainer_state.json").write_text(f'{{"global_step": {folder.name.partition("-")[2]}}}')


def arguments(folder: Path, **settings) -> RunArguments:
    return RunArguments(str(folder), use_cpu=True, disable_tqdm=True, **(STEPS | BATCH | settings))


def run_case(name: str, folder: Path, resume: bool = False, kill=None, **settings):
    """A whole run, as a recipe does it; `kill` ends the process with SIGKILL."""
    torch.set_num_threads(1)
    build, own = CASES[name]
    training_args = arguments(folder, **(own | settings))
    # The main score of "pretraining" is the loss.
    run = start_run(RecipeArguments(dataset="reverse", resume=resume), training_args, "pretraining")
    trainer = build(training_args)
    if kill is not None:
        kill.arm(trainer, folder)
    trainer.train(resume_from_checkpoint=run.checkpoint)
    trainer.save_final()
    if kill is not None:
        kill.report()
    return trainer


def run_without_dropout(name: str, folder: Path, rank: int = 0, world: int = 1, port: int = 0, **options) -> None:
    """One process of `world`, without dropout, which differs between processes; saves its predictions."""
    RECURRENT["dropout"] = ATTENTION["dropout"] = 0.0
    if world > 1:
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
        os.environ.update({key: str(value) for key, value in variables.items()}, MASTER_ADDR="127.0.0.1")
        options["ddp_backend"] = "gloo"
    trainer = run_case(name, folder, **options)
    output = trainer.predict(trainer.eval_dataset)
    found = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    torch.save(
        {"world": found, "rank": trainer.args.process_index, "loss": output.metrics["test_loss"],
         "predictions": output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions},
        folder / f"process-{rank}.pt",
    )  # fmt: skip
    if world > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def in_two_processes(function, *args, wait: float = 200, **options) -> list[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    both = [
        forks.Process(target=function, args=args, kwargs=options | {"rank": rank, "world": 2, "port": port})
        for rank in range(2)
    ]
    for process in both:
        process.start()
    return [end_of(process, wait) for process in both]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KillAtStep(TrainerCallback):
    def __init__(self, step: int):
        self.step = step

    def arm(self, trainer, folder) -> None:
        trainer.add_callback(self)

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        if state.global_step + 1 == self.step:
            die()

    def report(self) -> None:
        raise AssertionError(f"step {self.step} was never reached")


class KillAtFile:
    """Kills the process right before a file of the run's folder is opened, renamed or removed, by an audit hook.

    Args:
        number: Index of the change; None only counts them.
        kind: Counts only these events, such as os.rename.
        part: Counts only paths with this part.
    """

    CHANGES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")

    def __init__(self, number: int | None = None, kind: str = "", part: str = "", names: Path | None = None):
        self.number, self.kind, self.part, self.names = number, kind, part, names
        self.events: list[str] = []
        self.is_on, self.is_emptying = True, False

    def arm(self, trainer, folder) -> None:
        self.folder = os.path.abspath(folder)
        sys.addaudithook(self.audit)

    def audit(self, event: str, args: tuple) -> None:
        if self.is_on and event in self.CHANGES and self.is_change(event, args):
            self.events.append(event)
            if len(self.events) - 1 == self.number:
                die()

    def is_change(self, event: str, args: tuple) -> bool:
        path = os.path.abspath(args[0]) if isinstance(args[0], str | os.PathLike) else ""
        is_inside = path.startswith(self.folder)
        if event == "shutil.rmtree":
            self.is_emptying = is_inside
        elif event in ("os.remove", "os.rmdir") and args[1] != -1:  # a name in a folder that is being removed
            is_inside = self.is_emptying
        elif event == "open":
            is_inside = is_inside and isinstance(args[1], str) and bool(set(args[1]) & set("wxa+"))
        return is_inside and self.kind in event and self.part in path

    def report(self) -> None:
        self.is_on = False
        if self.names is None:
            raise AssertionError(f"{self.number} {self.kind} {self.part} was never reached: {self.events}")
        self.names.write_text("\n".join(self.events))


def in_process(function, *args, wait: float = 300, **options) -> int:
    """Run a function in a new process; its exit code, -9 if it was killed."""
    process = forks.Process(target=function, args=args, kwargs=options)
    process.start()
    return end_of(process, wait)


def end_of(process, wait: float) -> int:
    process.join(wait)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError(f"{process.name} had not ended after {wait} seconds")
    return process.exitcode
