"""The only loop: model, loss and data in; draws out; stopped anywhere, it goes on bit for bit."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from csgmcmc.arguments import check_count, check_number
from csgmcmc.batches import Loss, batch_loss
from csgmcmc.chain.checkpoint import Checkpoints
from csgmcmc.chain.clipping import clip_gradients
from csgmcmc.chain.distributed import ProcessLayout, share_gradients
from csgmcmc.chain.events import Callback, StepInfo, as_row
from csgmcmc.chain.fingerprint import (
    check_same,
    describe_loader,
    describe_sampler,
    describe_tensors,
)
from csgmcmc.chain.parameters import trained_parameters
from csgmcmc.chain.progress import Display
from csgmcmc.chain.resumable_batches import ResumableBatches
from csgmcmc.chain.scalars import ScalarLog
from csgmcmc.checks import Watch
from csgmcmc.draws import Draws, DrawStore, MemoryDraws
from csgmcmc.draws.base import tensors_of
from csgmcmc.errors import DivergedError
from csgmcmc.randomness import Generator, random_state, restore_random_state
from csgmcmc.schedules import Schedule, Tick
from csgmcmc.shards import local_shard
from csgmcmc.stacked import Stack


class Chain:
    """Runs a sampler along a schedule, and keeps the draws.

    Args:
        model: the network, a `Stack` of them, or a density: a module that returns U of itself.
        loss: mean negative log-likelihood. A batch that is a pair (inputs, targets) is evaluated
            as `loss(model(inputs), targets)`, any other as `loss(model, batch)`. None for a
            density.
        data: a `DataLoader`, or anything that gives batches each time it is iterated. None for a
            density.
        sampler: a sampler over the model's parameters, or any torch optimizer.
        schedule: how much of lr and temperature each step uses, and which draws are kept.
        draws: where to keep them; in memory by default.
        chain_id: number of the chain (of the first, for a stack); by default the sampler's.
        device: where batches are moved to; the model is left where it is.
        accumulate: batches for each step, whose gradients are averaged; `steps` counts steps.
        clip: bound of the gradient's norm, for each chain of a stack by itself. Clipped gradients
            are not those of the posterior: where clipping acts, the law is another one. Meant for
            exploration; see whether it still acts while sampling.
        autocast: dtype of automatic mixed precision, e.g. `torch.bfloat16`.
        compile: evaluate the loss with `torch.compile`.
        on_step: functions called with a `StepInfo` after each step.
        on_draw: functions called after each draw that was kept.
        on_cycle_end: functions called after the last step of each cycle.
        checkpoint_every: steps between checkpoints; by default a hundredth of the run. Draws that
            are rare, fewer than one in a hundred steps, are each followed by one too.
        checkpoints: folder for checkpoints and the log; by default inside the draw store. In
            memory without this there are none.
        layout: where this process stands under `torchrun`; see
            `csgmcmc.init_distributed`. With replicas, the gradients are averaged over them (DDP),
            unless the model is sharded already (FSDP2).
        generators: generators that the data's transforms draw from, besides the global ones, so
            that they are saved with the chain.
        watch: warn where lr is unstable, or where the noise is lost in that of the minibatches.
        progress: show a bar, or lines where there is no terminal.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss | None,
        data: Iterable[Any] | None,
        sampler: torch.optim.Optimizer,
        schedule: Schedule,
        draws: Draws | None = None,
        *,
        chain_id: int | None = None,
        device: torch.device | str | None = None,
        accumulate: int = 1,
        clip: float | None = None,
        autocast: torch.dtype | None = None,
        compile: bool = False,  # noqa: A002  (torch's own name for it)
        on_step: Callback | Sequence[Callback] = (),
        on_draw: Callback | Sequence[Callback] = (),
        on_cycle_end: Callback | Sequence[Callback] = (),
        checkpoint_every: int | None = None,
        checkpoints: str | Path | None = None,
        layout: ProcessLayout | None = None,
        generators: Sequence[Generator] = (),
        watch: bool = True,
        progress: bool = True,
    ) -> None:
        if (loss is None) != (data is None):
            raise ValueError("loss and data go together: give both, or neither for a density")
        if clip is not None:
            check_number("clip", clip, above=0)
        self.layout = ProcessLayout() if layout is None else layout
        noise = getattr(sampler, "noise", None)
        self.model, self.loss, self.sampler, self.schedule = model, loss, sampler, schedule
        self.data, self.draws = data, MemoryDraws() if draws is None else draws
        self.chain_id = (noise.chain_id if noise else 0) if chain_id is None else chain_id
        check_count("chain_id", self.chain_id, at_least=0)
        if noise is not None:
            if noise.chain_id != self.chain_id:
                raise ValueError(
                    f"chain_id={self.chain_id}, but the sampler draws the noise of chain "
                    f"{noise.chain_id}: make it with chain_id={self.chain_id}"
                )
            self.layout.check_same_seed(noise.seed)
        first = self.layout.chain_id * (model.chains if isinstance(model, Stack) else 1)
        if self.layout.chains > 1 and self.chain_id != first:
            raise ValueError(
                f"the first chain of this process is {first}, but the sampler is of chain "
                f"{self.chain_id}: make it with chain_id=layout.chain_id (times the chains of a "
                "stack)"
            )
        for group in sampler.param_groups:  # as samplers do, so that a resumed run finds the same
            if "lr" in group:
                group.setdefault("initial_lr", float(group["lr"]))
        self.accumulate = check_count("accumulate", accumulate, at_least=1)
        self.clip, self.watch, self.progress = clip, watch, progress and self.layout.writes
        self._device = None if device is None else torch.device(device)
        self._autocast = autocast
        self._feed = None if data is None else ResumableBatches(data, generators)
        self.generators = list(generators) if self._feed is None else self._feed.generators
        self._evaluate = torch.compile(self._losses) if compile else self._losses
        self._callbacks = [_listed(on_step), _listed(on_draw), _listed(on_cycle_end)]
        every = max(1, schedule.steps // 100) if checkpoint_every is None else checkpoint_every
        self._checkpoint_every = check_count("checkpoint_every", every, at_least=1)
        # Then a resumed run repeats no draw, even where arithmetic does not repeat bit for bit.
        self._draws_are_rare = 100 * schedule.total_draws <= schedule.steps
        folder = self.draws.path if isinstance(self.draws, DrawStore) else None
        self._folder = folder if checkpoints is None else Path(checkpoints)
        self._watch: Watch | None = None
        self._checkpoints = None
        if self._folder is not None:
            replica = f"-{self.layout.replica_id}" if self.layout.replica_id else ""
            name = f"{self.chain_id:04d}{replica}"
            self._checkpoints = Checkpoints(self._folder / "checkpoints", name)
        self._trained = trained_parameters(model, sampler)
        self._loss_shape = (model.chains,) if isinstance(model, Stack) else ()
        self._modes: list[tuple[nn.Module, bool]] = []
        self._forward = share_gradients(model, self.layout)

    def run(self, resume: bool = False) -> Draws:
        """Take all steps of the schedule, and return the draws.

        With `resume` it goes on from the last checkpoint, or begins where there is none; without
        it, a chain that has begun already is refused.
        """
        try:
            self._claim()
            if self.watch and self.data is not None:
                self._watch = Watch(self, clip=self.clip, warns=self.layout.writes)
            first = self._restore() if resume else None
            self._run_from(self._begin(resume) if first is None else first)
        finally:
            if isinstance(self.draws, DrawStore):
                self.draws.close()
        return self.draws

    def _run_from(self, first: int) -> None:
        steps = self.schedule.steps
        log_path = None
        if self._folder is not None and self.layout.writes:
            log_path = self._folder / "logs" / f"{self.chain_id:04d}.jsonl"
        log, log_every = ScalarLog(log_path, first), max(1, steps // 1000)
        cycles = self.schedule.total_cycles
        display = Display(f"chain {self.chain_id}", steps, cycles, first, self.progress)
        kept = sum(draw.step < first for draw in self.draws.of_chain(self.chain_id))
        if not self.model.training:
            self.model.train()
        self._modes = [(module, module.training) for module in self.model.modules()]
        try:
            with display:
                for step in range(first, steps):
                    moment = self._step(step)
                    if self._watch is not None:
                        self._watch.look(moment.tick, moment.loss)
                    kept += moment.tick.collect
                    display.update(moment.tick, moment.lr, moment.temperature, moment.loss, kept)
                    if (step + 1) % log_every == 0:
                        log.write(as_row(moment, kept))
                    due = (step + 1) % self._checkpoint_every == 0 or step + 1 == steps
                    if due or (moment.tick.collect and self._draws_are_rare):
                        self._check_weights(moment.tick, moment.lr)
                        log.flush()
                        self._save(step + 1)
        finally:
            log.close()

    def config(self) -> dict[str, Any]:
        """What must be the same for a run to go on, as plain values."""
        return {
            "schedule": repr(self.schedule),
            **describe_sampler(self.sampler),
            "model": describe_tensors(self.model.state_dict()),
            "replicas": self.layout.replicas,
            "data": None if self._feed is None else describe_loader(self._feed.loader),
            "generators": len(self.generators),
            "accumulate": self.accumulate,
            "clip": self.clip,
            "autocast": str(self._autocast),
        }

    @property
    def stepper(self) -> "Chain":
        """What `Posterior.check` takes."""
        return self

    @property
    def batches_per_step(self) -> float:
        """Number of minibatches of the data whose mean is the gradient of one step."""
        model = self.model
        dealt = model.chains if isinstance(model, Stack) and model.separate_batches else 1
        return self.accumulate * self.layout.replicas / dealt

    # One step

    def _step(self, step: int) -> StepInfo:
        tick = self.schedule.apply(self.sampler, step)
        group = self.sampler.param_groups[0]
        lr, temperature = float(group["lr"]), float(group.get("temperature", 0.0))
        losses = self._gradients()
        loss = (losses.mean() if losses.ndim else losses).item()
        if not math.isfinite(loss):
            bad = (~losses.isfinite()).reshape(-1).nonzero().flatten().tolist()
            raise self._diverged("the loss", tick, lr, bad)
        if self.clip is not None:
            clip_gradients(self.model, self._trained, self.clip)
        self.sampler.step()
        moment = StepInfo(self, tick, loss, lr, temperature)
        on_step, on_draw, on_cycle_end = self._callbacks
        self._call(on_step, moment)
        if tick.collect:
            self._keep(tick, lr)
            self._call(on_draw, moment)
        if on_cycle_end and self._ends_cycle(tick):
            self._call(on_cycle_end, moment)
        return moment

    def _call(self, callbacks: list[Callback], moment: StepInfo) -> None:
        for call in callbacks:
            call(moment)
        if callbacks:  # which may have evaluated the model
            for module, mode in self._modes:
                module.training = mode

    def _gradients(self) -> Tensor:
        """Accumulate the gradients of one step; the loss of each chain."""
        for param in self._trained:  # as the sampler's zero_grad, without the cost of its hooks
            param.grad = None
        total: Tensor | None = None
        for index in range(self.accumulate):
            batch = None if self._feed is None else self._feed.next()
            if self._device is not None:
                batch = pytree.tree_map_only(Tensor, lambda x: x.to(self._device), batch)
            with self._unshared() if index + 1 < self.accumulate else nullcontext():
                losses = self._evaluate(batch)
                if losses.shape != self._loss_shape:
                    raise ValueError(
                        "loss must be one number for each chain, the mean over the batch; got a "
                        f"tensor of shape {tuple(losses.shape)}"
                    )
                if self.accumulate > 1:
                    losses = losses / self.accumulate
                (losses.sum() if losses.ndim else losses).backward()
            total = losses.detach() if total is None else total + losses.detach()
        assert total is not None  # noqa: S101  (accumulate is at least 1)
        return total

    def _unshared(self) -> AbstractContextManager[None]:
        """Gradients are shared among replicas with the last batch of a step only."""
        forward = self._forward
        shares = isinstance(forward, nn.parallel.DistributedDataParallel)
        return forward.no_sync() if shares else nullcontext()

    def _losses(self, batch: Any) -> Tensor:
        """The loss of each chain: summed, never averaged, before the backward pass."""
        if isinstance(self.model, Stack):
            return self.model.per_chain(self.batch_loss, batch)
        return self.batch_loss(self._forward, batch)

    def batch_loss(self, model: Callable[..., Tensor], batch: Any) -> Tensor:
        """The loss of a single model on one batch of the data."""
        if self._autocast is not None:
            kind = next(self.model.parameters()).device.type
            with torch.autocast(kind, dtype=self._autocast):
                return self._loss_of(model, batch)
        return self._loss_of(model, batch)

    def _loss_of(self, model: Callable[..., Tensor], batch: Any) -> Tensor:
        if self.loss is None:
            return model()
        return batch_loss(self.loss, model, batch)

    def _ends_cycle(self, tick: Tick) -> bool:
        following = tick.step + 1
        return following == self.schedule.steps or self.schedule(following).cycle != tick.cycle

    # What is kept

    def _keep(self, tick: Tick, lr: float) -> None:
        self._check_weights(tick, lr)
        if isinstance(self.model, Stack):
            for offset, tensors in enumerate(self.model.chain_tensors()):
                self.draws.append(tensors, tick, chain_id=self.chain_id + offset)
            return
        tensors = tensors_of(self.model)  # of a sharded model: all replicas gather it
        if self.layout.writes:
            self.draws.append(tensors, tick, chain_id=self.chain_id)

    def _check_weights(self, tick: Tick, lr: float) -> None:
        """Refuse to keep weights that are not finite."""
        for param in self._trained:
            # A sum costs one pass; only a suspicious one is looked at more closely.
            weights = local_shard(param.detach())
            if math.isfinite(weights.sum().item()):
                continue
            finite = weights.isfinite()
            bad = [0]
            if isinstance(self.model, Stack):
                bad = (~finite.reshape(self.model.chains, -1).all(1)).nonzero().flatten().tolist()
            if not finite.all():
                raise self._diverged("a weight", tick, lr, bad)

    def _diverged(self, what: str, tick: Tick, lr: float, offsets: list[int]) -> DivergedError:
        checkpoint = None
        if self._checkpoints is not None and self._checkpoints.exist():
            checkpoint = self._checkpoints.newest
        chains = [self.chain_id + offset for offset in offsets]
        return DivergedError(what, tick, lr, chains, checkpoint)

    # Begin and resume

    def _claim(self) -> None:
        if isinstance(self.draws, DrawStore) and self.layout.writes:
            seed = getattr(getattr(self.sampler, "noise", None), "seed", None)
            for chain in self._numbers:
                self.draws.claim(chain, provenance={"seed": seed, **self.config()})

    @property
    def _numbers(self) -> range:
        """Numbers of the chains that this runs: one, or those of a stack."""
        count = self.model.chains if isinstance(self.model, Stack) else 1
        return range(self.chain_id, self.chain_id + count)

    def _begin(self, resume: bool) -> int:
        begun = any(chain in self.draws.chain_ids for chain in self._numbers)
        if not resume and (begun or (self._checkpoints is not None and self._checkpoints.exist())):
            raise ValueError(
                f"chain {self.chain_id} has begun already: run(resume=True) goes on with it, "
                "another chain number or store begins a new one"
            )
        self._save(0)
        return 0

    def _restore(self) -> int | None:
        """Go back to the last checkpoint; its step, or None if there is none."""
        if self._checkpoints is None:
            raise ValueError(
                "resume needs checkpoints: keep the draws in a DrawStore, or give checkpoints="
            )
        states = {state["step"]: state for state in self._checkpoints.load_all()}
        step = self.layout.agreed(set(states))
        if step is None:
            return None
        state = states[step]
        check_same(state["config"], self.config())
        if step > 0 and isinstance(self.draws, MemoryDraws) and not len(self.draws):
            warnings.warn(
                f"the draws before step {step} were in memory, and are gone: keep them in a "
                "DrawStore",
                stacklevel=3,
            )
        with torch.no_grad():
            for name, value in self._tensors().items():
                local_shard(value).copy_(state["model"][name])
        self.sampler.load_state_dict(state["sampler"])
        if self._feed is not None:
            self._feed.load_state_dict(state["feed"])
        if self._watch is not None and state.get("watch") is not None:
            self._watch.load_state_dict(state["watch"])
        restore_random_state(state["random"], self.generators)
        return step

    def _tensors(self) -> dict[str, Tensor]:
        """All that the model holds, buffers that its state_dict leaves out included."""
        return {**dict(self.model.named_buffers()), **self.model.state_dict()}

    def _save(self, step: int) -> None:
        """Keep what this process holds: each replica has a checkpoint of its own."""
        if self._checkpoints is None:
            return
        state = {
            "step": step,
            "config": self.config(),
            "model": self._tensors(),
            "sampler": self.sampler.state_dict(),
            "feed": None if self._feed is None else self._feed.state_dict(),
            "random": random_state(self.generators),
            "watch": None if self._watch is None else self._watch.state_dict(),
        }
        self._checkpoints.save(
            pytree.tree_map_only(Tensor, lambda x: local_shard(x.detach()), state)
        )


def _listed(callbacks: Callback | Sequence[Callback]) -> list[Callback]:
    return [callbacks] if callable(callbacks) else list(callbacks)
