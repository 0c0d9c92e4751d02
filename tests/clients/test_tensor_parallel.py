"""`tp_plan="auto"` and vLLM's transformers backend split a model by the plans of its configuration."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny import ALL, CASES, by_name, inputs_for
from torch import nn
from transformers.integrations.tensor_parallel import ALL_PARALLEL_STYLES

PLANNED = [case for case in ALL if case.attends]


@pytest.mark.parametrize("case", **by_name(PLANNED))
def test_every_name_of_the_plan_is_a_linear_layer(case):
    model = case.build()
    linear = [name for name, module in model.base_model.named_modules() if isinstance(module, nn.Linear)]
    plan = type(model.config).base_model_tp_plan
    assert plan
    for pattern, style in plan.items():
        assert style in list(ALL_PARALLEL_STYLES)
        assert any(re.fullmatch(pattern.replace(".", r"\.").replace("*", r"\d+"), name) for name in linear), pattern
    for name in getattr(type(model.config), "base_model_pp_plan", None) or {}:
        assert model.base_model.get_submodule(name) is not None
    for name in type(model)._tp_plan or {}:
        assert name in plan or isinstance(model.get_submodule(name), nn.Linear)


SCRIPT = """
import sys

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

import hf_edu_models

folder, head = sys.argv[1:]
model = getattr(hf_edu_models, head).from_pretrained(folder, tp_plan="auto").eval()
linear = model.base_model.get_submodule({"EduTransformer": "decoder."}.get(head[:14], "") + "layers.0").feed_forward
assert dist.get_world_size() == 2
whole = model.config.intermediate_size
local = linear.inner_proj.weight
local = local.to_local() if isinstance(local, DTensor) else local
assert local.shape[0] == whole // 2, local.shape
inputs = torch.load(f"{folder}/inputs.pt")
with torch.no_grad():
    logits = model(**inputs).logits
if dist.get_rank() == 0:
    torch.save(logits, f"{folder}/logits.pt")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt", "bert-ForMaskedLM", "transformer"])
def test_two_processes_give_the_logits_of_one(name, tmp_path):
    case = CASES[name]
    model, inputs = case.build(hidden_size=12, num_attention_heads=2, vocab_size=30), inputs_for(case)
    model.save_pretrained(tmp_path)
    torch.save(inputs, tmp_path / "inputs.pt")
    (tmp_path / "run.py").write_text(SCRIPT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [*launch, str(tmp_path / "run.py"), str(tmp_path), case.head]
    environment = {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    torch.testing.assert_close(torch.load(tmp_path / "logits.pt"), model(**inputs).logits, rtol=1e-4, atol=1e-5)
