"""Speed of sentence embeddings: ours, sentence-transformers, ONNX Runtime and OpenVINO, all with the same weights.

    python recipes/benchmarks/bench_encode.py                        # BERT mini, texts of 4 to 64 tokens
    python recipes/benchmarks/bench_encode.py --size minilm --lengths 128 128

From texts to vectors: tokens, batches sorted by length, the model, the mean over the tokens. sentence-transformers runs
transformers' `BertModel` with our weights; ONNX Runtime and OpenVINO run our model, exported. What is not installed is
skipped with a word. The systems take turns, and the medians of their CPU time are compared; what runs in torch uses the
kernels that `cpu_kernels` chooses. "difference" is the largest one from our vectors, whose largest number is about 1.
"""

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from interleaved import machine, medians
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from hf_edu_models import EduBertConfig, EduBertModel, cpu_kernels
from hf_edu_models.convert import to_transformers
from hf_edu_models.convert.export import export_model

SIZES = {"mini": (4, 256, 4), "minilm": (6, 384, 12), "base": (12, 768, 12)}  # layers, hidden size, heads
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="mini")
    parser.add_argument("--lengths", type=int, nargs=2, default=(4, 64), help="tokens of the shortest and longest text")
    parser.add_argument("--texts", type=int, default=96)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu-kernels", default="auto", help="auto, off or a choice that a run has saved")
    parser.add_argument("--json", help="also write the figures to this file")
    return parser.parse_args()


def build(args):
    layers, size, heads = SIZES[args.size]
    torch.manual_seed(0)
    config = EduBertConfig(
        vocab_size=args.vocab,
        hidden_size=size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * size,
        pad_token_id=0,
    )
    words = [*SPECIAL, *(f"w{number}" for number in range(len(SPECIAL), args.vocab))]
    plain = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    plain.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, model_max_length=512, **names)
    return EduBertModel(config).eval(), tokenizer


def make_texts(args):
    draw = np.random.default_rng(0)
    shortest, longest = args.lengths
    lengths = draw.integers(shortest, longest + 1, args.texts) - 2  # [CLS] and [SEP]
    return [" ".join(f"w{number}" for number in draw.integers(5, args.vocab, max(length, 1))) for length in lengths]


def sentence_transformers(model, tokenizer, folder, args):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    to_transformers(model).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    words = Transformer(str(folder))
    pooling = Pooling(words.get_embedding_dimension(), pooling_mode="mean")
    encoder = SentenceTransformer(modules=[words, pooling], device="cpu")
    return partial(encoder.encode, batch_size=args.batch, show_progress_bar=False)


def onnxruntime(model, tokenizer, folder, args):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    session = onnxruntime.InferenceSession(export(model, folder), options, providers=["CPUExecutionProvider"])
    return partial(encode_batches, lambda inputs: session.run(None, inputs)[0], tokenizer, args.batch)


def openvino(model, tokenizer, folder, args, precision):
    import openvino

    settings = {"INFERENCE_NUM_THREADS": args.threads, "INFERENCE_PRECISION_HINT": precision}
    program = openvino.Core().compile_model(export(model, folder), "CPU", settings)
    return partial(encode_batches, lambda inputs: program(inputs)[0], tokenizer, args.batch)


def export(model, folder):
    if not (folder / "model.onnx").exists():
        export_model(model, folder, "onnx")
    return str(folder / "model.onnx")


def encode_batches(run, tokenizer, batch_size, texts):
    """What `encode` does, around a program that takes arrays."""
    rows = tokenizer(texts)["input_ids"]
    order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
    vectors = [None] * len(rows)
    for start in range(0, len(order), batch_size):
        part = order[start : start + batch_size]
        batch = tokenizer.pad({"input_ids": [rows[index] for index in part]}, return_tensors="np")
        mask = batch["attention_mask"][:, :, None]
        hidden = run({name: batch[name] for name in ("input_ids", "attention_mask")})
        for index, vector in zip(part, (hidden * mask).sum(1) / mask.sum(1), strict=True):
            vectors[index] = vector
    return np.stack(vectors)


def ours(model, tokenizer, args):
    return partial(model.encode, tokenizer=tokenizer, batch_size=args.batch, show_progress=False)


def open_systems(args, folder):
    """Functions from texts to vectors, by name; ours first."""
    model, tokenizer = build(args)
    systems = {"ours": ours(model, tokenizer, args)}
    systems["ours, bfloat16"] = ours(build(args)[0].bfloat16(), tokenizer, args)
    peers = {
        "sentence-transformers": sentence_transformers,
        "ONNX Runtime": onnxruntime,
        "OpenVINO": partial(openvino, precision="f32"),
        "OpenVINO, bfloat16": partial(openvino, precision="bf16"),
    }
    for name, open_system in peers.items():
        try:
            systems[name] = open_system(model, tokenizer, folder, args)
        except ImportError as error:
            print(f"{name}: skipped, {error}; pip install 'hf_edu_models[clients]'")
    return systems


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    logging.disable_progress_bar()
    texts, results = make_texts(args), []
    with tempfile.TemporaryDirectory() as folder, cpu_kernels.enabled(args.cpu_kernels) as choice:
        systems = open_systems(args, Path(folder))
        print(
            f"{machine(choice)}; {args.texts} texts of {args.lengths[0]} to {args.lengths[1]} tokens, BERT {args.size}"
        )
        vectors = {name: torch.as_tensor(encode(texts)).float() for name, encode in systems.items()}
        seconds = medians({name: partial(encode, texts) for name, encode in systems.items()}, args.rounds)
    for name, value in seconds.items():
        difference = (vectors[name] - vectors["ours"]).abs().max().item()
        results.append({"system": name, "seconds": value, "ratio": seconds["ours"] / value, "difference": difference})
        rate = f"{args.texts / value:7.0f} texts/s   {results[-1]['ratio']:5.2f}x ours"
        print(f"{name:24} {rate}   difference {difference:.0e}", flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
