"""Progress of a run: a bar on a terminal, elsewhere a line every 30 seconds."""

import time
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from csgmcmc.schedules import Tick

if TYPE_CHECKING:
    from csgmcmc.loop.stepper import Stepper

LINE_SECONDS = 30.0


class Display:
    """Shows step, cycle, stage, lr, temperature, loss, draws kept and time left, as far as it fits.

    `title`, `steps` and `cycles` are those of the run, which begins or resumes at `first_step`.
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
        self._console = console = console or Console(stderr=True)
        self._title, self._steps, self._cycles = title, steps, cycles
        self._first, self._began, self._shown = first_step, time.monotonic(), shown
        self._wait = 0.1 if console.is_terminal else LINE_SECONDS
        self._next = self._began + (0 if console.is_terminal else LINE_SECONDS)
        self._room = console.width - len(title) - len("0:00:00") - 13  # beside bar and time
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            disable=not (shown and console.is_terminal),
        )
        self._task = self._bar.add_task(title, total=steps, completed=first_step, state="")

    def __enter__(self) -> "Display":
        self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, tick: Tick, lr: float, temperature: float, loss: float, draws: int) -> None:
        """Called at every step; shows something only now and then."""
        now, taken = time.monotonic(), tick.step + 1
        if not self._shown or (now < self._next and taken < self._steps):
            return
        self._next = now + self._wait
        step = f"{taken}/{self._steps}"
        details = (  # by importance: a narrow terminal cuts off the last ones
            f"loss {loss:.3g} cycle {tick.cycle + 1}/{self._cycles} {draws} draws {tick.stage} "
            f"lr {lr:.2g} T {temperature:.2g}"
        )
        if not self._bar.disable:
            state = f"{step} {details}"[: self._room]
            self._bar.update(self._task, completed=taken, state=state)
            return
        seconds = (now - self._began) / (taken - self._first) * (self._steps - taken)
        left = timedelta(seconds=round(seconds))
        words = f"{self._title}: step {step}, {details}, {left} left"
        self._console.print(words, highlight=False, soft_wrap=True)


def describe_position(stepper: "Stepper") -> str:
    """Steps taken and draws kept, and their totals."""
    kept, schedule = len(stepper.draws.of_chain(stepper.chain_id)), stepper.schedule
    return f"step {stepper.taken} of {schedule.steps} with {kept} of {schedule.total_draws} draws"


def describe_end(stepper: "Stepper") -> str:
    """The message of a loop that has ended before its schedule."""
    return (
        f"the run has ended at {describe_position(stepper)}, before the end of its schedule; "
        "resume it from a checkpoint"
    )
