"""A bar for predictions that take long."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

PATIENCE_SECONDS = 1.0


class Bar:
    """Appears on a terminal after a second, and leaves nothing behind.

    Args:
        title: what is being done.
        total: all of the work, where known.
        shown: False never shows it.
        console: where to; standard error by default.
    """

    def __init__(
        self, title: str, total: int | None, shown: bool, console: Console | None = None
    ) -> None:
        console = console or Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task(title, total=total)
        self._shown = shown and console.is_terminal
        self._began = time.monotonic()

    def advance(self, done: int) -> None:
        self._bar.update(self._task, advance=done)
        if self._shown and time.monotonic() - self._began > PATIENCE_SECONDS:
            self._bar.start()  # once more changes nothing

    def __enter__(self) -> "Bar":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar.live.is_started:  # else it would print an empty line
            self._bar.stop()
