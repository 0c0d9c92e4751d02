import os
from pathlib import Path

import pytest
from tiny_runs import KillAtFile, in_process, run_case

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """Run every case once without interruption; the folder, and the file changes that it made."""
    runs = {}

    def get(name: str) -> tuple[Path, list[str]]:
        if name not in runs:
            folder = tmp_path_factory.mktemp("whole")
            names = folder / "changes.txt"
            assert in_process(run_case, name, folder / "run", kill=KillAtFile(names=names)) == 0
            runs[name] = folder / "run", names.read_text().split()
        return runs[name]

    return get
