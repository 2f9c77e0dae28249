"""Where along its schedule a sampler is, and what is kept of it, in a loop of another package."""

import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn

from csgmcmc.arguments import check_count
from csgmcmc.chain.fingerprint import check_same, describe_sampler
from csgmcmc.draws import Draws, DrawStore
from csgmcmc.errors import DivergedError, DrawConflictError
from csgmcmc.schedules import Schedule, Tick
from csgmcmc.shards import local_shard

NARROW = {torch.float16, torch.bfloat16}


class Steps:
    """Counts the steps that a sampler has taken, and sets lr and temperature of the next one.

    A schedule counts nothing, so that a loop which does not tell the number of its step needs this.
    Its state is saved with the loop's own checkpoints.

    Args:
        sampler: a sampler, or any torch optimizer.
        schedule: how much of lr and temperature each step uses.
        chain_id: number of the chain; by default the sampler's, 0 for an optimizer without noise.
    """

    # What the package that has the loop calls these, for messages.
    resume: ClassVar[str]
    exact: ClassVar[str]
    clip: ClassVar[str]
    mixed: ClassVar[str]
    # Whether it tells us how a run ends: the lock on a store can then be held until it does.
    tells_end: ClassVar[bool] = False

    def __init__(
        self, sampler: torch.optim.Optimizer, schedule: Schedule, *, chain_id: int | None = None
    ) -> None:
        if not isinstance(sampler, torch.optim.Optimizer):
            raise ValueError(f"sampler must be a sampler or a torch optimizer, got {sampler!r}")
        check_schedule(schedule)
        self.sampler, self.schedule = sampler, schedule
        self._chain_id = 0 if chain_id is None else check_count("chain_id", chain_id, at_least=0)
        if chain_id not in (None, self.chain_id):
            raise ValueError(
                f"chain_id={chain_id}, but the sampler draws the noise of chain {self.chain_id}: "
                f"make it with chain_id={chain_id}"
            )
        self.taken = 0
        """How many steps the sampler has taken: the number of the next one."""
        self.resumed = False
        """Whether a checkpoint was loaded."""
        self._ahead: set[int] = set()  # draws of a run that went further than its checkpoint
        self._forked = False  # whether one of them differs from what the resumed run finds
        schedule.apply(sampler, 0)
        # Described now: the options of a checkpoint, once loaded, would equal themselves.
        self.config = {"schedule": repr(schedule), **describe_sampler(sampler)}
        """What a run must have in common with the checkpoint that it goes on from."""

    @property
    def _noise(self) -> Any:
        return getattr(self.sampler, "noise", None)  # another object once a checkpoint is loaded

    @property
    def _seed(self) -> int | None:
        return None if self._noise is None else self._noise.seed

    @property
    def chain_id(self) -> int:
        """Number of the chain."""
        return self._chain_id if self._noise is None else self._noise.chain

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

    def take_mean(self, batches: int, divided_by: int) -> None:
        """Make the gradient the mean over `batches`, where the loop has divided by more.

        Loops divide each loss by the number of batches that a step accumulates, also in the last
        step of an epoch, for which fewer may be left.
        """
        if batches < divided_by:
            for param in self._params():
                if param.grad is not None:
                    param.grad.mul_(divided_by / batches)

    def state_dict(self) -> dict[str, Any]:
        """Plain values, safe for `torch.load(weights_only=True)`."""
        return {"taken": self.taken, "config": self.config}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from `state_dict`; a run with another schedule or other options is refused.

        The sampler's own state is to be loaded before this.
        """
        check_same(state_dict["config"], self.config)
        self.taken, self.resumed = int(state_dict["taken"]), True
        if not self.done:
            self.schedule.apply(self.sampler, self.taken)

    # What is kept

    def begin(self, draws: Draws, *, writes: bool, replicas: int) -> None:
        """Refuse what would not be one chain, and warn of what it lacks.

        Every process calls this before the first step that it takes, and after a checkpoint has
        been loaded.

        Args:
            draws: where draws are kept.
            writes: whether this process keeps them.
            replicas: number of processes that train one model.
        """
        if len(set(_gather((self._seed, self.chain_id), replicas))) > 1:
            raise ValueError(
                "the sampler's seed or chain differs between the processes that train one model: "
                "make it with the same seed= and chain_id= in all of them"
            )
        if writes and self.tells_end:
            self._lock(draws)
        steps = {draw.step for draw in draws.of_chain(self.chain_id)} if writes else set()
        if any(_gather(self.taken == 0 and bool(steps), replicas)):
            raise ValueError(
                f"chain {self.chain_id} has begun already: {self.resume} goes on with it, another "
                "chain number or store begins a new one"
            )
        self._ahead, self._forked = {step for step in steps if step >= self.taken}, False
        if writes:
            self._warn(found=len(steps) - len(self._ahead))

    def _warn(self, found: int) -> None:
        wanted = sum(self.schedule(step).collect for step in range(self.taken))
        if found < wanted:
            warnings.warn(
                f"{wanted - found} of the {wanted} draws before step {self.taken} are not in "
                "draws: give the DrawStore that the run began with",
                stacklevel=4,
            )
        narrow = {param.dtype for param in self._params()} & NARROW
        if narrow and self._noise is not None:
            warnings.warn(
                f"the sampled weights are {narrow.pop()}, which rounds most of the noise away: "
                f"keep them in torch.float32, and use mixed precision, {self.mixed}",
                stacklevel=4,
            )

    def keep(self, model: nn.Module, draws: Draws, tick: Tick, *, writes: bool) -> None:
        """Keep the weights of `model` as the draw of `tick`, unless they are not finite.

        Every process calls this, so that all of them stop; those that do not write keep nothing.
        """
        self.check_weights(tick)
        if not writes:
            return
        self._lock(draws)
        try:
            draws.append(
                model, step=tick.step, cycle=tick.cycle, stage=tick.stage, chain_id=self.chain_id
            )
        except DrawConflictError:
            if tick.step not in self._ahead:
                raise
            if not self._forked:  # both ways from the checkpoint on are the chain's
                warnings.warn(
                    f"the run does not go on exactly from its checkpoint: its draw of step "
                    f"{tick.step}, and others that are there already, are kept as they are; "
                    f"{self.exact} would make it exact",
                    stacklevel=3,
                )
            self._forked = True
        finally:
            # Where nobody tells us of the end, a lock is held no longer than a draw takes, so
            # that the next run in the same process can write.
            if isinstance(draws, DrawStore) and not self.tells_end:
                draws.close()

    def check_weights(self, tick: Tick) -> None:
        """Raise `DivergedError` if a sampled weight is not finite after the step of `tick`."""
        for group in self.sampler.param_groups:
            if not all(local_shard(param.detach()).isfinite().all() for param in group["params"]):
                lr = float(group["initial_lr"]) * tick.lr_scale
                error = DivergedError("a weight", tick, lr, [self.chain_id], None)
                error.add_note(f"clip= is an argument of csgmcmc.Chain: here it is {self.clip}.")
                raise error

    def _lock(self, draws: Draws) -> None:
        if isinstance(draws, DrawStore):
            draws.lock_chain(self.chain_id, provenance={"seed": self._seed, **self.config})

    def _params(self) -> Iterator[nn.Parameter]:
        for group in self.sampler.param_groups:
            yield from group["params"]


def check_schedule(schedule: Schedule) -> None:
    """Refuse what is no schedule."""
    if not isinstance(schedule, Schedule):
        raise ValueError(f"schedule must be a csgmcmc schedule, such as Cyclical, got {schedule!r}")


def check_draws(draws: Draws) -> None:
    """Refuse what keeps no draws."""
    if not isinstance(draws, Draws):
        raise ValueError(f"draws must be a DrawStore or MemoryDraws, got {draws!r}")


def _gather(mine: Any, replicas: int) -> list[Any]:
    """What each of the processes that train one model has."""
    if replicas == 1 or not dist.is_initialized():
        return [mine]
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, mine)
    return gathered
