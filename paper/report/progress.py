"""A progress bar over the jobs of an experiment."""

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from paper.experiments.results import duration


class JobsBar:
    """A bar over the jobs of an experiment on a terminal, else a line for each that is done."""

    def __init__(self, title: str, console: Console) -> None:
        self._title, self._console = title, console
        self._running: dict[str, float] = {}
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[running]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=None, running="")

    def __enter__(self) -> "JobsBar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def on_start(self, key: str, done: int, total: int) -> None:
        """A job begins."""
        self._running[key] = time.monotonic()
        self._show(done, total)

    def on_job(self, key: str, done: int, total: int) -> None:
        """A job is done."""
        took = duration(time.monotonic() - self._running.pop(key))
        self._show(done, total)
        if not self._console.is_terminal:
            self._console.print(
                Text(f"{self._title}: {done}/{total} {key}, {took}"), soft_wrap=True
            )

    def _show(self, done: int, total: int) -> None:
        running = Text("; ".join(self._running)).markup
        self._bar.update(self._task, completed=done, total=total, running=running)
