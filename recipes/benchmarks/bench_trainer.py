"""Overhead of Trainer: the same training by our trainers, by transformers' own, and by a bare torch loop.

    python recipes/benchmarks/bench_trainer.py --rounds 5                # a few minutes on one core
    python recipes/benchmarks/bench_trainer.py --sizes tiny --rounds 9   # short steps, where the overhead shows
    python -m cProfile -s tottime recipes/benchmarks/bench_trainer.py --sizes tiny --contenders ours --skip-memory

The rounds of all three are interleaved and their medians compared. They train a new model with the same
initialisation on the same batches in the same order, with the same collator, fused AdamW, a linear schedule and
gradient clipping, and with the kernels that `cpu_kernels` chooses. CPU time is measured from the end of one step to
the end of another, so it includes collating a batch, and not building the trainer. Ours is EduSeq2SeqTrainer
(translation) or EduTrainer (texts) with the defaults of the recipes; transformers' has its own defaults. Neither
evaluates nor saves here, and both log every 50 steps. Dropout is on. The final weights are compared with those of the
bare loop, and the script exits with an error if they differ.

"peak" is the peak memory of a process that runs one of the three, imports and model included.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers
from bench_transformer import SPECIAL, build, caption_lengths
from datasets import Dataset
from interleaved import machine
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.utils.data import DataLoader
from transformers import (
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainerCallback,
    get_scheduler,
    set_seed,
)

from hf_edu_models import (
    EduGPTConfig,
    EduGPTForCausalLM,
    EduTransformerConfig,
    EduTransformerForConditionalGeneration,
    cpu_kernels,
)
from hf_edu_models.data import collator_for
from hf_edu_models.training import EduSeq2SeqTrainer, EduTrainer, RunArguments, configure_malloc

SIZES = {  # layers, hidden size, heads, vocabulary, batch, steps
    "tiny": (1, 32, 2, 500, 8, 300),
    "mini": (3, 256, 4, 8000, 64, 20),
}
TASKS = {  # our trainer, transformers' trainer, the task of hf_edu_models.data
    "translation": (EduSeq2SeqTrainer, Seq2SeqTrainer, "translation"),
    "texts": (EduTrainer, Trainer, "language_modeling"),
}
CONTENDERS = ("bare", "transformers", "ours")
BLOCK = 64  # tokens per text
LEARNING_RATE, WARMUP, CLIP, SEED = 1e-3, 5, 1.0, 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", nargs="+", choices=tuple(SIZES), default=tuple(SIZES))
    parser.add_argument("--tasks", nargs="+", choices=tuple(TASKS), default=tuple(TASKS))
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--steps", type=int, help="number of steps, at least 6; each size has its own default")
    parser.add_argument("--skip-memory", action="store_true", help="do not measure the peak memory")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--peak", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.steps is not None and args.steps <= WARMUP:
        parser.error(f"--steps {args.steps}: the first {WARMUP} are not timed; give more")
    return args


class Work:
    """The common model and data."""

    def __init__(self, args, task, size):
        self.task = task
        self.layers, self.hidden, self.heads, self.vocab, self.batch, steps = SIZES[size]
        self.steps = args.steps or steps
        self.tokenizer = make_tokenizer(self.vocab)
        self.collator = collator_for(TASKS[task][-1], self.tokenizer)
        rows = self.steps * self.batch
        self.rows = caption_rows(rows, self.vocab) if task == "translation" else text_rows(rows, self.vocab)

    def model(self):
        common = {
            "vocab_size": self.vocab,
            "num_hidden_layers": self.layers,
            "hidden_size": self.hidden,
            "num_attention_heads": self.heads,
            "intermediate_size": 4 * self.hidden,
            "dropout": 0.1,
            **SPECIAL,
        }
        torch.manual_seed(SEED)
        if self.task == "translation":
            return build(EduTransformerForConditionalGeneration, EduTransformerConfig(**common))
        common.pop("decoder_start_token_id")
        return build(EduGPTForCausalLM, EduGPTConfig(max_position_embeddings=BLOCK, **common))


def make_tokenizer(vocab):
    """Only its padding token is used."""
    words = {word: index for index, word in enumerate(["<pad>", "<s>", "</s>", *map(str, range(vocab - 3))])}
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, "<pad>")), **special)


def caption_rows(count, vocab):
    """Random tokens with the lengths of Multi30k's captions."""
    generator = torch.Generator().manual_seed(SEED)
    columns = [
        [torch.randint(5, vocab, (int(length),), generator=generator).tolist() for length in lengths]
        for lengths in caption_lengths(count)
    ]
    mask = [[1] * len(row) for row in columns[0]]
    return Dataset.from_dict({"input_ids": columns[0], "attention_mask": mask, "labels": columns[1]})


def text_rows(count, vocab):
    generator = torch.Generator().manual_seed(SEED)
    ids = torch.randint(5, vocab, (count, BLOCK), generator=generator).tolist()
    return Dataset.from_dict({"input_ids": ids, "attention_mask": [[1] * BLOCK] * count})


class Clock(TrainerCallback):
    """Records when each step ends."""

    def __init__(self):
        self.ends = []

    def on_step_end(self, args=None, state=None, control=None, **kwargs):
        self.ends.append(time.process_time())

    def seconds(self):
        """Mean time of a step, without the first ones."""
        return (self.ends[-1] - self.ends[WARMUP - 1]) / (len(self.ends) - WARMUP)


def bare(work, clock):
    """A training loop without Trainer."""
    model = work.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True)
    scheduler = get_scheduler("linear", optimizer, num_warmup_steps=WARMUP, num_training_steps=work.steps)
    set_seed(SEED)
    loss_sum = torch.zeros(())
    model.train()
    for batch in DataLoader(work.rows, batch_size=work.batch, collate_fn=work.collator):
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        loss_sum += loss.detach()
        clock.on_step_end()
    return model


def with_trainer(work, clock, trainer_class, arguments_class):
    with tempfile.TemporaryDirectory() as folder:
        arguments = arguments_class(
            output_dir=folder,
            per_device_train_batch_size=work.batch,
            num_train_epochs=1,
            learning_rate=LEARNING_RATE,
            warmup_steps=WARMUP,
            max_grad_norm=CLIP,
            train_sampling_strategy="sequential",
            eval_strategy="no",
            save_strategy="no",
            logging_steps=50,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
            seed=SEED,
        )
        common = {"train_dataset": work.rows, "data_collator": work.collator, "processing_class": work.tokenizer}
        trainer = trainer_class(model=work.model(), args=arguments, callbacks=[clock], **common)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            trainer.train()
        return trainer.model


def train(name, work):
    """Train once; return the seconds per step and the final weights."""
    clock = Clock()
    ours, theirs, _ = TASKS[work.task]
    if name == "bare":
        model = bare(work, clock)
    elif name == "transformers":
        model = with_trainer(work, clock, theirs, Seq2SeqTrainingArguments)
    else:
        model = with_trainer(work, clock, ours, RunArguments)
    if len(clock.ends) != work.steps:
        raise SystemExit(f"{name} took {len(clock.ends)} steps instead of {work.steps}")
    return clock.seconds(), model.state_dict()


def difference(weights, others):
    """Largest difference of two models' weights; exits if it is more than rounding."""
    for name, weight in weights.items():
        if not torch.allclose(weight, others[name], rtol=1e-3, atol=1e-5):
            far = (weight - others[name]).abs().max().item()
            raise SystemExit(f"the trainings do not do the same work: {name} differs by {far:.2g}")
    return max((weight - others[name]).abs().max().item() for name, weight in weights.items())


def compare(args):
    """Medians over interleaved rounds, for every task and size."""
    results = []
    for task in args.tasks:
        for size in args.sizes:
            work = Work(args, task, size)
            times = {name: [] for name in args.contenders}
            weights = {}
            for _ in range(args.rounds):
                for name in args.contenders:
                    seconds, weights[name] = train(name, work)
                    times[name].append(seconds)
            row = {"task": task, "size": size, "steps": work.steps}
            row["seconds"] = {name: statistics.median(values) for name, values in times.items()}
            first, *others = args.contenders
            row["differences"] = {name: difference(weights[first], weights[name]) for name in others}
            if not args.skip_memory:
                row["peak"] = {name: peak_of(args, task, size, name) for name in args.contenders}
            print_row(row)
            results.append(row)
    return results


def print_row(row):
    (base, least), *others = row["seconds"].items()
    parts = [f"{row['task']:11} {row['size']:5} {base} {least * 1e3:7.2f} ms a step"]
    parts += [f"{name} {seconds / least:.3f}x (+{(seconds - least) * 1e3:.2f} ms)" for name, seconds in others]
    if others:
        far = max(row["differences"].values())
        parts.append("weights equal bit for bit" if far == 0 else f"weights differ by {far:.1g} at most")
    if "peak" in row:
        parts.append("peak: " + ", ".join(f"{name} {peak / 2**20:.0f} MiB" for name, peak in row["peak"].items()))
    print("   ".join(parts), flush=True)


def peak_of(args, task, size, name):
    """Peak memory of a process that runs this training alone."""
    command = [sys.executable, __file__, "--peak", "--tasks", task, "--sizes", size, "--contenders", name]
    command += ["--threads", str(args.threads)] + (["--steps", str(args.steps)] if args.steps else [])
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"measuring the memory of {name} failed:\n{done.stderr}")
    return int(done.stdout.split()[-1])


def own_peak():
    """In bytes. On Linux a child inherits its parent's `ru_maxrss`, so /proc is read instead."""
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    configure_malloc()  # for all three, as every recipe does
    choice = cpu_kernels.enable()
    if args.peak:
        train(args.contenders[0], Work(args, args.tasks[0], args.sizes[0]))
        print(own_peak())
        return
    print(f"{machine(choice)}, transformers {transformers.__version__}; a ratio above 1 is slower than the first")
    results = compare(args)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
