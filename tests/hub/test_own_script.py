"""The script of the guide on data of one's own: it runs as pasted, and what it pushes loads without the package."""

import os
import re
import subprocess
import sys
from pathlib import Path

from loopback_hub import LoopbackHub

PAGE = Path(__file__).parent.parent.parent / "recipes/guides/your-data.md"
TOKEN = "hf_" + "b" * 34


def script() -> str:
    section = PAGE.read_text("utf-8").partition("## Your data, your script")[2]
    return re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1)


def test_it_has_at_most_25_lines():
    assert len(script().splitlines()) <= 25


def test_it_trains_generates_and_uploads(tmp_path):
    pushed = script().replace('"you/mine", dry_run=True', f'"ada/mine", token="{TOKEN}"')
    assert pushed != script()
    with LoopbackHub({TOKEN: "ada"}) as hub:
        variables = os.environ | {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "home")}
        variables |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        run = subprocess.run(
            [sys.executable, "-c", pushed], cwd=tmp_path, env=variables, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        files = set(hub.files("ada/mine"))
    assert {"model.safetensors", "config.json", "tokenizer.json", "modeling_transformer.py", "README.md"} <= files
    assert TOKEN not in run.stdout + run.stderr
