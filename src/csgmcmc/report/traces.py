"""Loss, lr and temperature along a run: from its log, or as its schedule has them."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from csgmcmc.checks.run import StepperLike, evenly_spaced
from csgmcmc.scalars import read_scalars
from csgmcmc.schedules import options_at

LOG = re.compile(r"(\d+)\.jsonl")
COLUMNS = ("step", "cycle", "lr", "temperature")
MOST_STEPS = 2000  # of a schedule that are evaluated

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Trace:
    """One chain, at some of its steps; the loss is None where it was not logged."""

    chain_id: int
    step: Array
    cycle: Array
    lr: Array
    temperature: Array
    loss: Array | None = None


def logged_traces(folder: Path) -> list[Trace]:
    """The chains that have a log in the folder of a store; damaged logs are left out."""
    found = []
    for path in sorted((folder / "logs").glob("*.jsonl")):
        name = LOG.fullmatch(path.name)
        if name is None:
            continue
        try:
            columns = {
                name: np.asarray(column, dtype=float)
                for name, column in read_scalars(path).items()
                if name in (*COLUMNS, "loss")
            }
        except (OSError, TypeError, ValueError, OverflowError):
            continue
        one_number_each = all(column.ndim == 1 for column in columns.values())
        if columns.keys() == {*COLUMNS, "loss"} and one_number_each:
            found.append(Trace(int(name[1]), **columns))
    return found


def planned_trace(stepper: StepperLike) -> Trace:
    """What the schedule of a run says of the sampler's first group."""
    schedule, group = stepper.schedule, stepper.sampler.param_groups[0]
    ticks = [schedule(step) for step in evenly_spaced(schedule.steps, MOST_STEPS)]
    options = [options_at(group, tick) for tick in ticks]
    return Trace(
        stepper.chain_id,
        step=np.array([tick.step for tick in ticks], dtype=float),
        cycle=np.array([tick.cycle for tick in ticks], dtype=float),
        lr=np.array([each["lr"] for each in options]),
        temperature=np.array([each.get("temperature", 0.0) for each in options]),
    )
