"""Speed of `generate()`: ours, transformers' loop around ours, transformers' own model, and CTranslate2.

    python recipes/benchmarks/bench_decode.py                            # the Transformer, 3 + 3 layers of 256
    python recipes/benchmarks/bench_decode.py --model gpt --new-tokens 60
    python recipes/benchmarks/bench_decode.py --size base --rounds 3     # 6 + 6 layers of 512
    python recipes/benchmarks/bench_decode.py --floor                    # what a step of one sentence cannot go below

All have the same random weights and get the same sources, and all write the same number of tokens: no token ends a
sequence. "int8" is our model with `--int8`, "bfloat16" with `--dtype bfloat16`, which our searches leave to
transformers, and "GenerationMixin" our model without our searches. Marian or GPT-2 has our weights (`hf-edu convert`),
and so has CTranslate2 (`--to ctranslate2`), in float32 and with int8 weights. What is not installed is skipped with a
word.
The systems take turns, one round after another, and the medians are compared. Seconds are CPU time of the process, all
threads together: other work on the machine changes it less than the wall time. "same" is the share of output tokens
that are ours.
"""

import argparse
import copy
import statistics
import tempfile
import time
from pathlib import Path

import torch
from interleaved import machine, medians
from tokenizers import Tokenizer, models
from torch import nn
from transformers import PreTrainedTokenizerFast

from hf_edu_models import (
    EduGPTConfig,
    EduGPTForCausalLM,
    EduTransformerConfig,
    EduTransformerForConditionalGeneration,
)
from hf_edu_models.convert import to_transformers
from hf_edu_models.convert.to_ctranslate2 import save_ctranslate2
from hf_edu_models.models.blocks_packed_linear import read_linear
from hf_edu_models.precision import set_precision

SIZES = {"mini": (3, 256, 4), "base": (6, 512, 8), "gpt2": (12, 768, 12)}  # layers, hidden size, heads
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["transformer", "gpt"], default="transformer")
    parser.add_argument("--size", choices=SIZES, default="mini")
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--source-length", type=int, default=20, help="the longest source or prompt; shortest half")
    parser.add_argument("--new-tokens", type=int, default=30)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", help="names of systems")
    parser.add_argument("--floor", action="store_true", help="measure what a step of one sentence reads, and no system")
    return parser.parse_args()


def build_model(args):
    """Of a form that transformers has, too: Marian's norms, biases and sinusoids, or GPT-2's."""
    layers, size, heads = SIZES[args.size]
    sizes = {"hidden_size": size, "num_attention_heads": heads, "num_hidden_layers": layers}
    sizes |= {"vocab_size": args.vocab, "intermediate_size": 4 * size} | SPECIAL
    torch.manual_seed(0)
    if args.model == "gpt":
        model = EduGPTForCausalLM(EduGPTConfig(**sizes, norm_first=True))
    else:
        marian = {"sinusoid_layout": "halves", "attention_bias": True, "decoder_start_token_id": 1}
        model = EduTransformerForConditionalGeneration(EduTransformerConfig(**sizes, **marian))
    return model.eval()


def build_tokenizer(vocab):
    names = {f"<{number}>" if number < 5 else f"t{number}": number for number in range(vocab)}
    tokenizer = Tokenizer(models.WordLevel(names, unk_token="<3>"))
    special = {"pad_token": "<0>", "bos_token": "<1>", "eos_token": "<2>", "unk_token": "<3>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def build_sources(args, batch):
    """Ids and mask; padded on the right, prompts on the left."""
    generator = torch.Generator().manual_seed(batch)
    lengths = torch.randint(args.source_length // 2, args.source_length + 1, (batch,), generator=generator)
    lengths[0] = args.source_length
    positions = torch.arange(args.source_length)
    mask = positions >= args.source_length - lengths[:, None] if args.model == "gpt" else positions < lengths[:, None]
    ids = torch.randint(5, args.vocab, mask.shape, generator=generator)
    return ids * mask, mask.long()


def generate_with(model, args):
    """`generate()` as a function of sources and beams; new tokens alone, one row for each source."""

    def run(ids, mask, beams):
        options = {"num_beams": beams, "max_new_tokens": args.new_tokens, "do_sample": False, "eos_token_id": None}
        output = model.generate(input_ids=ids, attention_mask=mask, **options, pad_token_id=0)
        return output[:, -args.new_tokens :].tolist()

    return run


class WithoutSearch:
    """Our model, with transformers' loop."""

    def __init__(self, model):
        self.model = model

    def generate(self, **inputs):
        self.model.make_stepper = lambda *arguments: None
        try:
            return self.model.generate(**inputs)
        finally:
            del self.model.make_stepper


def engine_systems(model, args, folder):
    """CTranslate2 in both precisions."""
    import ctranslate2

    tokenizer = build_tokenizer(args.vocab)
    name = save_ctranslate2(model, tokenizer, folder)
    for compute_type in ("float32", "int8"):
        engine = getattr(ctranslate2, name)(
            str(folder), device="cpu", compute_type=compute_type, intra_threads=args.threads
        )
        yield f"CTranslate2 {compute_type}", run_engine(engine, tokenizer, args)


def run_engine(engine, tokenizer, args):
    names = tokenizer.convert_ids_to_tokens

    def run(ids, mask, beams):
        rows = [names(row[keep.bool()].tolist()) for row, keep in zip(ids, mask, strict=True)]
        options = {"beam_size": beams, "max_batch_size": len(rows), "end_token": []}
        if args.model == "gpt":
            options |= {"min_length": args.new_tokens, "max_length": args.new_tokens}
            results = engine.generate_batch(rows, **options, include_prompt_in_result=False)
            return [result.sequences_ids[0] for result in results]
        options |= {"min_decoding_length": args.new_tokens, "max_decoding_length": args.new_tokens}
        results = engine.translate_batch(rows, **options)
        return [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]

    return run


def build_systems(args, folder):
    model = build_model(args)
    systems = {"ours": generate_with(model, args), "GenerationMixin": generate_with(WithoutSearch(model), args)}
    systems["ours int8"] = generate_with(set_precision(copy.deepcopy(model), int8=True), args)
    systems["ours bfloat16"] = generate_with(set_precision(copy.deepcopy(model), "bfloat16"), args)
    hf_model = to_transformers(model)
    systems[type(hf_model).__name__] = generate_with(hf_model, args)
    try:
        systems |= engine_systems(model, args, folder)
    except ImportError:
        print("ctranslate2 is not installed: skipped (pip install ctranslate2)")
    return {name: run for name, run in systems.items() if not args.only or name in args.only}


def measure(systems, sources, beams, rounds):
    """CPU seconds of every round, by system, and the outputs."""
    outputs = {name: run(*sources, beams) for name, run in systems.items()}  # a warm-up
    seconds = {name: [] for name in systems}
    for _ in range(rounds):
        for name, run in systems.items():
            start = time.process_time()
            run(*sources, beams)
            seconds[name].append(time.process_time() - start)
    return seconds, outputs


def print_floor(args):
    """Steps per second of one sentence, if a step did nothing but read the float32 weights, or multiply with them."""
    model = build_model(args)
    decoder = model.model if args.model == "gpt" else model.model.decoder
    named = [*decoder.named_modules(), ("lm_head", model.lm_head)]
    linears = [layer for name, layer in named if isinstance(layer, nn.Linear) and not name.endswith(".kv_proj")]
    inputs = [torch.rand(1, layer.in_features) for layer in linears]
    products = list(zip([read_linear(layer, 1) for layer in linears], inputs, strict=True))
    functions = {
        "reading the weights": lambda: [layer.weight.sum() for layer in linears],
        "our products alone": lambda: [function(row) for function, row in products],
        "F.linear alone": lambda: [layer(row) for layer, row in zip(linears, inputs, strict=True)],
    }
    megabytes = sum(layer.weight.numel() for layer in linears) * 4 / 1e6
    print(f"{machine('off')}: {megabytes:.1f} MB of weights in {len(linears)} layers")
    with torch.inference_mode():
        for name, seconds in medians(functions, 20 * args.rounds).items():
            print(f"{name}: {seconds * 1e3:.2f} ms, at most {1 / seconds:,.0f} tokens/s")


def share_equal(rows, others):
    pairs = [pair for row, other in zip(rows, others, strict=True) for pair in zip(row, other, strict=True)]
    return sum(one == other for one, other in pairs) / len(pairs)


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    if args.floor:
        print_floor(args)
        return
    with tempfile.TemporaryDirectory() as folder:
        systems = build_systems(args, Path(folder))
        print("| sentences | beams | system | tokens/s | ours is faster by | same |\n|---:|---:|---|---:|---:|---:|")
        for batch in args.batches:
            sources = build_sources(args, batch)
            for beams in args.beams:
                seconds, outputs = measure(systems, sources, beams, args.rounds)
                medians = {name: statistics.median(times) for name, times in seconds.items()}
                first = next(iter(systems))
                for name, median in medians.items():
                    speed = batch * args.new_tokens / median
                    same = share_equal(outputs[first], outputs[name])
                    ratio = median / medians[first]
                    print(f"| {batch} | {beams} | {name} | {speed:,.0f} | {ratio:.2f}x | {same:.1%} |", flush=True)


if __name__ == "__main__":
    main()
