"""The paper's schedule: cycles that explore with large steps, then sample with small ones.

    lr_k = lr_0 / 2 * (cos(pi * r(k)) + 1),    r(k) = mod(k - 1, L) / L,    L = ceil(K / M)

with K `steps`, M `cycles`, k = step + 1; r < beta explores, r >= beta samples (Zhang et al.,
"Cyclical Stochastic Gradient MCMC for Bayesian Deep Learning", ICLR 2020, equation 1, algorithm 1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from csgmcmc.arguments import check_count, check_flag, check_items, check_number
from csgmcmc.schedules.base import MOST_STEPS, Schedule, Tick
from csgmcmc.schedules.keep import Keep


@dataclass(frozen=True)
class Cyclical(Schedule):
    """Cosine cycles, each an exploration stage and then a sampling stage.

    Args:
        steps: K, all sampler steps of the run.
        cycles: M. Cycles are ceil(K / M) steps long; the last is cut short where M does not
            divide K.
        exploration: beta, the fraction of a cycle that explores; 0 has no exploration.
        draws_per_cycle: number of draws in each cycle, evenly spaced over its sampling stage, the
            last at the cycle's end. Give this or `every`.
        every: keep every n-th step of each sampling stage.
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
    """

    steps: int
    cycles: int
    exploration: float = 0.8
    draws_per_cycle: int | None = None
    every: int | None = None
    burn_in: int = 0
    exploration_temperature: float = 0.0
    anneal: bool = False
    weight_decay_scales: Sequence[float] | None = None
    temperature_scales: Sequence[float] | None = None

    def __post_init__(self) -> None:
        self.make_plain()
        check_count("steps", self.steps, at_least=1, below=MOST_STEPS)
        check_count("cycles", self.cycles, at_least=1)
        check_number("exploration", self.exploration, at_least=0, below=1)
        check_count("burn_in", self.burn_in, at_least=0)
        check_number("exploration_temperature", self.exploration_temperature, at_least=0)
        check_flag("anneal", self.anneal)
        self._keep.require()
        for name in ("weight_decay_scales", "temperature_scales"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, self._one_for_each_cycle(name))

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
        # Those between the next cycle and the last are as long as the next.
        for cycle in sorted({self._first_cycle, self._first_cycle + 1, self.cycles - 1}):
            if cycle >= self.cycles:
                continue
            start, end = self._window(cycle)
            remedy = "lower exploration, or give more steps or fewer cycles"
            if start == self.burn_in > 0:
                remedy = f"change burn_in={self.burn_in}"
            self._keep.check_window(max(end - start, 0), f"cycle {cycle + 1}", remedy)

    def _one_for_each_cycle(self, name: str) -> tuple[float, ...]:
        given = check_items(name, getattr(self, name), "a list of numbers")
        scales = tuple(check_number(name, scale, at_least=0) for scale in given)
        if len(scales) != self.cycles:
            raise ValueError(
                f"{name} must have one number for each of cycles={self.cycles}, got {len(scales)}"
            )
        return scales

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
    def total_draws(self) -> int:
        first, last = self._first_cycle, self.cycles - 1
        ends = sum(map(self._draws_of, {first, last}))
        return ends + max(last - first - 1, 0) * self._draws_of(first + 1)

    def _draws_of(self, cycle: int) -> int:
        start, end = self._window(cycle)
        return self._keep.count(end - start) if end > start else 0

    @property
    def _first_cycle(self) -> int:
        """The first cycle that is not all burn-in."""
        return self.burn_in // self.cycle_length

    @cached_property
    def _keep(self) -> Keep:
        return Keep(self.draws_per_cycle, self.every, noun="draws_per_cycle")

    def _window(self, cycle: int) -> tuple[int, int]:
        """The sampling steps of a cycle after burn-in: the first, and the one after the last."""
        start = cycle * self.cycle_length
        end = min(start + self.cycle_length, self.steps)
        return max(start + self.exploration_steps, self.burn_in), end

    def _temperature_scale(self, position: int) -> float:
        if position >= self.exploration_steps:
            return 1.0
        if not self.anneal:
            return float(self.exploration_temperature)
        progress = position / self.exploration_steps
        return self.exploration_temperature * (1 - progress) + progress

    def _lr_scale(self, position: int) -> float:
        return (math.cos(math.pi * position / self.cycle_length) + 1) / 2

    def tick(self, step: int) -> Tick:
        cycle, position = divmod(step, self.cycle_length)
        start, end = self._window(cycle)
        temperatures, decays = self.temperature_scales, self.weight_decay_scales
        return Tick(
            step=step,
            cycle=cycle,
            stage="explore" if position < self.exploration_steps else "sample",
            lr_scale=self._lr_scale(position),
            temperature_scale=self._temperature_scale(position)
            * (1.0 if temperatures is None else temperatures[cycle]),
            collect=start <= step < end and self._keep.contains(step - start + 1, end - start),
            weight_decay_scale=1.0 if decays is None else decays[cycle],
        )

    def table(self) -> dict[str, np.ndarray]:
        # The same as the base's, but vectorised for long runs: scales are computed for one cycle.
        steps = np.arange(self.steps)
        cycle, position = np.divmod(steps, self.cycle_length)
        start = np.maximum(cycle * self.cycle_length + self.exploration_steps, self.burn_in)
        end = np.minimum((cycle + 1) * self.cycle_length, self.steps)
        keeps = self._keep.contains(steps - start + 1, np.maximum(end - start, 1))
        lr_scale = np.array([self._lr_scale(one) for one in range(self.cycle_length)])
        temperature = np.array([self._temperature_scale(one) for one in range(self.cycle_length)])
        ones = (1.0,) * self.cycles
        temperature_scales = np.array(self.temperature_scales or ones)
        weight_decay_scales = np.array(self.weight_decay_scales or ones)
        return {
            "step": steps,
            "cycle": cycle,
            "stage": np.where(position < self.exploration_steps, "explore", "sample"),
            "lr_scale": lr_scale[position],
            "temperature_scale": temperature[position] * temperature_scales[cycle],
            "collect": (start <= steps) & (steps < end) & keeps,
            "weight_decay_scale": weight_decay_scales[cycle],
        }
