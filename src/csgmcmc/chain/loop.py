"""A chain: batches and gradients for a stepper, with checkpoints and a display."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from csgmcmc.arguments import check_count, check_flag, check_function, check_number
from csgmcmc.batches import Loss, batch_loss, is_pair
from csgmcmc.chain.backward import backward, describe_no_loss, is_loss
from csgmcmc.chain.checkpoint import Checkpoints
from csgmcmc.chain.clipping import clip_gradients
from csgmcmc.chain.events import Callback, StepInfo, as_callbacks
from csgmcmc.chain.progress import Display
from csgmcmc.chain.scalars import ScalarLog
from csgmcmc.chain.together import restore, save_together
from csgmcmc.checks import Watch
from csgmcmc.checks.num_data import terms_in_mean, warn_of_num_data
from csgmcmc.devices import check_autocast, check_device
from csgmcmc.distributed import ProcessLayout, as_layout, share_gradients
from csgmcmc.draws import Draws, DrawStore
from csgmcmc.errors import SamplingWarning
from csgmcmc.files import check_path
from csgmcmc.loaders import check_data, describe_loader, to_device
from csgmcmc.randomness import Generator
from csgmcmc.schedules import Schedule
from csgmcmc.stacked import Stack
from csgmcmc.stepper import LoopWords, Stepper
from csgmcmc.stepper.loading import refuse_other_states
from csgmcmc.stepper.words import describe_position

WORDS = LoopWords(
    resume="run(resume=True)",
    exact_resume=None,
    clip="Chain(clip=...)",
    mixed_precision="Chain(autocast=torch.bfloat16)",
)


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
            are not those of the posterior: where clipping acts, the stationary distribution is
            another one. Meant for exploration; check that it no longer acts while sampling.
        autocast: dtype of automatic mixed precision, e.g. `torch.bfloat16`.
        compile: evaluate the loss with `torch.compile`.
        callbacks: functions called with a `StepInfo` after each step, and after its draw.
        checkpoint_every: steps between checkpoints; by default a hundredth of the run. Where
            draws are rare, fewer than one in a hundred steps, each is followed by one too.
        checkpoint_dir: folder for checkpoints and the log; by default inside the draw store. With
            draws in memory and without this there are none.
        layout: this process among those that run the chains; see `csgmcmc.init_distributed`. With
            replicas, gradients are averaged over them (DDP), unless the model is sharded (FSDP2).
        generators: generators that the data's transforms draw from, besides the global ones, so
            that they are saved with the chain.
        watch: warn where N does not fit the data, where lr is unstable, or where the injected
            noise is lost in that of the minibatches.
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
        callbacks: Callback | Sequence[Callback] = (),
        checkpoint_every: int | None = None,
        checkpoint_dir: str | Path | None = None,
        layout: ProcessLayout | None = None,
        generators: Sequence[Generator] = (),
        watch: bool = True,
        progress: bool = True,
    ) -> None:
        if (loss is None) != (data is None):
            raise ValueError("loss and data go together: give both, or neither for a density")
        if loss is not None:
            check_function("loss", loss)
            check_data(data)
        clip = None if clip is None else check_number("clip", clip, above=0)
        accumulate = check_count("accumulate", accumulate, at_least=1)
        self.model, self.loss, self.data, self.accumulate = model, loss, data, accumulate
        layout = as_layout(layout)
        self.stepper = Stepper(
            model,
            sampler,
            schedule,
            draws,
            chain_id=chain_id,
            layout=layout,
            generators=generators,
            settings={
                "data": None if data is None else describe_loader(data),
                "accumulate": self.accumulate,
                "clip": clip,
                "autocast": str(autocast),
            },
            words=WORDS,
            close_at_end=False,
        )
        dealt = model.chains if isinstance(model, Stack) and model.separate_batches else 1
        self.stepper.batches_per_step = accumulate * layout.replicas / dealt
        self.clip, self.progress = clip, check_flag("progress", progress) and layout.writes
        self._device, self._autocast = check_device(device), check_autocast(autocast)
        self._batches = None if data is None else self.stepper.attach(data)
        compiles = check_flag("compile", compile)
        self._evaluate = torch.compile(self._losses) if compiles else self._losses
        self._callbacks = as_callbacks(callbacks)
        every = max(1, schedule.steps // 100) if checkpoint_every is None else checkpoint_every
        self._checkpoint_every = check_count("checkpoint_every", every, at_least=1)
        # Then a resumed run repeats no draw, even where arithmetic does not repeat bit for bit.
        self._draws_are_rare = 100 * schedule.total_draws <= schedule.steps
        folder = self.draws.path if isinstance(self.draws, DrawStore) else None
        given = None if checkpoint_dir is None else check_path("checkpoint_dir", checkpoint_dir)
        self._folder = folder if given is None else given
        self._checkpoints = None
        if self._folder is not None:
            self._checkpoints = Checkpoints(self._folder / "checkpoints", f"{self.chain_id:04d}")
        self._loss_shape = (model.chains,) if isinstance(model, Stack) else ()
        self._modes: list[tuple[nn.Module, bool]] = []
        self._forward = share_gradients(model, layout)
        # A density has no minibatches, and may begin at its mode.
        self._watches = check_flag("watch", watch) and data is not None
        self._watch: Watch | None = None
        self._num_data_checked = not (self._watches and layout.writes)

    @property
    def sampler(self) -> torch.optim.Optimizer:
        """The sampler that moves the weights."""
        return self.stepper.sampler

    @property
    def schedule(self) -> Schedule:
        """The schedule of the run."""
        return self.stepper.schedule

    @property
    def draws(self) -> Draws:
        """Where the draws are kept."""
        return self.stepper.draws

    @property
    def chain_id(self) -> int:
        """Number of the chain; of a stack, of its first chain."""
        return self.stepper.chain_id

    @property
    def layout(self) -> ProcessLayout:
        """Where this process is among those that run the chains."""
        return self.stepper.layout

    @property
    def generators(self) -> list[Generator]:
        """Generators whose state is saved with the chain."""
        return self.stepper.generators

    def run(self, resume: bool = False) -> Draws:
        """Take all steps of the schedule, and return the draws.

        With `resume` it continues from the last checkpoint, or begins where there is none; without
        it, a chain that has begun already is an error.
        """
        resume = check_flag("resume", resume)
        if self._watches:
            self._watch = Watch(self.stepper, clip=self.clip, warns=self.layout.writes)
            self._warn_of_no_draws()
        try:
            if self._folder is not None:
                self.layout.check_same_folder(self._folder)
            self.stepper.lock(described=False)  # a checkpoint may bring another seed
            if self._checkpoints is not None and self.layout.writes:
                self._checkpoints.lock()
            if resume:
                self._restore()
            else:
                self._check_new()
            self.stepper.begin()
            is_saved = self._checkpoints is not None and self._checkpoints.newest_step == 0
            if self.stepper.taken == 0 and not is_saved:  # to write it again could only harm it
                self._save()
            try:
                self._run()
            except BaseException as error:
                if self.stepper.taken or isinstance(error, KeyboardInterrupt):
                    error.add_note(self._describe_stop())
                raise
        finally:
            self.stepper.close()
            if self._checkpoints is not None:
                self._checkpoints.close()
        return self.draws

    def _describe_stop(self) -> str:
        """Where an interrupted run is, and how to go on."""
        where = f"chain {self.chain_id} was stopped at {describe_position(self.stepper)}"
        if self._checkpoints is None:
            return f"{where}, which are in memory; to resume a run, keep its draws in a DrawStore"
        step = max(self._checkpoints.newest_step, 0)
        return f"{where}; {self.stepper.words.resume} goes on from step {step}"

    def _run(self) -> None:
        first, steps = self.stepper.taken, self.schedule.steps
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
                while not self.stepper.done:
                    info = self._step()
                    tick, taken = info.tick, self.stepper.taken
                    kept += tick.collect
                    display.update(tick, info.lr, info.temperature, info.loss, kept)
                    if taken % log_every == 0:
                        log.write(info.as_row(kept))
                    due = taken % self._checkpoint_every == 0 or self.stepper.done
                    if due or (tick.collect and self._draws_are_rare):
                        self.stepper.check_weights(tick)
                        log.flush()
                        self._save()
        finally:
            log.close()

    # One step

    def _step(self) -> StepInfo:
        losses = self._gradients()
        if self.clip is not None:
            clip_gradients(self.model, self.stepper.trained, self.clip)
        loss = (losses.mean() if losses.ndim else losses).item()
        tick = self.stepper.step(losses if losses.ndim else loss)
        group = self.sampler.param_groups[0]
        lr, temperature = float(group["lr"]), float(group.get("temperature", 0.0))
        info = StepInfo(self, tick, loss, lr, temperature)
        if self._watch is not None:  # while the gradients are there
            self._watch.look(tick, loss)
        for call in self._callbacks:
            call(info)
        if self._callbacks:  # which may have evaluated the model
            for module, mode in self._modes:
                if module.training is not mode:  # setting an attribute of a module is slow
                    module.training = mode
        return info

    def _gradients(self) -> Tensor:
        """Accumulate the gradients of one step; the loss of each chain."""
        for param in self.stepper.trained:  # as the sampler's zero_grad, without its hooks' cost
            param.grad = None
        total: Tensor | None = None
        for index in range(self.accumulate):
            batch = None if self._batches is None else self._batches.next()
            if self._device is not None:
                batch = to_device(batch, self._device)
            if not self._num_data_checked:
                self._check_num_data(batch)
            with self._unshared() if index + 1 < self.accumulate else nullcontext():
                losses = self._evaluate(batch)
                if not is_loss(losses, self._loss_shape):
                    raise ValueError(describe_no_loss(losses, self._loss_shape))
                if self.accumulate > 1:
                    losses = losses / self.accumulate
                backward(losses.sum() if losses.ndim else losses)
            total = losses.detach() if total is None else total + losses.detach()
        assert total is not None  # noqa: S101  (accumulate is at least 1)
        return total

    def _check_num_data(self, batch: Any) -> None:
        """Warn if N does not fit the data: a wrong N is a wrong temperature."""
        self._num_data_checked = True
        terms, replicas = None, self.layout.replicas
        if self.loss is not None and replicas == 1 and is_pair(batch):
            terms = partial(terms_in_mean, self.loss, self.model, batch)
        warn_of_num_data(
            self.sampler,
            self.data,
            batch,
            terms=terms,
            processes=replicas,
            remedy="; watch=False silences this",
        )

    def _warn_of_no_draws(self) -> None:
        """Warn of a store that would stay empty."""
        stores = isinstance(self.draws, DrawStore) and self.layout.writes
        if stores and self.schedule.total_draws == 0:
            warnings.warn(
                "the schedule keeps no draws, so that the store stays empty: give it draws=, "
                "draws_per_cycle= or every=; watch=False silences this",
                SamplingWarning,
                stacklevel=3,
            )

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
                return batch_loss(self.loss, model, batch)
        return batch_loss(self.loss, model, batch)

    # Checkpoints

    def _check_new(self) -> None:
        """Raise a `ValueError` if the chain has begun, here or in an earlier process."""
        saved = self._checkpoints is not None and self._checkpoints.exist()
        if saved or self.stepper.taken:
            where = f" in {self._folder}" if saved else ""
            resume = self.stepper.words.resume
            raise ValueError(
                f"chain {self.chain_id} has begun already{where}: {resume} resumes it; "
                "another chain_id or an empty store begins a new one"
            )

    def _restore(self) -> None:
        """Load the last checkpoint, if there is one."""
        if self._checkpoints is None:
            raise ValueError(
                "resume needs checkpoints: keep the draws in a DrawStore, or give checkpoint_dir="
            )
        self._checkpoints.load(self._load, self.layout)

    def _load(self, state: dict[str, Any]) -> None:
        assert self._checkpoints is not None  # noqa: S101  (they gave the state)
        restore(self._checkpoints, self.stepper, state)
        self.stepper.last_checkpoint = self._checkpoints.newest_usable
        if self._watch is not None and state.get("watch") is not None:
            with refuse_other_states():
                self._watch.load_state_dict(state["watch"])

    def _save(self) -> None:
        """Save a checkpoint; all processes of the chain do so together."""
        if self._checkpoints is None:
            return
        watch = None if self._watch is None else self._watch.state_dict()
        save_together(self._checkpoints, self.stepper, {"watch": watch})
        self.stepper.last_checkpoint = self._checkpoints.newest
