"""Speed of a training step at the sizes of the presets, with and without `cpu_kernels`, and its share of the peak.

    python recipes/benchmarks/bench_training.py                              # every rung, a minute or two
    python recipes/benchmarks/bench_training.py --rungs bert gpt --rounds 15

A step is a forward pass, a backward pass and an update of fused AdamW, on one batch of the preset's size, not padded.
"MKL" is torch as it is; "chosen" uses what the probe of `cpu_kernels` chose on this machine, and "bf16" also
`--mixed_precision bf16`. They take turns on the same model, and the medians of their CPU time are compared. "share" is
the FLOP/s of the step's matrix products, divided by the FLOP/s of one large product with the best float32 kernel that
torch has here, MKL's or oneDNN's.
"""

import argparse
import json
from functools import partial

import torch
from interleaved import machine, matrix_peaks, medians, with_kernels
from torch.utils.flop_counter import FlopCounterMode

import hf_edu_models
from hf_edu_models import cpu_kernels
from hf_edu_models.training import configure_malloc, load_preset

RUNGS = {  # head, preset, section
    "feedforward": ("EduFeedForwardForCausalLM", "wikitext", "feedforward"),
    "recurrent": ("EduRecurrentForCausalLM", "wikitext", "recurrent"),
    "seq2seq": ("EduSeq2SeqForConditionalGeneration", "multi30k", "seq2seq"),
    "bahdanau": ("EduBahdanauForConditionalGeneration", "multi30k", "bahdanau"),
    "transformer": ("EduTransformerForConditionalGeneration", "multi30k", "transformer"),
    "gpt": ("EduGPTForCausalLM", "wikitext", "gpt"),
    "bert": ("EduBertForPreTraining", "wikitext", "bert_pretrain"),
}
CAPTION = 16  # tokens of a caption of Multi30k


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rungs", nargs="+", choices=tuple(RUNGS), default=tuple(RUNGS))
    parser.add_argument("--cpu-kernels", default="auto", help="auto or a choice that a run has saved")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", help="also write the figures to this file")
    return parser.parse_args()


def build(rung, **changes):
    """The model of a rung's preset, and its settings."""
    name, preset, section = RUNGS[rung]
    head, (settings, _) = getattr(hf_edu_models, name), load_preset(preset, section)
    torch.manual_seed(0)
    config = head.config_class(vocab_size=settings["vocab_size"], **(settings["model"] | changes))
    return head(config).train(), settings


def make_batch(model, settings):
    if "max_tokens" in settings:
        rows, length = settings["max_tokens"] // CAPTION, CAPTION
    else:
        rows, length = settings["per_device_train_batch_size"], settings["max_length"]
    draw = torch.Generator().manual_seed(0)
    ids, targets = torch.randint(5, settings["vocab_size"], (2, rows, length), generator=draw)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    if model.config.is_encoder_decoder:
        batch["labels"] = targets
    elif "Bert" in type(model).__name__:
        is_masked = torch.rand(ids.shape, generator=draw) < 0.15
        batch |= {"labels": ids.masked_fill(~is_masked, -100), "next_sentence_label": ids[:, 0] % 2}
    return batch


def count_flops(rung):
    """Of the matrix products of one step; those of torch's fused recurrent layers are counted in the eager form."""
    fields = ("recurrent_implementation", "attn_implementation")
    config_class = getattr(hf_edu_models, RUNGS[rung][0]).config_class
    changes = {field: "eager" for field in fields if hasattr(config_class(), field)}
    model, settings = build(rung, **changes)
    with FlopCounterMode(display=False) as counter:
        model(**make_batch(model, settings)).loss.backward()
    return counter.get_total_flops()


def measure(rung, choice, rounds):
    model, settings = build(rung)
    batch, optimizer = make_batch(model, settings), torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(is_mixed=False):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_mixed):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    kernels = {"MKL": "off", "chosen": choice, "bf16": choice}
    steps = {name: with_kernels(kernels[name], partial(step, name == "bf16")) for name in kernels}
    return medians(steps, rounds)


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    configure_malloc()  # as every recipe does
    with cpu_kernels.enabled(args.cpu_kernels) as choice:
        pass
    print(machine(choice))
    peaks = matrix_peaks(dict.fromkeys(["off", "onednn:0,0,0" if cpu_kernels.is_available() else "off"]))
    best = max(peaks.values())
    print("peak: " + ", ".join(f"{name.partition(':')[0]} {peak:.0f} GFLOP/s" for name, peak in peaks.items()))
    results = []
    for rung in args.rungs:
        seconds, flops = measure(rung, choice, args.rounds), count_flops(rung)
        shares = {name: flops / value / 1e9 / best for name, value in seconds.items()}
        results.append({"rung": rung, "seconds": seconds, "shares": shares, "peaks": peaks, "kernels": choice})
        times = "   ".join(f"{name} {value * 1e3:6.1f} ms" for name, value in seconds.items())
        ratios = " ".join(f"{seconds['MKL'] / seconds[name]:5.2f}x" for name in ("chosen", "bf16"))
        print(f"{rung:12} {times}   {ratios}   share {shares['MKL']:4.0%} -> {shares['chosen']:4.0%}", flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
