"""Load test of `hf-edu serve`: many clients, uneven texts, no answer lost or mixed up; beside offline `encode`.

    python recipes/benchmarks/bench_serve.py                    # 32 clients, 10,000 requests of one text
    python recipes/benchmarks/bench_serve.py --texts 8 --requests 2000
    python recipes/benchmarks/bench_serve.py --kill             # the server is killed and restarted under load

A BERT of size mini with random weights. Every answer is compared with the vector that `encode` computes for its text. A
request that fails while the server is down is sent again. Throughput is in texts per second: of the wall clock, where
the server, the clients and other work share the machine, and of the server's own CPU time, both beside `encode` with
the same batches on as many threads. The load ends by itself, and goes to this machine only.
"""

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import numpy as np
import torch
from bench_encode import build
from interleaved import machine

from hf_edu_models import cpu_kernels
from hf_edu_models.malloc import configure_malloc


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=["mini", "minilm", "base"], default="mini")
    parser.add_argument("--lengths", type=int, nargs=2, default=(4, 64), help="tokens of the shortest and longest text")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--texts", type=int, default=1, help="texts in each request")
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kill", action="store_true", help="kill the server twice, and start it again")
    return parser.parse_args()


def cpu_seconds(pid):
    """CPU time of a process and of its children, from /proc."""
    ticks = 0
    for process in [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Server:
    """`hf-edu serve` in a process of its own, on a free port of this machine."""

    def __init__(self, folder, args):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        options = ["--port", str(port), "--workers", str(args.workers), "--log-level", "warning"]
        self.command = [sys.executable, "-c", "from hf_edu_models.cli import main; main()", "serve", folder, *options]
        self.environment = os.environ | {"OMP_NUM_THREADS": str(args.threads), "MKL_NUM_THREADS": str(args.threads)}
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, env=self.environment)

    async def wait(self, session):
        for _ in range(600):
            try:
                async with session.get(f"{self.address}/health"):
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)
        raise TimeoutError("the server did not start")


async def put_load(server, texts, expected, args):
    """Send every request once and check its answer; the latencies in seconds, and how many had to be sent again."""
    numbers = iter(range(args.requests))
    latencies, repeated = [], 0
    connector = aiohttp.TCPConnector(limit=args.clients)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(120)) as session:
        await server.wait(session)
        start = time.perf_counter()
        ready = start - server.started
        used = cpu_seconds(server.process.pid)

        async def client():
            nonlocal repeated
            for number in numbers:
                chosen = [(number * args.texts + index) % len(texts) for index in range(args.texts)]
                body = {"input": [texts[index] for index in chosen], "encoding_format": "float"}
                sent = time.perf_counter()
                while True:
                    try:
                        async with session.post(f"{server.address}/v1/embeddings", json=body) as response:
                            response.raise_for_status()
                            data = (await response.json())["data"]
                            break
                    except aiohttp.ClientError:
                        assert args.kill, f"request {number} was lost"
                        repeated += 1
                        await asyncio.sleep(0.2)
                latencies.append(time.perf_counter() - sent)
                vectors = np.array([item["embedding"] for item in data])
                difference = np.abs(vectors - expected[chosen]).max()
                assert difference < 1e-3, f"request {number} has the answer of another text, {difference:.3f} off"

        async def kill():
            for share in (0.3, 0.6):
                while len(latencies) < share * args.requests:
                    await asyncio.sleep(0.05)
                server.process.send_signal(signal.SIGKILL)
                server.process.wait()
                server.start()

        tasks = [client() for _ in range(args.clients)]
        await asyncio.gather(*tasks, *([kill()] if args.kill else []))
        seconds = time.perf_counter() - start
        used = cpu_seconds(server.process.pid) - used
    return latencies, repeated, seconds, used, ready


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    model, tokenizer = build(args)
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(args.lengths[0] - 2, args.lengths[1] - 1, (1000,), generator=generator).tolist()
    words = [torch.randint(5, args.vocab, (length,), generator=generator).tolist() for length in lengths]
    texts = [" ".join(f"w{number}" for number in row) for row in words]
    configure_malloc()  # as the server does
    with cpu_kernels.enabled() as choice:
        expected = model.encode(texts, tokenizer, show_progress=False).numpy()
        wall, used = time.perf_counter(), time.process_time()
        rounds = 3
        for _ in range(rounds):
            model.encode(texts, tokenizer, show_progress=False)
        offline_wall = rounds * len(texts) / (time.perf_counter() - wall)
        offline_cpu = rounds * len(texts) / (time.process_time() - used)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        server = Server(folder, args)
        server.started = time.perf_counter()
        try:
            latencies, repeated, seconds, used, ready = asyncio.run(put_load(server, texts, expected, args))
        finally:
            server.process.terminate()
            server.process.wait()
    count = args.requests * args.texts
    p50, p99 = np.percentile(latencies, [50, 99]) * 1000
    print(machine(choice))
    print(f"{args.requests} requests of {args.texts} text(s), {args.clients} clients: all answered, none mixed up")
    print(f"sent again: {repeated}; ready after {ready:.1f} s, imports included")
    print(f"latency p50 {p50:.0f} ms, p99 {p99:.0f} ms, longest {max(latencies) * 1000:.0f} ms")
    online = count / seconds
    print(f"offline encode {offline_wall:.0f} texts/s, server {online:.0f} texts/s: {online / offline_wall:.2f}x")
    if not args.kill:
        print(f"by CPU time: {offline_cpu:.0f} and {count / used:.0f} texts/s: {count / used / offline_cpu:.2f}x")


if __name__ == "__main__":
    main()
