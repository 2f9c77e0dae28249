"""Warnings while a run samples: dominant minibatch noise, an unstable lr, clipping that acts.

They cost next to nothing. The loss, which the loop has read anyway, is compared with that of the
first step. Minibatch noise is estimated a few times in the first sampling stage, from the gradients
of three consecutive steps: the variance of g1 - 2 g2 + g3 is 6 times that of one gradient, and a
drift of the weights cancels in it.
"""

import math
import statistics
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csgmcmc.errors import SamplingWarning, warn
from csgmcmc.loop.stepper import Stepper
from csgmcmc.samplers import Sampler
from csgmcmc.schedules import Schedule, Tick
from csgmcmc.schedules.base import options_at
from csgmcmc.shards import local_shard
from csgmcmc.stacked import gradient_norms

ESTIMATES = 5  # of the noise in a run; the median of at least three is judged
MIN_STEPS = 20  # of sampling: in shorter runs the noise is not estimated
MAX_WEIGHTS = 100_000  # whose gradients are kept, spread over the model
MAX_TICKS = 1000  # of a schedule that are evaluated
RECENT = 5  # losses whose median is the level at the end of a cycle
PATIENCE = 20  # steps that the loss may stay high: after a restart with a large lr it recovers
# How far the loss may rise above that of the first step, in nats and relative to it: while lr is
# large, and at the end of a cycle, where lr is small and the loss should have decreased.
RISE, RISE_AT_THE_END = 2.0, 1.0
# And in units of the usual change between batches, since the first batch may be an easy one.
CHANGES, CHANGES_OF_A_JUMP = 5.0, 20.0
NEGLIGIBLE = 0.1  # ratio of injected to minibatch noise below which the latter dominates
COLD = 0.5  # temperature, minibatch noise included, below which a run is close to optimisation


class Watch:
    """Looks at every step of a run on minibatches, and warns at most once of each problem.

    A cycle that begins with a large lr may raise the loss far for some steps, and recover fully.
    So there is a warning only if the loss stays high, or has not recovered by the end.

    Args:
        stepper: of the run.
        clip: bound of the gradient norm, if gradients are clipped.
    """

    def __init__(self, stepper: Stepper, *, clip: float | None = None) -> None:
        self._stepper, self._noise = stepper, _NoiseWatch(stepper, clip)
        self._warned = False  # of the loss
        self._start: float | None = None  # the loss of the first step
        self._losses: deque[float] = deque(maxlen=2 * PATIENCE)
        self._changes: list[float] = []  # between the first losses
        self._usual_change = 0.0  # their median
        self._cycle, self._peak = 0, ""

    def look(self, tick: Tick) -> None:
        """Look at the step just taken; called while its gradients and options are still set."""
        self._warn(self._noise.look(tick))

    def look_at_loss(self, tick: Tick, loss: float) -> None:
        """Look at the loss of a step; called for all steps in order, maybe some steps later."""
        if not self._warned and (words := self._look_at_loss(tick, loss)):
            self._warned = True
            self._warn([words])

    def _warn(self, found: list[str]) -> None:
        for words in found:
            message = f"chain {self._stepper.chain_id}: {words}; watch=False silences this"
            warn(message, SamplingWarning)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs: the loss of the very first step."""
        return {"start_loss": self._start}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the run that `state` was taken from."""
        self._start = state["start_loss"]

    def _look_at_loss(self, tick: Tick, loss: float) -> str:
        """The warning, once there is one."""
        if self._start is None:  # a resumed run keeps that of its first step
            self._start = loss
        if tick.cycle != self._cycle:
            if self._losses and (found := self._judge_end()):
                return found
            self._cycle, self._peak = tick.cycle, ""
        if self._losses and len(self._changes) < PATIENCE:
            self._changes.append(abs(loss - self._losses[-1]))
            self._usual_change = statistics.median(self._changes)
        self._losses.append(loss)
        if loss > (bound := self._bound(RISE, CHANGES)):
            lr = float(self._stepper.sampler.param_groups[0]["lr"])
            where = f"at step {tick.step} (cycle {tick.cycle + 1}, {tick.stage}, lr {lr:.3g})"
            if len(self._losses) > PATIENCE and statistics.median(self._losses) > bound:
                return self._words(f"is {loss:.3g} {where}")
            if not self._peak and self._level() > self._bound(RISE, CHANGES_OF_A_JUMP):
                self._peak = f"jumped to {loss:.3g} {where} and "
        return self._judge_end() if tick.step == self._stepper.schedule.steps - 1 else ""

    def _level(self) -> float:
        return statistics.median(list(self._losses)[-RECENT:])

    def _bound(self, rise: float, changes: float) -> float:
        start = self._start or 0.0
        return start + max(rise * max(1.0, abs(start)), changes * self._usual_change)

    def _judge_end(self) -> str:
        level, start = self._level(), self._start or 0.0
        # After a jump, a small decrease since the first step means that little was learned.
        is_lost = self._peak and start > 1 and level > start / 2
        if not is_lost and level <= self._bound(RISE_AT_THE_END, CHANGES):
            return ""
        return self._words(f"{self._peak}is {level:.3g} at the end of cycle {self._cycle + 1}")

    def _words(self, found: str) -> str:
        groups = self._stepper.sampler.param_groups
        is_hot = any(group.get("initial_temperature", 0.0) > 0 for group in groups)
        return (
            f"the loss {found}, and was {self._start:.3g} at the first step: "
            f"{'lr or the temperature' if is_hot else 'lr'} is too high, and the chain may "
            "diverge; lower it (csgmcmc.suggest_lr finds an lr)"
        )


class _NoiseWatch:
    """Estimates the ratio of injected to minibatch noise in the first sampling stage."""

    def __init__(self, stepper: Stepper, clip: float | None) -> None:
        self._model, self._sampler, self._clip = stepper.model, stepper.sampler, clip
        is_judged = isinstance(self._sampler, Sampler) and not self._sampler.thermostat
        self._firsts = _first_steps(stepper.schedule) if is_judged else []
        size = sum(local_shard(param).numel() for param in self._model.parameters())
        self._stride = max(1, -(-size // MAX_WEIGHTS))
        self._gradients: list[dict[Tensor, Tensor]] = []  # of consecutive steps
        self._ratios: list[float] = []
        self._clipped: list[bool] = []
        self._temperature = 0.0

    def look(self, tick: Tick) -> list[str]:
        """The warnings, once all estimates are made."""
        if not self._firsts:
            return []
        for first in self._firsts:
            if first <= tick.step < first + 3 and tick.stage == "sample":
                self._take(self._sampler, tick.step - first)
        if tick.step < self._firsts[-1] + 2:
            return []
        self._firsts, found = [], []
        ratio = statistics.median(self._ratios) if len(self._ratios) >= 3 else math.inf
        if ratio < NEGLIGIBLE / 2:  # the estimate is good to a factor of two
            found.append(
                f"the {describe_noise(ratio)} while sampling, at temperature "
                f"{self._temperature:.2g}: {noise_advice(ratio, self._temperature)}"
            )
        share = statistics.fmean(self._clipped) if len(self._clipped) >= 3 else 0.0
        if share > 0.5:
            found.append(
                f"clip={self._clip:g} still acts while sampling, at {share:.0%} of the steps "
                "looked at, so that the draws do not follow the posterior: lower lr, or raise clip"
            )
        return found

    @torch.no_grad()
    def _take(self, sampler: Any, position: int) -> None:
        """Look at the gradients of step `position` of an estimate; the third completes it."""
        hot = [group for group in sampler.param_groups if group["temperature"] > 0]
        noisy = [(g, param) for g in hot for param in g["params"] if param.grad is not None]
        if not noisy:
            return
        if self._clip is not None:
            # Only the shards of this process, whose norm `clip` does not bound: no warning then.
            params = self._model.parameters()
            gradients = [local_shard(param.grad) for param in params if param.grad is not None]
            norm = gradient_norms(self._model, gradients).max().item()
            self._clipped.append(norm >= 0.999 * self._clip)
        del self._gradients[position:]  # of an estimate that was not completed
        self._gradients.append({param: self._some(param.grad) for _, param in noisy})
        if len(self._gradients) < 3:
            return
        (first, second, third), self._gradients = self._gradients, []
        injected = minibatch = 0.0
        for group, param in noisy:
            if param not in first or param not in second:
                continue  # not part of all three losses
            gain = self._some(sampler.gradient_gain(group, param))
            change = (first[param] - 2 * second[param] + third[param]) * (group["lr"] * gain)
            minibatch += change.square().sum().item() / 6
            variance = self._some(sampler.uncorrected_variance(group, param))
            if variance is None:  # not known
                return
            is_tensor = isinstance(variance, Tensor)
            injected += variance.sum().item() if is_tensor else variance * len(change)
        self._ratios.append(noise_ratio(injected, minibatch))
        self._temperature = max(group["temperature"] for group, _ in noisy)

    def _some(self, values: Any) -> Any:
        """A copy of some of the numbers of a tensor, in single precision; a number as it is."""
        if not isinstance(values, Tensor):
            return values
        return local_shard(values).reshape(-1)[:: self._stride].to(torch.float32, copy=True)


def _first_steps(schedule: Schedule) -> list[int]:
    """The first of three consecutive steps for each estimate; none for a short run."""
    every = max(1, schedule.steps // 200)
    ticks = [schedule(step) for step in range(0, schedule.steps, every)]
    hot = [tick for tick in ticks if tick.stage == "sample" and tick.temperature_scale > 0]
    if len(hot) * every < MIN_STEPS:
        return []
    # In the first half of the first stage, so that the warning comes while there is time.
    stage = [tick for tick in hot if tick.cycle == hot[0].cycle]
    count = max(len(stage) // 2, MIN_STEPS // every)
    gap = max(count // ESTIMATES, 3 // every, 1)
    return [tick.step for tick in hot[:count:gap]][:ESTIMATES]


# For the checks of a run too


def noise_ratio(injected: float, minibatch: float) -> float:
    """Injected over minibatch variance; infinite without minibatch noise."""
    return injected / minibatch if minibatch > 0 else math.inf


def describe_noise(ratio: float) -> str:
    """The ratio as a clause."""
    if math.isinf(ratio):
        return "the minibatches add no noise"
    times = f"{ratio:.{2 if ratio >= NEGLIGIBLE else 3}g}"
    times = f"{float(times):,.0f}" if ratio >= 100 else times
    return f"injected noise is {times} times that of the minibatches"


def noise_advice(ratio: float, temperature: float) -> str:
    """What to change if the ratio is negligible."""
    heated = temperature * (1 + 1 / ratio) if ratio else math.inf
    if heated < COLD:
        return (
            "this is close to a snapshot ensemble, not a sample of the posterior; raise "
            "the temperature or the batch size, or lower lr"
        )
    return (
        f"minibatch noise heats the chain to a temperature of up to {heated:.2g}; raise "
        "the batch size, lower lr, or give SGHMC gradient_variance="
    )


def sampling_temperature(stepper: Stepper) -> float:
    """The highest temperature of the sampling stages; 0 if no noise is injected there."""
    if not isinstance(stepper.sampler, Sampler):
        return 0.0
    groups, ticks = stepper.sampler.param_groups, sampling_ticks(stepper.schedule)
    return max(options_at(group, tick)["temperature"] for group in groups for tick in ticks)


def sampling_ticks(schedule: Schedule) -> list[Tick]:
    """Some ticks of the sampling stages; of all stages if there is no sampling stage."""
    ticks = [schedule(step) for step in evenly_spaced(schedule.steps, MAX_TICKS)]
    return [tick for tick in ticks if tick.stage == "sample"] or ticks


def evenly_spaced(count: int, most: int) -> list[int]:
    """At most `most` of the numbers below `count`, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, most).round().astype(int)).tolist()
