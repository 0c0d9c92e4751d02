"""Speed of the recurrent rungs, as ratios to other implementations in the same run.

    python recipes/benchmarks/bench_recurrent.py                                  # ours, and a loop over nn.LSTMCell
    python recipes/benchmarks/bench_recurrent.py --peer-python PEER/bin/python    # JoeyNMT 2.3 as well

PEER is another virtual environment, created with

    pip install torch==2.13.0 && pip install --no-deps joeynmt==2.3.0
    pip install numpy pyyaml packaging matplotlib sacrebleu sacremoses sentencepiece subword-nmt tensorboard \
        datasets importlib_metadata

The rounds of all systems are interleaved and the medians of their CPU time compared, so that other work on the machine
affects all of them alike. Every system has a bidirectional encoder of one layer, additive attention, one decoder layer
and a softmax over the same vocabulary; embeddings, states and scores have the same sizes. The input of the softmax
differs: half of the state in Bahdanau et al. (maxout), all of it in JoeyNMT; `--readout linear --maxout 512` makes ours
as wide. Training is a forward and a backward pass. "share" is the FLOP/s of the matrix products, divided by that of one
large product with the best kernel, MKL's or oneDNN's. `cpu_kernels` chooses the kernels of what runs in this process;
JoeyNMT has torch's own.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

LENGTHS = (14, 30, 60)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="python of an environment that has joeynmt")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--readout", choices=("maxout", "linear"), default="maxout")
    parser.add_argument(
        "--maxout", type=int, help="input size of the softmax; half of --hidden by default, as in the paper"
    )
    parser.add_argument("--cell", choices=("gru", "lstm"), default="gru")
    parser.add_argument("--cpu-kernels", default="auto", help="auto, off or a choice that a run has saved")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=tuple(CASES))
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--serve", choices=("joeynmt",), help=argparse.SUPPRESS)
    return parser.parse_args()


def make_batch(args, length, uneven):
    """Source and target ids with their mask; lengths are `length`, or random from half of it."""
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(4, args.vocab, (2, args.batch, length), generator=generator)
    lengths = torch.full((2, args.batch), length)
    if uneven:
        lengths = torch.randint(length // 2, length + 1, (2, args.batch), generator=generator)
        lengths[:, 0] = length
    is_real = torch.arange(length) < lengths[:, :, None]
    return ids, is_real


class Ours:
    """edu_bahdanau with one of its implementations."""

    def __init__(self, args, implementation):
        from hf_edu_models import EduBahdanauConfig, EduBahdanauForConditionalGeneration

        torch.manual_seed(0)
        size = args.hidden
        config = EduBahdanauConfig(
            vocab_size=args.vocab,
            cell_type=args.cell,
            embedding_size=size,
            hidden_size=size,
            readout=args.readout,
            maxout_size=args.maxout or size // 2,
            recurrent_implementation=implementation,
        )
        self.model = EduBahdanauForConditionalGeneration(config)
        self.model.generation_config.eos_token_id = None  # every sentence has the full length, as in JoeyNMT

    def train(self, ids, is_real):
        self.model.train()
        labels = ids[1].masked_fill(~is_real[1], -100)
        self.model.zero_grad()
        self.model(input_ids=ids[0], attention_mask=is_real[0].long(), labels=labels).loss.backward()

    def decode(self, ids, is_real, beams):
        self.model.eval()
        length = ids.shape[-1]
        self.model.generate(
            ids[0],
            attention_mask=is_real[0].long(),
            num_beams=beams,
            max_new_tokens=length,
            do_sample=False,
        )


class Naive(nn.Module):
    """As in tutorials: a loop over `nn.LSTMCell`, with attention and logits at every step."""

    def __init__(self, args):
        super().__init__()
        torch.manual_seed(0)
        size = args.hidden
        self.source_embed, self.target_embed = nn.Embedding(args.vocab, size), nn.Embedding(args.vocab, size)
        self.encoder = nn.LSTM(size, size, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * size, size)
        self.cell = nn.LSTMCell(3 * size, size)
        self.query, self.key, self.energy = nn.Linear(size, size), nn.Linear(2 * size, size), nn.Linear(size, 1)
        self.output = nn.Linear(4 * size, args.vocab)

    def train_step(self, ids, is_real):
        states, (hidden, _) = self.encoder(self.source_embed(ids[0]))
        hidden = torch.tanh(self.bridge(torch.cat(list(hidden), dim=-1)))
        cell, logits = torch.zeros_like(hidden), []
        for step in self.target_embed(ids[1]).unbind(1):
            scores = self.energy(torch.tanh(self.query(hidden)[:, None] + self.key(states))).squeeze(-1)
            weights = scores.masked_fill(~is_real[0], float("-inf")).softmax(-1)
            context = torch.bmm(weights[:, None], states).squeeze(1)
            hidden, cell = self.cell(torch.cat([step, context], -1), (hidden, cell))
            logits.append(self.output(torch.cat([hidden, context, step], -1)))
        labels = ids[1].masked_fill(~is_real[1], -100)
        F.cross_entropy(torch.stack(logits, 1).flatten(0, 1), labels.flatten()).backward()

    def train(self, ids=True, is_real=None):
        if is_real is None:
            return super().train(ids)
        self.zero_grad()
        return self.train_step(ids, is_real)


class Joey:
    """JoeyNMT 2.3, with its own model, loss and search."""

    def __init__(self, args):
        from types import SimpleNamespace

        from joeynmt.model import build_model
        from joeynmt.vocabulary import Vocabulary

        torch.manual_seed(0)
        specials = {
            "unk_token": "<unk>",
            "pad_token": "<pad>",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "sep_token": None,
        }
        ids = {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3, "sep_id": None, "lang_tags": []}
        vocab = Vocabulary([f"w{i}" for i in range(args.vocab - 4)], SimpleNamespace(**specials, **ids))
        embeddings = {"embedding_dim": args.hidden, "scale": False}
        common = {"rnn_type": args.cell, "hidden_size": args.hidden, "num_layers": 1, "embeddings": embeddings}
        config = {
            "initializer": "xavier_uniform",
            "embed_initializer": "normal",
            "embed_init_weight": 0.1,
            "bias_initializer": "zeros",
            "encoder": {"type": "recurrent", "bidirectional": True, "dropout": 0.0, **common},
            "decoder": {
                "type": "recurrent",
                "attention": "bahdanau",
                "init_hidden": "bridge",
                "input_feeding": True,
                "dropout": 0.0,
                "hidden_dropout": 0.0,
                **common,
            },
        }
        self.model = build_model(config, src_vocab=vocab, trg_vocab=vocab)
        self.model.loss_function = ("crossentropy", 0.0)

    def inputs(self, ids, is_real):
        # Its packing needs the longest source first.
        order = is_real[0].sum(-1).argsort(descending=True)
        source, mask = ids[0][order].masked_fill(~is_real[0][order], 1), is_real[0][order][:, None]
        return {"src": source, "src_mask": mask, "src_length": mask.sum((1, 2))}, order

    def train(self, ids, is_real):
        self.model.train()
        inputs, order = self.inputs(ids, is_real)
        target, target_mask = ids[1][order].masked_fill(~is_real[1][order], 1), is_real[1][order][:, None]
        target_input = torch.cat([torch.full_like(target[:, :1], 2), target[:, :-1]], 1)
        self.model.zero_grad()
        loss, *_ = self.model(return_type="loss", **inputs, trg=target, trg_input=target_input, trg_mask=target_mask)
        loss.backward()

    @torch.no_grad()
    def decode(self, ids, is_real, beams):
        from joeynmt.search import beam_search, greedy

        self.model.eval()
        length = ids.shape[-1]
        inputs, _ = self.inputs(ids, is_real)
        states, hidden, _, _ = self.model(return_type="encode", **inputs)
        common = {
            "model": self.model,
            "max_output_length": length,
            "min_output_length": length,
            "encoder_output": states,
            "encoder_hidden": hidden,
            "src_mask": inputs["src_mask"],
        }
        if beams == 1:
            greedy(**common)
        else:
            beam_search(beam_size=beams, alpha=1.0, **common)


def training(uneven):
    def run(system, args, length):
        batch = make_batch(args, length, uneven)
        return lambda: system.train(*batch)

    return run


def decoding(beams, batch_size=None):
    def run(system, args, length):
        ids, is_real = make_batch(args, length, uneven=False)
        ids, is_real = ids[:, :batch_size], is_real[:, :batch_size]
        return lambda: system.decode(ids, is_real, beams)

    return run


CASES = {
    "train": training(uneven=False),
    "train-uneven": training(uneven=True),
    "greedy": decoding(beams=1),
    "beam-5": decoding(beams=5),
    "greedy-batch-1": decoding(beams=1, batch_size=1),
    "greedy-batch-32": decoding(beams=1, batch_size=32),
    "beam-5-batch-1": decoding(beams=5, batch_size=1),
}


class Local:
    """A system in this process."""

    def __init__(self, system):
        self.system = system

    def seconds(self, case, args, length):
        if case != "train" and not case.startswith("train") and not hasattr(self.system, "decode"):
            return None
        run = CASES[case](self.system, args, length)
        start = time.process_time()
        run()
        return time.process_time() - start

    def flops(self, case, args, length):
        with FlopCounterMode(display=False) as counter:
            CASES[case](self.system, args, length)()
        return counter.get_total_flops()


class Remote:
    """A system in a process of another environment; requests and answers are lines of JSON."""

    def __init__(self, python, name):
        command = [python, __file__, *sys.argv[1:], "--serve", name]
        # Its libraries log to standard output, so the answers have another pipe.
        read_end, write_end = os.pipe()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=sys.stderr,
            text=True,
            pass_fds=[write_end],
            env={**os.environ, "BENCH_ANSWERS": str(write_end)},
        )
        os.close(write_end)
        self.answers = os.fdopen(read_end)

    def ask(self, what, case, length):
        self.process.stdin.write(json.dumps([what, case, length]) + "\n")
        self.process.stdin.flush()
        answer = self.answers.readline()
        if not answer:
            raise SystemExit(f"JoeyNMT exited with code {self.process.wait()}; its message is above")
        return json.loads(answer)

    def seconds(self, case, args, length):
        return self.ask("seconds", case, length)

    def flops(self, case, args, length):
        return self.ask("flops", case, length)


def serve(args):
    system = Local(Joey(args))
    answers = os.fdopen(int(os.environ["BENCH_ANSWERS"]), "w")
    for line in sys.stdin:
        what, case, length = json.loads(line)
        answers.write(json.dumps(getattr(system, what)(case, args, length)) + "\n")
        answers.flush()


def compare(systems, args):
    """Medians over interleaved rounds, for every case and length."""
    from interleaved import matrix_peaks

    from hf_edu_models import cpu_kernels

    peak = max(matrix_peaks(("off", cpu_kernels.current())).values())
    results = []
    for case in args.only:
        for length in args.lengths:
            times = {name: [] for name in systems}
            for number in range(args.rounds + 1):  # the first round is a warm-up
                for name, system in systems.items():
                    seconds = system.seconds(case, args, length)
                    if number and seconds is not None:
                        times[name].append(seconds)
            medians = {name: statistics.median(values) for name, values in times.items() if values}
            row = {"case": case, "length": length, "seconds": medians}
            if case.startswith("train"):
                rates = {name: systems[name].flops(case, args, length) / medians[name] / 1e9 for name in medians}
                row |= {"peak": peak, "share": {name: rate / peak for name, rate in rates.items()}}
            print_row(row)
            results.append(row)
    return results


def print_row(row):
    ours = row["seconds"]["fused"]
    parts = [f"{row['case']:15} {row['length']:3}  fused {ours * 1e3:8.1f} ms"]
    parts += [f"{name} {seconds / ours:5.2f}x" for name, seconds in row["seconds"].items() if name != "fused"]
    if "share" in row:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in row["share"].items())
        parts.append(f"share of {row['peak']:.0f} GFLOP/s: {shares}")
    print("   ".join(parts), flush=True)


def compare_layers(args):
    """A fused LSTM layer against `nn.LSTM` itself, on a plain and on a packed batch."""
    from interleaved import medians

    from hf_edu_models.models.blocks_recurrent import RecurrentLayer

    size, length = args.hidden, 30
    layer, reference = RecurrentLayer("lstm", size, size), nn.LSTM(size, size, batch_first=True)
    inputs = torch.randn(args.batch, length, size, requires_grad=True)
    mask = make_batch(args, length, uneven=True)[1][0]

    def packed_reference():
        packed = nn.utils.rnn.pack_padded_sequence(inputs, mask.sum(1), batch_first=True, enforce_sorted=False)
        nn.utils.rnn.pad_packed_sequence(reference(packed)[0], batch_first=True)[0].sum().backward()

    pairs = {
        "plain": (
            lambda: layer(inputs, None, "fused")[0].sum().backward(),
            lambda: reference(inputs)[0].sum().backward(),
        ),
        "padded": (lambda: layer(inputs, mask, "fused")[0].sum().backward(), packed_reference),
    }
    for name, (run, reference_run) in pairs.items():
        ours, theirs = medians({"ours": run, "theirs": reference_run}, 3 * args.rounds).values()
        print(f"LSTM layer, {name:6}      fused {ours * 1e3:8.1f} ms   nn.LSTM {theirs / ours:5.2f}x", flush=True)


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    if args.serve:
        return serve(args)
    from interleaved import machine

    from hf_edu_models import cpu_kernels

    print(
        f"{machine(cpu_kernels.enable(args.cpu_kernels))}, batch {args.batch}, hidden {args.hidden}, "
        f"vocabulary {args.vocab}, cell {args.cell}; a ratio above 1 means that fused is faster"
    )
    systems = {name: Local(Ours(args, name)) for name in ("fused", "eager")}
    systems["nn.LSTMCell"] = Local(Naive(args))
    if args.peer_python:
        systems["joeynmt"] = Remote(args.peer_python, "joeynmt")
    results = compare(systems, args)
    compare_layers(args)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
