"""BLEU of our models and of JoeyNMT 2.3 after the same training time on the same CPU.

    python recipes/benchmarks/equal_budget.py --peer-python PEER/bin/python --dataset bentrevett/multi30k \
        --rung bahdanau --minutes 10 20 40 --threads 1 --out equal-bahdanau
    python recipes/benchmarks/equal_budget.py ... --only score --out equal-bahdanau    # score its checkpoints again
    python recipes/benchmarks/equal_budget.py ... --rung transformer -- --seed 1       # flags of our recipe follow --

PEER is the environment that `bench_recurrent.py` describes. Both systems prepare data, vocabulary and model, start at
the same moment, each on its own cores, and are stopped after the last mark; `--alone ours`, then `--alone joeynmt` with
the same --out runs them one after the other. The time includes steps, validations and writing checkpoints; it does not
include start-up and preprocessing.

Both have the same rows, lowercased, with a joint BPE of the preset's size (JoeyNMT's by subword-nmt, after Moses'
tokenizer), validate with greedy search every `--validate-every` minutes and shortly before each mark, and keep every
checkpoint. For each mark, each system's checkpoint with the best validation BLEU before it translates the test split
with the system's own beam search, and one function scores both.

`--peer-size small` is JoeyNMT's own `rnn_small` or `transformer_small` with its optimizer, schedule and batches.
`--peer-size same` has the sizes of our preset, its batch size in tokens and its learning rate, which makes it the
stronger baseline; JoeyNMT has no linear or cosine schedule, so it keeps its plateau schedule.
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
from hf_edu_models.metrics.scorers import translation_scores
from hf_edu_models.run_folder import write_atomically
from hf_edu_models.training.arguments import parse_arguments
from hf_edu_models.training.evaluate_checkpoint import EvaluationRequest, score_checkpoint
from hf_edu_models.training.presets import find_recipe
from hf_edu_models.training.run import launch, versions

SYSTEMS = ("ours", "joeynmt")
PEER_SCRIPT = Path(__file__).with_name("equal_budget_joeynmt.py")
CONFIGS = {"bahdanau": EduBahdanauConfig, "transformer": EduTransformerConfig}
SPLITS = {"train": "train", "validation": "dev", "test": "test"}  # our names and JoeyNMT's
MARKS = (10, 20, 40)
# Settings of a race that are saved for scoring.
TO_SCORE = ("source", "target", "lowercase", "max_length", "num_beams", "per_device_eval_batch_size")
LINE_EVERY = 60  # seconds between lines of progress


def parse_command(argv=None):
    argv = sys.argv[1:] if argv is None else list(argv)
    end = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="python of an environment that has joeynmt")
    parser.add_argument("--peer-size", choices=("small", "same"), default="small")
    parser.add_argument("--dataset", help="folder or Hub id; the preset's own by default")
    parser.add_argument("--preset", default="multi30k")
    parser.add_argument("--rung", choices=tuple(CONFIGS), default="bahdanau")
    parser.add_argument("--minutes", type=float, nargs="+", help=f"marks of the race, {MARKS} by default")
    parser.add_argument("--validate-every", type=float, default=2, metavar="MINUTES")
    parser.add_argument("--threads", type=int, default=1, help="threads and cores of each system")
    parser.add_argument("--alone", choices=SYSTEMS, help="run only this system")
    parser.add_argument("--only", choices=("train", "score"))
    parser.add_argument("--out", required=True, help="folder for data, checkpoints, logs and equal_budget.json")
    for split in SPLITS:
        parser.add_argument(f"--{split}-size", type=int, help="maximum number of rows, for a trial")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    command = parser.parse_args(argv[:end])
    if command.minutes is None and command.only != "score":
        command.minutes = list(MARKS)
    command.flags, command.out = argv[end + 1 :], Path(command.out).absolute()
    check(parser, command)
    return command


def check(parser, command):
    if min(command.minutes or MARKS) <= 0 or command.validate_every <= 0 or command.threads < 1:
        parser.error("--minutes, --validate-every and --threads must be above 0")
    if "joeynmt" in systems(command) and command.peer_python is None:
        parser.error("JoeyNMT needs the python of its environment: --peer-python PEER/bin/python, or --alone ours")
    needed, available = command.threads * len(systems(command)), len(cores())
    if command.only != "score" and not command.serve and needed > available:
        parser.error(f"{needed} cores are needed, but there are {available}; lower --threads or give --alone")


def systems(command):
    return (command.alone,) if command.alone else SYSTEMS


def cores():
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count()))


def our_flags(command):
    """Flags of the recipe: it keeps every checkpoint, and the clock decides when to validate and save."""
    by_clock = ["--eval_strategy", "steps", "--eval_steps", NEVER, "--save_strategy", "steps", "--save_steps", NEVER]
    kept = ["--save_total_limit", NEVER, "--average_checkpoints", "0", "--disable_tqdm", "true"]
    own = ["--preset", command.preset, "--dataset", command.out / "data", "--output_dir", command.out / "ours"]
    plain = preset_arguments(command)  # its languages do not apply to another dataset by themselves
    own += ["--source", plain.source, "--target", plain.target]
    return [str(word) for word in [*own, *by_clock, *kept, *command.flags]]


def preset_arguments(command):
    """The recipe's arguments with its own dataset."""
    args, _ = parse_arguments(str(find_recipe(command.rung)), ["--preset", command.preset, *command.flags])
    return args


def our_settings(command):
    """All settings of our recipe in one flat mapping: data, model (with its defaults) and training."""
    args, training_args = parse_arguments(str(find_recipe(command.rung)), our_flags(command))
    recipe = {each.name: getattr(args, each.name) for each in dataclasses.fields(args)}
    recipe_training = {each.name: getattr(training_args, each.name) for each in dataclasses.fields(training_args)}
    return CONFIGS[command.rung](**args.model).to_dict() | recipe_training | recipe


def prepare(command):
    """Write the rows of both systems, JoeyNMT's settings and its vocabulary."""
    for name in systems(command):
        if (command.out / f"{name}.jsonl").exists():
            raise ValueError(f"{command.out} already has a race of {name}; choose another --out, or give --only score")
    ours = our_settings(command)
    write_rows(command, ours)
    plan = {"folder": str(command.out), "every": command.validate_every, "marks": command.minutes}
    write_atomically(
        command.out / "race.json", json.dumps(plan | {"settings": {name: ours[name] for name in TO_SCORE}})
    )
    if "joeynmt" not in systems(command):
        return
    folder = command.out / "joeynmt"
    core = small_settings(command.rung) if command.peer_size == "small" else same_settings(command.rung, ours)
    write_atomically(folder / "settings.yaml", yaml.safe_dump(full_settings(core, folder, ours), sort_keys=False))
    write_texts(command.out / "data", folder, ours)
    call_peer(command, "vocabulary", folder / "settings.yaml")


def write_rows(command, ours):
    """Write the splits to files, so that both systems have the same subset."""
    folder = command.out / "data"
    folder.mkdir(parents=True, exist_ok=True)
    plain = preset_arguments(command)
    sizes = {f"{split}_size": getattr(command, f"{split}_size") for split in SPLITS}
    options = plain.corpus | {name: size for name, size in sizes.items() if size}
    corpus = load_corpus(command.dataset or plain.dataset, **options)
    for split in SPLITS:
        sides = {
            ours[side]: [_join_lines(text) for text in read_column(corpus[split], side)]
            for side in ("source", "target")
        }
        rows = Dataset.from_dict(sides)
        if split == "train":
            rows = rows.filter(lambda row: all(row.values()))  # JoeyNMT rejects empty sentences
        rows.to_parquet(folder / f"{split}.parquet")


def _join_lines(text):
    """JoeyNMT reads one sentence per line."""
    return " ".join(text.split())


def write_texts(data, folder, ours):
    """Write the same rows for JoeyNMT: one file per language."""
    for split, theirs in SPLITS.items():
        rows = Dataset.from_parquet(str(data / f"{split}.parquet"), keep_in_memory=True)
        for side in ("source", "target"):
            lines = "".join(f"{text}\n" for text in rows[ours[side]])
            write_atomically(folder / f"{theirs}.{ours[side]}", lines)


def call_peer(command, *words):
    """Run the JoeyNMT script and wait for it."""
    done = subprocess.run(
        [command.peer_python, str(PEER_SCRIPT), *map(str, words)],
        capture_output=True, text=True, encoding="utf-8", env=environment(command),
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"JoeyNMT could not make {words[0]}:\n{done.stderr[-3000:]}")


def environment(command):
    threads = {name: str(command.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return os.environ | threads | {"TOKENIZERS_PARALLELISM": "false"}


class TimedRecipe(TrainerCallback):
    """Makes a recipe validate and save at the times of the clock."""

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
        raise SystemExit(0)  # both translate the test split after the race


def serve_ours(command):
    """Run our recipe as `hf-edu train` does, with the clock as a callback."""
    clock = Clock(command.out, "ours", command.validate_every, command.minutes)
    trainer.DEFAULT_CALLBACKS.append(TimedRecipe(clock))
    file = find_recipe(command.rung)
    launch(runpy.run_path(str(file), run_name="recipe")["main"], str(file), our_flags(command))


def race(command):
    """Start the systems, print their progress, and stop them after the last mark."""
    for sign in ("go", "ours.ready", "joeynmt.ready"):
        (command.out / sign).unlink(missing_ok=True)
    processes = {}
    try:
        for number, name in enumerate(systems(command)):
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
    """Start one system in its own process, on its own cores if the platform supports it."""
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
                raise RuntimeError(f"{name} exited before its first step:\n{end_of_log(command, name)}")
        time.sleep(0.2)


def watch(command, processes):
    """Print a line per minute until the last mark; a system may finish before it."""
    start = printed = time.monotonic()
    last = 60 * max(command.minutes)
    while time.monotonic() - start < last + 1 and any(each.poll() is None for each in processes.values()):
        for name, process in processes.items():
            if process.poll():
                raise RuntimeError(f"{name} exited with an error:\n{end_of_log(command, name)}")
        if time.monotonic() - printed >= LINE_EVERY:
            printed = time.monotonic()
            print(f"{(printed - start) / 60:5.1f} min  {progress(command.out)}", flush=True)
        time.sleep(0.2)


def end_of_log(command, name):
    return (command.out / f"{name}.log").read_text("utf-8", errors="replace")[-3000:]


def write_about(command):
    """Save the options of each system for the results: the two may have run at different times."""
    for name in systems(command):
        about = {
            "threads": command.threads, "alone": command.alone is not None, "rung": command.rung,
            "validate_every": command.validate_every, "minutes": command.minutes,
            "machine": platform.machine(),
        }  # fmt: skip
        about |= {"flags": command.flags, "preset": command.preset} if name == "ours" else {"size": command.peer_size}
        write_atomically(command.out / f"{name}.json", json.dumps(about))


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
    """The checkpoint with the best validation BLEU before a mark, the earlier of equals; None if there is none."""
    written = [record for record in records if "checkpoint" in record and record["seconds"] <= 60 * minutes]
    return max(written, key=lambda record: record["bleu"], default=None)


def last_before(records, minutes):
    """The last record before a mark, with its steps and epochs."""
    return [record for record in records if record["seconds"] <= 60 * minutes][-1]


def finished_systems(command):
    """Systems that have run in this folder."""
    found = [name for name in SYSTEMS if read_records(command.out, name)]
    if not found:
        raise FileNotFoundError(f"{command.out} has no race to score; run without --only score first")
    if "joeynmt" in found and command.peer_python is None:
        raise ValueError(f"{command.out} has a race of JoeyNMT, which needs --peer-python PEER/bin/python to be scored")
    return found


def score(command):
    """Translate the test split with the checkpoint of each mark, each checkpoint once."""
    torch.set_num_threads(command.threads)
    translate = {"ours": translate_with_ours, "joeynmt": translate_with_joeynmt}
    names = finished_systems(command)
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
                predictions = translate[name](command, ours, best["checkpoint"])
                done[best["checkpoint"]] = translation_scores(
                    predictions, list(test[ours["target"]]), ours["lowercase"]
                )
            made = last_before(records, mark["minutes"])
            mark[name] = {"steps": made["steps"], "epochs": made["epochs"], "best": best}
            mark[name]["test"] = done[best["checkpoint"]] if best else None
    return results


def translate_with_ours(command, ours, checkpoint):
    options = {name: ours[name] for name in ("num_beams", "max_length", "lowercase")}
    request = EvaluationRequest(
        checkpoint=str(command.out / "ours" / checkpoint),
        dataset=str(command.out / "data"),
        source=ours["source"],
        target=ours["target"],
        options=options | {"batch_size": ours["per_device_eval_batch_size"]},
    )
    return [row["prediction"] for row in score_checkpoint(request).rows]


def translate_with_joeynmt(command, ours, checkpoint):
    folder = command.out / "joeynmt"
    output = folder / f"{checkpoint}.translated"
    call_peer(command, "translate", folder / "settings.yaml", folder / "model" / checkpoint, output)
    return Path(f"{output}.test").read_text("utf-8").rstrip("\n").split("\n")


def table(results):
    """The marks as a Markdown table, and the signature of the scores."""
    names = list(results["systems"])
    heads = {"ours": "ours", "joeynmt": "JoeyNMT"}
    columns = [f"{heads[name]}: {what}" for name in names for what in ("test BLEU", "validation", "steps", "epochs")]
    lines = ["| minutes | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for mark in results["marks"]:
        cells = [cell for name in names for cell in cells_of(mark[name])]
        lines.append(f"| {mark['minutes']:g} | " + " | ".join(cells) + " |")
    signature = next((mark[name]["test"]["bleu_signature"] for mark in results["marks"] for name in names
                      if mark[name]["test"]), "nothing scored")  # fmt: skip
    return "\n".join([*lines, "", f"Test: beam search, {signature}; in brackets the 95% bootstrap interval."])


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
            write_atomically(command.out / "equal_budget.json", json.dumps(results, indent=2) + "\n")
            print(table(results))
    except (ValueError, FileNotFoundError, RuntimeError) as error:
        sys.exit(f"equal_budget.py: {error}")


if __name__ == "__main__":
    main()
