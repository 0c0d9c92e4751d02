"""How time and memory of a training step grow with sequence length and batch size, for every rung.

    python recipes/benchmarks/bench_scaling.py --rounds 3 --picture scaling.png     # some minutes on one core
    python recipes/benchmarks/bench_scaling.py --rungs gpt bert --lengths 64 256    # some of it

A step is a forward pass, a backward pass and an update of fused AdamW. The lengths (then the batch sizes) of a rung are
interleaved and the medians of their CPU time compared, so that other work on the machine affects all of them alike. All
rungs have the same hidden size, vocabulary and number of layers (bahdanau's decoder has one); there is no padding;
source and target have the same length. The rungs with self-attention are measured with `sdpa` and with `eager`.
Attention dropout is off: on a CPU, torch's `sdpa` with dropout materialises all weights (`--attention-dropout 0.1`
shows it). The recurrent rungs run their fused implementation.

"cost a token" is time divided by length times batch size, as a ratio to the smallest size: 1 throughout is linear
growth. "exponent" is the slope of a step's time on logarithmic axes (1 is linear, 2 quadratic), fitted to all sizes,
and in brackets to the last two alone: small steps have constant costs, such as the optimizer's. Memory is reported in
the same way; as in bench_transformer.py it is the peak of torch's allocator above weights, optimizer and batch.
"resident" is by how much the process itself grows: torch does not count a heap whose free parts are too small to use.
Where the process grows by more than twice what torch counts at the largest size, and by 256 MiB, the script says so
and exits with 1.
"""

import argparse
import json
import math
import os
import statistics
from dataclasses import asdict, dataclass, field
from functools import partial

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler, read on import of torch: no line per measurement

import torch
from bench_transformer import Comparison, train_step
from interleaved import machine, medians, resident_growth

import hf_edu_models
from hf_edu_models import cpu_kernels
from hf_edu_models.plotting import (
    INK,
    add_caption,
    check_picture_path,
    colour,
    marker,
    new_figure,
    save_figure,
)
from hf_edu_models.training import configure_malloc

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
MASKED = 0.15  # fraction of BERT's tokens to predict
HEAD_SIZE = 64
MOST_RESIDENT = 2.0  # times what torch counts,
SLACK = 2**28  # and so many bytes more: small models are below what an allocator keeps
DASHES = {"sdpa": "-", "eager": "--", None: "-"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rungs", nargs="+", choices=tuple(RUNGS), default=tuple(RUNGS))
    parser.add_argument("--attention", nargs="+", choices=("sdpa", "eager"), default=("sdpa", "eager"))
    parser.add_argument("--lengths", type=int, nargs="*", default=(64, 128, 256, 512, 1024))
    parser.add_argument("--batches", type=int, nargs="*", default=(1, 4, 16, 64))
    parser.add_argument("--batch", type=int, default=2, help="batch size while lengths are compared")
    parser.add_argument("--length", type=int, default=64, help="sequence length while batch sizes are compared")
    parser.add_argument("--hidden", type=int, default=256, help="a multiple of 64, the size of a head")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--attention-dropout", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--picture", help="also draw them to a .png or .svg file")
    return parser.parse_args()


@dataclass
class Growth:
    """Time and memory of one step of a rung at each size.

    Args:
        axis: What grows, "length" or "batch".
        attention: "sdpa" or "eager"; None for a rung without self-attention.
        memory: In bytes, as torch counts it.
        resident: Bytes by which the process grows; None where the system does not count them.
    """

    rung: str
    attention: str | None
    axis: str
    sizes: list[int]
    seconds: list[float]
    memory: list[int]
    resident: list[int | None]
    cost_a_token: list[float] = field(init=False)
    memory_a_token: list[float] = field(init=False)
    exponents: dict = field(init=False)

    def __post_init__(self):
        self.cost_a_token, self.memory_a_token = a_token(self.sizes, self.seconds), a_token(self.sizes, self.memory)
        measured = {"seconds": self.seconds, "memory": self.memory}
        if None not in self.resident:
            measured["resident"] = [max(size, 1) for size in self.resident]
        self.exponents = {
            name: {"all": exponent(self.sizes, values), "last": exponent(self.sizes[-2:], values[-2:])}
            for name, values in measured.items()
        }

    @property
    def is_fragmented(self):
        """Whether the process grows by far more than torch counts."""
        resident, counted = self.resident[-1], self.memory[-1]
        return resident is not None and resident > max(MOST_RESIDENT * counted, counted + SLACK)

    @property
    def name(self):
        return self.rung if self.attention is None else f"{self.rung}, {self.attention}"


def a_token(sizes, values):
    """Value per token, as a ratio to the smallest size."""
    return [value / size * sizes[0] / values[0] for size, value in zip(sizes, values, strict=True)]


def exponent(sizes, values):
    """Least-squares p of `value = c size^p`; None for one size."""
    if len(sizes) < 2:
        return None
    return statistics.linear_regression(list(map(math.log, sizes)), list(map(math.log, values))).slope


def config_fields(args, rung):
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
    """The model of a rung and its training step."""
    head = getattr(hf_edu_models, RUNGS[rung])
    torch.manual_seed(0)
    chosen = {} if attention is None else {"attn_implementation": attention}
    model = head._from_config(head.config_class(**config_fields(args, rung)), **chosen)
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
    """Medians of one rung over interleaved rounds at every size, then the memory."""
    model, step = build(args, rung, attention)
    sizes = sorted(args.lengths if axis == "length" else args.batches)
    shapes = [(size, args.batch) if axis == "length" else (args.length, size) for size in sizes]
    comparisons = [Comparison(step, {"ours": model}, [make_batch(args, rung, *shape)]) for shape in shapes]
    runs = [partial(comparison.run, "ours") for comparison in comparisons]
    seconds = list(medians(dict(enumerate(runs)), args.rounds).values())
    memory = [comparison.memory("ours") for comparison in comparisons]
    return Growth(rung, attention, axis, sizes, seconds, memory, [resident_growth(run) for run in runs])


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
    """Print the ratios, and the time and memory of the largest size."""
    rows = [
        ("seconds", growth.cost_a_token, f"{growth.seconds[-1] * 1e3:.0f} ms"),
        ("memory", growth.memory_a_token, f"{growth.memory[-1] / 2**20:.0f} MiB"),
    ]
    if "resident" in growth.exponents:
        ratios = a_token(growth.sizes, [max(size, 1) for size in growth.resident])
        rows.append(("resident", ratios, f"{growth.resident[-1] / 2**20:.0f} MiB"))
    for name, ratios, largest in rows:
        line = "  ".join(f"{ratio:5.2f}" for ratio in ratios)
        exponents = growth.exponents[name]
        slopes = "" if exponents["all"] is None else f"exponent {exponents['all']:4.2f} ({exponents['last']:4.2f})   "
        what = "cost" if name == "seconds" else name
        title = growth.name if name == "seconds" else ""
        print(f"{title:18} {what:8} a token {line}   {slopes}largest {largest}", flush=True)


def draw(args, found):
    """Cost and memory of a token on logarithmic axes: one row per axis, one line per rung."""
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
    add_caption(
        figure, f"Training step, {sizes}, {args.threads} thread(s), torch {torch.__version__}; smallest size = 1."
    )
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
        getattr(axis, f"{which}axis").set_major_formatter(lambda value, position: f"{value:g}")
    low, high = axis.get_ylim()
    axis.set_ylim(min(low, 0.45), max(high, 2.2))  # at least two ticks besides 1
    axis.set_xticks(found[0].sizes)
    axis.set_xlabel("tokens in a text" if found[0].axis == "length" else "texts in a batch")
    axis.set_ylabel(f"{what} of a token, smallest = 1")


def check(args):
    """Raise errors before the measurements, not after them."""
    if args.hidden % HEAD_SIZE:
        raise SystemExit(f"--hidden {args.hidden} cannot be split into heads of {HEAD_SIZE}; choose a multiple")
    if not args.lengths and not args.batches:
        raise SystemExit("--lengths and --batches are both empty; give sizes to at least one of them")
    if args.picture:
        try:
            check_picture_path(args.picture)
        except ValueError as error:
            raise SystemExit(str(error)) from None


def main():
    args = parse_arguments()
    check(args)
    torch.set_num_threads(args.threads)
    configure_malloc()  # as every recipe does
    with cpu_kernels.enabled() as choice:
        print(
            f"{machine(choice)}, hidden {args.hidden}, {args.layers} layers, vocabulary {args.vocab}; "
            "ratios to the smallest size, exponent 1 is linear"
        )
        found = measure_all(args)
    fragmented = [f"{growth.name} by {growth.axis}" for growth in found if growth.is_fragmented]
    if fragmented:
        print(f"the process grows by more than {MOST_RESIDENT:g} times what torch counts: {', '.join(fragmented)}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump([asdict(growth) for growth in found], file, indent=2)
    if args.picture:
        save_figure(draw(args, found), args.picture)
    if fragmented:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
