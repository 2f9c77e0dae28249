"""Progress of a run: a bar on a terminal, elsewhere a line every 30 seconds."""

import time

from rich.console import Console

from csgmcmc.progress import Bar, duration
from csgmcmc.schedules import Tick

BAR_SECONDS = 0.1
LINE_SECONDS = 30.0
NARROWEST_BAR, WIDEST_BAR = 6, 40
TIME_WIDTH = len("00:00:00 left")
DETAILS_WIDTH = 70  # with step and cycle, about
SHOWN_FIRST = ("loss", "cycle", "draws", "stage", "lr", "T")  # of the details, where all do not fit


class Display:
    """Shows step, cycle, stage, lr, temperature, loss, draws kept and time left, as far as it fits.

    Args:
        title: name of the run.
        steps: number of steps of the run.
        cycles: number of cycles of the run.
        first_step: first step of this run.
        shown: whether to show anything.
        console: where to show it; standard error by default.
    """

    def __init__(
        self,
        title: str,
        steps: int,
        cycles: int,
        first_step: int,
        shown: bool = True,
        console: Console | None = None,
    ) -> None:
        self._console = console or Console(stderr=True)
        self._title, self._steps, self._cycles = title, steps, cycles
        self._first, self._began, self._shown = first_step, time.monotonic(), shown
        terminal = self._console.is_terminal
        self._wait = BAR_SECONDS if terminal else LINE_SECONDS
        self._next = self._began + (0 if terminal else LINE_SECONDS)
        room = self._console.width - len(title) - TIME_WIDTH - 3  # with spaces between the columns
        width = min(max(room - DETAILS_WIDTH, NARROWEST_BAR), WIDEST_BAR)
        self._room = room - width
        options = {"done": first_step, "shown": shown, "width": width}
        self._bar = Bar(title, steps, console=self._console, **options)

    def __enter__(self) -> "Display":
        self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__()

    def update(self, tick: Tick, lr: float, temperature: float, loss: float, draws: int) -> None:
        """Called at every step; shows something only now and then."""
        if not self._shown:
            return
        now = time.monotonic()
        if now < self._next and tick.step + 1 < self._steps:
            return
        self._next = now + self._wait
        step = f"{tick.step + 1}/{self._steps}"
        details = {
            "cycle": f"cycle {tick.cycle + 1}/{self._cycles}",
            "stage": tick.stage,
            "lr": f"lr {lr:.2g}",
            "T": f"T {temperature:.2g}",
            "loss": f"loss {loss:.3g}",
            "draws": f"{draws} draws",
        }
        if self._bar.visible:
            fitting = _fitting(details, self._room - len(step))
            self._bar.update(tick.step + 1, " ".join([step, *fitting]))
            return
        done = tick.step + 1 - self._first
        left = duration((now - self._began) / done * (self._steps - tick.step - 1))
        words = f"{self._title}: step {step}, {' '.join(details.values())}, {left} left"
        self._console.print(words, highlight=False, soft_wrap=True)


def _fitting(details: dict[str, str], room: int) -> list[str]:
    """The most important details that fit into `room` columns, in their order."""
    chosen: set[str] = set()
    for name in SHOWN_FIRST:
        room -= len(details[name]) + 1
        if room < 0:
            break
        chosen.add(name)
    return [text for name, text in details.items() if name in chosen]
