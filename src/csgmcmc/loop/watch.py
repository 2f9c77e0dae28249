"""Warnings while a run samples: of the batches, of the loss, and of the steps of a loop.

Batches are looked at in the first epoch. The loss, which the loop has read anyway, is compared with
that of the first step. Noise and temperature are measured afterwards, by `csgmcmc.checks`.
"""

import statistics
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from csgmcmc.errors import SamplingWarning, warn
from csgmcmc.loaders import Loss, to_device
from csgmcmc.loop.num_data import loss_facts, targets_of, wrong_num_data
from csgmcmc.schedules import Tick

if TYPE_CHECKING:
    from csgmcmc.loop.stepper import Stepper

MAX_BATCHES = 100  # that are looked at
MAX_CORRELATION = 0.5  # of the targets of consecutive examples
MIN_EXAMPLES = 50  # for such a correlation
RECENT = 5  # losses whose median is the level at the end of a cycle
PATIENCE = 20  # steps that the loss may stay high: after a restart with a large lr it recovers
# How far the loss may rise above that of the first step, in nats and relative to it: while lr is
# large, and at the end of a cycle, where lr is small and the loss should have decreased.
RISE, RISE_AT_THE_END = 2.0, 1.0
# And in units of the usual change between batches, since the first batch may be an easy one.
CHANGES, CHANGES_OF_A_JUMP = 5.0, 20.0


class Watch:
    """Looks at batches and losses of a run, and warns at most once of each problem.

    A cycle that begins with a large lr may raise the loss far for some steps, and recover fully: so
    there is a warning only if the loss stays high, or has not recovered by the end.
    """

    def __init__(
        self, stepper: "Stepper", loader: Any, loss: Loss | None = None, remedy: str = ""
    ) -> None:
        self._stepper, self._loader, self._loss, self._remedy = stepper, loader, loss, remedy
        self._targets, self._has_looked = list[Tensor](), False  # of the first batches
        self._warned = False  # of the loss
        self.start: float | None = None
        """The loss of the very first step, which a resumed run needs."""
        self._losses: deque[float] = deque(maxlen=2 * PATIENCE)
        self._changes: list[float] = []  # between the first losses
        self._cycle, self._highest = 0, 0.0  # and the highest level of its losses
        self._gradient: tuple[Tensor, int] | None = None  # of the last step, and its version
        self._taken: int | None = None  # steps of the sampler

    def look_at_batch(self, batch: Any) -> None:
        """Look at a batch before it is used: at the first with N, at those of the first epoch."""
        if self._has_looked:
            return
        stepper, loader, targets = self._stepper, self._loader, targets_of(batch)
        if not self._targets and stepper.taken == 0:
            replicas, facts = stepper.layout.replicas, None
            if self._loss is not None and replicas == 1:
                here = stepper.trained[0].device
                facts = loss_facts(self._loss, stepper.model, to_device(batch, here))
            self._warn(wrong_num_data(stepper.sampler, loader, batch, facts, replicas))
        leaves = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]
        if any(leaf.is_floating_point() and leaf.isnan().any() for leaf in leaves):
            self._warn("a batch of the data holds nan: remove or fill such values")
        elif isinstance(targets, Tensor) and targets.ndim:
            self._targets.append(targets.detach().reshape(len(targets), -1)[:, 0].cpu().double())
            length = len(loader) if hasattr(loader, "__len__") else MAX_BATCHES
            if len(self._targets) < min(length, MAX_BATCHES):
                return
            if _are_in_order(self._targets):
                self._warn(
                    "consecutive examples have similar targets, so that the batches of an epoch "
                    "differ: give the loader shuffle=True"
                )
        self._targets, self._has_looked = [], True

    def look_at_step(self) -> None:
        """Look at the step that a loop of the user has just taken."""
        stepper, last, before = self._stepper, self._gradient, self._taken
        self._taken = taken = getattr(getattr(stepper.sampler, "noise", None), "step", 0)
        if before is not None and taken > before + 1:
            self._warn("the sampler takes steps besides those of stepper.step(): remove them")
        gradient = next(param.grad for param in stepper.trained if param.grad is not None)
        # zero_grad() makes another tensor, or changes it; then a backward pass changes it once.
        if last is not None and last[0] is gradient and gradient._version == last[1] + 1:
            self._warn(
                "gradients accumulate from step to step: call zero_grad() before each backward()"
            )
        self._gradient = gradient, gradient._version

    def look(self, tick: Tick, loss: float) -> None:
        """Look at the loss of a step; called for all steps in order, maybe some steps later."""
        if self.start is None:  # a resumed run keeps that of its first step
            self.start = loss
        if self._losses and tick.cycle != self._cycle:
            self._judge_end()
            self._highest = 0.0
        self._cycle = tick.cycle
        if self._losses and len(self._changes) < PATIENCE:
            self._changes.append(abs(loss - self._losses[-1]))
        self._losses.append(loss)
        self._highest = max(self._highest, self._level())
        high = statistics.median(self._losses)
        if len(self._losses) > PATIENCE and high > self._bound(RISE, CHANGES):
            lr = float(self._stepper.sampler.param_groups[0]["lr"])
            where = f"at step {tick.step} (cycle {tick.cycle + 1}, {tick.stage}, lr {lr:.3g})"
            self._warn_of_loss(f"is {high:.3g} {where}")
        if tick.step == self._stepper.schedule.steps - 1:
            self._judge_end()

    def _warn(self, words: str) -> None:
        if words and words not in self._stepper.problems:
            self._stepper.problems.append(words)
            warn(f"chain {self._stepper.chain_id}: {words}{self._remedy}", SamplingWarning)

    def _level(self) -> float:
        return statistics.median(list(self._losses)[-RECENT:])

    def _bound(self, rise: float, changes: float) -> float:
        start, usual = self.start or 0.0, statistics.median(self._changes or [0.0])
        return start + max(rise * max(1.0, abs(start)), changes * usual)

    def _judge_end(self) -> None:
        level, start, jump = self._level(), self.start or 0.0, ""
        if self._highest > self._bound(RISE, CHANGES_OF_A_JUMP):
            jump = f"jumped to {self._highest:.3g} and "
        # After a jump, a small decrease since the first step means that little was learned.
        is_lost = jump and start > 1 and level > start / 2
        if is_lost or level > self._bound(RISE_AT_THE_END, CHANGES):
            self._warn_of_loss(f"{jump}is {level:.3g} at the end of cycle {self._cycle + 1}")

    def _warn_of_loss(self, words: str) -> None:
        groups = self._stepper.sampler.param_groups
        is_hot = any(group.get("initial_temperature", 0.0) > 0 for group in groups)
        if not self._warned:
            self._warn(
                f"the loss {words}, and was {self.start:.3g} at the first step: "
                f"{'lr or the temperature' if is_hot else 'lr'} is too high, and the chain may "
                "diverge; lower it (csgmcmc.suggest_lr finds an lr)"
            )
        self._warned = True


def _are_in_order(targets: list[Tensor]) -> bool:
    """Whether targets of consecutive examples are correlated, beyond chance (about 1e-9)."""
    centred = torch.cat(targets)
    centred = centred - centred.mean()
    total, count = float(centred @ centred), len(centred)
    if len(targets) == 1 or count < MIN_EXAMPLES or not total > 0:
        return False
    return float(centred[1:] @ centred[:-1]) / total > max(MAX_CORRELATION, 6 / count**0.5)
