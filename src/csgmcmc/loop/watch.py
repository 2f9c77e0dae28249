"""Warnings while a run samples: dominant minibatch noise, an unstable lr, clipping that acts.

They cost next to nothing. The loss, which the loop has read anyway, is compared with that of the
first step. Minibatch noise is estimated a few times in the first sampling stage, from the gradients
of three consecutive steps: the variance of g1 - 2 g2 + g3 is 6 times that of one gradient, and a
drift of the weights cancels in it.
"""

import math
import statistics
import warnings
from collections import deque
from typing import Any

import torch
from torch import Tensor

from csgmcmc.errors import SamplingWarning
from csgmcmc.loop import noise_ratio as noise
from csgmcmc.loop.stepper import Stepper
from csgmcmc.loop.ticks import level_of_caller
from csgmcmc.samplers import Sampler
from csgmcmc.schedules import Schedule, Tick
from csgmcmc.shards import local_shard
from csgmcmc.stacked import gradient_norms

ESTIMATES = 5  # of the noise in a run; the median of at least three is judged
MIN_STEPS = 20  # of sampling: in shorter runs the noise is not estimated
MAX_WEIGHTS = 100_000  # whose gradients are kept, spread over the model
RECENT = 5  # losses whose median is the level at the end of a cycle
PATIENCE = 20  # steps that the loss may stay high: after a restart with a large lr it recovers
# How far the loss may rise above that of the first step, in nats and relative to it: while lr is
# large, and at the end of a cycle, where lr is small and the loss should have decreased.
RISE, RISE_AT_THE_END = 2.0, 1.0
# And in units of the usual change between batches, since the first batch may be an easy one.
CHANGES, CHANGES_OF_A_JUMP = 5.0, 20.0


class Watch:
    """Looks at every step of a run on minibatches, and warns at most once of each problem.

    A cycle that begins with a large lr may raise the loss far for some steps, and recover fully.
    So there is a warning only if the loss stays high, or has not recovered by the end.

    Args:
        stepper: of the run.
        clip: bound of the gradient norm, if gradients are clipped.
    """

    def __init__(self, stepper: Stepper, *, clip: float | None = None) -> None:
        self._stepper, self._warned = stepper, False
        self._start: float | None = None  # the loss of the first step
        self._losses: deque[float] = deque(maxlen=2 * PATIENCE)
        self._changes: list[float] = []  # between the first losses
        self._usual_change = 0.0  # their median
        self._cycle, self._peak = 0, ""
        sampler, firsts = stepper.sampler, _first_steps(stepper.schedule)
        self._noise: _NoiseWatch | None = None
        if firsts and isinstance(sampler, Sampler) and not sampler.thermostat:
            self._noise = _NoiseWatch(stepper, sampler, clip, firsts)

    def look(self, tick: Tick, loss: float) -> None:
        """Look at the step just taken; called while its gradients and options are still set."""
        found = [] if self._warned else self._look_at_loss(tick, loss)
        self._warned |= bool(found)
        if self._noise is not None and (judged := self._noise.look(tick)) is not None:
            found, self._noise = found + judged, None
        for words in found:
            message = f"chain {self._stepper.chain_id}: {words}; watch=False silences this"
            warnings.warn(message, SamplingWarning, stacklevel=level_of_caller())

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs: the loss of the very first step."""
        return {"start_loss": self._start}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the run that `state` was taken from."""
        self._start = state["start_loss"]

    def _look_at_loss(self, tick: Tick, loss: float) -> list[str]:
        """The warning, once there is one."""
        if self._start is None:  # a resumed run keeps that of its first step
            self._start = loss
        if self._losses:
            if tick.cycle != self._cycle and (found := self._judge_end()):
                return found
            if len(self._changes) < PATIENCE:
                self._changes.append(abs(loss - self._losses[-1]))
                self._usual_change = statistics.median(self._changes)
        self._losses.append(loss)
        if tick.cycle != self._cycle:
            self._cycle, self._peak = tick.cycle, ""
        if loss > (bound := self._bound(RISE, CHANGES)):
            lr = float(self._stepper.sampler.param_groups[0]["lr"])
            where = f"at step {tick.step} (cycle {tick.cycle + 1}, {tick.stage}, lr {lr:.3g})"
            if len(self._losses) > PATIENCE and statistics.median(self._losses) > bound:
                return self._words(f"is {loss:.3g} {where}")
            if not self._peak and self._level() > self._bound(RISE, CHANGES_OF_A_JUMP):
                self._peak = f"jumped to {loss:.3g} {where} and "
        return self._judge_end() if tick.step == self._stepper.schedule.steps - 1 else []

    def _level(self) -> float:
        return statistics.median(list(self._losses)[-RECENT:])

    def _bound(self, rise: float, changes: float) -> float:
        start = self._start or 0.0
        return start + max(rise * max(1.0, abs(start)), changes * self._usual_change)

    def _judge_end(self) -> list[str]:
        level, start = self._level(), self._start or 0.0
        # After a jump, a small decrease since the first step means that little was learned.
        is_lost = self._peak and start > 1 and level > start / 2
        if not is_lost and level <= self._bound(RISE_AT_THE_END, CHANGES):
            return []
        return self._words(f"{self._peak}is {level:.3g} at the end of cycle {self._cycle + 1}")

    def _words(self, found: str) -> list[str]:
        groups = self._stepper.sampler.param_groups
        is_hot = any(group.get("initial_temperature", 0.0) > 0 for group in groups)
        return [
            f"the loss {found}, and was {self._start:.3g} at the first step: "
            f"{'lr or the temperature' if is_hot else 'lr'} is too high, and the chain may "
            "diverge; lower it (csgmcmc.suggest_lr finds an lr)"
        ]


class _NoiseWatch:
    """Estimates the ratio of injected to minibatch noise in the first sampling stage."""

    def __init__(
        self, stepper: Stepper, sampler: Sampler, clip: float | None, firsts: list[int]
    ) -> None:
        self._model, self._sampler, self._clip = stepper.model, sampler, clip
        self._firsts = firsts  # the first of three steps for each estimate
        size = sum(local_shard(param).numel() for param in self._model.parameters())
        self._stride = max(1, -(-size // MAX_WEIGHTS))
        self._gradients: list[dict[Tensor, Tensor]] = []  # of consecutive steps
        self._ratios: list[float] = []
        self._clipped: list[bool] = []
        self._temperature = 0.0

    def look(self, tick: Tick) -> list[str] | None:
        """The warnings, once all estimates are made."""
        for first in self._firsts:
            if first <= tick.step < first + 3 and tick.stage == "sample":
                self._take(tick.step - first)
        if tick.step < self._firsts[-1] + 2:
            return None
        found = []
        ratio = statistics.median(self._ratios) if len(self._ratios) >= 3 else math.inf
        if ratio < noise.NEGLIGIBLE / 2:  # the estimate is good to a factor of two
            found.append(
                f"the {noise.describe_noise(ratio)} while sampling, at temperature "
                f"{self._temperature:.2g}: {noise.noise_advice(ratio, self._temperature)}"
            )
        share = statistics.fmean(self._clipped) if len(self._clipped) >= 3 else 0.0
        if share > 0.5:
            found.append(
                f"clip={self._clip:g} still acts while sampling, at {share:.0%} of the steps "
                "looked at, so that the draws do not follow the posterior: lower lr, or raise clip"
            )
        return found

    @torch.no_grad()
    def _take(self, position: int) -> None:
        hot = [group for group in self._sampler.param_groups if group["temperature"] > 0]
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
            gain = self._sampler.gradient_gain(group, param)
            gain = self._some(gain) if isinstance(gain, Tensor) else gain
            change = (first[param] - 2 * second[param] + third[param]) * (group["lr"] * gain)
            minibatch += change.square().sum().item() / 6
            variance = self._sampler.uncorrected_variance(group, param)
            if variance is None:
                return
            is_tensor = isinstance(variance, Tensor)
            injected += self._some(variance).sum().item() if is_tensor else variance * len(change)
        self._ratios.append(noise.noise_ratio(injected, minibatch))
        self._temperature = max(group["temperature"] for group, _ in noisy)

    def _some(self, tensor: Tensor) -> Tensor:
        """A copy of some of the numbers of a tensor, in single precision."""
        return local_shard(tensor).reshape(-1)[:: self._stride].to(torch.float32, copy=True)


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
