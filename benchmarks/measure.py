"""Measure what `plan.py` needs to know about a chain and about this machine, within a minute."""

import itertools
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import csgmcmc
from benchmarks.plan import Plan
from benchmarks.wire import measure_wire
from csgmcmc.cli.store import load_function

WARM_UP, REPEATS = 4, 5
PROBE = 64 * 2**20  # bytes with which the disk is timed
ENDLESS = 10**9  # cycles of two steps, one at temperature 0 and one with noise
Row = dict[str, Any]


def measure_script(script: str, out: Path, given: Row) -> Row:
    """The fields of a `Plan` for the chain that `script` returns; given ones have priority."""
    folder = next(each for each in (out, *out.absolute().parents) if each.is_dir())
    processes = given.get("processes", given.get("replicas", 1))
    with tempfile.TemporaryDirectory(dir=folder, prefix="plan-") as scratch:
        chain = load_function(script)(csgmcmc.DrawStore(Path(scratch) / "draws"))
        if not isinstance(chain, csgmcmc.Chain):
            raise ValueError(f"{script} must return a csgmcmc.Chain, got {type(chain).__name__}")
        found = measure_chain(chain, Path(scratch), threads=1 if processes > 1 else None)
    if processes > 1 and "bandwidth" not in given:
        tried = min(processes, max(2, found["cores"]), 4)
        found |= measure_wire(tried, round(found["parameters"]))
    found["disk"] = shutil.disk_usage(folder).free
    if "step_seconds" in given:
        found["update_seconds"] = 0.0  # it is part of the given time
    return found | given


def measure_chain(
    chain: csgmcmc.Chain, folder: Path, *, threads: int | None = None, seconds: float = 4.0
) -> Row:
    """Take some steps, write a draw and checkpoints into `folder`, and predict a batch.

    The weights of the model change a little.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        with warnings.catch_warnings(action="ignore"):  # a run with the true lr shows them
            found = _time_steps(chain, seconds) | _sizes(chain)
            found |= _time_writes(chain, folder, found)
    finally:
        torch.set_num_threads(before)
    schedule = chain.schedule
    at = range(0, schedule.steps, max(1, schedule.steps // 1000))
    noisy = statistics.fmean(schedule(step).temperature_scale > 0 for step in at)
    found |= {"steps": schedule.steps, "draws": schedule.total_draws, "noisy": noisy}
    if (every := chain._checkpoint_every) != max(1, schedule.steps // 100):
        found["checkpoint_every"] = every
    return found | {"cores": len(os.sched_getaffinity(0))}


def _like(chain: csgmcmc.Chain, schedule: csgmcmc.Schedule, **options: Any) -> csgmcmc.Chain:
    """The same chain on another schedule, at an lr that leaves the weights almost unchanged."""
    for group in chain.sampler.param_groups:
        group["lr"], group["temperature"] = 1e-9, 1.0
    return csgmcmc.Chain(
        *(chain.model, chain.loss, chain.data, chain.sampler, schedule),
        accumulate=chain.accumulate,
        clip=chain.clip,
        device=chain._device,
        **{"autocast": chain._autocast, "watch": False, "progress": False, **options},
    )


class _Enough(Exception):  # noqa: N818  (not an error)
    """Ends a chain that has been timed for long enough."""


def _time_steps(chain: csgmcmc.Chain, seconds: float) -> Row:
    times: dict[bool, list[float]] = {False: [], True: []}  # without and with noise
    began = last = time.perf_counter()

    def clock(info: Any) -> None:
        nonlocal last
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        times[info.temperature > 0].append(now - last)
        if len(times[True]) > WARM_UP and now - began > seconds:
            raise _Enough
        last = time.perf_counter()

    burn_in = 2 * ENDLESS - 1  # so that no draw is kept
    options: Any = {"exploration": 0.5, "draws_per_cycle": 1, "burn_in": burn_in}
    with suppress(_Enough):
        _like(chain, csgmcmc.Cyclical(2 * ENDLESS, ENDLESS, **options), callbacks=clock).run()
    plain, noisy = (statistics.fmean(each[WARM_UP // 2 :]) for each in times.values())
    for group in chain.sampler.param_groups:
        group["temperature"] = 0.0
    update = min(plain, _median(chain.sampler.step, 3))
    return {
        "step_seconds": plain - update,
        "update_seconds": update,
        "noise_seconds": max(0.0, noisy - plain),
    }


def _sizes(chain: csgmcmc.Chain) -> Row:
    tensors = [*chain.model.parameters(), *chain.model.buffers()]
    params = [param for group in chain.sampler.param_groups for param in group["params"]]
    weights, trained = (sum(each.nbytes for each in some) for some in (tensors, params))
    states = sum(
        value.nbytes
        for state in chain.sampler.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    )
    each = trained / sum(param.numel() for param in params)
    layer = max(
        sum(param.nbytes for param in module.parameters(recurse=False))
        for module in chain.model.modules()
    )
    # Weights, gradients, states, and the copy of the gradients to which weight decay is added.
    rest = max(0.0, peak_memory() - (weights + 2 * trained + states))
    found = {"parameters": weights / each, "trained": trained / each, "weight_bytes": each}
    return found | {"states": states / trained, "layers": weights / layer, "rest": rest}


def _time_writes(chain: csgmcmc.Chain, folder: Path, found: Row) -> Row:
    draws = chain.draws
    if not isinstance(draws, csgmcmc.DrawStore) or not draws.path.is_relative_to(folder):
        draws = csgmcmc.DrawStore(folder / "draws")  # as the script's own is elsewhere
    steps = itertools.count()
    writing = _median(lambda: draws.append(chain.model, step=next(steps)), REPEATS)
    plan = Plan(**found, steps=1)
    saving, size = _time_saving(chain, folder / "chain")
    fit = measure_disk(folder)
    slopes = [each for _, each in fit.values()]
    return {
        "draw_bytes": draws.size_on_disk() / len(draws),
        "shared_bytes": sum(file.stat().st_size for file in draws.path.glob("base*")),
        "draw_seconds": writing,
        "checkpoint_seconds": saving,
        "overhead": max(0.0, size - plan.saved),
        "disk_bandwidth": 1 / max(1e-12, min(slopes)),
        "predict_seconds": _time_prediction(chain, draws),
    }


def _time_saving(chain: csgmcmc.Chain, folder: Path) -> tuple[float, float]:
    """Seconds to write a checkpoint of a chain, and its bytes."""
    schedule = csgmcmc.Constant(REPEATS + 1, burn_in=REPEATS, draws=1)
    saved = Timed(csgmcmc.Chain, "_save")
    try:
        _like(chain, schedule, checkpoint_dir=folder, checkpoint_every=1).run()
    finally:
        saved.restore()
    return saved.typical(), (folder / "checkpoints" / "0000.pt").stat().st_size


def measure_disk(folder: Path) -> dict[str, tuple[float, float]]:
    """Seconds of an empty draw and checkpoint, and what each byte adds, from two sizes."""
    found = {}
    steps, store = itertools.count(), csgmcmc.DrawStore(folder / "probe")

    class Flat(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.weights = nn.Parameter(torch.zeros(size))

        def forward(self) -> Tensor:
            return self.weights[0] ** 2

    for size in (1, PROBE // 4):
        model = Flat(size)
        sampler = csgmcmc.SGLD(model.parameters(), lr=1e-9, num_data=1)
        chain = csgmcmc.Chain(model, None, None, sampler, csgmcmc.Constant(1), progress=False)
        draw = _median(lambda model=model: store.append(model, step=next(steps)), REPEATS)
        found[size] = draw, _time_saving(chain, folder / f"probe-{size}")[0]
    pairs = dict(zip(("draw", "checkpoint"), zip(*found.values(), strict=True), strict=True))
    return {name: (low, max(high - low, 0.0) / PROBE) for name, (low, high) in pairs.items()}


def _time_prediction(chain: csgmcmc.Chain, draws: csgmcmc.DrawStore) -> float:
    """Seconds to predict a batch with one draw; 0 if the data are not pairs."""
    batch = next(iter(chain.data or ()), None)
    if not isinstance(batch, (tuple, list)):
        return 0.0
    posterior = csgmcmc.Posterior(chain.model, draws, progress=False)
    try:
        return _median(lambda: posterior.predict(batch[0]), 2) / len(draws)
    except Exception:  # the model is called in another way, or has other outputs
        return 0.0


def peak_memory() -> float:
    """The most memory that this process has held; on a GPU, that of the GPU."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _median(work: Callable[[], Any], times: int) -> float:
    """Median time of some calls, after one that is not counted."""
    found = []
    for _ in range(times + 1):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return statistics.median(found[1:])


class Timed:
    """Calls of a method, and the seconds in them."""

    def __init__(self, owner: Any, name: str) -> None:
        self.seconds: list[float] = []
        method: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*args, **options)
            finally:
                self.seconds.append(time.perf_counter() - began)

        setattr(owner, name, timed)
        self.restore = lambda: setattr(owner, name, method)

    def typical(self) -> float:
        """Without the first call, which does more: it makes folders, or reads what it wrote."""
        return statistics.median(self.seconds[1:])
