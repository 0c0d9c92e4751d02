"""How the cost of a training step grows with the length of the texts and with the size of the batch, rung by rung.

    python recipes/benchmarks/bench_scaling.py --rounds 3 --picture scaling.png     # some minutes on one core
    python recipes/benchmarks/bench_scaling.py --rungs gpt bert --lengths 64 256    # a part of it

A step is a forward pass, a backward pass and one of fused AdamW. The lengths (then the batches) of a rung take turns,
one round after another, and their medians are compared, so that a noisy machine disturbs all of them alike. All rungs
have the same hidden size, vocabulary and, where they have layers, number of layers on each side (bahdanau's decoder has
one); nothing is padded; a rung that translates reads and writes as many words. The rungs with self-attention are
measured with `sdpa` and with `eager`. No attention weights are dropped: on a CPU, torch's `sdpa` with dropout holds all
of them (`--attention-dropout 0.1` shows it). The recurrent rungs run in their fused form.

"cost a token" is time over length times batch, as a ratio to the smallest: 1 throughout is linear growth. "exponent" is
the slope on logarithmic axes of a whole step's time (1 is linear, 2 quadratic), fitted to all sizes, and behind it that
of the last two alone: small steps have costs that do not grow, such as the optimizer's. Memory is told in the same way;
it is what bench_transformer.py calls so: the most that torch held at once above weights, optimizer and batch.
"""

import argparse
import json
import math
import os
import statistics
from dataclasses import asdict, dataclass, field
from functools import partial

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler, read as torch is loaded: no line a measurement

import torch
from bench_transformer import Contest, train_step

import hf_edu_models
from hf_edu_models.explain.figure_style import (
    INK,
    check_picture_path,
    colour,
    marker,
    new_figure,
    note,
    save_figure,
)
from hf_edu_models.training import keep_freed_memory

RUNGS = {
    "feedforward": "EduFeedForwardForCausalLM",
    "recurrent": "EduRecurrentForCausalLM",
    "seq2seq": "EduSeq2SeqForConditionalGeneration",
    "bahdanau": "EduBahdanauForConditionalGeneration",
    "transformer": "EduTransformerForConditionalGeneration",
    "gpt": "EduGPTForCausalLM",
    "bert": "EduBertForMaskedLM",
}
WITH_ATTENTION = ("transformer", "gpt", "bert")
MASKED = 0.15  # share of BERT's words that are to be found
HEAD_SIZE = 64
DASHES = {"sdpa": "-", "eager": "--", None: "-"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rungs", nargs="+", choices=tuple(RUNGS), default=tuple(RUNGS))
    parser.add_argument("--attention", nargs="+", choices=("sdpa", "eager"), default=("sdpa", "eager"))
    parser.add_argument("--lengths", type=int, nargs="*", default=(64, 128, 256, 512, 1024))
    parser.add_argument("--batches", type=int, nargs="*", default=(1, 4, 16, 64))
    parser.add_argument("--batch", type=int, default=2, help="texts in a batch while lengths are compared")
    parser.add_argument("--length", type=int, default=64, help="length of the texts while batches are compared")
    parser.add_argument("--hidden", type=int, default=256, help="a multiple of 64, the size of a head")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--attention-dropout", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--picture", help="also draw them, to a file that ends in .png or .svg")
    return parser.parse_args()


@dataclass
class Growth:
    """What one step of a rung costs at each size.

    Args:
        axis: what grows, "length" or "batch".
        attention: "sdpa" or "eager"; None for a rung without self-attention.
        memory: bytes.
    """

    rung: str
    attention: str | None
    axis: str
    sizes: list[int]
    seconds: list[float]
    memory: list[int]
    cost_a_token: list[float] = field(init=False)
    memory_a_token: list[float] = field(init=False)
    exponents: dict = field(init=False)

    def __post_init__(self):
        self.cost_a_token, self.memory_a_token = a_token(self.sizes, self.seconds), a_token(self.sizes, self.memory)
        measured = {"seconds": self.seconds, "memory": self.memory}
        self.exponents = {
            name: {"all": exponent(self.sizes, values), "last": exponent(self.sizes[-2:], values[-2:])}
            for name, values in measured.items()
        }

    @property
    def name(self):
        return self.rung if self.attention is None else f"{self.rung}, {self.attention}"


def a_token(sizes, values):
    """What a token costs, as a ratio to the smallest size; the other size is the same throughout."""
    return [value / size * sizes[0] / values[0] for size, value in zip(sizes, values, strict=True)]


def exponent(sizes, values):
    """The p of `value = c size^p` that fits best; none for one size."""
    if len(sizes) < 2:
        return None
    return statistics.linear_regression(list(map(math.log, sizes)), list(map(math.log, values))).slope


def settings_of(args, rung):
    size = args.hidden
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    common = {"vocab_size": args.vocab, "hidden_size": size, "dropout": 0.1, **special}
    if rung == "feedforward":  # a window of four words is as wide as the hidden layer
        return common | {"embedding_size": size // 4, "window_size": 4}
    if rung == "bahdanau":
        return common | {"embedding_size": size, "maxout_size": size, "num_hidden_layers": args.layers}
    common["num_hidden_layers"] = args.layers
    if rung not in WITH_ATTENTION:
        return common | {"cell_type": "lstm", "embedding_size": size}
    heads = {"num_attention_heads": size // HEAD_SIZE, "intermediate_size": 4 * size}
    longest = max(args.length, *args.lengths)
    return common | heads | {"attention_dropout": args.attention_dropout, "max_position_embeddings": longest}


def build(args, rung, attention):
    """A rung's model and the step that trains it."""
    head = getattr(hf_edu_models, RUNGS[rung])
    torch.manual_seed(0)
    chosen = {} if attention is None else {"attn_implementation": attention}
    model = head._from_config(head.config_class(**settings_of(args, rung)), **chosen)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return model, partial(update, optimizer=optimizer)


def update(model, batch, optimizer):
    train_step(model, batch)
    optimizer.step()


def make_batch(args, rung, length, batch):
    generator = torch.Generator().manual_seed(length)
    ids, target = torch.randint(5, args.vocab, (2, batch, length), generator=generator)
    labels = ids
    if rung in ("seq2seq", "bahdanau", "transformer"):
        labels = target
    elif rung == "bert":
        labels = ids.masked_fill(torch.rand(ids.shape, generator=generator) >= MASKED, -100)
        labels[:, 0] = ids[:, 0]  # at least one
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def measure(args, rung, attention, axis):
    """One rung at every size: medians over interleaved rounds, then the memory."""
    model, step = build(args, rung, attention)
    sizes = sorted(args.lengths if axis == "length" else args.batches)
    shapes = [(size, args.batch) if axis == "length" else (args.length, size) for size in sizes]
    contests = [Contest(step, {"ours": model}, [make_batch(args, rung, *shape)]) for shape in shapes]
    times = [[] for _ in contests]
    for number in range(args.rounds + 1):  # the first round warms up
        for contest, values in zip(contests, times, strict=True):
            seconds = contest.seconds("ours")
            if number:
                values.append(seconds)
    medians = [statistics.median(values) for values in times]
    return Growth(rung, attention, axis, sizes, medians, [contest.memory("ours") for contest in contests])


def measure_all(args):
    found = []
    for axis, sizes in (("length", args.lengths), ("batch", args.batches)):
        if not sizes:
            continue
        fixed = f"batch {args.batch}" if axis == "length" else f"length {args.length}"
        print(f"\n{axis} {', '.join(map(str, sorted(sizes)))}; {fixed}")
        for rung in args.rungs:
            for attention in args.attention if rung in WITH_ATTENTION else (None,):
                found.append(measure(args, rung, attention, axis))
                print_growth(found[-1])
    return found


def print_growth(growth):
    """Ratios, and the largest size's own figures."""
    for name, ratios, largest in (
        ("seconds", growth.cost_a_token, f"{growth.seconds[-1] * 1e3:.0f} ms"),
        ("memory", growth.memory_a_token, f"{growth.memory[-1] / 2**20:.0f} MiB"),
    ):
        said = "  ".join(f"{ratio:5.2f}" for ratio in ratios)
        exponents = growth.exponents[name]
        slopes = "" if exponents["all"] is None else f"exponent {exponents['all']:4.2f} ({exponents['last']:4.2f})   "
        what = "cost" if name == "seconds" else "memory"
        title = growth.name if name == "seconds" else ""
        print(f"{title:18} {what:6} a token {said}   {slopes}largest {largest}", flush=True)


def draw(args, found):
    """Cost and memory of a token on logarithmic axes, a row for what grows, a line for each rung."""
    axes_names = list(dict.fromkeys(growth.axis for growth in found))
    figure, panels = new_figure(11, 4.6 * len(axes_names), rows=len(axes_names), columns=2)
    panels = panels.reshape(len(axes_names), 2)
    for name, row in zip(axes_names, panels, strict=True):
        own = [growth for growth in found if growth.axis == name]
        fixed = f"batch of {args.batch}" if name == "length" else f"length {args.length}"
        for axis, what in zip(row, ("cost", "memory"), strict=True):
            draw_panel(axis, own, what)
            axis.set_title(f"{what} of a token by {name}, {fixed}".capitalize())
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right upper", frameon=False, handlelength=3.5)
    sizes = f"hidden {args.hidden}, {args.layers} layers, vocabulary {args.vocab:,}"
    note(figure, f"Training step, {sizes}, {args.threads} thread(s), torch {torch.__version__}; smallest size = 1.")
    return figure


def draw_panel(axis, found, what):
    for growth in found:
        number = list(RUNGS).index(growth.rung)
        look = {"color": colour(number), "marker": marker(number), "linestyle": DASHES[growth.attention]}
        ratios = growth.cost_a_token if what == "cost" else growth.memory_a_token
        axis.plot(growth.sizes, ratios, lw=1.8, markersize=5, label=growth.name, **look)
    axis.axhline(1, color=INK, lw=0.8, zorder=1)
    for which in ("x", "y"):
        getattr(axis, f"set_{which}scale")("log", base=2)
        getattr(axis, f"{which}axis").set_major_formatter(lambda value, place: f"{value:g}")
    low, high = axis.get_ylim()
    axis.set_ylim(min(low, 0.45), max(high, 2.2))  # at least two ticks beside the 1
    axis.set_xticks(found[0].sizes)
    axis.set_xlabel("tokens in a text" if found[0].axis == "length" else "texts in a batch")
    axis.set_ylabel(f"{what} of a token, smallest = 1")


def check(args):
    """Refuse before the work, not after it."""
    if args.hidden % HEAD_SIZE:
        raise SystemExit(f"--hidden {args.hidden} cannot be split into heads of {HEAD_SIZE}; choose a multiple")
    if not args.lengths and not args.batches:
        raise SystemExit("--lengths and --batches are both empty; give sizes to at least one of them")
    if args.picture:
        try:
            check_picture_path(args.picture)
        except ValueError as problem:
            raise SystemExit(str(problem)) from None


def main():
    args = parse_arguments()
    check(args)
    torch.set_num_threads(args.threads)
    keep_freed_memory()  # as every recipe does
    print(
        f"torch {torch.__version__}, {args.threads} thread(s), hidden {args.hidden}, {args.layers} layers, "
        f"vocabulary {args.vocab}; ratios to the smallest size, exponent 1 is linear"
    )
    found = measure_all(args)
    if args.json:
        with open(args.json, "w") as file:
            json.dump([asdict(growth) for growth in found], file, indent=2)
    if args.picture:
        save_figure(draw(args, found), args.picture)


if __name__ == "__main__":
    main()
