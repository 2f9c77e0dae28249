"""Everything around a sampler's step except batches and gradients.

`Chain` and the integrations get gradients, and leave the rest of a step to the `Stepper`.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from csgmcmc.arguments import check_count, check_real, plain_value
from csgmcmc.devices import NARROW_DTYPES
from csgmcmc.distributed import ProcessLayout
from csgmcmc.draws import Draws, DrawStore, MemoryDraws
from csgmcmc.draws.base import tensors_of
from csgmcmc.errors import DivergedError, DrawConflictError, SettingsMismatchError, warn
from csgmcmc.loop import fingerprint
from csgmcmc.loop.batches import ResumableBatches
from csgmcmc.loop.checkpoint import all_tensors, copy_weights, load_sampler
from csgmcmc.loop.restart import Initialise, initial_values, restart_weights
from csgmcmc.loop.watch import Watch
from csgmcmc.noise import Noise
from csgmcmc.randomness import Generator
from csgmcmc.schedules import Schedule, Tick
from csgmcmc.shards import is_sharded, local_shard
from csgmcmc.stacked import Stack


class Stepper:
    """Takes a sampler along a schedule, one step per call, and keeps the draws.

    The first step locks the chain in a `DrawStore`; a chain that has draws already is an error,
    unless a checkpoint was loaded. The end of the schedule or of `batches`, or `close`, unlocks it.

    Args:
        model: the network, or a `Stack` of them.
        sampler: a sampler over the model's parameters, or any torch optimizer.
        schedule: how much of lr and temperature each step uses, and which draws are kept.
        draws: where to keep them; in memory by default.
        chain_id: number of the chain (of the first, for a stack); by default the sampler's.
        layout: this process among those that run the chains; see `csgmcmc.init_distributed`.
        generators: generators that the loop draws from, besides the global ones, so that
            `state_dict` holds their state too.
        initialise: for a schedule with restarts, a function that initialises a module in place. It
            is called after all `reset_parameters` of the model's modules.
        hold_lock: hold the lock from the first step to the end. With False the chain is locked
            only while a draw is stored, for loops that cannot tell when they end.
    """

    def __init__(
        self,
        model: nn.Module,
        sampler: torch.optim.Optimizer,
        schedule: Schedule,
        draws: Draws | None = None,
        *,
        chain_id: int | None = None,
        layout: ProcessLayout | None = None,
        generators: Sequence[Generator] = (),
        initialise: Initialise | None = None,
        hold_lock: bool = True,
    ) -> None:
        draws = MemoryDraws() if draws is None else draws
        fingerprint.check_parts(model, sampler, schedule, draws)
        self.model, self.sampler, self.schedule, self.draws = model, sampler, schedule, draws
        self.layout = layout or ProcessLayout()
        self.trained = [param for param in model.parameters() if param.requires_grad]
        self.taken = 0
        """Number of steps taken, which is the index of the next one."""
        self.resumed = False  # whether a checkpoint was loaded
        self.begun = False  # whether `begin` was called
        self.batches_per_step = 1.0
        """Number of batches of the loader over which the gradient of one step is averaged."""
        # Replicas may have data of their own each, and do not know whose state they will load.
        self._sources = ResumableBatches(generators, compare=self.layout.replicas == 1)
        self._hold_lock, self._initialise = hold_lock, initialise
        self._prepared = 0  # the step that was prepared last: it needs no other restart
        self._due: Tick | None = None  # a draw that is not kept yet: keeping it was interrupted
        self._watch: Watch | None = None  # of a loop over `batches`
        self.problems: list[str] = []  # what the run was warned of, for checks afterwards
        self._chain_id = 0 if chain_id is None else check_count("chain_id", chain_id, at_least=0)
        noise, layout = self._noise, self.layout
        first = layout.chain_id * len(self.chain_ids) if layout.chains > 1 else self.chain_id
        for expected in (first, chain_id):
            if expected not in (None, self.chain_id):
                raise ValueError(
                    f"chain_id={expected}, but the sampler draws the noise of chain "
                    f"{self.chain_id}: make it with chain_id={expected} (in a layout, "
                    "chain_id=layout.chain_id, times the chains of a stack)"
                )
        self._given_seed = noise.seed if noise is not None and noise.seed_is_given else None
        self._shorter: list[Any] = []  # what the schedule was before it was extended
        self._masks = {name for name, value in _float_buffers(model) if value.isinf().any()}
        self.restarts = schedule.restarts
        if self.restarts:  # raises an error now, not after the first cycle
            initial_values(model, self.sampled(), (0,), initialise)
        self.prepare()  # records initial values in any optimizer: settings are described by these
        # Described now: the options of a checkpoint, once loaded, would equal themselves.
        self.settings = fingerprint.describe_run(model, sampler, schedule)
        """Settings that a run must share with the checkpoint that it resumes from: plain values, to
        which a loop adds its own."""

    @property
    def chain_id(self) -> int:
        """Number of the chain; for a stack, of its first chain."""
        noise = self._noise  # another object once a checkpoint is loaded
        return self._chain_id if noise is None else noise.chain_id

    @property
    def chain_ids(self) -> range:
        """Numbers of all chains: one, or those of a stack."""
        count = self.model.chains if isinstance(self.model, Stack) else 1
        return range(self.chain_id, self.chain_id + count)

    @property
    def generators(self) -> list[Generator]:
        """Generators whose state is saved, those of the loader included."""
        return self._sources.generators

    @property
    def done(self) -> bool:
        """Whether all steps of the schedule have been taken."""
        return self.taken >= self.schedule.steps

    def extend(self, schedule: Schedule, cycles: int) -> None:
        """Continue with `cycles` more than `schedule` has, also from a state with fewer.

        Raises a `ValueError` where these would change steps before them.
        """
        self.schedule = fingerprint.extended(schedule, cycles)
        for more in range(cycles):
            shorter = fingerprint.describe_schedule(fingerprint.with_cycles(schedule, more))
            self._shorter.append(fingerprint.completed(shorter))
        self.settings["schedule"] = fingerprint.describe_schedule(self.schedule)

    def batches(self, loader: Iterable[Any], *, order: str = "loader") -> Iterator[Any]:
        """Batches of `loader`, epoch after epoch, until the schedule ends.

        Their order and position are part of `state_dict`, so that a resumed loop continues with
        the same batches. With `order="symmetric"`, each epoch of the loader is followed by the
        same batches in reverse order (Paulin et al. 2024), which are kept in memory. In a fixed
        order of batches of one size, their bias is then of second order in the step size.
        """
        batches = self._sources.attach(loader, order)
        is_alone = self.layout.writes and self.layout.replicas == 1 and not is_sharded(self.model)
        if self.taken == 0 and is_alone:
            self._watch = Watch(self, loader)
        try:
            while not self.done:
                batch = batches.next()
                if self._watch is not None:
                    self._watch.look_at_batch(batch)
                if self.restarts:
                    self.prepare()
                yield batch
        finally:
            self.close()

    def attach(self, loader: Iterable[Any]) -> ResumableBatches:
        """Make the position in `loader` part of `state_dict`; returns its endless batches."""
        return self._sources.attach(loader)

    def step(self, loss: Tensor | float | None = None) -> Tick:
        """Take the step whose gradients have been computed; returns its tick.

        Sets the step's lr and temperature, moves the weights, and keeps the draw if it is due.
        `loss`, where given, is checked first: `DivergedError` if it is not finite. The weights are
        checked at every draw and, without a loss, now and then.
        """
        if self.done:
            raise ValueError(
                f"all {self.schedule.steps} steps of the schedule have been taken: loop over "
                "stepper.batches(loader), or until stepper.done"
            )
        if not self.begun:
            self.begin()
        self._keep_due()
        tick = self.schedule.apply(self.sampler, self.taken)
        if self._prepared != self.taken and (self.restarts or tick.restart < 1):
            raise ValueError(
                "the schedule restarts the network: loop over stepper.batches(loader), or call "
                "stepper.prepare() before each forward pass; your own schedule needs restarts=True"
            )
        if loss is not None:
            self.check_loss(loss, tick)
        if all(param.grad is None for param in self.sampled()):  # nothing would move
            raise ValueError(
                "no parameter of the model has a gradient: call backward() of a loss that is "
                "computed from the model's outputs before each step"
            )
        self.sampler.step()
        if self._watch is not None:
            self._watch.look_at_step()
            if loss is not None:
                self._watch.look(tick, float(torch.as_tensor(loss).detach().mean()))
        return self.record(tick, loss_checked=loss is not None)

    def sampled(self) -> list[Any]:
        """The parameters that the sampler holds now."""
        return [param for group in self.sampler.param_groups for param in group["params"]]

    # For loops that step the sampler themselves

    def prepare(self) -> None:
        """Set lr and temperature of the next step, and restart the network where it is due."""
        if self.done:
            return
        tick = self.schedule.apply(self.sampler, self.taken)
        if tick.restart < 1 and self._prepared != self.taken:
            self._keep_due()
            seed = getattr(self._noise, "seed", 0)  # as the noise: by seed, chain and step
            keys = [(seed, chain_id, tick.step) for chain_id in self.chain_ids]
            sampled = self.sampled()
            restart_weights(self.model, sampled, tick.restart, keys, self._initialise)
            self.sampler.state.clear()
        self._prepared = self.taken

    def record(self, tick: Tick | None = None, *, loss_checked: bool = False) -> Tick:
        """Count the step that the loop has just taken, and keep its draw if it is due."""
        tick = tick or self.schedule(self.taken)
        self.taken = tick.step + 1
        if tick.collect:
            self._due = tick
            self._keep_due()
        elif not loss_checked and self.taken % max(1, self.schedule.steps // 100) == 0:
            self.check_weights(tick)
        if self.done:
            self.close()
        return tick

    # Divergence

    def check_loss(self, loss: Tensor | float, tick: Tick) -> None:
        """Raise `DivergedError` if the loss of any chain is not finite."""
        if isinstance(loss, float) and math.isfinite(loss):
            return
        loss = loss if isinstance(loss, Tensor) else torch.tensor(check_real("loss", loss))
        self._check_finite("the loss", loss.detach(), tick)

    def check_weights(self, tick: Tick | None = None) -> None:
        """Raise `DivergedError` if a weight or buffer is not finite after `tick`, or the last."""
        tick = tick or self.schedule(max(self.taken - 1, 0))
        for param in self.sampled():
            self._check_finite("a weight", local_shard(param.detach()), tick)
        for name, value in _float_buffers(self.model):
            if name not in self._masks or value.isnan().any():  # a mask may be infinite
                self._check_finite(f"the buffer {name}", value, tick)

    def _check_finite(self, what: str, values: Tensor, tick: Tick) -> None:
        if math.isfinite(values.sum().item()):  # the sum of finite values may overflow
            return
        chains = len(self.chain_ids)
        by_chain = values.reshape(chains, -1) if values.ndim else values.expand(chains, 1)
        found = (~by_chain.isfinite().all(1)).nonzero().flatten().tolist()
        if diverged := [self.chain_ids[index] for index in found]:
            lr = float(self.sampler.param_groups[0].get("initial_lr", 0.0)) * tick.lr_scale
            error = DivergedError(what, tick, lr, diverged)
            for problem in self.problems:  # the likelier cause
                error.add_note(f"the run was warned: {problem}")
            raise error

    # Begin and end

    def begin(self) -> None:
        """Lock the chain, and check that it is new or resumed from its checkpoint.

        `step` calls this the first time. Loops that step the sampler themselves call it before
        their first step, in every process, and after a checkpoint has been loaded.
        """
        try:
            self._check_start()
        except BaseException:
            self.close()
            raise
        self.begun = True
        self.prepare()

    def _check_start(self) -> None:
        fingerprint.check_no_lr_scheduler(self.sampler)
        seed = getattr(self._noise, "seed", None)
        if self.resumed and self._given_seed not in (None, seed):
            raise SettingsMismatchError(
                f"cannot resume: seed was {seed} when the checkpoint was made, and is "
                f"{self._given_seed} now; without seed= the sampler continues with that of the "
                "checkpoint"
            )
        if len(set(self.layout.gather((seed, self.chain_id)))) > 1:
            raise ValueError(
                f"the replicas of chain {self.chain_id} have different seeds or chain numbers: "
                "make the sampler with the same seed= and chain_id= in all processes"
            )
        if self._hold_lock:
            self.lock()
        stored: set[int] = set()
        if self.layout.writes:
            stored = {draw.step for one in self.chain_ids for draw in self.draws.of_chain(one)}
        has_begun = bool(stored) and not (self.resumed or self.taken)
        if any(self.layout.gather(has_begun)):
            where = f" in {self.draws.path}" if isinstance(self.draws, DrawStore) else ""
            raise ValueError(
                f"chain {self.chain_id} has draws already{where}: load a checkpoint to resume "
                "it; another chain_id or an empty store begins a new one"
            )
        if self.layout.writes:
            wanted = {step for step in range(self.taken) if self.schedule(step).collect}
            if lost := len(wanted - stored):
                warn(
                    f"{lost} of the {len(wanted)} draws before step {self.taken} are not in draws: "
                    "give the DrawStore that the run began with"
                )
            narrow = {param.dtype for param in self.trained} & set(NARROW_DTYPES)
            if narrow and self._noise is not None:
                warn(
                    f"the sampled weights are {narrow.pop()}, which rounds most of the noise away: "
                    "keep them in torch.float32, and use mixed precision (autocast)"
                )

    def lock(self) -> None:
        """Become the only writer of the chain in the store, which records the settings."""
        if isinstance(self.draws, DrawStore) and self.layout.writes:
            totals = {"total_steps": self.schedule.steps, "total_draws": self.schedule.total_draws}
            provenance = {"seed": getattr(self._noise, "seed", None), **totals, **self.settings}
            for chain_id in self.chain_ids:
                self.draws.lock_chain(chain_id, provenance=provenance)

    def close(self) -> None:
        """Release the lock on the store; the next draw takes it again."""
        if isinstance(self.draws, DrawStore):
            self.draws.close(self.chain_ids)

    def _keep_due(self) -> None:
        """Store the weights as the draw that is due. All processes of a sharded model call this.

        If it is interrupted, the weights are still those of the draw until the next step.
        """
        model, tick = self.model, self._due
        if tick is None:
            return
        self.check_weights(tick)
        kept: list[dict[str, Tensor]] = []
        if self.layout.writes or is_sharded(model):
            kept = model.chain_tensors() if isinstance(model, Stack) else [tensors_of(model)]
            self.lock()
        where = {"step": tick.step, "cycle": tick.cycle, "stage": tick.stage}
        try:
            for chain_id, tensors in zip(self.chain_ids, kept, strict=False):
                self._append(tensors, chain_id=chain_id, **where)
        finally:
            if not self._hold_lock:
                self.close()
        self._due = None

    def _append(self, tensors: dict[str, Tensor], **where: Any) -> None:
        try:
            self.draws.append(tensors, **where)
        except DrawConflictError:
            if not self.resumed:
                raise
            # It was stored after the checkpoint. Both continuations belong to the chain.
            warn(
                "the run does not continue exactly from its checkpoint, and stored draws stay as "
                "they are: that needs the same batches, from stepper.batches(loader), and as many "
                "processes and threads"
            )

    # Resume

    def state_dict(self) -> dict[str, Any]:
        """All that the loop needs to resume: position, weights, sampler, batches, random state.

        Tensors and plain values, safe for `torch.load(weights_only=True)`. Those of a sharded model
        are DTensors, as in the model's own `state_dict`.
        """
        self._keep_due()
        model, sampler = all_tensors(self.model), self.sampler.state_dict()
        state = {"model": model, "sampler": sampler, "sources": self._sources.state_dict()}
        return pytree.tree_map(
            lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else plain_value(leaf),
            {**self.position(), **state},
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from `state`; `SettingsMismatchError` if the settings differ."""
        self.load_position(state)
        self._sources.load_state_dict(state["sources"])
        copy_weights(self.model, state["model"])
        load_sampler(self.sampler, state["sampler"])

    def position(self) -> dict[str, Any]:
        """Position and settings alone, for loops that save model and sampler themselves."""
        state = {"taken": self.taken, "settings": self.settings}
        return {**state, "prepared": self._prepared == self.taken}

    def load_position(self, state: dict[str, Any]) -> None:
        """Continue from `position()`; model and sampler are loaded already."""
        if "settings" not in state:
            raise ValueError("state is not what state_dict() returns: it has no settings")
        # Checkpoints of 0.2.0 do not know modules and losses.
        unknown = {name: self.settings.get(name) for name in ("modules", "loss")}
        both = ({**unknown, **state["settings"]}, {**unknown, **self.settings})
        saved, own = (fingerprint.with_defaults(each, self.sampler) for each in both)
        if saved["schedule"] in self._shorter:
            saved["schedule"] = own["schedule"]
        fingerprint.check_same(saved, own)
        self.taken = check_count("taken", state["taken"], at_least=0, below=self.schedule.steps + 1)
        self.resumed, self.begun, self._due = True, False, None
        self._prepared = self.taken if state.get("prepared") else -1

    @property
    def _noise(self) -> Any:
        noise = getattr(self.sampler, "noise", None)
        return noise if isinstance(noise, Noise) else None


def _float_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The floating point buffers that a draw keeps, by name."""
    kept = model.state_dict()
    for name, value in model.named_buffers():
        if name in kept and value.is_floating_point():
            values = local_shard(value.detach())
            yield name, values.float() if values.dtype.itemsize == 1 else values
