"""Tries faults many times, and writes what was lost or wrong into docs/reliability.md.

    make faults

Writes benchmarks/results/faults.json. Needs Linux, and the right to mount a disk in memory: without
it that row is left out. Takes a few minutes. A count of 0 keeps the last result of that fault.
"""

import argparse
import json
import platform
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.faults.power import lose_power
from benchmarks.faults.reads import damage, flip_a_bit, open_while_written, truncate
from benchmarks.faults.runs import Result
from benchmarks.faults.stops import fail_calls, fill_disks, kill_at_calls, kill_at_random_moments
from benchmarks.table import put
from csgmcmc import SGHMC

RESULTS, PAGE = Path("benchmarks/results/faults.json"), Path("docs/reliability.md")

# Those that fork first: a process that has run a chain itself has threads, which a fork loses.
TRIALS: dict[str, tuple[int, Callable[..., Result]]] = {
    "kills": (60, kill_at_random_moments),
    "kills-at-calls": (60, kill_at_calls),
    "power-losses": (60, lose_power),
    "full-disks": (30, fill_disks),
    "refused-calls": (30, fail_calls),
    "opens": (1000, open_while_written),
    "truncations": (750, partial(damage, fault="a file is truncated", change=truncate)),
    "flips": (800, partial(damage, fault="a bit of a file is flipped", change=flip_a_bit)),
}

COLUMNS = (
    *("fault", "tried", "draws compared", "named or refused", "lost", "wrong", "raw errors"),
)


def prepare() -> None:
    """Load and compile, once, what every forked process needs."""
    torch.set_num_threads(1)
    param = torch.nn.Parameter(torch.zeros(3))
    param.grad = torch.zeros(3)
    SGHMC([param], lr=0.1, num_data=1, seed=0).step()


def run(counts: dict[str, int], seed: int, before: dict[str, Any]) -> dict[str, Any]:
    """Try all faults: what is written to the file of results, of which `before` is the last one."""
    prepare()
    results = []
    for name, (_, trial) in TRIALS.items():
        if counts[name] == 0:
            results += [one for one in before.get("results", []) if one["trial"] == name]
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            result = trial(Path(folder).resolve(), counts[name], seed=seed)
        seconds = round(time.monotonic() - start, 1)
        results.append({"trial": name, **asdict(result), "seconds": seconds})
        Console().print(results[-1])
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "safetensors": safetensors.__version__,
        "system": platform.system(),
    }
    return {"seed": seed, "versions": versions, "results": results}


def rows(found: dict[str, Any]) -> list[list[str]]:
    """The cells of the table."""
    lines = []
    for one in found["results"]:
        names = ("tried", "draws", "named", "lost", "wrong", "raw")
        cells = {name: f"{one[name]:,}" for name in names}
        if one["trial"] in ("kills", "kills-at-calls", "power-losses"):  # nothing to be said
            cells["named"] = ""
        if one["tried"]:
            lines.append([one["fault"], *cells.values()])
    return lines


def markdown(found: dict[str, Any]) -> str:
    """The table of the page."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *rows(found)]
    versions = ", ".join(f"{name} {value}" for name, value in found["versions"].items())
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"{table}\n\nSeed {found['seed']}; {versions}."


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    for name, (count, _) in TRIALS.items():
        parser.add_argument(f"--{name}", type=int, default=count, metavar="COUNT")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the results here, and to no page")
    given = parser.parse_args()
    counts = {name: getattr(given, name.replace("-", "_")) for name in TRIALS}
    out = given.out or RESULTS
    found = run(counts, given.seed, json.loads(out.read_text()) if out.exists() else {})
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=2) + "\n")
    if given.out is None:
        PAGE.write_text(put(PAGE.read_text(), "table", markdown(found)))
    table = Table(*COLUMNS)
    for cells in rows(found):
        table.add_row(*cells)
    Console().print(table)
    if any(one["lost"] + one["wrong"] + one["raw"] for one in found["results"]):
        raise SystemExit(1)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
