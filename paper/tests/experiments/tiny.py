"""An experiment of a few lines; the folder of its data says what it is to do."""

import time
from dataclasses import dataclass
from functools import cached_property

from paper.experiments import Config, Experiment


@dataclass(frozen=True)
class TinyConfig(Config):
    numbers: tuple[int, ...] = (1, 2, 3, 4)
    pause: float = 0.0

    @cached_property
    def squares(self):
        return {f"square of {number}": {"number": number} for number in self.numbers}


class Tiny(Experiment[TinyConfig]):
    """Squares, then their sum."""

    name = "tiny"
    summary = "squares"
    presets = {
        "paper": TinyConfig(),
        "slow": TinyConfig(pause=60),
        "unlike": TinyConfig(pause=0.01, numbers=(2, 3)),
    }

    def jobs(self, config, done):
        jobs = dict(config.squares)
        if jobs.keys() <= done.keys():
            jobs["sum"] = {"total": sum(done[key]["square"] for key in config.squares)}
        return jobs

    def run(self, config, data, **options):
        if "total" in options:
            return options
        number = options["number"]
        if data is not None:
            with (data / "log").open("a") as log:  # one short line: whole, whoever else writes
                log.write(f"{number}\n")
            order = data / f"do {number}"
            if order.exists():
                return obey(order.read_text())
        # The first of two workers finishes last.
        time.sleep(config.pause or 0.2 * (number == 1))
        return {"square": number**2, "pair": (number, -number)}


def obey(order):
    if order == "fail":
        raise RuntimeError("asked to fail")
    if order == "interrupt":
        raise KeyboardInterrupt
    return {"square": {"nan": float("nan"), "object": object()}[order]}


def numbers_run(data):
    return sorted(map(int, (data / "log").read_text().split()))
