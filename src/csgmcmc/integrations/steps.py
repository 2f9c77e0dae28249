"""Where along its schedule a sampler is, in a loop that is another package's."""

import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from csgmcmc.chain import Diverged
from csgmcmc.chain.config import check_same, describe_sampler
from csgmcmc.draws import AnotherDrawError, Draws, DrawStore
from csgmcmc.draws.base import tensors_of
from csgmcmc.samplers.noise import local
from csgmcmc.schedules import Schedule, Tick

NARROW = (torch.float16, torch.bfloat16)


class Steps:
    """Counts the steps that a sampler has taken, and sets lr and temperature of the next one.

    A schedule counts nothing, so that a loop which does not tell the number of its step needs this.
    Its state is saved with the loop's own checkpoints.

    Args:
        sampler: a sampler, or any torch optimizer.
        schedule: how much of lr and temperature each step uses.
    """

    def __init__(self, sampler: torch.optim.Optimizer, schedule: Schedule) -> None:
        if not isinstance(sampler, torch.optim.Optimizer):
            raise ValueError(f"sampler must be a sampler or a torch optimizer, got {sampler!r}")
        if not isinstance(schedule, Schedule):
            raise ValueError(
                f"schedule must be a csgmcmc schedule, such as Cyclical, got {schedule!r}"
            )
        self.sampler, self.schedule = sampler, schedule
        self.taken = 0
        """How many steps the sampler has taken: the number of the next one."""
        self.resumed = False
        """Whether a checkpoint was loaded."""
        self._ahead: set[int] = set()  # draws of a run that went further than its checkpoint
        narrow = {p.dtype for g in sampler.param_groups for p in g["params"]} & set(NARROW)
        if narrow and self.chain is not None:
            warnings.warn(
                f"the sampled weights are {narrow.pop()}, which rounds most of the noise away: "
                "load the model with dtype=torch.float32 and ask for mixed precision instead",
                stacklevel=3,
            )
        schedule.apply(sampler, 0)
        # Described now: the options of a checkpoint, once loaded, would equal themselves.
        self._config = {"schedule": repr(schedule), **describe_sampler(sampler)}

    @property
    def chain(self) -> int | None:
        """Number of the sampler's chain; None for an optimizer that draws no noise."""
        noise = getattr(self.sampler, "noise", None)
        return None if noise is None else noise.chain

    @property
    def done(self) -> bool:
        """Whether all steps of the schedule have been taken."""
        return self.taken >= self.schedule.steps

    def advance(self) -> Tick:
        """Say that the sampler has taken a step; returns that step's tick."""
        tick = self.schedule(self.taken)
        self.taken += 1
        if not self.done:
            self.schedule.apply(self.sampler, self.taken)
        return tick

    def state_dict(self) -> dict[str, Any]:
        """Plain values, safe for `torch.load(weights_only=True)`."""
        return {"taken": self.taken, "config": self._config}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from `state_dict`; a run with another schedule or other options is refused.

        The sampler's own state is to be loaded before this.
        """
        check_same(state_dict["config"], self._config)
        self.taken, self.resumed = int(state_dict["taken"]), True
        if not self.done:
            self.schedule.apply(self.sampler, self.taken)

    # What is kept

    @staticmethod
    def check_draws(draws: Draws) -> None:
        """Refuse what keeps no draws."""
        if not isinstance(draws, Draws):
            raise ValueError(f"draws must be a DrawStore or MemoryDraws, got {draws!r}")

    def check_start(self, draws: Draws) -> None:
        """Refuse to mix a new chain with draws that are there; warn of those that are not."""
        steps = {draw.step for draw in draws.of_chain(self.chain or 0)}
        if self.taken == 0 and steps:
            raise ValueError(
                f"draws has draws of chain {self.chain or 0} already: resume from a checkpoint, or "
                "begin with another chain number or another store"
            )
        self._ahead = {step for step in steps if step >= self.taken}
        found = len(steps) - len(self._ahead)
        wanted = sum(self.schedule(step).collect for step in range(self.taken))
        if found < wanted:
            warnings.warn(
                f"{wanted - found} of the {wanted} draws before step {self.taken} are not in "
                "draws: give the DrawStore that the run began with",
                stacklevel=3,
            )

    def keep(self, model: nn.Module, draws: Draws, tick: Tick, *, writes: bool = True) -> None:
        """Keep the weights of `model` as the draw of `tick`, unless they are not finite.

        Every process of a sharded model must call this; those that do not write keep nothing.
        """
        self.check_weights(tick)
        tensors = tensors_of(model)
        if not writes:
            return
        number = self.chain or 0
        if isinstance(draws, DrawStore):
            seed = getattr(getattr(self.sampler, "noise", None), "seed", None)
            draws.claim(number, provenance={"seed": seed, **self._config})
        try:
            draws.append(tensors, tick, chain=number)
        except AnotherDrawError:
            if tick.step not in self._ahead:
                raise
            warnings.warn(  # both ways from the checkpoint on are the chain's
                f"the run does not go on exactly from its checkpoint: the draw of step {tick.step} "
                "that was there already is kept",
                stacklevel=2,
            )
        finally:
            # Loops of others end in ways that nobody tells us: a claim is held no longer than a
            # draw takes, so that the next run in the same process can write.
            if isinstance(draws, DrawStore):
                draws.close()

    def check_weights(self, tick: Tick) -> None:
        """Raise `Diverged` if a sampled weight is not finite after the step of `tick`."""
        for group in self.sampler.param_groups:
            for param in group["params"]:
                if not local(param.detach()).isfinite().all():
                    lr = float(group["initial_lr"]) * tick.lr_scale
                    error = Diverged("a weight", tick, lr, [self.chain or 0], None)
                    error.add_note("clip= is an argument of csgmcmc.Chain: here it is the loop's.")
                    raise error


def check_replicas(sampler: torch.optim.Optimizer) -> None:
    """Refuse processes that would draw different noise for one model, and so drift apart."""
    noise = getattr(sampler, "noise", None)
    if noise is None or not dist.is_initialized() or dist.get_world_size() == 1:
        return
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, (noise.seed, noise.chain))
    if len(set(gathered)) > 1:
        raise ValueError(
            "the sampler's seed or chain differs between the processes that train one model: make "
            "it with the same seed= and chain= in all of them"
        )
