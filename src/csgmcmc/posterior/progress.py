"""A bar for predictions that take long."""

import time

from rich.console import Console
from rich.progress import Progress

from csgmcmc.progress import make_bar

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
        self._title, self._total, self._console = title, total, console
        self._bar: Progress | None = None
        self._done = 0
        self._appears = time.monotonic() + PATIENCE_SECONDS if shown else float("inf")

    def advance(self, done: int) -> None:
        """Say that so much more is done."""
        self._done += done
        if self._bar is None and time.monotonic() >= self._appears:
            self._appear()
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)

    def _appear(self) -> None:
        console = self._console or Console(stderr=True)
        if not console.is_terminal:
            self._appears = float("inf")
            return
        self._bar = make_bar(console, transient=True)
        self._task = self._bar.add_task(self._title, total=self._total, state="")
        self._bar.start()

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
