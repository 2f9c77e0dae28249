"""What `costs` needs to know of a task and of this machine, measured within a minute."""

import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from csgmcmc.chain import Chain, StepInfo
from csgmcmc.chain.checkpoint import Checkpoints
from csgmcmc.chain.scalars import ScalarLog
from csgmcmc.chain.together import save_together
from csgmcmc.draws import DrawStore, MemoryDraws, keep_trainable
from csgmcmc.files import readable_io_errors
from csgmcmc.planning.costs import Machine, Sizes, Step
from csgmcmc.posterior import Posterior
from csgmcmc.posterior.batches import plain_split
from csgmcmc.processes import cores
from csgmcmc.recipe import Recipe
from csgmcmc.schedules import Cyclical
from csgmcmc.stepper.inputs import all_tensors
from csgmcmc.task import Task

REPEATS = 5
WARM_UP = 4  # steps that are not counted: kernels are loaded, memory is taken
CYCLES = 10**9  # of two steps, one cold and one with noise; never reached
WIRE_SECONDS = 120  # that processes may take to measure together; they take some seconds
PROBE = 64 * 2**20  # bytes with which the disk is timed
LARGEST_WRITTEN = 2**30  # a larger draw or checkpoint is not written to see how long it takes
NOT_TIMED = ("callbacks", "checkpoint_dir", "checkpoint_every", "progress", "device")


class _EnoughError(Exception):
    """Ends a chain that has been timed for long enough."""


def measure_task(
    task: Task,
    recipe: Recipe,
    folder: Path,
    *,
    one_thread: bool = False,
    only_trained: bool | None = None,
    dtype: torch.dtype | None = None,
    seconds: float = 8.0,
) -> tuple[Sizes, Machine]:
    """Take some steps of a task, write its draw and its checkpoint, and predict a batch.

    The weights of `task.model` change a little. Files go into a folder of their own inside of
    `folder`, and are removed.

    Args:
        task: what to sample.
        recipe: its hyperparameters; lr has no influence on the cost, and is not used.
        folder: where the run will write; if it is not there, the folder above it is used.
        one_thread: time steps with one thread too, as for several processes.
        only_trained: draws keep what is trained; by default if some parameters are frozen.
        dtype: of draws on the disk, as `DrawStore` takes it.
        seconds: for the steps.
    """
    threads = torch.get_num_threads()
    with warnings.catch_warnings(action="ignore"):  # of a run with the true lr, that tells of them
        chain, steps = _time_steps(task, recipe, [threads, 1] if one_thread else [threads], seconds)
    frozen = any(not param.requires_grad for param in task.model.parameters())
    only_trained = frozen if only_trained is None else only_trained
    sizes = _sizes(chain)
    with _scratch(folder) as place:
        only = keep_trainable(task.model) if only_trained else None
        store = DrawStore(place / "draws", only=only, dtype=dtype)
        store.append(task.model, step=0)
        shared = sum(file.stat().st_size for file in store.path.glob("base*"))
        sizes = replace(sizes, draw=store.size_on_disk(), shared=shared)
        machine = Machine(steps[0], steps[-1], **_time_writes(chain, store, sizes, place))
        saved = sum(file.stat().st_size for file in place.glob("checkpoints/0000.pt"))
        sizes = replace(sizes, overhead=max(0.0, saved - sizes.checkpoint))
        machine = replace(machine, predict_seconds=_time_prediction(task, store))
    return sizes, replace(machine, cores=cores())


@dataclass(frozen=True)
class Disk:
    """Seconds of a draw and of a checkpoint: of one without weights, and what each byte adds."""

    draw: tuple[float, float]
    checkpoint: tuple[float, float]

    def seconds(self, kind: str, size: float) -> float:
        """Seconds to write a "draw" or a "checkpoint" of so many bytes."""
        least, each = getattr(self, kind)
        return least + each * size


def measure_disk(folder: Path) -> Disk:
    """Write small and large draws and checkpoints to a folder of their own inside of `folder`."""
    steps = itertools.count()
    with _scratch(folder) as place:
        store, saved = DrawStore(place / "probe"), Checkpoints(place / "probe", "0000")

        def times_of(size: int) -> dict[str, float]:
            tensors = {"weights": torch.zeros(size)}
            works: dict[str, Callable[[], Any]] = {
                "draw": lambda: store.append(tensors, step=next(steps)),
                "checkpoint": lambda: saved.save({"taken": next(steps), **tensors}),
            }
            return _seconds_in_turn(works, REPEATS)

        low, high = times_of(1), times_of(PROBE // 4)
    return Disk(**{name: (low[name], max(high[name] - low[name], 0.0) / PROBE) for name in low})


def measure_wire(processes: int, weights: int) -> dict[str, float]:
    """Average gradients over processes of this machine (gloo), and see how they slow each other.

    `weights` is the number of those of the model. Returns bandwidth, latency, crowding and lockstep
    of a `Machine`.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        program = [sys.executable, "-m", "csgmcmc.planning.probe", f"{folder}/meeting"]
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}  # as torchrun starts several
        started = [
            ends.enter_context(
                subprocess.Popen(  # noqa: S603  (this very Python)
                    [*program, str(rank), str(processes), str(weights)],
                    env=variables,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for rank in range(processes)
        ]
        try:
            said = [process.communicate(timeout=WIRE_SECONDS) for process in started]
        except subprocess.TimeoutExpired as error:
            raise ValueError(
                f"the test of the bandwidth took longer than {error.timeout:g} s: give --bandwidth "
                "instead"
            ) from error
        finally:
            for process in started:
                process.kill()
    if any(process.returncode for process in started):
        words = said[0][1].strip().splitlines() or ["it says nothing"]
        raise ValueError(
            f"the test of the bandwidth failed ({words[-1]}): give --bandwidth instead"
        )
    return json.loads(said[0][0].splitlines()[-1])


def _time_steps(
    task: Task, recipe: Recipe, threads: Sequence[int], seconds: float
) -> tuple[Chain, list[Step]]:
    """A chain that has taken steps with each number of threads, and how long they took."""
    model = task.model
    device = next((param.device for param in model.parameters()), torch.device("cpu"))
    if device.type == "cpu" and torch.cuda.is_available():  # as a run does
        device = torch.device("cuda")
    model.to(device)
    recipe = recipe.replace(lr=1e-9, temperature=1.0)
    options = {name: v for name, v in task.chain_options.items() if name not in NOT_TIMED}
    sampler = recipe.make_sampler(
        [param for param in model.parameters() if param.requires_grad], num_data=task.size
    )
    schedule = Cyclical(
        2 * CYCLES, CYCLES, exploration=0.5, draws_per_cycle=1, burn_in=2 * CYCLES - 1
    )
    clock = _Clock(threads, seconds / len(threads))
    chain = Chain(
        *(model, task.loss, task.data, sampler, schedule, MemoryDraws()),
        **{**options, "callbacks": clock, "progress": False, "device": device},
    )
    before = torch.get_num_threads()
    steps = []
    try:
        torch.set_num_threads(threads[0])
        with suppress(_EnoughError):
            chain.run()
        for number, (cold, noisy) in zip(threads, clock.means(), strict=True):
            torch.set_num_threads(number)
            for group in sampler.param_groups:
                group["temperature"] = 0.0
            update = min(cold, _seconds(sampler.step, 3))
            steps.append(Step(cold - update, update, max(0.0, noisy - cold)))
    finally:
        torch.set_num_threads(before)
    return chain, steps


class _Clock:
    """A callback that times steps, some with each number of threads, and then ends the chain."""

    def __init__(self, threads: Sequence[int], seconds: float) -> None:
        self._threads, self._seconds = threads, seconds
        self._found: list[list[list[float]]] = []  # by number of threads, then cold and noisy
        self._begin()

    def _begin(self) -> None:
        self._found.append([[], []])
        self._taken, self._began = 0, time.perf_counter()
        self._last = self._began

    def __call__(self, info: StepInfo) -> None:
        if info.chain.stepper.sampled()[0].is_cuda:
            torch.cuda.synchronize()
        now = time.perf_counter()
        self._taken += 1
        times = self._found[-1][info.temperature > 0]
        if self._taken > WARM_UP:
            times.append(now - self._last)
        if self._taken >= WARM_UP + 4 and now - self._began > self._seconds:
            if len(self._found) == len(self._threads):
                raise _EnoughError
            torch.set_num_threads(self._threads[len(self._found)])
            self._begin()
        self._last = time.perf_counter()

    def means(self) -> list[list[float]]:
        """Seconds of a cold and of a noisy step, for each number of threads."""
        return [[sum(times) / len(times) for times in kinds] for kinds in self._found]


def _sizes(chain: Chain) -> Sizes:
    model = chain.model
    weights = sum(tensor.nbytes for tensor in all_tensors(model).values())
    params = chain.stepper.sampled()
    trained = sum(param.nbytes for param in params)
    states = [
        value.nbytes
        for state in chain.sampler.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    ]
    layer = max(_own_bytes(module) for module in model.modules())
    # Weights, gradients, states, and the copy of the gradients to which weight decay is added.
    known = weights + 2 * trained + sum(states)
    rest = max(0.0, peak_memory(params[0].device) - known)
    each = trained / sum(param.numel() for param in params)
    return Sizes(weights, trained, sum(states) / trained, layer, rest=rest, weight_bytes=each)


def states_of(recipe: Recipe) -> int:
    """How many tensors the sampler of a recipe keeps for each parameter."""
    param = nn.Parameter(torch.zeros(1))
    param.grad = torch.zeros(1)
    sampler = recipe.replace(lr=1e-9, temperature=1.0).make_sampler([param], num_data=1)
    sampler.step()
    return sum(isinstance(value, Tensor) for value in sampler.state[param].values())


def _own_bytes(module: nn.Module) -> int:
    return sum(param.nbytes for param in module.parameters(recurse=False))


def peak_memory(device: torch.device) -> float:
    """The most memory that this process has held; on a GPU, that of the GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":  # where it is not known without another package
        return 0.0
    import resource  # noqa: PLC0415

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _time_writes(chain: Chain, store: DrawStore, sizes: Sizes, place: Path) -> dict[str, Any]:
    disk = measure_disk(place)
    found = {
        "draw_seconds": disk.seconds("draw", sizes.draw),
        "checkpoint_seconds": disk.seconds("checkpoint", sizes.checkpoint),
        "disk_bandwidth": 1 / max(1e-12, min(disk.draw[1], disk.checkpoint[1])),
    }
    log = ScalarLog(place / "logs" / "0000.jsonl", 0)
    row = StepInfo(chain, chain.schedule(0), 0.0, 0.0, 0.0)
    found["log_seconds"] = _seconds(lambda: log.write(row.as_row(0)), 100)
    log.close()
    steps, saved = itertools.count(1), Checkpoints(place / "checkpoints", "0000")
    works: dict[str, Callable[[], Any]] = {}
    if sizes.draw <= LARGEST_WRITTEN:
        works["draw_seconds"] = lambda: store.append(chain.model, step=next(steps))
    if sizes.checkpoint <= LARGEST_WRITTEN:
        works["checkpoint_seconds"] = lambda: save_together(saved, chain.stepper, {})
    found |= _seconds_in_turn(works, REPEATS)
    return found


def _time_prediction(task: Task, store: DrawStore) -> float:
    """Seconds to predict a batch with one draw; nan if the outputs are not of the likelihood."""
    inputs, _ = plain_split(next(iter(task.data if task.validation is None else task.validation)))
    posterior = Posterior(task.model, store, likelihood=task.likelihood, progress=False)
    try:
        return _seconds(lambda: posterior.predict(inputs), 2) / len(store)
    except Exception:  # whatever a model raises that is called in another way
        return math.nan


def _seconds(work: Callable[[], Any], times: int) -> float:
    """Median time of some calls, after one that is not counted."""
    return _seconds_in_turn({"": work}, times)[""]


def _seconds_in_turn(works: dict[str, Callable[[], Any]], times: int) -> dict[str, float]:
    """Median time of each of some calls, which are made in turn, after a turn not counted."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(times + 1):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            found[name].append(time.perf_counter() - began)
    return {name: statistics.median(each[1:]) for name, each in found.items()}


def existing_folder(folder: Path) -> Path:
    """The folder, or the first above it that exists."""
    return next((each for each in (folder, *folder.absolute().parents) if each.is_dir()), folder)


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A new folder inside of `existing_folder(folder)`; removed at the end."""
    where = existing_folder(folder)
    with readable_io_errors(where, "writing to measure the disk", writing=False):
        held = tempfile.TemporaryDirectory(dir=where, prefix="plan-")
    with held as name:
        yield Path(name)
