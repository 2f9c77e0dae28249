"""Processes that know each other, forked from one that has imported all they need.

Starting Python and importing torch in each of them, as torchrun does, takes most of a test's time.
"""

import multiprocessing
import os
import secrets
import socket
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from csgmcmc import shutdown_distributed

Job = Callable[..., None]

ROOT = Path(__file__).parents[1]
PYTHONPATH = os.pathsep.join([str(ROOT / "src"), str(ROOT)])  # the library of this checkout
CONTEXT = multiprocessing.get_context("forkserver")
SECONDS = 400  # a job may take this long, on a machine with much else to do
MOMENT = 60  # how long the others may take once one has failed


def run_together(job: Job, out: Path, processes: int, **options: Any) -> list[int | None]:
    """Run `job(out, **options)` in processes of one group; their exit codes.

    If one is killed, the others notice, and end with an error. `options` are values of the job.
    """
    out.mkdir(parents=True, exist_ok=True)
    CONTEXT.set_forkserver_preload([job.__module__])
    port = str(free_port())
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(processes)}
    started = []
    for rank in range(processes):
        variables = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        process = CONTEXT.Process(target=_run, args=(job, out, variables, options))
        process.start()
        started.append(process)
    end = time.monotonic() + SECONDS
    while any(process.exitcode is None for process in started) and time.monotonic() < end:
        if any(process.exitcode for process in started):
            end = min(end, time.monotonic() + MOMENT)
        time.sleep(0.02)
    for process in started:
        process.kill()
        process.join()
    return [process.exitcode for process in started]


def free_port() -> int:
    """A port that nothing listens at, below those that the system gives to connections.

    By chance, so that two workers, which look at the same moment, hardly take the same one.
    """
    first = secrets.randbelow(9_000)
    for port in (20_000 + (first + number) % 9_000 for number in range(9_000)):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise OSError("all ports from 20000 to 28999 are in use")


def all_succeed(job: Job, out: Path, processes: int, **options: Any) -> None:
    """`run_together`, where no process may fail."""
    codes = run_together(job, out, processes, **options)
    errors = [path.read_text() for path in sorted(out.glob("error-*.txt"))]
    assert codes == [0] * processes, "\n".join([f"exit codes {codes}", *errors])


def _run(job: Job, out: Path, variables: dict[str, str], options: dict[str, Any]) -> None:
    os.environ.update(variables)
    torch.set_num_threads(1)
    try:
        job(out, **options)
    except BaseException:
        (out / f"error-{variables['RANK']}.txt").write_text(traceback.format_exc())
        os._exit(1)  # a group that has lost a process cannot be left in the usual way
    shutdown_distributed()
