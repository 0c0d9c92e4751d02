"""Runs a recipe under Accelerate's FSDP on CPUs, and reports what Accelerate sharded.

Run by `test_fsdp.py` with `accelerate launch`. On CPUs Accelerate chooses DDP whatever its file says, so it is told
here that its gloo processes are GPUs.
"""

import json
import os
import runpy
import sys

import accelerate.accelerator
import torch
import torch.distributed as dist
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from torch.distributed.tensor import DTensor

prepare = accelerate.accelerator.fsdp2_prepare_model


def prepare_and_report(accelerator, model):
    sharded = prepare(accelerator, model)
    parameters = list(sharded.parameters())
    units = sum(type(module).__name__.startswith("FSDP") for module in sharded.modules())
    found = {"sharded": sum(isinstance(parameter, DTensor) for parameter in parameters), "all": len(parameters)}
    if accelerator.is_main_process:
        print(json.dumps(found | {"units": units, "processes": accelerator.num_processes}), flush=True)
    return sharded


PartialState._prepare_backend = lambda *_: ("gloo", DistributedType.MULTI_GPU)
PartialState.set_device = lambda state: setattr(state, "device", torch.device("cpu"))
accelerate.accelerator.fsdp2_prepare_model = prepare_and_report
os.environ["ACCELERATE_USE_CPU"] = "true"
dist.init_process_group("gloo")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
