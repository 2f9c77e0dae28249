"""A chain: batches and gradients for a stepper, with checkpoints and a display."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from csgmcmc.arguments import check_count, check_kind, check_number
from csgmcmc.devices import check_autocast, device_for_batches
from csgmcmc.distributed import ProcessLayout, share_gradients
from csgmcmc.draws import Draws, DrawStore
from csgmcmc.errors import SamplingWarning, warn
from csgmcmc.files import check_path
from csgmcmc.loaders import Loss, batch_loss, describe_loader, to_device
from csgmcmc.loop.checkpoint import Checkpoints, delete_together, restore, save_together
from csgmcmc.loop.display import Display, describe_position
from csgmcmc.loop.examples import check_same_loss, steady_loss
from csgmcmc.loop.fingerprint import LOOP_DEFAULTS, differing
from csgmcmc.loop.log import ScalarLog
from csgmcmc.loop.restart import Initialise
from csgmcmc.loop.stepper import Stepper
from csgmcmc.loop.watch import Watch
from csgmcmc.randomness import Generator
from csgmcmc.schedules import Schedule, Tick
from csgmcmc.stacked import Stack, gradient_norms

LOSSES_TOGETHER = 20  # on an accelerator
SILENCE = "; watch=False silences this"


@dataclass(frozen=True)
class StepInfo:
    """The step that was just taken.

    Attributes:
        chain: the chain itself.
        tick: the schedule's `Tick` of the step; `tick.collect` tells whether a draw was kept.
        loss: mean loss of the step, over stacked chains too.
        lr: step size of the first parameter group.
        temperature: temperature of the first parameter group.
    """

    chain: "Chain"
    tick: Tick
    loss: float
    lr: float
    temperature: float

    @property
    def ends_cycle(self) -> bool:
        """Whether this was the last step of its cycle."""
        schedule, following = self.chain.schedule, self.tick.step + 1
        return following == schedule.steps or schedule(following).cycle != self.tick.cycle


Callback = Callable[[StepInfo], object]


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
        device: where batches are moved to, by default to the model, which stays where it is.
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
        initialise: for a schedule with restarts; see `Stepper`.
        watch: warn where N does not fit the data, the loss is a sum, batches are not shuffled or
            hold nan, or lr is unstable.
        progress: show a bar, or lines where there is no terminal.
    """

    start: Draws | None = None  # the trained network that it began with, for checks

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
        initialise: Initialise | None = None,
        watch: bool = True,
        progress: bool = True,
    ) -> None:
        if (loss is None) != (data is None):
            raise ValueError("loss and data go together: give both, or neither for a density")
        if loss is not None:
            check_kind("loss", loss, Callable, "a function")
        self.model, self.loss, self.data = model, loss, data
        self.sampler, self.schedule, self._planned = sampler, schedule, schedule
        self.accumulate = check_count("accumulate", accumulate, at_least=1)
        self.clip = None if clip is None else check_number("clip", clip, above=0)
        layout = layout or ProcessLayout()
        self.stepper = Stepper(
            *(model, sampler, schedule, draws),
            chain_id=chain_id,
            layout=layout,
            generators=generators,
            initialise=initialise,
        )
        self.draws = self.stepper.draws
        self._batches = None if data is None else self.stepper.sources.attach(data)
        described = None if data is None else describe_loader(data)
        loop = {"accumulate": self.accumulate, "clip": self.clip, "autocast": str(autocast)}
        self.stepper.settings |= {"data": described, **differing(loop, LOOP_DEFAULTS)}
        self.stepper.settings["loss"] = getattr(loss, "__name__", type(loss).__name__)
        dealt = model.chains if isinstance(model, Stack) and model.separate_batches else 1
        self.stepper.batches_per_step = self.accumulate * layout.replicas / dealt
        self.progress = progress and layout.writes
        self._device = device_for_batches(model) if device is None else torch.device(device)
        self._autocast = check_autocast(autocast)
        self._evaluate = torch.compile(self._losses) if compile else self._losses
        self._callbacks = [callbacks] if callable(callbacks) else list(callbacks)
        every = max(1, schedule.steps // 100) if checkpoint_every is None else checkpoint_every
        self._checkpoint_every = check_count("checkpoint_every", every, at_least=1)
        # Then a resumed run repeats no draw, even where arithmetic does not repeat bit for bit.
        self._draws_are_rare = 100 * schedule.total_draws <= schedule.steps
        self._folder = self.draws.path if isinstance(self.draws, DrawStore) else None
        if checkpoint_dir is not None:
            self._folder = check_path("checkpoint_dir", checkpoint_dir)
        self._checkpoints = self._log_path = None
        if self._folder is not None:
            name = f"{self.chain_id:04d}"
            self._checkpoints = Checkpoints(self._folder / "checkpoints", name)
            self._log_path = self._folder / "logs" / f"{name}.jsonl"
        self._loss, self._unread = math.nan, list[tuple[Tick, Tensor]]()
        self._loss_shape = (model.chains,) if isinstance(model, Stack) else ()
        self._modes: list[tuple[nn.Module, bool]] = []
        self._forward = share_gradients(model, layout)
        # A density has no minibatches, and may begin at its mode.
        watches = watch and layout.writes and data is not None
        self._watch = Watch(self.stepper, data, loss, SILENCE) if watches else None

    def __repr__(self) -> str:
        parts = self.model, self.schedule, self.sampler
        model, schedule, sampler = (type(part).__name__ for part in parts)
        words = f"Chain {self.chain_id} of {model}: {schedule}, {describe_position(self.stepper)}"
        return f"{words}\n  {sampler}, draws in {self._folder or 'memory'}"

    @property
    def chain_id(self) -> int:
        """Number of the chain; for a stack, of its first chain."""
        return self.stepper.chain_id

    def run(self, resume: bool = False, *, extend: int = 0, overwrite: bool = False) -> Draws:
        """Take all steps of the schedule, and return the draws.

        A chain that has begun already is an error without one of the arguments.

        Args:
            resume: continue from the last checkpoint, or begin where there is none. A run whose
                settings, model, loss or data have changed is a `SettingsMismatchError`.
            extend: resume, and go on for so many cycles beyond the schedule that the chain was made
                with: the draws are those of a run planned with them.
            overwrite: delete the draws, checkpoints and log of this chain, and begin anew.
        """
        stepper, saved = self.stepper, self._checkpoints
        if overwrite and (resume or extend):
            raise ValueError("overwrite begins anew, and resume and extend continue: give one")
        if check_count("extend", extend, at_least=0):
            stepper.extend(self._planned, extend)
            self.schedule = stepper.schedule
        if self._watch and isinstance(self.draws, DrawStore) and self.schedule.total_draws == 0:
            words = "the schedule keeps no draws, so that the store stays empty: give it keep="
            warn(f"{words}{SILENCE}", SamplingWarning)
        with ExitStack() as held:
            held.callback(stepper.close)
            if self._folder is not None:
                stepper.layout.check_same_folder(self._folder)
            if saved is not None and stepper.layout.writes:
                held.callback(saved.lock().release)
            if overwrite:
                if saved is None or stepper.taken:
                    raise ValueError(
                        "overwrite needs draws in a DrawStore or checkpoint_dir=, and a chain that "
                        "has taken no step: make model, sampler and chain anew"
                    )
                delete_together(saved, stepper, self._log_path, self.progress)
            self._start(resume, extend)
            stepper.begin()
            try:
                if stepper.taken == 0 and saved is not None and saved.last_step != 0:
                    self._save()  # only once: writing it again could only harm it
                self._run()
            except BaseException as error:
                how = ", which are in memory; to resume a run, keep its draws in a DrawStore"
                if saved is not None:
                    how = f"; run(resume=True) continues from step {max(saved.last_step, 0)}"
                where = describe_position(stepper)
                error.add_note(f"chain {self.chain_id} was stopped at {where}{how}")
                raise
        return self.draws

    def _run(self) -> None:
        first, steps = self.stepper.taken, self.schedule.steps
        log = ScalarLog(self._log_path if self.stepper.layout.writes else None, first)
        log_every = max(1, steps // 1000)
        cycles = self.schedule.total_cycles
        display = Display(f"chain {self.chain_id}", steps, cycles, first, self.progress)
        kept = sum(draw.step < first for draw in self.draws.of_chain(self.chain_id))
        if not self.model.training:
            self.model.train()
        self._modes = [(module, module.training) for module in self.model.modules()]
        self._unread.clear()  # of a run that was interrupted
        with display, closing(log):
            while not self.stepper.done:
                info = self._step()
                tick, taken = info.tick, self.stepper.taken
                kept += tick.collect
                display.update(tick, info.lr, info.temperature, info.loss, kept)
                if taken % log_every == 0:
                    where = {"step": tick.step, "cycle": tick.cycle, "stage": tick.stage}
                    how = {"lr": info.lr, "temperature": info.temperature}
                    log.write({**where, **how, "loss": info.loss, "draws": kept})
                due = taken % self._checkpoint_every == 0 or self.stepper.done
                if due or (tick.collect and self._draws_are_rare):
                    self.stepper.check_weights(tick)
                    log.flush()
                    self._save()

    # One step

    def _step(self) -> StepInfo:
        if self.stepper.restarts:
            self.stepper.prepare()
        losses = self._gradients()
        if self.clip is not None:
            gradients = [param.grad for param in self.stepper.trained if param.grad is not None]
            norms = gradient_norms(self.model, gradients)
            if isinstance(self.model, Stack):  # each chain by itself
                shares = (self.clip / (norms + 1e-6)).clamp(max=1.0)
                for gradient in gradients:
                    gradient.mul_(shares.view(-1, *[1] * (gradient.ndim - 1)))
            else:
                nn.utils.clip_grads_with_norm_(self.stepper.trained, self.clip, norms)
        losses = self._read(self.schedule(self.stepper.taken), losses)
        if losses is None:
            tick = self.stepper.step()
        else:
            self._loss = (losses.mean() if losses.ndim else losses).item()
            tick = self.stepper.step(losses if losses.ndim else self._loss)
        group = self.sampler.param_groups[0]
        lr, temperature = float(group["lr"]), float(group.get("temperature", 0.0))
        info = StepInfo(self, tick, self._loss, lr, temperature)
        if self._watch is not None and losses is not None:
            self._watch.look(tick, self._loss)
        for call in self._callbacks:
            call(info)
        if self._callbacks:  # which may have evaluated the model
            for module, mode in self._modes:
                if module.training is not mode:  # setting an attribute of a module is slow
                    module.training = mode
        return info

    def _read(self, tick: Tick, losses: Tensor) -> Tensor | None:
        """The losses of this step on the CPU, or None if they are left for later.

        Reading waits for an accelerator. So losses are read together, before anything is kept.
        """
        if losses.is_cpu:
            return losses
        self._unread.append((tick, losses))
        taken, steps = tick.step + 1, self.schedule.steps
        marks = {self._checkpoint_every, max(1, steps // 100)}
        if self._folder is not None:
            marks.add(max(1, steps // 1000))  # lines of the log
        due = tick.collect or taken in (1, steps) or any(taken % mark == 0 for mark in marks)
        if not (due or self._callbacks or len(self._unread) == LOSSES_TOGETHER):
            return None
        unread, self._unread = self._unread, []
        read = torch.stack([own for _, own in unread]).cpu()
        for (earlier, _), own in zip(unread[:-1], read[:-1], strict=True):
            self.stepper.check_loss(own, earlier)
            if self._watch is not None:
                self._watch.look(earlier, own.mean().item())
        return read[-1]

    def _gradients(self) -> Tensor:
        """Accumulate the gradients of one step; the loss of each chain."""
        for param in self.stepper.trained:  # also those that the sampler does not hold
            param.grad = None
        found: list[Tensor] = []
        forward: Any = self._forward
        for index in range(self.accumulate):
            # Replicas share their gradients only with the last batch of a step.
            is_last = index + 1 == self.accumulate
            batch = None if self._batches is None else self._batches.next()
            if self._watch is not None:  # before it is moved: looking would wait for a device
                self._watch.look_at_batch(batch)
            if self._device is not None:
                batch = to_device(batch, self._device)
            shares = is_last or not isinstance(forward, nn.parallel.DistributedDataParallel)
            with nullcontext() if shares else forward.no_sync():
                losses = self._evaluate(batch)
                self._check_loss(losses)
                if self.accumulate > 1:
                    losses = losses / self.accumulate
                (losses.sum() if losses.ndim else losses).backward()
            found.append(losses.detach())
        return sum(found[1:], start=found[0])

    def _check_loss(self, found: Any) -> None:
        """Raise a `ValueError` if this is not one number with gradients for each chain."""
        is_tensor = isinstance(found, Tensor)
        if not (is_tensor and found.shape == self._loss_shape and found.requires_grad):
            shape = f" of shape {tuple(found.shape)}" if is_tensor else ""
            raise ValueError(
                "loss must be a tensor with one number for each chain, the mean over the batch, "
                "computed from the model's outputs without detach(), item() or no_grad(), got a "
                f"{type(found).__name__}{shape}"
            )

    def _losses(self, batch: Any) -> Tensor:
        """The loss of each chain: summed, never averaged, before the backward pass."""
        precision: Any = nullcontext()
        if self._autocast is not None:
            precision = torch.autocast(self.stepper.trained[0].device.type, dtype=self._autocast)
        with precision:
            if isinstance(self.model, Stack):
                return self.model.per_chain(partial(batch_loss, self.loss), batch)
            return batch_loss(self.loss, self._forward, batch)

    # Checkpoints

    def _start(self, resume: bool, extend: int = 0) -> None:
        """Load the last checkpoint, if there is one; without `resume` check that there is none."""
        saved, stepper = self._checkpoints, self.stepper
        if extend and saved is None and stepper.taken:
            return  # draws and state are in memory
        if resume or extend:
            if saved is None:
                remedy = "keep the draws in a DrawStore, or give checkpoint_dir="
                raise ValueError(f"resume and extend need checkpoints: {remedy}")
            state = saved.load(partial(restore, saved, stepper), stepper.layout) or {}
            if self._watch is not None:
                self._watch.start = (state.get("watch") or {}).get("start_loss")
            check_same_loss(state.get("loss_of_examples"), self._loss_of_examples())
        elif stepper.taken or (saved and (saved.newest.exists() or saved.previous.exists())):
            where = "" if saved is None else f" in {self._folder}"
            raise ValueError(
                f"chain {self.chain_id} has begun already{where}: run(resume=True) resumes it; "
                "another chain_id or an empty store begins a new one"
            )

    def _save(self) -> None:
        """Save a checkpoint; all processes of the chain do so together."""
        if self._checkpoints is not None:
            watch = None if self._watch is None else {"start_loss": self._watch.start}
            more = {"watch": watch, "loss_of_examples": self._loss_of_examples()}
            save_together(self._checkpoints, self.stepper, more)

    def _loss_of_examples(self) -> float | None:
        """The loss of some examples at the present weights; None if it is not known."""
        batch = self.stepper.sources.examples.batch
        if batch is None and self.data is not None:
            return None
        batch = batch if self._device is None else to_device(batch, self._device)
        return steady_loss(self.model, partial(self._losses, batch))
