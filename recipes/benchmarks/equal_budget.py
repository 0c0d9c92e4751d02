"""Which of two systems translates better after the same minutes on the same processor: ours or JoeyNMT 2.3.

    python recipes/benchmarks/equal_budget.py --peer-python PEER/bin/python --dataset bentrevett/multi30k \
        --rung bahdanau --minutes 10 20 40 --threads 1 --out equal-bahdanau
    python recipes/benchmarks/equal_budget.py ... --only score --out equal-bahdanau    # from its checkpoints once more
    python recipes/benchmarks/equal_budget.py ... --rung transformer -- --seed 1       # flags of our recipe after --

PEER is the environment that `bench_recurrent.py` describes. Both are made ready (data, vocabulary, first weights),
start at the same moment, each on cores of its own, and are stopped after the last mark; `--alone ours`, then
`--alone joeynmt` with the same --out gives all cores to each in turn. Counted is everything from the first step on:
steps, validations and writing checkpoints. Starting up and preparing the data is not counted.

Both read the same rows, lowercased, with a joint BPE of the preset's size (JoeyNMT's by subword-nmt, after Moses'
tokenizer), validate with greedy search every `--validate-every` minutes and shortly before each mark, and keep every
checkpoint. For each mark, each system's checkpoint with the best validation BLEU that was written before it translates
the test split with the system's own beam search, and one function scores both.

`--peer-size small` is JoeyNMT's own `rnn_small` or `transformer_small`: model, optimizer, schedule and batches as they
are there. `--peer-size same` gives it the sizes of our preset, its batches in tokens and its learning rate, which makes
it the harder rival; where it has no schedule like ours (linear, cosine), it has its plateau schedule.
"""

import argparse
import dataclasses
import json
import os
import platform
import runpy
import subprocess
import sys
import time
from pathlib import Path

import torch
import yaml
from datasets import Dataset, disable_progress_bars
from equal_budget_joeynmt import NEVER, Clock, full_settings, same_settings, small_settings
from transformers import TrainerCallback, trainer

from hf_edu_models import EduBahdanauConfig, EduTransformerConfig
from hf_edu_models.data import load_corpus
from hf_edu_models.data.columns import read_column
from hf_edu_models.training.arguments import parse_arguments
from hf_edu_models.training.checkpoint_scores import Checkup, score_checkpoint
from hf_edu_models.training.evaluation import translation_scores
from hf_edu_models.training.presets import find_recipe
from hf_edu_models.training.run import launch, versions
from hf_edu_models.training.run_folder import write_whole

SYSTEMS = ("ours", "joeynmt")
PEER_SCRIPT = Path(__file__).with_name("equal_budget_joeynmt.py")
CONFIGS = {"bahdanau": EduBahdanauConfig, "transformer": EduTransformerConfig}
SPLITS = {"train": "train", "validation": "dev", "test": "test"}  # our names and JoeyNMT's
MARKS = (10, 20, 40)
# What scoring must know of a race, so that nobody has to say it again.
TO_SCORE = ("source", "target", "lowercase", "max_length", "num_beams", "per_device_eval_batch_size")
LINE_EVERY = 60  # seconds between two lines of progress


def parse_command(argv=None):
    argv = sys.argv[1:] if argv is None else list(argv)
    place = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="python of an environment that has joeynmt")
    parser.add_argument("--peer-size", choices=("small", "same"), default="small")
    parser.add_argument("--dataset", help="a folder or Hub id; the preset's own unless given")
    parser.add_argument("--preset", default="multi30k")
    parser.add_argument("--rung", choices=tuple(CONFIGS), default="bahdanau")
    parser.add_argument("--minutes", type=float, nargs="+", help=f"marks of the race, {MARKS} unless given")
    parser.add_argument("--validate-every", type=float, default=2, metavar="MINUTES")
    parser.add_argument("--threads", type=int, default=1, help="of each system, on as many cores")
    parser.add_argument("--alone", choices=SYSTEMS, help="run this one only")
    parser.add_argument("--only", choices=("train", "score"))
    parser.add_argument("--out", required=True, help="folder for data, checkpoints, logs and equal_budget.json")
    for split in SPLITS:
        parser.add_argument(f"--{split}-size", type=int, help="at most so many rows, to try it out")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    command = parser.parse_args(argv[:place])
    if command.minutes is None and command.only != "score":
        command.minutes = list(MARKS)
    command.flags, command.out = argv[place + 1 :], Path(command.out).absolute()
    check(parser, command)
    return command


def check(parser, command):
    if min(command.minutes or MARKS) <= 0 or command.validate_every <= 0 or command.threads < 1:
        parser.error("--minutes, --validate-every and --threads must be above 0")
    if "joeynmt" in contenders(command) and command.peer_python is None:
        parser.error("JoeyNMT needs the python of its environment: --peer-python PEER/bin/python, or --alone ours")
    wanted, there = command.threads * len(contenders(command)), len(cores())
    if command.only != "score" and not command.serve and wanted > there:
        parser.error(f"{wanted} threads are asked for, but there are {there} cores; lower --threads or give --alone")


def contenders(command):
    return (command.alone,) if command.alone else SYSTEMS


def cores():
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count()))


# Making ready


def our_flags(command):
    """The recipe's flags: every checkpoint stays, and the clock says when to validate and save."""
    by_clock = ["--eval_strategy", "steps", "--eval_steps", NEVER, "--save_strategy", "steps", "--save_steps", NEVER]
    kept = ["--save_total_limit", NEVER, "--average_checkpoints", "0", "--disable_tqdm", "true"]
    own = ["--preset", command.preset, "--dataset", command.out / "data", "--output_dir", command.out / "ours"]
    return [str(word) for word in [*own, *by_clock, *kept, *command.flags]]


def our_settings(command):
    """What our recipe will run with, in one flat mapping: data, model (its defaults too) and training."""
    args, training_args = parse_arguments(str(find_recipe(command.rung)), our_flags(command))
    recipe = {each.name: getattr(args, each.name) for each in dataclasses.fields(args)}
    recipe_training = {each.name: getattr(training_args, each.name) for each in dataclasses.fields(training_args)}
    return CONFIGS[command.rung](**args.model).to_dict() | recipe_training | recipe


def prepare(command):
    """The rows that both systems read, JoeyNMT's settings and its vocabulary."""
    for name in contenders(command):
        if (command.out / f"{name}.jsonl").exists():
            raise ValueError(f"{command.out} has a race of {name} already; choose another --out, or give --only score")
    ours = our_settings(command)
    write_rows(command, ours)
    plan = {"folder": str(command.out), "every": command.validate_every, "marks": command.minutes}
    write_whole(command.out / "race.json", json.dumps(plan | {"settings": {name: ours[name] for name in TO_SCORE}}))
    if "joeynmt" not in contenders(command):
        return
    folder = command.out / "joeynmt"
    core = small_settings(command.rung) if command.peer_size == "small" else same_settings(command.rung, ours)
    write_whole(folder / "settings.yaml", yaml.safe_dump(full_settings(core, folder, ours), sort_keys=False))
    write_texts(command.out / "data", folder, ours)
    call_peer(command, "vocabulary", folder / "settings.yaml")


def write_rows(command, ours):
    """The splits as files of our own: a subset is then the same for both."""
    folder = command.out / "data"
    folder.mkdir(parents=True, exist_ok=True)
    plain, _ = parse_arguments(str(find_recipe(command.rung)), ["--preset", command.preset, *command.flags])
    sizes = {f"{split}_size": getattr(command, f"{split}_size") for split in SPLITS}
    options = plain.corpus | {name: size for name, size in sizes.items() if size}
    corpus = load_corpus(command.dataset or plain.dataset, **options)
    for split in SPLITS:
        sides = {ours[side]: [tidy(text) for text in read_column(corpus[split], side)] for side in ("source", "target")}
        rows = Dataset.from_dict(sides)
        if split == "train":
            rows = rows.filter(lambda row: all(row.values()))  # JoeyNMT refuses empty sentences
        rows.to_parquet(folder / f"{split}.parquet")


def tidy(text):
    """On one line: JoeyNMT reads a sentence a line."""
    return " ".join(text.split())


def write_texts(data, folder, ours):
    """The same rows as JoeyNMT reads them: a file a language."""
    for split, theirs in SPLITS.items():
        rows = Dataset.from_parquet(str(data / f"{split}.parquet"), keep_in_memory=True)
        for side in ("source", "target"):
            lines = "".join(f"{text}\n" for text in rows[ours[side]])
            write_whole(folder / f"{theirs}.{ours[side]}", lines)


def call_peer(command, *words):
    """Run our script for JoeyNMT to its end."""
    done = subprocess.run(
        [command.peer_python, str(PEER_SCRIPT), *map(str, words)],
        capture_output=True, text=True, encoding="utf-8", env=environment(command),
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"JoeyNMT could not make {words[0]}:\n{done.stderr[-3000:]}")


def environment(command):
    threads = {name: str(command.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return os.environ | threads | {"TOKENIZERS_PARALLELISM": "false"}


# The race


class TimedRecipe(TrainerCallback):
    """Makes an ordinary recipe validate and save when the clock says so."""

    def __init__(self, clock):
        self.clock = clock

    def on_train_begin(self, args, state, control, **kwargs):
        self.clock.start(versions())

    def on_step_end(self, args, state, control, **kwargs):
        self.clock.tick(state.global_step, state.epoch)
        if self.clock.is_due() or state.global_step >= state.max_steps:
            control.should_evaluate = control.should_save = True

    def on_save(self, args, state, control, **kwargs):
        bleu = next(line["eval_bleu"] for line in reversed(state.log_history) if "eval_bleu" in line)
        self.clock.note_checkpoint(state.global_step, state.epoch, f"checkpoint-{state.global_step}", bleu)

    def on_train_end(self, args, state, control, **kwargs):
        raise SystemExit(0)  # the test split is translated after the race, for both


def serve_ours(command):
    """Our recipe, as `hf-edu train` runs it, with the clock beside it."""
    clock = Clock(command.out, "ours", command.validate_every, command.minutes)
    trainer.DEFAULT_CALLBACKS.append(TimedRecipe(clock))
    file = find_recipe(command.rung)
    launch(runpy.run_path(str(file), run_name="recipe")["main"], str(file), our_flags(command))


def race(command):
    """Start the contenders, tell how they do, and stop them when the time is up."""
    for sign in ("go", "ours.ready", "joeynmt.ready"):
        (command.out / sign).unlink(missing_ok=True)
    processes = {}
    try:
        for number, name in enumerate(contenders(command)):
            processes[name] = start(command, name, number)
        wait_until_ready(command, processes)
        write_about(command)
        (command.out / "go").touch()
        watch(command, processes)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def start(command, name, number):
    """One contender in a process of its own, on cores of its own where the system can do that."""
    if name == "ours":
        words = [sys.executable, str(Path(__file__).absolute()), "--serve", *sys.argv[1:]]
    else:
        files = (command.out / "joeynmt" / "settings.yaml", command.out / "race.json")
        words = [command.peer_python, str(PEER_SCRIPT), "train", *map(str, files)]
    with open(command.out / f"{name}.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=environment(command))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process.pid, cores()[number * command.threads :][: command.threads])
    return process


def wait_until_ready(command, processes):
    while not all((command.out / f"{name}.ready").exists() for name in processes):
        for name, process in processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended before its first step:\n{last_words(command, name)}")
        time.sleep(0.2)


def watch(command, processes):
    """A line a minute until the last mark; a contender that ends before it keeps what it has."""
    began = said = time.monotonic()
    last = 60 * max(command.minutes)
    while time.monotonic() - began < last + 1 and any(each.poll() is None for each in processes.values()):
        for name, process in processes.items():
            if process.poll():
                raise RuntimeError(f"{name} ended with an error:\n{last_words(command, name)}")
        if time.monotonic() - said >= LINE_EVERY:
            said = time.monotonic()
            print(f"{(said - began) / 60:5.1f} min  {progress(command.out)}", flush=True)
        time.sleep(0.2)


def last_words(command, name):
    return (command.out / f"{name}.log").read_text("utf-8", errors="replace")[-3000:]


def write_about(command):
    """How each was run, for the results: the two may have run at different times."""
    for name in contenders(command):
        about = {
            "threads": command.threads, "alone": command.alone is not None, "rung": command.rung,
            "validate_every": command.validate_every, "minutes": command.minutes,
            "machine": platform.machine(),
        }  # fmt: skip
        about |= {"flags": command.flags, "preset": command.preset} if name == "ours" else {"size": command.peer_size}
        write_whole(command.out / f"{name}.json", json.dumps(about))


# What came out


def read_records(folder, name):
    file = Path(folder) / f"{name}.jsonl"
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def progress(folder):
    parts = []
    for name in SYSTEMS:
        records = read_records(folder, name)
        if records:
            scores = [record["bleu"] for record in records if "bleu" in record]
            bleu = f"{scores[-1]:.2f}" if scores else "none yet"
            parts.append(f"{name}: {records[-1]['steps']} steps, validation BLEU {bleu}")
    return "; ".join(parts)


def best_before(records, minutes):
    """The checkpoint with the best validation BLEU among those written by then; the earlier of equals, or None."""
    written = [record for record in records if "checkpoint" in record and record["seconds"] <= 60 * minutes]
    return max(written, key=lambda record: record["bleu"], default=None)


def made_by(records, minutes):
    """The last that is known of the steps and epochs made by then."""
    return [record for record in records if record["seconds"] <= 60 * minutes][-1]


def raced(command):
    """Those that have run in this folder, together or in turn."""
    found = [name for name in SYSTEMS if read_records(command.out, name)]
    if not found:
        raise FileNotFoundError(f"{command.out} has no race to score; run it without --only score first")
    if "joeynmt" in found and command.peer_python is None:
        raise ValueError(f"{command.out} has a race of JoeyNMT, which needs --peer-python PEER/bin/python to be scored")
    return found


def score(command):
    """Translate the test split with each mark's checkpoint; one that is best at two marks does it once."""
    torch.set_num_threads(command.threads)
    translate = {"ours": translate_with_ours, "joeynmt": translate_with_joeynmt}
    names = raced(command)
    race = json.loads((command.out / "race.json").read_text("utf-8"))
    ours, marks = race["settings"], sorted(command.minutes or race["marks"])
    test = Dataset.from_parquet(str(command.out / "data" / "test.parquet"), keep_in_memory=True)
    results = {"systems": {}, "marks": [{"minutes": minutes} for minutes in marks]}
    for name in names:
        records = read_records(command.out, name)
        about = json.loads((command.out / f"{name}.json").read_text("utf-8"))
        results["systems"][name] = about | {"versions": records[0]["versions"]}
        done = {}
        for mark in results["marks"]:
            best = best_before(records, mark["minutes"])
            if best and best["checkpoint"] not in done:
                said = translate[name](command, ours, best["checkpoint"])
                done[best["checkpoint"]] = translation_scores(said, list(test[ours["target"]]), ours["lowercase"])
            made = made_by(records, mark["minutes"])
            mark[name] = {"steps": made["steps"], "epochs": made["epochs"], "best": best}
            mark[name]["test"] = done[best["checkpoint"]] if best else None
    return results


def translate_with_ours(command, ours, checkpoint):
    options = {name: ours[name] for name in ("num_beams", "max_length", "lowercase")}
    checkup = Checkup(
        checkpoint=str(command.out / "ours" / checkpoint),
        dataset=str(command.out / "data"),
        source=ours["source"],
        target=ours["target"],
        options=options | {"batch_size": ours["per_device_eval_batch_size"]},
    )
    return [row["prediction"] for row in score_checkpoint(checkup).rows]


def translate_with_joeynmt(command, ours, checkpoint):
    folder = command.out / "joeynmt"
    output = folder / f"{checkpoint}.translated"
    call_peer(command, "translate", folder / "settings.yaml", folder / "model" / checkpoint, output)
    return Path(f"{output}.test").read_text("utf-8").rstrip("\n").split("\n")


def table(results):
    """The marks as Markdown, and under it how the scores were made."""
    names = list(results["systems"])
    heads = {"ours": "ours", "joeynmt": "JoeyNMT"}
    columns = [f"{heads[name]}: {what}" for name in names for what in ("test BLEU", "validation", "steps", "epochs")]
    lines = ["| minutes | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for mark in results["marks"]:
        cells = [cell for name in names for cell in cells_of(mark[name])]
        lines.append(f"| {mark['minutes']:g} | " + " | ".join(cells) + " |")
    signature = next((mark[name]["test"]["bleu_signature"] for mark in results["marks"] for name in names
                      if mark[name]["test"]), "nothing scored")  # fmt: skip
    return "\n".join([*lines, "", f"Test: beam search, {signature}; in brackets the middle 95% of resampled tests."])


def cells_of(system):
    made = [f"{system['steps']:,}", f"{system['epochs']:.1f}"]
    if system["test"] is None:
        return ["no checkpoint yet", "", *made]
    low, high = system["test"]["bleu_interval"]
    return [f"{system['test']['bleu']:.2f} [{low:.1f}, {high:.1f}]", f"{system['best']['bleu']:.2f}", *made]


def main():
    command = parse_command()
    if command.serve:
        return serve_ours(command)
    disable_progress_bars()
    try:
        if command.only != "score":
            prepare(command)
            race(command)
        if command.only != "train":
            results = score(command)
            write_whole(command.out / "equal_budget.json", json.dumps(results, indent=2) + "\n")
            print(table(results))
    except (ValueError, FileNotFoundError, RuntimeError) as problem:
        sys.exit(f"equal_budget.py: {problem}")


if __name__ == "__main__":
    main()
