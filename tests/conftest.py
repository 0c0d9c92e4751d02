import os

os.environ["HF_HUB_OFFLINE"] = "1"  # no test may need a network
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Some virtual machines report AMX without allowing it, and bfloat16 then ends the process with an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# What two tests compare bit for bit must not depend on what else the machine did while it was probed.
os.environ.setdefault("HF_EDU_CPU_KERNELS", "off")

import pytest
import torch
from transformers import set_seed

collect_ignore = ["new_rung"]  # files of `test_new_rung.py`


@pytest.fixture(autouse=True)
def same_start():
    """Every test draws the same numbers, whatever ran before it."""
    set_seed(0)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tiny models gain nothing from a second thread, and two threads wait for each other on a busy machine."""
    torch.set_num_threads(1)
