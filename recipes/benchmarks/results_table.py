"""Print finished runs as a Markdown table: score, interval, size, time, cores, seeds, command, published scores.

    python recipes/benchmarks/results_table.py runs/*                     # one row per command
    python recipes/benchmarks/results_table.py runs/* --score perplexity  # instead of the main score

Runs that differ only in their seed are one row: their mean, lowest and highest. The split is test if there is one,
otherwise validation.
"""

import argparse
import shlex
from pathlib import Path

from hf_edu_models.run_folder import RESULTS
from hf_edu_models.training import read_results

COLUMNS = ("model", "data", "score", "interval", "parameters", "minutes", "cores", "seed", "command", "published")
IN_PERCENT = ("accuracy", "f1", "exact_match", "mlm_accuracy", "nsp_accuracy")
DECIMALS = {"bleu": 1, "perplexity": 2, "word_perplexity": 1}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="folders of runs; those that are not finished are skipped")
    parser.add_argument("--score", nargs="+", help="names of scores; the main score of each run by default")
    return parser.parse_args()


def table(runs: list[dict], scores: list[str] | None = None) -> str:
    """One row per command and score, in the order of the runs."""
    groups: dict[tuple, list[dict]] = {}
    for results in runs:
        for score in scores or [results["main_score"]]:
            if score in _split(results)[1]:
                groups.setdefault((without_seed(results["command"]), score), []).append(results)
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    return "\n".join(lines + [f"| {' | '.join(row(found, score))} |" for (_, score), found in groups.items()])


def row(runs: list[dict], score: str) -> list[str]:
    first = runs[0]
    values = [_split(each)[1][score] for each in runs]
    published = [each for each in first["published"] if each["metric"] == score]
    return [
        f"`{first['model_type']}`",
        f"{_data(first['data'])}, {_split(first)[0]}",
        f"{score} {_format(score, sum(values) / len(values))}",
        _interval(runs, score, values),
        f"{first['parameters']:,}",
        " / ".join(f"{each['seconds'] / 60:.0f}" for each in runs),
        str(first["machine"]["threads"] * first["machine"]["processes"]),
        ", ".join(str(each["seed"]) for each in runs),
        f"`{without_seed(first['command'])}`",
        "; ".join(f"{_format(score, each['score'])} ({each['system']})" for each in published) or "-",
    ]


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


def _interval(runs: list[dict], score: str, values: list[float]) -> str:
    """The bootstrap interval of one run; the lowest and highest score of several."""
    interval = _split(runs[0])[1].get(f"{score}_interval") if len(runs) == 1 else (min(values), max(values))
    return "-" if interval is None else f"{_format(score, interval[0])} to {_format(score, interval[1])}"


def _format(score: str, value: float) -> str:
    """Fractions as percentages."""
    if score in IN_PERCENT:
        return f"{100 * value:.1f}%"
    return f"{value:.{DECIMALS.get(score, 3)}f}"


def main():
    args = parse_arguments()
    finished = [folder for folder in map(Path, args.runs) if (folder / RESULTS).is_file()]
    if not finished:
        raise SystemExit(f"no finished run in {' '.join(args.runs)}; a finished run has a {RESULTS}")
    print(table([read_results(folder) for folder in finished], args.score))


if __name__ == "__main__":
    main()
