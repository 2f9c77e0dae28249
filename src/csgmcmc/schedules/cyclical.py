"""The paper's schedule: cycles that explore with large steps, then sample with small ones.

    lr_k = lr_0 / 2 * (cos(pi * r(k)) + 1),    r(k) = mod(k - 1, L) / L,    L = ceil(K / M)

with K `steps`, M `cycles`, k = step + 1; r < beta explores, r >= beta samples (Zhang et al.,
"Cyclical Stochastic Gradient MCMC for Bayesian Deep Learning", ICLR 2020, equation 1, algorithm 1).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass
from functools import cached_property
from typing import Literal

from csgmcmc.arguments import check_choice, check_count, check_items, check_number
from csgmcmc.schedules.base import Schedule, Tick
from csgmcmc.schedules.keep import Keep, check_window, resolve_keep


@dataclass(frozen=True)
class Cyclical(Schedule):
    """Cosine cycles, each an exploration stage and then a sampling stage.

    Args:
        steps: K, all sampler steps of the run.
        cycles: M. Cycles are ceil(K / M) steps long; the last is cut short where M does not
            divide K.
        exploration: beta, the fraction of a cycle that explores; 0 has no exploration.
        draws_per_cycle: number of draws in each cycle, evenly spaced over its sampling stage, the
            last at the cycle's end: short for `keep=Keep(per_cycle=draws_per_cycle)`.
        keep: which steps of each sampling stage are kept. Give this or `draws_per_cycle`.
        burn_in: keep no draw before this step. If it falls into a sampling stage, the draws of that
            cycle are spread over the sampling steps that remain.
        exploration_temperature: temperature scale while exploring; 0 is optimisation, above 1 is
            hot exploration, which crosses barriers.
        anneal: change the temperature scale linearly from `exploration_temperature` at the start of
            a cycle to 1 at the start of its sampling stage, instead of jumping.
        weight_decay_scales: one factor of the weight decay for each cycle, so that each samples
            with a prior of another width; see "A ladder of priors" in docs/schedules.md. By
            default all are 1.
        temperature_scales: one factor of the temperature for each cycle, besides that of its
            stages. By default all are 1.
        restart: what the cycles after the first begin with: "continue", the default, with the
            weights as they are; "fresh" with newly initialised ones; a number rho between 0 and 1
            with rho * weights + sqrt(1 - rho^2) * fresh ones. The sampler's state is reset too.
        restart_every: restart before every n-th cycle only: `cycles=4`, `restart="fresh"` and
            `restart_every=2` are two networks of two cycles each.
    """

    steps: int
    cycles: int
    exploration: float = 0.8
    draws_per_cycle: InitVar[int | None] = None
    keep: Keep = None  # pyright: ignore[reportAssignmentType]  (never after __post_init__)
    burn_in: int = 0
    exploration_temperature: float = 0.0
    anneal: bool = False
    weight_decay_scales: Sequence[float] | None = None
    temperature_scales: Sequence[float] | None = None
    restart: float | Literal["continue", "fresh"] = "continue"
    restart_every: int = 1

    def __post_init__(self, draws_per_cycle: int | None) -> None:
        keep = resolve_keep(self.keep, draws_per_cycle, "draws_per_cycle")
        object.__setattr__(self, "keep", keep)
        self.make_plain()
        check_count("cycles", self.cycles, at_least=1)
        check_number("exploration", self.exploration, at_least=0, below=1)
        check_count("burn_in", self.burn_in, at_least=0)
        check_number("exploration_temperature", self.exploration_temperature, at_least=0)
        for name in ("weight_decay_scales", "temperature_scales"):
            if getattr(self, name) is not None:
                given = check_items(name, getattr(self, name), "a list of numbers")
                scales = tuple(check_number(name, scale, at_least=0) for scale in given)
                if len(scales) != self.cycles:
                    wanted = f"one number for each of cycles={self.cycles}"
                    raise ValueError(f"{name} must have {wanted}, got {len(scales)}")
                object.__setattr__(self, name, scales)
        if isinstance(self.restart, str):
            check_choice("restart", self.restart, ("continue", "fresh"))
        else:
            check_number("restart", self.restart, above=0, below=1)
        check_count("restart_every", self.restart_every, at_least=1)
        if self.restart == "continue" and self.restart_every > 1:
            raise ValueError(
                f'restart_every={self.restart_every} needs restart="fresh", or a number: by '
                "default no cycle restarts"
            )
        cycles_that_fit = -(-self.steps // self.cycle_length)
        if cycles_that_fit < self.cycles:
            raise ValueError(
                f"steps={self.steps} cut into cycles of ceil(steps / cycles) = "
                f"{self.cycle_length} steps gives {cycles_that_fit} cycles, not "
                f"cycles={self.cycles}: make steps a multiple of cycles, or lower cycles"
            )
        if self.burn_in >= self.steps:
            raise ValueError(
                f"burn_in={self.burn_in} leaves no draw to keep in steps={self.steps}: lower it"
            )
        for cycle, (start, end) in self._windows:
            remedy = "lower exploration, or give more steps or fewer cycles"
            if start == self.burn_in > 0:
                remedy = f"change burn_in={self.burn_in}"
            check_window(self.keep, max(end - start, 0), f"cycle {cycle + 1}", remedy)

    @cached_property
    def cycle_length(self) -> int:
        """Steps in a cycle: ceil(K / M)."""
        return -(-self.steps // self.cycles)

    @cached_property
    def exploration_steps(self) -> int:
        """Steps of a cycle that explore: the number of positions p with p / L < beta."""
        # The product may be rounded, so the paper's comparison decides.
        first = int(self.exploration * self.cycle_length)
        while first / self.cycle_length < self.exploration:
            first += 1
        return first

    @property
    def total_cycles(self) -> int:
        return self.cycles

    @property
    def restarts(self) -> bool:
        return self.restart != "continue" and self.restart_every < self.cycles

    @property
    def total_draws(self) -> int:
        return sum(self.keep.count(end - start) for _, (start, end) in self._windows)

    @property
    def _windows(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """The cycles that are not all burn-in, and the sampling steps of each."""
        cycles = range(self.burn_in // self.cycle_length, self.cycles)
        return ((cycle, self._window(cycle)) for cycle in cycles)

    def _window(self, cycle: int) -> tuple[int, int]:
        """The sampling steps of a cycle after burn-in: the first, and the one after the last."""
        start = cycle * self.cycle_length
        end = min(start + self.cycle_length, self.steps)
        return max(start + self.exploration_steps, self.burn_in), end

    def tick(self, step: int) -> Tick:
        cycle, position = divmod(step, self.cycle_length)
        start, end = self._window(cycle)
        temperatures, decays = self.temperature_scales, self.weight_decay_scales
        exploring, temperature_scale = position < self.exploration_steps, 1.0
        if exploring:
            progress = position / self.exploration_steps if self.anneal else 0.0
            temperature_scale = self.exploration_temperature * (1 - progress) + progress
        begins, restart = position == 0 and cycle > 0, 1.0
        if begins and self.restart != "continue" and cycle % self.restart_every == 0:
            restart = 0.0 if self.restart == "fresh" else self.restart
        return Tick(
            step=step,
            cycle=cycle,
            stage="explore" if exploring else "sample",
            lr_scale=(math.cos(math.pi * position / self.cycle_length) + 1) / 2,
            temperature_scale=temperature_scale * (temperatures[cycle] if temperatures else 1.0),
            collect=start <= step < end and self.keep.contains(step - start + 1, end - start),
            weight_decay_scale=1.0 if decays is None else decays[cycle],
            restart=restart,
        )
