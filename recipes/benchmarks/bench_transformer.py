"""Speed of the Transformer rungs, as ratios to transformers' own models in the same process.

    python recipes/benchmarks/bench_transformer.py --sizes mini --rounds 3        # a few minutes on one core
    python recipes/benchmarks/bench_transformer.py                                # every size

The rounds of both models are interleaved and the medians of their CPU time compared, so that other work on the machine
affects both alike; both use the kernels that `cpu_kernels` chooses.
Both have the same sizes, random weights, dropout of 0.1 and `sdpa` attention, and get the same batches: BERT's have
uniform lengths from 16 to 128; translation has the lengths of Multi30k's captions, in random order ("shuffled") or
grouped by length ("grouped"). Training is a forward and a backward pass. Ours has label smoothing of 0.1 and Marian has
none; "transformer-smoothing" compares ours with and without.

"memory" is the peak that torch's allocator held during one training step above what was there before it (weights and
batch), gradients included, as its profiler reports it. Workspace inside matrix products is not included.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from interleaved import machine, medians
from torch.profiler import ProfilerActivity, profile
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertModel,
    MarianConfig,
    MarianMTModel,
)

from hf_edu_models import (
    EduBertConfig,
    EduBertForMaskedLM,
    EduBertForPreTraining,
    EduBertModel,
    EduTransformerConfig,
    EduTransformerForConditionalGeneration,
    cpu_kernels,
)

BERT_SIZES = {  # layers, hidden size, heads, batch
    "mini": (4, 256, 4, 32),
    "small": (4, 512, 8, 32),
    "base": (12, 768, 12, 8),
}
TRANSLATION_SIZES = {"mini": (3, 256, 4, 64), "base": (6, 512, 8, 64)}  # layers on each side, hidden size, heads, batch
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu-kernels", default="auto", help="auto, off or a choice that a run has saved")
    parser.add_argument("--rounds", type=int, default=5, help="at size base half as many, but at least three")
    parser.add_argument("--batches", type=int, default=3, help="different batches per round; one at size base")
    parser.add_argument("--bert-vocab", type=int, default=30_522)
    parser.add_argument("--vocab", type=int, default=8000, help="vocabulary size of the translation models")
    parser.add_argument("--new-tokens", type=int, default=20, help="tokens to generate")
    parser.add_argument("--sizes", nargs="+", choices=tuple(BERT_SIZES), default=tuple(BERT_SIZES))
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=tuple(CASES))
    parser.add_argument("--json", help="also write the figures to this file")
    return parser.parse_args()


@dataclass
class Comparison:
    """Two models and their common batches.

    Args:
        step: The function of a model and a batch that is timed.
        models: By name, "ours" first.
    """

    step: Callable
    models: dict
    batches: list
    measures_memory: bool = False

    def run(self, name):
        """One step on every batch."""
        for batch in self.batches:
            self.step(self.models[name], batch)

    def seconds(self, rounds):
        """Median time of one step, by model."""
        found = medians({name: partial(self.run, name) for name in self.models}, rounds)
        return {name: value / len(self.batches) for name, value in found.items()}

    def padding(self):
        """Fraction of padding in the source and, if there is one, the target."""
        masks = [batch["attention_mask"].bool() for batch in self.batches]
        if "decoder_input_ids" in self.batches[0]:
            masks += [batch["labels"] != -100 for batch in self.batches]
        return 1 - sum(mask.sum().item() for mask in masks) / sum(mask.numel() for mask in masks)

    def memory(self, name):
        """Peak bytes of one step on the largest batch."""
        batch = max(self.batches, key=lambda batch: batch["input_ids"].numel())
        self.models[name].zero_grad()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            self.step(self.models[name], batch)
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(trace))
            events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["name"] == "[memory]"]
        held = peak = 0
        for event in sorted(events, key=lambda event: event["ts"]):
            held += event["args"]["Bytes"]
            peak = max(peak, held)
        return peak


def train_step(model, batch):
    model.train()
    model.zero_grad()
    model(**batch).loss.backward()


@torch.no_grad()
def infer_step(model, batch):
    model.eval()
    model(**batch)


def generate_step(model, batch, beams, new_tokens):
    model.eval()
    output = model.generate(
        batch["input_ids"],
        attention_mask=batch["attention_mask"],
        num_beams=beams,
        max_new_tokens=new_tokens,
        do_sample=False,
    )
    if output.shape[1] != new_tokens + 1:
        raise SystemExit(f"{type(model).__name__} generated {output.shape[1] - 1} tokens instead of {new_tokens}")


def pad_to_longest(lengths, vocab, generator):
    """Random token ids and their mask."""
    is_real = torch.arange(int(lengths.max())) < lengths[:, None]
    ids = torch.randint(5, vocab, is_real.shape, generator=generator)
    return ids.masked_fill(~is_real, 0), is_real


def bert_batches(args, size, labelled):
    """Texts of 16 to 128 tokens in two segments, of which 15% are masked."""
    batch_size = BERT_SIZES[size][-1]
    for seed in range(count_batches(args, size)):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(16, 129, (batch_size,), generator=generator)
        ids, is_real = pad_to_longest(lengths, args.bert_vocab, generator)
        is_second = is_real & (torch.arange(ids.shape[1]) >= lengths[:, None] // 2)
        batch = {"input_ids": ids, "attention_mask": is_real.long(), "token_type_ids": is_second.long()}
        if labelled:
            is_masked = is_real & (torch.rand(ids.shape, generator=generator) < 0.15)
            batch["labels"] = ids.masked_fill(~is_masked, -100)
        yield batch


def count_batches(args, size):
    return 1 if size == "base" else args.batches


def bert_models(args, size, ours, theirs):
    layers, hidden, heads, _ = BERT_SIZES[size]
    common = {
        "vocab_size": args.bert_vocab,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
    }
    torch.manual_seed(0)
    our_config = EduBertConfig(dropout=0.1, attention_dropout=0.1, **common)
    their_config = BertConfig(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, **common)
    return {"ours": build(ours, our_config), "transformers": build(theirs, their_config)}


def build(model_class, config):
    return model_class._from_config(config, attn_implementation="sdpa")


def bert_pretraining(args, size):
    batches = list(bert_batches(args, size, labelled=True))
    for seed, batch in enumerate(batches):
        generator = torch.Generator().manual_seed(seed)
        batch["next_sentence_label"] = torch.randint(0, 2, (len(batch["input_ids"]),), generator=generator)
    models = bert_models(args, size, EduBertForPreTraining, BertForPreTraining)
    return Comparison(train_step, models, batches, measures_memory=True)


def bert_masked_lm(args, size):
    batches = list(bert_batches(args, size, labelled=True))
    models = bert_models(args, size, EduBertForMaskedLM, BertForMaskedLM)
    return Comparison(train_step, models, batches, measures_memory=True)


def bert_inference(args, size):
    batches = list(bert_batches(args, size, labelled=False))
    return Comparison(infer_step, bert_models(args, size, EduBertModel, BertModel), batches)


def caption_lengths(number):
    """Lengths of captions and their translations: mean about 13, standard deviation about 5, 4 to 45 tokens."""
    generator = torch.Generator().manual_seed(0)
    shared, *own = torch.randn(3, number, generator=generator)
    spread = torch.stack([0.9 * shared + 0.19**0.5 * alone for alone in own])  # a correlation of 0.81
    return (3.55 + 0.68 * spread).square().round().long().clamp(4, 45)  # sources, targets


def translation_batches(args, size, grouped, batch_size=None):
    batch_size = batch_size or TRANSLATION_SIZES[size][-1]
    lengths = caption_lengths(29_000)
    if grouped:  # by source, then by target
        lengths = lengths[:, (lengths[0] * 100 + lengths[1]).argsort(stable=True)]
    count = count_batches(args, size)
    for seed in range(count):
        # Evenly spread over the data, so that grouped batches are short, medium and long.
        start = int((seed + 0.5) / count * lengths.shape[1]) - batch_size // 2
        source_lengths, target_lengths = lengths[:, start : start + batch_size]
        generator = torch.Generator().manual_seed(seed)
        source, source_is_real = pad_to_longest(source_lengths, args.vocab, generator)
        target, target_is_real = pad_to_longest(target_lengths, args.vocab, generator)
        begin = torch.full_like(target[:, :1], SPECIAL["decoder_start_token_id"])
        yield {
            "input_ids": source,
            "attention_mask": source_is_real.long(),
            "decoder_input_ids": torch.cat([begin, target[:, :-1]], dim=1),
            "labels": target.masked_fill(~target_is_real, -100),
        }


def our_transformer(args, size, label_smoothing=0.1):
    layers, hidden, heads, _ = TRANSLATION_SIZES[size]
    config = EduTransformerConfig(
        vocab_size=args.vocab,
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        attention_bias=True,  # as in Marian
        dropout=0.1,
        label_smoothing=label_smoothing,
        **SPECIAL,
    )
    torch.manual_seed(0)
    return without_eos(build(EduTransformerForConditionalGeneration, config))


def marian(args, size):
    layers, hidden, heads, _ = TRANSLATION_SIZES[size]
    config = MarianConfig(
        vocab_size=args.vocab,
        decoder_vocab_size=args.vocab,
        encoder_layers=layers,
        decoder_layers=layers,
        d_model=hidden,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * hidden,
        decoder_ffn_dim=4 * hidden,
        activation_function="relu",
        dropout=0.1,
        max_position_embeddings=512,
        scale_embedding=True,
        forced_eos_token_id=None,
        **SPECIAL,
    )
    torch.manual_seed(0)
    return without_eos(build(MarianMTModel, config))


def without_eos(model):
    """Every sentence has the full length, in both models."""
    settings = model.generation_config
    settings.eos_token_id = settings.forced_eos_token_id = settings.bad_words_ids = None
    return model


def translation_training(grouped):
    def comparison(args, size):
        models = {"ours": our_transformer(args, size), "marian": marian(args, size)}
        return Comparison(train_step, models, list(translation_batches(args, size, grouped)), measures_memory=True)

    return comparison


def smoothing(args, size):
    models = {"ours": our_transformer(args, size), "unsmoothed": our_transformer(args, size, label_smoothing=0.0)}
    return Comparison(train_step, models, list(translation_batches(args, size, grouped=False)), measures_memory=True)


def translation_generation(beams, batch_size):
    def comparison(args, size):
        models = {"ours": our_transformer(args, size), "marian": marian(args, size)}
        batches = list(translation_batches(args, size, grouped=False, batch_size=batch_size))
        batches = [{name: batch[name] for name in ("input_ids", "attention_mask")} for batch in batches]
        return Comparison(partial(generate_step, beams=beams, new_tokens=args.new_tokens), models, batches)

    return comparison


CASES = {
    "bert-pretrain": (BERT_SIZES, bert_pretraining),
    "bert-mlm": (BERT_SIZES, bert_masked_lm),
    "bert-infer": (BERT_SIZES, bert_inference),
    "transformer-train-shuffled": (TRANSLATION_SIZES, translation_training(grouped=False)),
    "transformer-train-grouped": (TRANSLATION_SIZES, translation_training(grouped=True)),
    "transformer-smoothing": (TRANSLATION_SIZES, smoothing),
} | {
    f"transformer-generate-{name}-{batch_size}": (TRANSLATION_SIZES, translation_generation(beams, batch_size))
    for name, beams in (("greedy", 1), ("beam-5", 5))
    for batch_size in (1, 32, 64)
}


def compare(args):
    """Medians over interleaved rounds, for every case and size."""
    results = []
    for case in args.only:
        sizes, make_comparison = CASES[case]
        for size in args.sizes:
            if size not in sizes:
                continue
            comparison = make_comparison(args, size)
            rounds = max(3, args.rounds // 2) if size == "base" else args.rounds
            seconds = comparison.seconds(rounds)
            row = {"case": case, "size": size, "seconds": seconds, "padding": comparison.padding()}
            if comparison.measures_memory:
                row["memory"] = {name: comparison.memory(name) for name in comparison.models}
            print_row(row)
            results.append(row)
    return results


def print_row(row):
    ours, peer = row["seconds"].values()
    _, name = row["seconds"]
    parts = [f"{row['case']:30} {row['size']:5}  ours {ours * 1e3:8.1f} ms", f"{name:>12} {peer / ours:5.2f}x"]
    parts.append(f"padding {row['padding']:4.0%}")
    if "memory" in row:
        our_bytes, peer_bytes = row["memory"].values()
        parts.append(f"memory: ours {our_bytes / 2**20:6.0f} MiB, {name} {peer_bytes / our_bytes:.2f}x")
    print("   ".join(parts), flush=True)


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    with cpu_kernels.enabled(args.cpu_kernels) as choice:
        print(f"{machine(choice)}; a ratio above 1 means that ours is faster or smaller")
        results = compare(args)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
