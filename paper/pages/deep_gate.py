"""The gate of an experiment on networks: whether its cycles are in the regime of the paper.

The paper sets the length of a cycle so that a network comes close to a mode within it. Here: the
training error at the end of every cycle is below the setting's limit, and SGD after the epochs of
one cycle is within a tenth of SGD after all epochs.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from paper.experiments.deep_runs import last_of_each_cycle
from paper.experiments.methods import BY_NAME
from paper.report.page import Grid, Part

GATE = 0.005
NEAR = 1.1
"""Times the error of SGD after all epochs that its error after one cycle may be."""

Record = Mapping[str, Any]


def gate(setting: Record, records: Sequence[Record], label: Callable[[Record], str]) -> list[Part]:
    """Training errors by cycle, and plain training for one cycle beside all epochs."""
    chains = [record for record in records if record["part"] == "chain" and record["scores"]]
    found: dict[str, list[list[float]]] = defaultdict(list)
    for record in chains:
        if BY_NAME[record["method"]].cyclical and "train" in record:
            fit = record["train"]
            found[label(record)].append(last_of_each_cycle(fit["errors"], fit["cycles"]))
    if not found:
        return [_unknown(setting)]
    limit = setting.get("gate", GATE)
    rows = []
    for name, errors in found.items():
        longest = max(map(len, errors))
        means = np.mean([one for one in errors if len(one) == longest], axis=0)
        worst = max(max(one) for one in errors)
        by_cycle = ", ".join(f"{100 * mean:.2f}" for mean in means)
        rows.append([name, str(len(errors)), by_cycle, f"{100 * worst:.2f}", _word(worst < limit)])
    sentences = [*_reasons(limit, records), *_plain(setting, chains)]
    note = (
        f"The training error is that of the last draw of each cycle, mean over seeds. The gate is "
        f"{100 * limit:g} % at the end of every cycle of every seed. A hot draw fits its training "
        "data worse by design: its noise keeps it around the mode. " + " ".join(sentences)
    )
    return [
        Grid(
            title=f"The gate: {setting['epochs'] / setting['cycles']:g} epochs a cycle",
            header=[
                "method",
                "seeds",
                "training error by cycle, %",
                "largest, %",
                "below the gate",
            ],
            rows=rows,
            note=note.strip(),
        )
    ]


def _reasons(limit: float, records: Sequence[Record]) -> list[str]:
    """Why a step size was taken whose run does not end below the gate."""
    searched = [record for record in records if record["part"] == "search"]
    tried: dict[str, list[Record]] = defaultdict(list)
    for record in searched:
        if BY_NAME[record["method"]].cyclical and record["validation_nll"] is not None:
            tried[record["method"]].append(record)
    sentences = []
    for method, found in tried.items():
        taken = min(found, key=lambda record: record["validation_nll"])
        fitting = [record for record in found if record["train_error"] < limit]
        if taken in fitting or not fitting:
            continue
        other = min(fitting, key=lambda record: record["validation_nll"])
        sentences.append(
            f"The step size of {method}, {taken['lr']:g}, is taken though its run ends with a "
            f"training error of {100 * taken['train_error']:.2f} %: with {other['lr']:g}, which "
            f"ends at {100 * other['train_error']:.2f} %, the NLL on validation data is "
            f"{other['validation_nll']:.3f} in place of {taken['validation_nll']:.3f}."
        )
    return sentences


def _plain(setting: Record, chains: Sequence[Record]) -> list[str]:
    """SGD and SGDM for one cycle beside all epochs, where both were run."""
    sentences = []
    for method in ("SGD", "SGDM"):
        short, whole = (
            _errors(method, setting["epochs"] / part, chains) for part in (setting["cycles"], 1)
        )
        same = short.keys() & whole.keys()
        if not same:
            continue
        one, all_ = (float(np.mean([side[key] for key in same])) for side in (short, whole))
        sentences.append(
            f"{method} has {100 * one:.2f} % test error after the epochs of one cycle and "
            f"{100 * all_:.2f} % after all: {'within' if one <= NEAR * all_ else 'more than'} "
            f"{NEAR:g} times as much."
        )
    return sentences


def _errors(method: str, epochs: float, chains: Sequence[Record]) -> dict[tuple[float, int], float]:
    """Test errors of plain training by step size and seed, without the rivals that change it."""
    return {
        (record["lr"], record["seed"]): record["scores"]["error"]
        for record in chains
        if record["method"] == method
        and record["epochs"] == epochs
        and not (record.get("dropout") or record.get("level"))
    }


def _unknown(setting: Record) -> str:
    length = setting["epochs"] / setting["cycles"]
    return (
        f"The gate: a cycle has {length:g} epochs. The training errors at the ends of the cycles "
        "are not in these records."
    )


def _word(passes: bool) -> str:
    return "yes" if passes else "no"
