"""Warnings while a run samples: minibatch noise that dominates, and an unstable lr.

Both cost next to nothing. The loss, which the loop has read anyway, is compared with that of the
first step. Minibatch noise is estimated at a few steps of the first sampling stage, from the
gradients of three consecutive steps: the variance of g1 - 2 g2 + g3 is 6 times that of one
gradient, and a drift of the weights cancels in it.
"""

import math
import statistics
import warnings
from collections import deque
from typing import Any

import torch
from torch import Tensor

from csgmcmc.arguments import check_kind, check_number
from csgmcmc.checks import noise
from csgmcmc.checks.run import StepperLike, level_of_caller
from csgmcmc.checks.verdict import words_of
from csgmcmc.errors import SamplingWarning
from csgmcmc.samplers import Sampler
from csgmcmc.schedules import Schedule, Tick
from csgmcmc.shards import local_shard
from csgmcmc.stacked import gradient_norms

NEGLIGIBLE = noise.NEGLIGIBLE / 2  # the estimate is good to a factor of two
LOOKS = 5  # estimates of the noise in a run; their median is judged
FEWEST_LOOKS = 3
FEWEST_STEPS = 20  # of sampling: in shorter runs the noise is not estimated
MOST_WEIGHTS = 100_000  # whose gradients are kept, spread over the model
MOST_TICKS = 200  # of the schedule, to find the length of its sampling stages
RECENT = 5  # losses whose median is the level at the end of a cycle, or after a jump
PATIENCE = 20  # steps that the loss may stay high: after a restart with a large lr it recovers
# How far the loss may rise above that of the first step, in nats and relative to it: while lr is
# large, and at the end of a cycle, where lr is small and the loss should have decreased.
RISE, RISE_AT_THE_END = 2.0, 1.0
# And in units of the usual change between batches, since the first batch may be an easy one.
CHANGES, CHANGES_OF_A_JUMP = 5.0, 20.0
FIRST_CHANGES = 20  # their median is the first estimate of the usual change, updated slowly then


class Watch:
    """Looks at every step of a run, and warns at most once of each problem.

    For runs on minibatches: a density may begin at its mode, and has no minibatch noise.

    Args:
        stepper: of the run.
        clip: bound of the gradient norm, if gradients are clipped.
        warns: False never warns: of the replicas of a chain, one does.
    """

    def __init__(
        self, stepper: StepperLike, *, clip: float | None = None, warns: bool = True
    ) -> None:
        check_kind("stepper", stepper, StepperLike, "a csgmcmc.Stepper")
        self._stepper, self._warns = stepper, warns
        self._loss = _LossWatch(stepper)
        self._watches: list[_LossWatch | _NoiseWatch] = [self._loss]
        sampler, schedule = stepper.sampler, stepper.schedule
        enough = _sampling_steps(schedule) * schedule.total_cycles >= FEWEST_STEPS
        if enough and isinstance(sampler, Sampler) and _needs_noise_watch(sampler):
            self._watches.append(_NoiseWatch(stepper, sampler, clip))

    def look(self, tick: Tick, loss: float) -> None:
        """Look at the step just taken; called while its gradients and options are still set."""
        for watch in self._watches:
            found = watch.look(tick, loss)
            if found is None:
                continue
            self._watches = [other for other in self._watches if other is not watch]
            for words in found if self._warns else ():
                message = f"chain {self._stepper.chain_id}: {words}; watch=False silences this"
                warnings.warn(message, SamplingWarning, stacklevel=level_of_caller())

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs: the loss of the very first step."""
        return {"start_loss": self._loss.start}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the run that `state` was taken from."""
        start = state["start_loss"]
        if start is not None:
            start = check_number("start_loss", start, largest=math.inf)
        self._loss.start = start


class _LossWatch:
    """Compares the loss with that of the first step.

    A cycle that begins with a large lr may raise the loss far for some steps, and recover fully.
    So there is a warning only if the loss stays high, or has not recovered by the end.
    """

    def __init__(self, stepper: StepperLike) -> None:
        self.start: float | None = None
        self._sampler, self._last_step = stepper.sampler, stepper.schedule.steps - 1
        groups = stepper.sampler.param_groups
        self._heats = any(group.get("initial_temperature", 0.0) > 0 for group in groups)
        self._level = self._usual = 0.0
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._changes: list[float] = []
        self._cycle, self._high, self._jump = -1, 0, ""

    def look(self, tick: Tick, loss: float) -> list[str] | None:
        """What to warn of, once there is something."""
        if self._cycle < 0:
            self.start = loss if self.start is None else self.start  # a resumed run keeps its own
            self._level, self._cycle = self.start, tick.cycle
            self._recent.append(loss)
            return None
        if tick.cycle != self._cycle:  # the recent losses are still those of the cycle before
            if (found := self._judge_end()) is not None:
                return found
            self._cycle, self._jump = tick.cycle, ""
        self._take(loss)
        if loss > self._bound(RISE, CHANGES):
            self._high += 1
            lr, temperature = _first_options(self._sampler)
            where = f"at step {tick.step} (cycle {tick.cycle + 1}, {tick.stage}, lr {lr:.3g})"
            if self._high >= PATIENCE:
                return [self._words(f"is {loss:.3g} {where}", temperature > 0)]
            jumps = statistics.median(self._recent) > self._bound(RISE, CHANGES_OF_A_JUMP)
            if jumps and not self._jump:
                self._jump = f"jumped to {loss:.3g} {where} and "
        elif self._high:
            self._high -= 1
        return self._judge_end() if tick.step == self._last_step else None

    def _take(self, loss: float) -> None:
        change = abs(loss - self._recent[-1])
        self._recent.append(loss)
        if len(self._changes) < FIRST_CHANGES:
            self._changes.append(change)
            self._usual = statistics.median(self._changes)
        else:  # so slowly that a diverging loss does not count as usual
            self._usual *= 1.02 if change > self._usual else 0.98

    def _bound(self, rise: float, changes: float) -> float:
        return self._level + max(rise * max(1.0, abs(self._level)), changes * self._usual)

    def _judge_end(self) -> list[str] | None:
        now = statistics.median(self._recent)
        # After a jump, a small decrease since the first step means that little was learned.
        broken = self._jump and self._level > 1 and now > self._level / 2
        if not broken and now <= self._bound(RISE_AT_THE_END, CHANGES):
            return None
        found = f"{self._jump}is {now:.3g} at the end of cycle {self._cycle + 1}"
        return [self._words(found, self._heats)]

    def _words(self, found: str, hot: bool) -> str:
        return (
            f"the loss {found}, and was {self._level:.3g} at the first step: "
            f"{'lr or the temperature' if hot else 'lr'} is too high, and the chain may diverge; "
            f"lower {'them' if hot else 'it'} (csgmcmc.tuning.suggest_lr finds an lr)"
        )


class _NoiseWatch:
    """Estimates the ratio of injected to minibatch noise in the first sampling stage."""

    def __init__(self, stepper: StepperLike, sampler: Sampler, clip: float | None) -> None:
        self._model, self._sampler, self._clip = stepper.model, sampler, clip
        self._words = words_of(stepper)
        size = sum(local_shard(param).numel() for param in self._model.parameters())
        self._stride = max(1, -(-size // MOST_WEIGHTS))
        # The first half of a stage, so that the warning comes while there is time.
        self._span = max(_sampling_steps(stepper.schedule) // 2, FEWEST_STEPS)
        self._begins = {look * self._span // LOOKS for look in range(LOOKS)}
        self._seen, self._last_step, self._looking = 0, -1, False
        self._row: list[dict[Tensor, Tensor]] = []  # some of the gradients of the last steps
        self._ratios: list[float] = []
        self._clipped: list[bool] = []
        self._temperature = 0.0

    def look(self, tick: Tick, loss: float) -> list[str] | None:
        """What to warn of, once it is known."""
        if tick.stage != "sample":
            return None
        position = self._seen
        self._seen += 1
        if position in self._begins or tick.step != self._last_step + 1:
            self._row.clear()  # consecutive steps only: not across the end of a stage
            self._looking = position in self._begins
        self._last_step = tick.step
        _, temperature = _first_options(self._sampler)
        if self._looking and temperature > 0:
            self._take(temperature)
        return self._verdict() if self._seen >= self._span else None

    @torch.no_grad()
    def _take(self, temperature: float) -> None:
        noisy = [
            (group, param)
            for group in self._sampler.param_groups
            if group["temperature"] > 0
            for param in group["params"]
            if param.grad is not None
        ]
        self._row.append({param: self._some(param.grad) for _, param in noisy})
        if self._clip is not None:
            self._clipped.append(self._largest_norm() >= 0.999 * self._clip)
        if len(self._row) < 3:
            return
        (first, second, third), self._row, self._looking = self._row, [], False
        injected = minibatch = 0.0
        for group, param in noisy:
            if param not in first or param not in second:
                continue  # it was not part of all three losses
            gain = self._sampler.gradient_gain(group, param)
            gain = self._some(gain) if isinstance(gain, Tensor) else gain
            change = (first[param] - 2 * second[param] + third[param]) * (group["lr"] * gain)
            minibatch += change.square().sum().item() / 6
            variance = noise.uncorrected_variance(self._sampler, group, param)
            if variance is None:
                return
            if isinstance(variance, Tensor):
                injected += self._some(variance).sum().item()
            else:
                injected += variance * len(change)
        self._ratios.append(noise.noise_ratio(injected, minibatch))
        self._temperature = temperature

    def _some(self, tensor: Tensor) -> Tensor:
        """A copy of some of the numbers of a tensor, in single precision."""
        return local_shard(tensor).reshape(-1)[:: self._stride].to(torch.float32, copy=True)

    def _largest_norm(self) -> float:
        """The norm that `clip` bounds; of a stack the largest of its chains.

        Of a sharded model it is the norm of this process's part, which `clip` does not bound:
        there is no warning then.
        """
        params = self._model.parameters()
        gradients = [local_shard(param.grad) for param in params if param.grad is not None]
        return gradient_norms(self._model, gradients).max().item()

    def _verdict(self) -> list[str]:
        found = []
        if len(self._ratios) >= FEWEST_LOOKS:
            ratio = statistics.median(self._ratios)
            if ratio < NEGLIGIBLE:
                advice = noise.noise_advice(ratio, self._temperature, self._words)
                found.append(
                    f"the {noise.describe_noise(ratio)} while sampling, at temperature "
                    f"{self._temperature:.2g}: {advice}"
                )
        if len(self._clipped) >= FEWEST_LOOKS and statistics.fmean(self._clipped) > 0.5:
            found.append(
                f"clip={self._clip:g} still acts while sampling, at "
                f"{statistics.fmean(self._clipped):.0%} of the steps looked at, so that the draws "
                "do not follow the posterior: lower lr, or raise clip"
            )
        return found


def _first_options(sampler: torch.optim.Optimizer) -> tuple[float, float]:
    """Lr and temperature of the first parameter group."""
    group = sampler.param_groups[0]
    return float(group["lr"]), float(group.get("temperature", 0.0))


def _sampling_steps(schedule: Schedule) -> int:
    """Steps of one sampling stage, about."""
    asked = range(0, schedule.steps, max(1, schedule.steps // MOST_TICKS))
    share = statistics.fmean(schedule(step).stage == "sample" for step in asked)
    return round(share * schedule.steps / schedule.total_cycles)


def _needs_noise_watch(sampler: Sampler) -> bool:
    """Whether the sampler declares its noise, and has no thermostat that adapts to minibatches."""
    declared = type(sampler).injected_variance is not Sampler.injected_variance
    return declared and not sampler.thermostat
