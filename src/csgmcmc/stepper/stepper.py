"""The one step: everything around a sampler's step but batches and gradients.

    stepper = Stepper(model, sampler, schedule, DrawStore("runs/mine"))
    for inputs, targets in stepper.batches(loader):
        sampler.zero_grad()
        loss(model(inputs), targets).backward()
        stepper.step()

`Chain` and the adapters of other packages' loops are ways to get gradients to this.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from csgmcmc.arguments import check_count, check_flag, check_kind
from csgmcmc.distributed import ProcessLayout, as_layout
from csgmcmc.draws import Draws, DrawStore, MemoryDraws
from csgmcmc.draws.base import tensors_of
from csgmcmc.errors import DivergedError, DrawConflictError
from csgmcmc.randomness import Generator
from csgmcmc.samplers import Noise
from csgmcmc.schedules import Schedule, Tick
from csgmcmc.shards import is_sharded, local_shard
from csgmcmc.stacked import Stack
from csgmcmc.stepper.divergence import diverged_chains, kept_buffers, mask_buffers
from csgmcmc.stepper.fingerprint import (
    check_seed,
    describe_sampler,
    describe_settings,
    describe_tensors,
)
from csgmcmc.stepper.inputs import (
    all_tensors,
    as_tensor,
    check_chain_id,
    check_gradients,
    check_parts,
    remember_initial_options,
    trained_parameters,
    warn_of_lost_draws,
    warn_of_narrow_weights,
    warn_of_other_draws,
)
from csgmcmc.stepper.loading import check_position, refuse_other_states
from csgmcmc.stepper.plain_step import take_step
from csgmcmc.stepper.resumable_batches import ResumableBatches
from csgmcmc.stepper.sources import Sources
from csgmcmc.stepper.state import load_tensors, local_state, plain_state
from csgmcmc.stepper.words import LoopWords, plan_of

WEIGHT_CHECKS = 100  # how often in a run the weights are checked, besides at every draw


class Stepper:
    """Takes a sampler along a schedule, one step a call, and keeps the draws.

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
        settings: further settings that a resumed run must share, as plain values.
        words: what the loop calls things, for messages.
        hold_lock: keep the lock between draws. For loops that cannot say when they end, False
            locks the chain for each draw alone.
        close_at_end: release the lock after the last step. False for loops that call `close`.
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
        settings: Mapping[str, Any] | None = None,
        words: LoopWords | None = None,
        hold_lock: bool = True,
        close_at_end: bool = True,
    ) -> None:
        draws = MemoryDraws() if draws is None else draws
        check_parts(model, sampler, schedule, draws)
        self.model, self.sampler, self.schedule, self.draws = model, sampler, schedule, draws
        self.layout = as_layout(layout)
        self._sources = Sources(generators)
        words = LoopWords() if words is None else words
        self.words = check_kind("words", words, LoopWords, "LoopWords")
        self.trained = trained_parameters(model, sampler)
        self.taken = 0
        """How many steps the sampler has taken: the number of the next one."""
        self.resumed = False  # whether a checkpoint was loaded
        self.batches_per_step = 1.0
        """How many batches of the loader the gradient of one step is the mean of."""
        self.last_checkpoint: Path | None = None
        """A checkpoint to name when the chain diverges."""
        self._chain_id = 0 if chain_id is None else check_count("chain_id", chain_id, at_least=0)
        check_chain_id(chain_id, self.chain_id, len(self.chain_ids), self.layout)
        noise = self._noise
        self._given_seed = noise.seed if noise is not None and noise.seed_is_given else None
        self._hold_lock = check_flag("hold_lock", hold_lock)
        self._close_at_end = check_flag("close_at_end", close_at_end)
        self.begun = False  # whether `begin` was called
        self._weights_every = max(1, schedule.steps // WEIGHT_CHECKS)
        self._due: Tick | None = None  # a draw that is not kept yet: keeping it was interrupted
        self._ahead: set[int] = set()  # steps of draws made after the checkpoint was
        self._exact = True  # whether the resumed run rounds as the one before
        self._forked = False  # whether one of them differs from what the resumed run finds
        self._masks = mask_buffers(model)  # which may be infinite
        remember_initial_options(sampler)
        # Described now: the options of a checkpoint, once loaded, would equal themselves.
        self.settings = {
            "schedule": repr(schedule),
            **describe_sampler(sampler),
            "model": describe_tensors(model.state_dict()),
            **describe_settings(settings),
        }
        """What a run must share with the checkpoint that it resumes from."""

    # The run

    @property
    def chain_id(self) -> int:
        """Number of the chain; of a stack, of its first chain."""
        noise = self._noise  # another object once a checkpoint is loaded
        return self._chain_id if noise is None else noise.chain_id

    @property
    def chain_ids(self) -> range:
        """Numbers of all chains that this steps: one, or those of a stack."""
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

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Batches of `loader`, epoch after epoch, until the schedule ends.

        Their order and position are part of `state_dict`, so that a resumed loop continues with
        the same batches.
        """
        batches = self.attach(loader)
        try:
            while not self.done:
                yield batches.next()
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
        if loss is not None:
            self.check_loss(loss, tick)
        check_gradients(self.sampled())
        take_step(self.sampler)
        return self._record(tick, loss_checked=loss is not None)

    def sampled(self) -> list[Tensor]:
        """The parameters that the sampler holds now."""
        return [param for group in self.sampler.param_groups for param in group["params"]]

    # For loops that step the sampler themselves

    def prepare(self) -> None:
        """Set lr and temperature of the next step."""
        if not self.done:
            self.schedule.apply(self.sampler, self.taken)

    def record(self) -> Tick:
        """Count the step that the loop has just taken, and keep its draw if it is due."""
        self._keep_due()
        return self._record(self.schedule(self.taken), loss_checked=False)

    def _record(self, tick: Tick, *, loss_checked: bool) -> Tick:
        self.taken = tick.step + 1
        if tick.collect:
            self._due = tick
            self._keep_due()
        elif not loss_checked and self.taken % self._weights_every == 0:
            self.check_weights(tick)
        if self.done and self._close_at_end:
            self.close()
        return tick

    # Divergence

    def check_loss(self, loss: Tensor | float, tick: Tick) -> None:
        """Raise `DivergedError` if the loss, of a stack that of any chain, is not finite."""
        if not (isinstance(loss, float) and math.isfinite(loss)):
            check_kind("tick", tick, Tick, "a Tick")
            self._check_finite("the loss", as_tensor("loss", loss), tick)

    def check_weights(self, tick: Tick | None = None) -> None:
        """Raise `DivergedError` if a weight or buffer is not finite after `tick`, or the last."""
        if tick is not None:
            check_kind("tick", tick, Tick, "a Tick")
        tick = tick or self.schedule(max(self.taken - 1, 0))
        for param in self.sampled():
            self._check_finite("a weight", local_shard(param.detach()), tick)
        for name, value in kept_buffers(self.model, self._masks):
            self._check_finite(f"the buffer {name}", value, tick)

    def _check_finite(self, what: str, values: Tensor, tick: Tick) -> None:
        if math.isfinite(values.sum().item()):  # one pass; the closer look is for what fails
            return
        found = diverged_chains(values, len(self.chain_ids))
        if diverged := [self.chain_ids[index] for index in found]:
            lr = float(self.sampler.param_groups[0].get("initial_lr", 0.0)) * tick.lr_scale
            error = DivergedError(what, tick, lr, diverged, self.last_checkpoint)
            error.add_note(f"Gradients are clipped by {self.words.clip}.")
            raise error

    # Begin and end

    def begin(self) -> None:
        """Lock the chain, and check that this is its start or resumes it.

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
        seed = getattr(self._noise, "seed", None)
        if self.resumed:
            check_seed(seed, self._given_seed)
        identity = (seed, self.chain_id)
        if len(set(self.layout.gather(identity))) > 1:
            raise ValueError(
                f"the replicas of chain {self.chain_id} have different seeds or chain numbers: "
                "make the sampler with the same seed= and chain_id= in all processes"
            )
        if self._hold_lock:
            self.lock()
        steps: set[int] = set()
        if self.layout.writes:
            steps = {draw.step for one in self.chain_ids for draw in self.draws.of_chain(one)}
        begun = bool(steps) and not (self.resumed or self.taken)
        if any(self.layout.gather(begun)):
            where = f" in {self.draws.path}" if isinstance(self.draws, DrawStore) else ""
            raise ValueError(
                f"chain {self.chain_id} has draws already{where}: {self.words.resume} resumes it "
                "from a checkpoint; another chain_id or an empty store begins a new one"
            )
        steps = self.layout.gather(steps)[0]  # all processes keep the draws of a sharded model
        self._ahead, self._forked = {step for step in steps if step >= self.taken}, False
        if self.layout.writes:
            wanted = sum(self.schedule(step).collect for step in range(self.taken))
            warn_of_lost_draws(wanted, len(steps) - len(self._ahead), self.taken)
            if self._noise is not None:
                warn_of_narrow_weights(self.trained, self.words)

    def lock(self, *, described: bool = True) -> None:
        """Become the one writer of the chain in the store; `described`: say what makes it, too."""
        described = check_flag("described", described)
        if isinstance(self.draws, DrawStore) and self.layout.writes:
            made = {**plan_of(self), **self.settings}
            for chain_id in self.chain_ids:
                self.draws.lock_chain(chain_id, provenance=made if described else None)

    def close(self) -> None:
        """Release the lock on the store; the next draw takes it again."""
        if isinstance(self.draws, DrawStore):
            self.draws.close(self.chain_ids)

    def _keep_due(self) -> None:
        """Store the weights as the draw that is due. All processes call this: each has its shards.

        Where that was interrupted, the weights are still those of the draw until the next step.
        """
        tick = self._due
        if tick is None:
            return
        self.check_weights(tick)
        model = self.model
        kept = model.chain_tensors() if isinstance(model, Stack) else [tensors_of(model)]
        if not (self.layout.writes or is_sharded(model)):
            self._due = None
            return
        self.lock()
        try:
            for chain_id, tensors in zip(self.chain_ids, kept, strict=True):
                self.draws.append(
                    tensors, step=tick.step, cycle=tick.cycle, stage=tick.stage, chain_id=chain_id
                )
        except DrawConflictError:
            other = None if self._exact else "the same number of processes and threads"
            remedy = self.words.exact_resume or other
            if remedy is None or tick.step not in self._ahead:
                raise
            if not self._forked:  # both continuations of the checkpoint belong to the chain
                warn_of_other_draws(tick.step, remedy)
            self._forked = True
        finally:
            if not self._hold_lock:
                self.close()
        self._due = None

    # Resume

    def state_dict(self) -> dict[str, Any]:
        """All that the loop needs to resume: position, weights, sampler, batches, random state.

        Tensors and plain values, safe for `torch.load(weights_only=True)`. Of a sharded model it
        holds the shards of this process.
        """
        return local_state(self.shared_state())

    def shared_state(self) -> dict[str, Any]:
        """`state_dict` with tensors of a sharded model as they are: all processes hold parts."""
        self._keep_due()
        return plain_state(
            {
                **self.position(),
                "model": all_tensors(self.model),
                "sampler": self.sampler.state_dict(),
                "sources": self._sources.state_dict(),
            }
        )

    def load_state_dict(self, state: dict[str, Any], *, exact: bool = True) -> None:
        """Resume from `state`; `SettingsMismatchError` if the settings differ.

        `exact=False` says that arithmetic will round differently, as with other processes: draws
        after the checkpoint that are stored already may then differ from those of this run.
        """
        with refuse_other_states():
            self.check_state(state)
            load_tensors(self.model, self.sampler, state)
            self.load_position(state)
            self._sources.load_state_dict(state["sources"])
        self._exact = exact

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise `SettingsMismatchError` if `state` was made with other settings."""
        check_position(state, self.settings, self.schedule.steps)
        self._sources.check(state["sources"])
        check_seed(state["sampler"].get("noise", {}).get("seed"), self._given_seed)

    def position(self) -> dict[str, Any]:
        """Position and settings alone, for loops that save model and sampler themselves."""
        return {"taken": self.taken, "settings": self.settings}

    def load_position(self, state: dict[str, Any]) -> None:
        """Continue from `position()`; model and sampler are loaded already."""
        with refuse_other_states():
            self.taken = check_position(state, self.settings, self.schedule.steps)
        self.resumed, self.begun, self._due = True, False, None
        self.prepare()

    @property
    def _noise(self) -> Any:
        noise = getattr(self.sampler, "noise", None)
        return noise if isinstance(noise, Noise) else None
