"""Output of the digits demo: progress bars, and a table of scores."""

from collections.abc import Iterable, Sequence

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from csgmcmc.demo.digits import METHODS, DigitsDemo, DigitsScore, sample, score


def show_digits(demo: DigitsDemo, console: Console) -> None:
    """Run four methods with equal numbers of epochs, and print a table."""
    scores = []
    columns = [TextColumn("{task.description:8}"), BarColumn(), "{task.completed}/{task.total}"]
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        total = demo.steps * len(demo.seed_numbers)
        tasks = [progress.add_task(method.name, total=total) for method in METHODS]
        for method, task in zip(METHODS, tasks, strict=True):
            for number, seed in enumerate(demo.seed_numbers):
                before = number * demo.steps
                posterior = sample(
                    demo,
                    method,
                    seed,
                    lambda done, task=task, before=before: progress.update(
                        task, completed=before + done
                    ),
                )
                scores.append(score(demo, method, seed, posterior))
    console.print(table(scores, demo.steps))


def table(scores: Iterable[DigitsScore], steps: int) -> Table:
    """One row per method: mean over seeds, with the standard error if there are several."""
    shown = Table(
        title=f"digits, {steps} steps each",
        caption="ECE: expected calibration error. AUROC: letters against digits, by entropy",
    )
    shown.add_column("method")
    for heading in ("draws", "error %", "NLL", "ECE", "AUROC"):
        shown.add_column(heading, justify="right")
    by_method: dict[str, list[DigitsScore]] = {}
    for row in scores:
        by_method.setdefault(row.method, []).append(row)
    for method, rows in by_method.items():
        shown.add_row(
            method,
            str(rows[0].networks),
            _mean([100 * row.error for row in rows], digits=2),
            _mean([row.nll for row in rows], digits=3),
            _mean([row.calibration_error for row in rows], digits=3),
            _mean([row.auroc for row in rows], digits=3),
        )
    return shown


def _mean(values: Sequence[float], digits: int) -> str:
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ±{np.std(values, ddof=1) / len(values) ** 0.5:.{digits}f}"
