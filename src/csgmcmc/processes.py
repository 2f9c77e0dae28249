"""Calls side by side in processes of this machine, which end with the one that started them.

Ctrl-C, an error, and a process that was killed end all of them at once, whatever they are doing:
what they write must be safe against that, as draws and checkpoints are.
"""

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait as wait_for
from traceback import walk_tb
from typing import Any, TypeVar

import torch

from csgmcmc.errors import ProcessError

__all__ = ["cores", "origin_of", "side_by_side", "threads_of_each"]

Key = TypeVar("Key")
Result = TypeVar("Result")


def side_by_side(
    function: Callable[..., Result],
    calls: Iterable[tuple[Key, tuple[Any, ...]]],
    *,
    jobs: int,
    threads: int = 1,
) -> Iterator[tuple[Key, Result]]:
    """Call a function in several processes; keys and results of the calls, as they end.

    An error of a call is raised here, with the traceback of the process as its cause. Where a
    process is killed, it is a `ProcessError`.

    Args:
        function: of a module, which the processes import.
        calls: a key and arguments for each; the next one is asked for when a process is free.
        jobs: number of processes; 1 makes all calls here.
        threads: of torch, in each process.
    """
    if jobs == 1:
        for key, arguments in calls:
            yield key, function(*arguments)
        return
    waiting = iter(calls)
    running: dict[Future[Result], Key] = {}
    with _pool(jobs, threads) as pool:
        while True:
            # No more than are worked on at once, so that what runs is known.
            while len(running) < jobs and (call := next(waiting, None)):
                key, arguments = call
                with _deaf_to_interrupts():  # a process is started here, and inherits it
                    running[pool.submit(_call, function, arguments)] = key
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            # All that are done are handed on before one of them raises.
            for future in sorted(done, key=lambda future: future.exception() is not None):
                yield running.pop(future), future.result()


def cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads_of_each(jobs: int) -> int:
    """Threads for each of several processes, so that all together have one for each core."""
    return max(1, min(torch.get_num_threads(), cores() // jobs))


def origin_of(error: BaseException) -> str:
    """Name of the module that raised an error, here or in another process."""
    if hasattr(error, "raised_in"):
        return error.raised_in  # pyright: ignore[reportAttributeAccessIssue]
    *_, (innermost, _) = walk_tb(error.__traceback__)
    return innermost.f_globals.get("__name__", "")


@contextmanager
def _pool(jobs: int, threads: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end at once, whatever they are doing, when the block is left by an error."""
    others = set(active_children())
    options: Any = {"initializer": _begin_worker, "initargs": (threads,)}
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), **options)
    try:
        yield pool
    except BaseException as error:
        for process in set(active_children()) - others:
            process.terminate()
        if isinstance(error, BrokenProcessPool):  # of a result, or of the next call
            raise ProcessError(
                "a process was killed, perhaps because memory ran out; the others were stopped"
            ) from error
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Ctrl-C reaches every process of a terminal: only the first of them shall act on it.

    One that comes meanwhile is acted on afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows: processes inherit no mask
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker(threads: int) -> None:
    torch.set_num_threads(threads)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _call(function: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    try:
        return function(*arguments)
    except Exception as error:
        sent: Any = error
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301  (our own)
        except Exception:  # only its words can be sent
            sent = RuntimeError(f"{type(error).__name__}: {error}")
        sent.raised_in = origin_of(error)
        raise sent from (None if sent is error else error)
