"""How all benchmarks measure: rounds in which everything takes turns, and ratios within a round.

What is shown is the middle of the rounds' ratios, with the interval that holds it in 95 of 100
resamplings of the rounds. Absolute times are of this machine at this moment, and only for scale.
"""

import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

ROUNDS = 15


@dataclass(frozen=True)
class Case:
    """Things to time against each other; the first is the baseline.

    Attributes:
        name: what is compared.
        works: what to time, by name.
        repeats: calls in each round, of which the median is taken.
        rounds: number of rounds.
        items: things that each call does; the times are those of one.
        clock: in seconds; `time.process_time`, the time of the processor, where only one thread
            works and the machine has other work to do.
    """

    name: str
    works: dict[str, Callable[[], object]]
    repeats: int = 30
    rounds: int = ROUNDS
    items: int = 1
    clock: Callable[[], float] = time.perf_counter


def report(name: str, cases: list[Case]) -> None:
    """Time all cases, print a table for each, and write runs/bench/NAME.json."""
    console, results = Console(), []
    for case in cases:
        times = _measure(case)
        baseline = next(iter(times.values()))
        table = Table("", "microseconds", "ratio", "95% interval", title=escape(case.name))
        for what, rounds in times.items():
            middle, low, high = _ratio(rounds, baseline)
            microseconds = 1e6 * statistics.median(rounds)
            table.add_row(what, f"{microseconds:.0f}", f"{middle:.2f}", f"{low:.2f} to {high:.2f}")
            row = {"microseconds": microseconds, "ratio": middle, "interval": [low, high]}
            results.append({"case": case.name, "what": what, **row})
        console.print(table)
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    machine = {"machine": platform.machine(), "threads": torch.get_num_threads(), **versions}
    path = Path("runs/bench") / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine, "results": results}, indent=2) + "\n")
    console.print(f"written: {path}")


def _measure(case: Case) -> dict[str, list[float]]:
    """Median time of each work in each round."""
    for work in case.works.values():
        for _ in range(min(case.repeats, 10)):
            work()
    rounds = [
        {
            name: median_time(work, case.repeats, case.clock) / case.items
            for name, work in case.works.items()
        }
        for _ in range(case.rounds)
    ]
    return {name: [one[name] for one in rounds] for name in case.works}


def median_time(
    work: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return statistics.median(times)


def _ratio(times: list[float], baseline: list[float]) -> tuple[float, float, float]:
    """Middle of the rounds' ratios, and a bootstrap interval for it."""
    ratios = np.array(times) / np.array(baseline)
    resampled = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
    low, high = np.percentile(np.median(resampled, axis=1), [2.5, 97.5])
    return float(np.median(ratios)), float(low), float(high)
