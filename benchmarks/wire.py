"""How fast processes of this machine average gradients (gloo), and how they slow each other.

`measure_wire` starts some processes of this module, which measure together.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.plan import BUCKET

REPEATS = 40
SECONDS = 0.4  # for each rate
MAX_SECONDS = 120  # for the whole test, which takes some seconds
MAX_WEIGHTS = 2 * 10**7  # more than a cache holds
MIN_SENT = 2**20  # bytes; fewer take no longer than none


def measure_wire(processes: int, weights: int) -> dict[str, float]:
    """Bandwidth, latency, crowding and lockstep of a `Plan`; `weights` are those of the model."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        program = [sys.executable, "-m", "benchmarks.wire", f"{folder}/meeting"]
        started = [
            ends.enter_context(
                subprocess.Popen(
                    [*program, str(rank), str(processes), str(weights)],
                    env={**os.environ, "OMP_NUM_THREADS": "1"},  # as torchrun starts several
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for rank in range(processes)
        ]
        try:
            said = [process.communicate(timeout=MAX_SECONDS) for process in started]
        except subprocess.TimeoutExpired as error:
            words = f"the test of the bandwidth took longer than {error.timeout:g} s"
            raise ValueError(f"{words}: give --bandwidth instead") from error
        finally:
            for process in started:
                process.kill()
    if any(process.returncode for process in started):
        words = said[0][1].strip().splitlines() or ["no message"]
        raise ValueError(f"the test of the bandwidth failed ({words[-1]}): give --bandwidth")
    return json.loads(said[0][0].splitlines()[-1])


def main(meeting: str, rank: int, processes: int, weights: int) -> None:
    """Measure in one of the processes; the first prints the results."""
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=processes
    )
    count = min(max(weights, MIN_SENT // 4), BUCKET // 4)
    gradient, bucket, small = torch.randn(count), torch.empty(count), torch.zeros(1)

    def average() -> None:  # what DDP does with a bucket
        bucket.copy_(gradient)
        dist.all_reduce(bucket)
        torch.div(bucket, processes, out=gradient)

    work = _work(weights)

    def step() -> None:
        work()
        dist.all_reduce(small)

    latency, seconds = _median(lambda: dist.all_reduce(small)), _median(average)
    sent = 2 * (processes - 1) / processes * bucket.nbytes
    alone = _rate_of(work) if rank == 0 else 1.0
    dist.barrier()  # for which the others wait
    together = _rate_of(work)
    found = {
        "bandwidth": bandwidth_of(sent, seconds, latency),
        "latency": latency,
        "crowding": max(1.0, together / alone),
        "lockstep": max(1.0, (_mean(step) - latency) / alone),
    }
    if rank == 0:
        sys.stdout.write(json.dumps(found) + "\n")
    dist.destroy_process_group()


def bandwidth_of(sent: float, seconds: float, latency: float) -> float:
    """Bytes a second, where a sum of nothing takes `latency`.

    On a busy machine that may take as long as a sum of `sent` bytes: at least a tenth of the time
    counts as that of the bytes.
    """
    return sent / max(seconds - latency, 0.1 * seconds)


def _work(weights: int) -> Callable[[], Any]:
    """A step in small: products of matrices, and a pass over weights.

    Processes slow each other where these are more than a cache holds.
    """
    count = min(weights, MAX_WEIGHTS)
    inputs, layer = torch.randn(64, 1000), torch.randn(1000, 1000)
    gradient, velocity = torch.randn(count), torch.randn(count)

    def work() -> None:
        torch.mm(inputs, layer)
        velocity.add_(gradient)

    return work


def _rate_of(work: Callable[[], Any]) -> float:
    """Seconds of a call, over a time in which the other processes do the same."""
    work()
    calls, began = 0, time.perf_counter()
    while calls == 0 or time.perf_counter() - began < SECONDS:
        work()
        calls += 1
    return (time.perf_counter() - began) / calls


def _median(work: Callable[[], Any]) -> float:
    """Median seconds of a call, which all processes make as often: a pause does not change it."""
    return statistics.median(_times(work))


def _mean(work: Callable[[], Any]) -> float:
    """Mean seconds of a call, with all pauses: processes that wait for each other share them."""
    return statistics.fmean(_times(work))


def _times(work: Callable[[], Any]) -> list[float]:
    found = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return found[1:]  # after one that is not counted


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
