"""Sampling with a Lightning `Trainer`: a callback, and a loader whose position is saved.

    callback = SamplingCallback(schedule, DrawStore("runs/mine"))
    trainer = lightning.Trainer(max_steps=schedule.steps, callbacks=[callback])
    trainer.fit(module, loader)  # module.configure_optimizers returns a sampler

Lightning's checkpoints hold the weights and, in the sampler's state, its noise. `ResumableLoader`
adds the order of the data, the position in it, and the random state of everything else, so that
`trainer.fit(module, loader, ckpt_path=...)` resumes with the same draws.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch.distributed as dist
from torch.utils.data import DistributedSampler

from csgmcmc.distributed import ProcessLayout
from csgmcmc.draws import Draws, MemoryDraws
from csgmcmc.errors import SamplingWarning
from csgmcmc.integrations import require
from csgmcmc.loop import Stepper
from csgmcmc.loop.batches import ResumableBatches
from csgmcmc.loop.display import describe_end
from csgmcmc.loop.num_data import warn_of_num_data
from csgmcmc.randomness import Generator, random_state, restore_random_state
from csgmcmc.schedules import Schedule

require("lightning.pytorch", "lightning")

from lightning.pytorch import Callback, LightningModule, Trainer

__all__ = ["ResumableLoader", "SamplingCallback"]


class SamplingCallback(Callback):
    """Applies a schedule before each step of a Trainer, and keeps the draws.

    The module's `training_step` returns the mean negative log-likelihood of a batch, and its
    `configure_optimizers` a csgmcmc sampler, or any torch optimizer, and nothing else. A step of
    the schedule is a step of the optimizer, however many batches it accumulates. lr, temperature,
    cycle and the number of draws go to the Trainer's loggers.

    Args:
        schedule: scales lr and temperature at each step, and says which draws are kept.
        draws: where draws are kept; in memory by default. Only the first process writes.
        chain_id: number of the chain; by default the sampler's.
    """

    def __init__(
        self, schedule: Schedule, draws: Draws | None = None, *, chain_id: int | None = None
    ) -> None:
        self.schedule, self.chain_id = schedule, chain_id
        self.draws = MemoryDraws() if draws is None else draws
        self.stepper: Any = None  # a `Stepper`, made in each run for its optimizer
        self._batches = 0  # accumulated for the next step
        self._loader: ResumableLoader | None = None
        self._loaded: dict[str, Any] = {}
        self._random: dict[str, Any] | None = None  # from before validation

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._loaded = {}  # from a checkpoint that was loaded for a test
        if stage != "fit":
            return
        if not pl_module.automatic_optimization:
            raise ValueError("automatic_optimization must be True: the Trainer steps the sampler")
        kinds = [kind.__name__ for kind in type(trainer.strategy).__mro__]
        if not {"SingleDeviceStrategy", "DDPStrategy"} & set(kinds):
            got = f"got {kinds[0]}: use csgmcmc.Chain for sharded models"
            raise ValueError(f"strategy must be 'auto' or 'ddp', {got}")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.stepper = Stepper(
            pl_module,
            trainer.optimizers[0],  # Lightning refuses several
            self.schedule,
            self.draws,
            chain_id=self.chain_id,
            layout=ProcessLayout(replica_id=trainer.global_rank, replicas=trainer.world_size),
        )
        accumulated = trainer.accumulate_grad_batches
        self.stepper.batches_per_step = float(accumulated * trainer.world_size)
        self._batches, self._random = 0, None
        if self._loaded:
            self.stepper.load_position(self._loaded)

    def on_train_start(self, trainer: Any, pl_module: LightningModule) -> None:
        steps, total = self.schedule.steps, trainer.estimated_stepping_batches
        if total < 0 or total > steps:  # -1 or infinite if it has no end of its own
            raise ValueError(f"max_steps must be {steps}, as scheduled, got a Trainer of {total}")
        loader, self._loader = trainer.train_dataloader, None
        if isinstance(loader, ResumableLoader):
            sampler = getattr(loader.loader, "sampler", None)
            if trainer.world_size > 1 and not isinstance(sampler, DistributedSampler):
                raise ValueError(  # Lightning gives ordinary loaders such a sampler itself
                    "the ResumableLoader gives all processes the same data: make its loader with "
                    "sampler=DistributedSampler(data), in the module's train_dataloader"
                )
            self._loader = loader
            if self._loaded.get("loader"):  # Lightning does not at the end of an epoch
                loader.load_state_dict(self._loaded["loader"])
        self._loaded = {}
        self.stepper.taken = trainer.global_step
        self.stepper.begin()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if trainer.is_global_zero and self.stepper.taken == self._batches == 0:
            data = (trainer.optimizers[0], trainer.train_dataloader, batch)
            warn_of_num_data(*data, processes=trainer.world_size)
        self._batches += 1
        self.stepper.prepare()  # also for groups that were added meanwhile

    def on_before_optimizer_step(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        too_small = trainer.accumulate_grad_batches / self._batches  # above 1 as an epoch ends
        for param in self.stepper.sampled() if too_small > 1 else ():
            if param.grad is not None:
                param.grad.mul_(too_small)

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        if trainer.enable_validation:
            self._random = random_state([])
        stepper = self.stepper
        if trainer.global_step == stepper.taken:  # gradients are still accumulating
            return
        self._batches = 0
        tick = stepper.record()
        log_every = trainer.log_every_n_steps
        if log_every and stepper.taken % log_every == 0:
            values = {"cycle": tick.cycle, "draws": len(self.draws)}
            group = stepper.sampler.param_groups[0]
            values |= {name: float(group[name]) for name in ("lr", "temperature") if name in group}
            for logger in trainer.loggers:
                named = {f"csgmcmc/{name}": value for name, value in values.items()}
                logger.log_metrics(named, step=tick.step)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Training continues with the random state from before validation, so that draws do not
        # depend on when it runs, and a resumed run need not repeat it.
        if self._random is not None:
            restore_random_state(self._random, [])
            self._random = None

    def on_train_end(self, trainer: Any, pl_module: LightningModule) -> None:
        if not self.stepper.done and not trainer.fast_dev_run and trainer.is_global_zero:
            warnings.warn(describe_end(self.stepper), SamplingWarning, stacklevel=2)

    def teardown(self, *_: Any, **__: Any) -> None:
        if self.stepper is not None:
            self.stepper.close()

    def on_exception(self, *_: Any, **__: Any) -> None:
        self.teardown()

    def state_dict(self) -> dict[str, Any]:
        if self.stepper is None:
            return {}
        loader = None if self._loader is None else self._loader.state_dict()
        return {**self.stepper.position(), "loader": loader}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict


class ResumableLoader:
    """A loader whose order, position and random transforms resume exactly from a checkpoint.

    Its state, which Lightning saves and loads, includes that of the global generators. The epoch in
    progress is started again and its batches are skipped. Each iteration continues from the current
    position and gives as many batches as an epoch has: a Trainer that resumes does not always begin
    its epochs at the same step.

    With several processes the loader's sampler must be a `DistributedSampler`, and only the first
    process resumes with the same random transforms and dropout.

    Args:
        loader: a `DataLoader`, or anything with a length that gives batches when it is iterated.
        generators: generators that the data's transforms draw from, besides the global ones and
            the loader's own.
    """

    def __init__(self, loader: Iterable[Any], generators: Sequence[Generator] = ()) -> None:
        self.loader = loader
        self._batches = ResumableBatches(generators, end_epochs=True).attach(loader)
        self._loaded: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.loader)  # pyright: ignore[reportArgumentType]

    def __iter__(self) -> Iterator[Any]:
        for _ in range(len(self)):
            if self._loaded is not None:  # only now: iterating draws from the generators
                self._batches.load_state_dict(self._loaded)
                self._loaded = None
            yield self._batches.next()

    def state_dict(self) -> dict[str, Any]:
        """The position and the current random state."""
        return self._batches.state_dict() if self._loaded is None else self._loaded

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state` when the next batch is requested."""
        if "feed" in state:  # its name in version 0.2
            state = {**state, "batches": state["feed"]}
        self._batches.check(state)
        if dist.is_available() and dist.is_initialized() and dist.get_rank() > 0:
            # The state is that of the first process: replicas must not repeat its random numbers.
            now = random_state(self._batches.generators)
            state = {**state, "batches": {**state["batches"], "began": now}, "random": now}
        self._loaded = state
