"""What a running chain warns of: noise that is lost in the minibatches', and an unstable lr.

Both cost next to nothing. The loss, which the loop has read anyway, is compared with that of the
first step. The minibatches' noise is estimated at a few steps of the first sampling
stage, from the gradients of three steps in a row: the variance of g1 - 2 g2 + g3 is 6 times that of
one gradient, and a drift of the weights cancels in it.
"""

import math
import statistics
import warnings
from collections import deque
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from csgmcmc.chain.events import StepInfo
from csgmcmc.chain.stack import Stack
from csgmcmc.errors import SamplingWarning
from csgmcmc.samplers import Sampler
from csgmcmc.samplers.base import Group
from csgmcmc.shards import local_shard

if TYPE_CHECKING:
    from csgmcmc.chain.loop import Chain

# Half of what `Posterior.check` calls negligible: the estimate is good to a factor of two.
NEGLIGIBLE = 0.05
LOOKS = 5  # estimates of the noise in a run, of which the median counts
FEWEST_LOOKS = 3
FEWEST_STEPS = 20  # of sampling: in shorter runs the noise is not looked at
MOST_WEIGHTS = 100_000  # that are looked at, spread over the model
MOST_TICKS = 200  # of the schedule, that tell how long it samples
RECENT = 5  # losses whose median tells where a cycle ends, or that it has jumped
PATIENCE = 20  # steps that the loss may stay high: after a restart with a large lr it recovers
# How far the loss may rise above that of the first step, in nats and as a share of it: while lr is
# large, and at the end of a cycle, where lr is small and the loss should have come down.
RISE, RISE_AT_THE_END = 2.0, 1.0
# And by how many times the usual change from a batch to the next: the first may be an easy one.
CHANGES, CHANGES_OF_A_JUMP = 5.0, 20.0
FIRST_CHANGES = 20  # whose median is the usual one, and is followed slowly from there


class Watch:
    """Looks at every step of a run, and warns at most once of each thing.

    Args:
        chain: the chain that runs.
    """

    def __init__(self, chain: "Chain") -> None:
        self._number, self._speaks = chain.chain_id, chain.layout.writes
        self._watches: list[_LossWatch | _NoiseWatch] = []
        if chain.data is not None:  # a density has no minibatches, and may begin at its mode
            self._watches.append(_LossWatch(chain))
            sampler = chain.sampler
            enough = _sampling_steps(chain) * chain.schedule.total_cycles >= FEWEST_STEPS
            # A thermostat makes up for the minibatches' noise, however large it is.
            if enough and isinstance(sampler, Sampler) and not sampler.thermostat:
                self._watches.append(_NoiseWatch(chain, sampler))

    def look(self, moment: StepInfo) -> None:
        """Called after each step, while its gradients are still there."""
        for watch in self._watches:
            found = watch.look(moment)
            if found is None:
                continue
            self._watches = [other for other in self._watches if other is not watch]
            for words in found if self._speaks else ():
                warnings.warn(
                    f"chain {self._number}: {words}; Chain(watch=False) silences this",
                    SamplingWarning,
                    stacklevel=4,  # the line that called `Chain.run`
                )


class _LossWatch:
    """Compares the loss with that of the first step.

    A cycle that begins with a large lr may throw the loss far up for some steps, and be none the
    worse for it. So it is told only if the loss stays there, or has not recovered by the end.
    """

    def __init__(self, chain: "Chain") -> None:
        self._chain, self._last_step = chain, chain.schedule.steps - 1
        groups = chain.sampler.param_groups
        self._heats = any(group.get("initial_temperature", 0.0) > 0 for group in groups)
        self._start = self._usual = 0.0
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._changes: list[float] = []
        self._cycle, self._high, self._jump = -1, 0, ""

    def look(self, moment: StepInfo) -> list[str] | None:
        """What to warn of, once there is something."""
        tick, loss = moment.tick, moment.loss
        if self._cycle < 0:
            self._begin(moment)
            return None
        if tick.cycle != self._cycle:  # the losses at hand are still those of the cycle before
            found = self._judge_end()
            if found is not None:
                return found
            self._cycle, self._jump = tick.cycle, ""
        self._take(loss)
        if loss > self._bound(RISE, CHANGES):
            self._high += 1
            where = f"at step {tick.step} (cycle {tick.cycle}, {tick.stage}, lr {moment.lr:.3g})"
            if self._high >= PATIENCE:
                return [self._words(f"is {loss:.3g} {where}", moment.temperature > 0)]
            jumps = statistics.median(self._recent) > self._bound(RISE, CHANGES_OF_A_JUMP)
            if jumps and not self._jump:
                self._jump = f"jumped to {loss:.3g} {where} and "
        elif self._high:
            self._high -= 1
        return self._judge_end() if tick.step == self._last_step else None

    def _begin(self, moment: StepInfo) -> None:
        if self._chain.start_loss is None:  # else the run goes on, with weights that are trained
            self._chain.start_loss = moment.loss
        self._start, self._cycle = self._chain.start_loss, moment.tick.cycle
        self._recent.append(moment.loss)

    def _take(self, loss: float) -> None:
        change = abs(loss - self._recent[-1])
        self._recent.append(loss)
        if len(self._changes) < FIRST_CHANGES:
            self._changes.append(change)
            self._usual = statistics.median(self._changes)
        else:  # so slowly that a loss that runs away does not count as usual
            self._usual *= 1.02 if change > self._usual else 0.98

    def _bound(self, rise: float, changes: float) -> float:
        return self._start + max(rise * max(1.0, abs(self._start)), changes * self._usual)

    def _judge_end(self) -> list[str] | None:
        level = statistics.median(self._recent)
        # After a jump, to have come down a little is to have learned little.
        broken = self._jump and self._start > 1 and level > self._start / 2
        if not broken and level <= self._bound(RISE_AT_THE_END, CHANGES):
            return None
        found = f"{self._jump}is {level:.3g} at the end of cycle {self._cycle}"
        return [self._words(found, self._heats)]

    def _words(self, found: str, hot: bool) -> str:
        return (
            f"the loss {found}, and was {self._start:.3g} at the first step: "
            f"{'lr or the temperature' if hot else 'lr'} is too high, and the chain may diverge; "
            f"lower {'them' if hot else 'it'} (csgmcmc.tuning.suggest_lr finds an lr)"
        )


class _NoiseWatch:
    """Estimates injected noise over that of the minibatches, in the first sampling stage."""

    def __init__(self, chain: "Chain", sampler: Sampler) -> None:
        self._chain, self._sampler = chain, sampler
        size = sum(local_shard(param).numel() for param in chain.model.parameters())
        self._stride = max(1, -(-size // MOST_WEIGHTS))
        # The first half of a stage, so that the warning comes while there is time.
        self._span = max(_sampling_steps(chain) // 2, FEWEST_STEPS)
        self._begins = {look * self._span // LOOKS for look in range(LOOKS)}
        self._seen, self._last_step, self._looking = 0, -1, False
        self._row: list[dict[Tensor, Tensor]] = []  # some of the gradients of the last steps
        self._ratios: list[float] = []
        self._clipped: list[bool] = []
        self._temperature = 0.0

    def look(self, moment: StepInfo) -> list[str] | None:
        """What to warn of, once it is known."""
        if moment.tick.stage != "sample":
            return None
        step, position = moment.tick.step, self._seen
        self._seen += 1
        if position in self._begins or step != self._last_step + 1:
            self._row.clear()  # the end of a stage breaks a row off
            self._looking = position in self._begins
        self._last_step = step
        if self._looking and moment.temperature > 0:
            self._take(moment)
        return self._verdict() if self._seen >= self._span else None

    @torch.no_grad()
    def _take(self, moment: StepInfo) -> None:
        noisy = [
            (group, param)
            for group in self._sampler.param_groups
            if group["temperature"] > 0
            for param in group["params"]
            if param.grad is not None
        ]
        self._row.append({param: self._some(param.grad) for _, param in noisy})
        if self._chain.clip is not None:
            self._clipped.append(_norm(self._chain) >= 0.999 * self._chain.clip)
        if len(self._row) < 3:
            return
        (first, second, third), self._row, self._looking = self._row, [], False
        injected = minibatch = 0.0
        for group, param in noisy:
            if param not in first or param not in second:
                continue  # it was not part of all three losses
            gain = self._sampler.gradient_gain(group, param)
            gain = self._some(gain) if isinstance(gain, Tensor) else gain
            noise = (first[param] - 2 * second[param] + third[param]) * (group["lr"] * gain)
            minibatch += noise.square().sum().item() / 6
            wanted = _wanted(self._sampler, group, param)
            if wanted is None:  # the sampler does not declare its noise
                return
            if isinstance(wanted, Tensor):
                injected += self._some(wanted).sum().item()
            else:
                injected += wanted * len(noise)
        self._ratios.append(injected / minibatch if minibatch > 0 else math.inf)
        self._temperature = moment.temperature

    def _some(self, tensor: Tensor) -> Tensor:
        """Some of the numbers of a tensor, as a copy in single precision."""
        some = local_shard(tensor).reshape(-1)[:: self._stride]
        return some.to(torch.float32, copy=True)

    def _verdict(self) -> list[str]:
        found = []
        if len(self._ratios) >= FEWEST_LOOKS:
            ratio = statistics.median(self._ratios)
            if ratio < NEGLIGIBLE:
                found.append(_words_on_noise(ratio, self._temperature))
        if len(self._clipped) >= FEWEST_LOOKS and statistics.fmean(self._clipped) > 0.5:
            found.append(
                f"clip={self._chain.clip:g} still acts while sampling, at "
                f"{statistics.fmean(self._clipped):.0%} of the steps looked at, so that the draws "
                "follow another law than the posterior's: lower lr, or raise clip"
            )
        return found


def _words_on_noise(ratio: float, temperature: float) -> str:
    words = (
        f"the injected noise is {ratio:.2g} times that of the minibatches while sampling, at "
        f"temperature {temperature:.2g}: "
    )
    heated = temperature * (1 + 1 / ratio) if ratio else math.inf
    if heated < 0.5:  # as in `Posterior.check`
        return words + (
            "that is close to a snapshot ensemble, not a sample; raise the temperature or the "
            "batch size, or lower lr"
        )
    return words + (
        f"theirs heats the chain to a temperature of up to {heated:.2g}; raise the batch size, "
        "lower lr, or give gradient_variance="
    )


def _sampling_steps(chain: "Chain") -> int:
    """Steps of one sampling stage, about."""
    schedule = chain.schedule
    asked = range(0, schedule.steps, max(1, schedule.steps // MOST_TICKS))
    share = statistics.fmean(schedule(step).stage == "sample" for step in asked)
    return round(share * schedule.steps / schedule.total_cycles)


def _wanted(sampler: Sampler, group: Group, param: Tensor) -> Tensor | float | None:
    """Variance of the noise of a step, with what is left out for the minibatches' own."""
    if "gradient_variance" in group:
        group = {**group, "gradient_variance": 0.0}
    return sampler.injected_variance(group, param)


def _norm(chain: "Chain") -> float:
    """The norm that `clip` bounds; of a stack the largest of its chains'.

    Of a sharded model it is that of this process's part, which `clip` does not bound: nothing is
    said of it.
    """
    gradients = [
        local_shard(param.grad) for param in chain.model.parameters() if param.grad is not None
    ]
    if isinstance(chain.model, Stack):
        squares = [
            gradient.reshape(chain.model.chains, -1).square().sum(1) for gradient in gradients
        ]
        return torch.stack(squares).sum(0).max().sqrt().item()
    return torch.nn.utils.get_total_norm(gradients).item()
