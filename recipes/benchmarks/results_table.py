"""Print finished runs as Markdown, one table per task: score, interval or seeds, size, time, command, published scores.

    python recipes/benchmarks/results_table.py runs/*                     # one row per command, the best in bold
    python recipes/benchmarks/results_table.py runs/* --score perplexity  # instead of the main score
    python recipes/benchmarks/results_table.py runs/* --check             # exit code 1 if a run is not above its bar

A bar is what counting words reaches on the same rows; the presets of classifiers state it. Runs that differ only in
their seed are one row: their mean, lowest and highest. The split is test if there is one, otherwise validation.
Published scores say how their setting differs.
"""

import argparse
import shlex
import sys
from pathlib import Path

from hf_edu_models.run_folder import RESULTS
from hf_edu_models.training import read_results
from hf_edu_models.training.evaluation import is_better_when_greater

COLUMNS = ("interval or seeds", "parameters", "minutes", "cores", "run")
IN_PERCENT = ("accuracy", "f1", "exact_match", "mlm_accuracy", "nsp_accuracy")
DECIMALS = {"bleu": 1, "perplexity": 2, "word_perplexity": 1}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="folders of runs; those that are not finished are skipped")
    parser.add_argument("--score", nargs="+", help="names of scores; the main score of each run by default")
    parser.add_argument("--check", action="store_true", help="fail if a run is not above the bar of its preset")
    return parser.parse_args()


def below_the_bar(folder: Path, results: dict) -> str | None:
    """A sentence if a run is not above the bar of its preset; None if it is, or if its preset has none."""
    bar = results.get("bar")
    score = results["scores"].get(bar["split"], {}).get(bar["metric"]) if bar else None
    if score is None or score > bar["score"]:
        return None
    shown = " against ".join(_format(bar["metric"], each) for each in (score, bar["score"]))
    return f"{folder}: {bar['split']} {bar['metric']} {shown} of {bar['system']}; the run is not above its bar"


def tables(runs: list[dict], scores: list[str] | None = None) -> str:
    """A table per data set and score, in the order of the runs."""
    tasks: dict[tuple, dict[str, list[dict]]] = {}
    for results in runs:
        for score in scores or [results["main_score"]]:
            split, found = _split(results)
            if score in found:
                commands = tasks.setdefault((_data(results["data"]), split, score), {})
                commands.setdefault(without_seed(results["command"]), []).append(results)
    return "\n\n".join(table(*task, list(commands.values())) for task, commands in tasks.items())


def table(data: str, split: str, score: str, groups: list[list[dict]]) -> str:
    """One row per command, then the published scores, whose setting is another."""
    columns = ("model", score, *COLUMNS)
    best = (max if is_better_when_greater(score) else min)(_mean(runs, score) for runs in groups)
    rows = [row(runs, score, best) for runs in groups]
    published = {each["system"]: each for runs in groups for each in runs[0]["published"] if each["metric"] == score}
    rows += [
        [f"published: {name}", _format(score, each["score"]), "-", "-", "-", "-", _setting(each)]
        for name, each in published.items()
    ]
    bars = {each["bar"]["system"]: each["bar"] for runs in groups for each in runs if each.get("bar")}
    rows += [
        [f"bar: {name}", _format(score, each["score"]), "-", "0", "-", "-", f"{each['data']}, {each['split']}"]
        for name, each in bars.items()
        if each["metric"] == score
    ]
    lines = [f"#### {data}, {split}", "", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join(lines + [f"| {' | '.join(cells)} |" for cells in rows])


def row(runs: list[dict], score: str, best: float) -> list[str]:
    first, mean = runs[0], _mean(runs, score)
    return [
        f"`{first['model_type']}`",
        f"**{_format(score, mean)}**" if mean == best else _format(score, mean),
        _interval(runs, score),
        f"{first['parameters']:,}",
        " / ".join(f"{each['seconds'] / 60:.0f}" for each in runs),
        str(first["machine"]["threads"] * first["machine"]["processes"]),
        f"<details><summary>command</summary><code>{without_seed(first['command'])}</code></details>",
    ]


def _mean(runs: list[dict], score: str) -> float:
    return sum(_split(each)[1][score] for each in runs) / len(runs)


def _setting(published: dict) -> str:
    return f"not like for like: {published['note']}" if published["note"] else published["source"]


def _data(data: dict) -> str:
    return f"{data['name']} {data['source']}-{data['target']}" if "source" in data else data["name"]


def without_seed(command: str) -> str:
    words = shlex.split(command)
    while "--seed" in words:
        index = words.index("--seed")
        del words[index : index + 2]
    return shlex.join(words)


def _split(results: dict) -> tuple[str, dict]:
    split = "test" if "test" in results["scores"] else "validation"
    return split, results["scores"][split]


def _interval(runs: list[dict], score: str) -> str:
    """The bootstrap interval of one run; the lowest and highest score of several."""
    if len(runs) == 1:
        interval, seeds = _split(runs[0])[1].get(f"{score}_interval"), f"seed {runs[0]['seed']}"
    else:
        values = [_split(each)[1][score] for each in runs]
        interval, seeds = (min(values), max(values)), f"seeds {', '.join(str(each['seed']) for each in runs)}"
    shown = "-" if interval is None else f"{_format(score, interval[0])} to {_format(score, interval[1])}"
    return f"{shown} ({seeds})"


def _format(score: str, value: float) -> str:
    """Fractions as percentages; those of SQuAD are from 0 to 100 already."""
    if score in IN_PERCENT:
        return f"{value if value > 1 else 100 * value:.1f}%"
    return f"{value:.{DECIMALS.get(score, 3)}f}"


def main():
    args = parse_arguments()
    finished = [folder for folder in map(Path, args.runs) if (folder / RESULTS).is_file()]
    if not finished:
        raise SystemExit(f"no finished run in {' '.join(args.runs)}; a finished run has a {RESULTS}")
    runs = {folder: read_results(folder) for folder in finished}
    print(tables(list(runs.values()), args.score))
    if args.check:
        problems = [problem for folder, results in runs.items() if (problem := below_the_bar(folder, results))]
        compared = sum(bool(results.get("bar")) for results in runs.values())
        print("\n".join([*problems, f"{compared} of {len(runs)} runs have a bar; {len(problems)} are not above it"]))
        sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
