"""One of two processes that train every rung sharded with FSDP2 and compare with the same training unsharded.

Run by `test_fsdp.py` with torchrun. Prints one line of JSON per case on rank 0.
"""

import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

import torch
import torch.distributed as dist
from tiny import CASES, LENGTH, padded_inputs_for, targets_for
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

CHANGES = {"tied": {"tie_word_embeddings": True, "embedding_size": 12}}  # sizes that can be tied


def shard(model):
    """As Accelerate does: a unit for each of the model's `_no_split_modules`, and one for the rest."""
    for module in reversed(list(model.modules())):
        if type(module).__name__ in model._no_split_modules:
            fully_shard(module)
    return fully_shard(model)


def train(model, case, ranks):
    """Three steps on the batches of some ranks; returns the mean loss of both ranks for each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(3):
        total = torch.zeros(())
        for rank in ranks:
            seed = 2 * step + rank
            inputs = padded_inputs_for(case, 2, LENGTH, LENGTH, seed=seed)
            loss = model(**inputs, **targets_for(case, seed=seed)).loss
            (loss / len(ranks)).backward()
            total += loss.detach() / len(ranks)
        if len(ranks) == 1:
            dist.all_reduce(total, dist.ReduceOp.SUM)
            total /= dist.get_world_size()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total.item())
    return losses


def compare(name, changes):
    case = CASES[name]
    plain = case.build(**changes).train()
    before = [parameter.detach().clone() for parameter in plain.parameters()]
    expected = train(plain, case, ranks=(0, 1))
    sharded = shard(case.build(**changes).train())
    is_sharded = all(isinstance(parameter, DTensor) for parameter in sharded.parameters())
    found = train(sharded, case, ranks=(dist.get_rank(),))
    whole = [parameter.full_tensor().detach() for parameter in sharded.parameters()]
    pairs = list(zip(whole, plain.parameters(), before, strict=True))
    return {
        "is_sharded": is_sharded and all(isinstance(parameter, DTensor) for parameter in sharded.parameters()),
        "units": sum(type(module).__name__.startswith("FSDP") for module in sharded.modules()),
        "losses": [found, expected],
        "difference": max((mine - theirs).abs().max().item() for mine, theirs, _ in pairs),
        "moved": max((theirs - start).abs().max().item() for _, theirs, start in pairs),
    }


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for argument in sys.argv[1:]:
        name, _, changed = argument.partition(":")
        try:
            result = compare(name, CHANGES.get(changed, {}))
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        if dist.get_rank() == 0:
            print(json.dumps({"case": argument} | result), flush=True)
    dist.barrier()  # a process that closes its connections while the other still computes aborts it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
