"""Warnings while a run samples: of the batches, of the loss, and of the steps of a loop.

They cost next to nothing. Batches are looked at in the first epoch. The loss, which the loop has
read anyway, is compared with that of the first step. Whether the noise and the temperature are
right is measured afterwards, by `csgmcmc.checks`.
"""

import statistics
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from csgmcmc.errors import SamplingWarning, warn
from csgmcmc.loop.num_data import targets_of, warn_of_num_data
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

    Batches in the order of their targets, as of a sorted data set without shuffling, are one. A
    cycle that begins with a large lr may raise the loss far for some steps, and recover fully: so
    there is a warning only if the loss stays high, or has not recovered by the end.

    Args:
        stepper: of the run.
        remedy: how to silence the warnings.
    """

    def __init__(self, stepper: "Stepper", *, remedy: str = "; watch=False silences this") -> None:
        self._stepper, self._remedy = stepper, remedy
        self._batches, self._has_looked = list[Tensor](), False  # their targets
        self._warned = False  # of the loss
        self._start: float | None = None  # the loss of the first step
        self._losses: deque[float] = deque(maxlen=2 * PATIENCE)
        self._changes: list[float] = []  # between the first losses
        self._cycle, self._peak = 0, ""

    def look_at_batch(self, batch: Any) -> None:
        """Look at a batch of the first epoch before it is used."""
        if self._has_looked:
            return
        targets: Any = targets_of(batch)
        leaves = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]
        if any(leaf.is_floating_point() and leaf.isnan().any() for leaf in leaves):
            self._warn("a batch of the data holds nan: remove or fill such values")
        elif isinstance(targets, Tensor) and targets.ndim:
            self._batches.append(targets.detach().reshape(len(targets), -1)[:, 0].double())
            loader: Any = self._stepper.loader
            length = len(loader) if hasattr(loader, "__len__") else MAX_BATCHES
            if len(self._batches) < min(length, MAX_BATCHES):
                return
            if self._are_in_order():
                self._warn(
                    "consecutive examples have similar targets, so that the batches of an epoch "
                    "differ: give the loader shuffle=True"
                )
        self._batches, self._has_looked = [], True

    def _are_in_order(self) -> bool:
        """Whether targets of consecutive examples are correlated, beyond chance (about 1e-9)."""
        centred = torch.cat(self._batches)
        centred = centred - centred.mean()
        total, count = float(centred @ centred), len(centred)
        if len(self._batches) == 1 or count < MIN_EXAMPLES or not total > 0:
            return False
        return float(centred[1:] @ centred[:-1]) / total > max(MAX_CORRELATION, 6 / count**0.5)

    def look(self, tick: Tick, loss: float) -> None:
        """Look at the step just taken; called while its options are still set."""
        if not self._warned and (words := self._look_at_loss(tick, loss)):
            self._warned = True
            self._warn(words)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs: the loss of the very first step."""
        return {"start_loss": self._start}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the run that `state` was taken from."""
        self._start = state["start_loss"]

    def _warn(self, words: str) -> None:
        self._stepper.problems.append(words)
        warn(f"chain {self._stepper.chain_id}: {words}{self._remedy}", SamplingWarning)

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
        start, usual = self._start or 0.0, statistics.median(self._changes or [0.0])
        return start + max(rise * max(1.0, abs(start)), changes * usual)

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


class LoopWatch(Watch):
    """A `Watch` of a loop of one's own, which looks at N and at its first steps too.

    It sees whether the gradient of the smallest parameter is that of one backward pass, and whether
    the sampler takes steps besides the stepper's.
    """

    def __init__(self, stepper: "Stepper") -> None:
        super().__init__(stepper, remedy="")
        self._is_first_batch = self._is_first_pass = True  # of the run; since the last step
        self._taken = self._own = 0  # steps, by the sampler and by the stepper
        self._incoming: Tensor | None = None
        smallest = min(stepper.trained, key=lambda param: param.numel())
        self._hooks = [
            smallest.register_hook(self._before_accumulation),
            smallest.register_post_accumulate_grad_hook(self._after_accumulation),
            stepper.sampler.register_step_post_hook(self._count_step),
        ]

    def look_at_batch(self, batch: Any) -> None:
        if self._is_first_batch:
            self._is_first_batch, stepper = False, self._stepper
            stepper.problems += warn_of_num_data(stepper.sampler, stepper.loader, batch)
        super().look_at_batch(batch)

    def stepped(self, tick: Tick, loss: Tensor | float | None) -> None:
        """The stepper has taken a step; its options are still set."""
        self._own, self._is_first_pass = self._own + 1, True
        if self._hooks and self._taken > self._own:
            self._warn("the sampler takes steps besides those of stepper.step(): remove them")
            self.close()
        if self._own == PATIENCE:
            self.close()
        if loss is not None:
            self.look(tick, float(loss.detach().mean() if isinstance(loss, Tensor) else loss))

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _count_step(self, *_: Any) -> None:
        self._taken += 1

    def _before_accumulation(self, gradient: Tensor) -> None:
        self._incoming = gradient.detach().clone() if self._is_first_pass else None

    def _after_accumulation(self, param: Tensor) -> None:
        incoming, self._incoming, self._is_first_pass = self._incoming, None, False
        if incoming is None or param.grad is None or self._own == 0:
            return
        if not torch.equal(param.grad, incoming.to(param.grad.dtype)):
            self.close()
            self._warn(
                "gradients accumulate from step to step: call zero_grad() before each backward()"
            )
