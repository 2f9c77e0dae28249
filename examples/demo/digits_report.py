"""Output of the digits demo: progress bars, a table of scores, and differences paired by seed."""

from collections.abc import Iterable, Sequence

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from examples.demo.digits import METHODS, TRAINING_DIGITS, DigitsDemo, DigitsScore, sample, score

Scores = dict[str, list[DigitsScore]]
OURS = METHODS[-1].name
WHEN_NOT = (
    f"Not ahead: {OURS} has the largest calibration error (ECE). And with a wider network, two "
    "layers of 100, SGDM and Snapshot have the lower NLL, lower than all here."
)


def show_digits(demo: DigitsDemo, console: Console) -> None:
    """Run all methods with equal numbers of steps, and print their scores."""
    scores: Scores = {}
    columns = [TextColumn("{task.description:8}"), BarColumn(), "{task.completed}/{task.total}"]
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        tasks = [progress.add_task(method.name, total=demo.steps) for method in METHODS]
        for method, task in zip(METHODS, tasks, strict=True):
            posteriors = sample(
                demo, method, lambda done, task=task: progress.update(task, completed=done)
            )
            scores[method.name] = [
                score(demo, method, seed, posterior)
                for seed, posterior in zip(demo.seed_numbers, posteriors, strict=True)
            ]
            progress.update(task, completed=demo.steps)
    console.print(score_table(scores, demo))
    console.print(difference_table(scores))
    console.print(WHEN_NOT, highlight=False)


def score_table(scores: Scores, demo: DigitsDemo) -> Table:
    """One row per method: mean over seeds, with the standard error if there are several."""
    shown = Table(
        title=f"{TRAINING_DIGITS} digits, {demo.steps} steps of each method, {demo.seeds} seeds",
        caption="ECE: expected calibration error. AUROC: letters told from digits, by entropy",
    )
    shown.add_column("method")
    for heading in ("draws", "error %", "NLL", "ECE", "AUROC"):
        shown.add_column(heading, justify="right")
    for method, rows in scores.items():
        shown.add_row(
            method,
            str(rows[0].networks),
            _mean([100 * row.error for row in rows], digits=1),
            _mean([row.nll for row in rows], digits=3),
            _mean([row.calibration_error for row in rows], digits=3),
            _mean([row.auroc for row in rows], digits=3),
        )
    return shown


def difference_table(scores: Scores) -> Table:
    """How far each rival is behind cSGHMC, paired by seed."""
    shown = Table(
        title=f"{OURS} against the others, paired by seed",
        caption="better: the number of seeds in which it is",
    )
    shown.add_column("rival")
    for heading in ("NLL lower by", "better", "AUROC higher by", "better"):
        shown.add_column(heading, justify="right")
    ours = scores[OURS]
    for name, rows in scores.items():
        if name == OURS:
            continue
        nll = [theirs.nll - own.nll for theirs, own in zip(rows, ours, strict=True)]
        detection = [own.auroc - theirs.auroc for theirs, own in zip(rows, ours, strict=True)]
        cells = [(_mean(gains, digits=3), _wins(gains)) for gains in (nll, detection)]
        shown.add_row(name, *cells[0], *cells[1])
    return shown


def _wins(gains: Iterable[float]) -> str:
    signs = [gain > 0 for gain in gains]
    return f"{sum(signs)} of {len(signs)}"


def _mean(values: Sequence[float], digits: int) -> str:
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ±{np.std(values, ddof=1) / len(values) ** 0.5:.{digits}f}"
