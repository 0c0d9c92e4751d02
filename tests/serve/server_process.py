"""`hf-edu serve` in a process of its own."""

import os
import socket
import subprocess
import sys
import time

import httpx


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_server(models, *options, port=None, wait=60):
    """A running `hf-edu serve` and its address."""
    port = port or free_port()
    command = [sys.executable, "-c", "from hf_edu_models.cli import main; main()", "serve", *models]
    command += ["--port", str(port), "--cpu-kernels", "off", *options]
    process = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
    address = f"http://127.0.0.1:{port}"
    for _ in range(wait * 10):
        try:
            httpx.get(f"{address}/health").raise_for_status()
            return process, address
        except httpx.HTTPError:
            assert process.poll() is None, "the server has stopped"
            time.sleep(0.1)
    process.kill()
    raise TimeoutError(address)
