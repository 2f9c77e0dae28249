"""Sampling with a Lightning `Trainer`: a callback, and a loader whose position is saved.

    callback = SamplingCallback(schedule, DrawStore("runs/mine"))
    trainer = lightning.Trainer(max_steps=schedule.steps, callbacks=[callback])
    trainer.fit(module, loader)  # module.configure_optimizers returns a sampler

Lightning's checkpoints hold the weights and, in the sampler's state, its noise. `ResumableLoader`
adds the order of the data, the position in it, and the random state of everything else, so that
`trainer.fit(module, loader, ckpt_path=...)` resumes with the same draws.
"""

import math
import os
import warnings
from typing import Any

import torch
from torch.utils.data import DistributedSampler

from csgmcmc.arguments import check_count
from csgmcmc.distributed import ProcessLayout
from csgmcmc.draws import Draws, DrawStore, MemoryDraws
from csgmcmc.integrations.gradients import rescale_short_accumulation
from csgmcmc.integrations.missing import require
from csgmcmc.integrations.resumable import ResumableLoader
from csgmcmc.randomness import random_state, restore_random_state
from csgmcmc.schedules import Schedule, Tick
from csgmcmc.stepper import LoopWords, Stepper
from csgmcmc.stepper.fingerprint import check_same
from csgmcmc.stepper.inputs import check_draws, check_schedule

require("lightning.pytorch", "lightning")

from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402
from lightning.pytorch.callbacks import GradientAccumulationScheduler  # noqa: E402

__all__ = ["ResumableLoader", "SamplingCallback"]

# Strategies in which every process has all weights, by name: `pytorch_lightning` has its own.
WHOLE = {"SingleDeviceStrategy", "DDPStrategy"}


WORDS = LoopWords(
    resume="fit(..., ckpt_path=...)",
    exact_resume="a ResumableLoader",
    clip="Trainer(gradient_clip_val=...)",
    mixed_precision="Trainer(precision='bf16-mixed')",
)


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
        check_schedule(schedule)
        self.schedule = schedule
        self.draws = MemoryDraws() if draws is None else draws
        check_draws(self.draws)
        self.chain_id = None if chain_id is None else check_count("chain_id", chain_id, at_least=0)
        self._process = os.getpid()
        self.stepper: Stepper | None = None  # made in each run, for its optimizer
        self._batches = 0  # batches accumulated for the next step
        self._stops = False  # whether the schedule ends the run, not the Trainer
        self._loader: ResumableLoader | None = None
        self._loaded: dict[str, Any] = {}
        self._random: dict[str, Any] | None = None

    # Before the run

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._loaded = {}  # from a checkpoint that was loaded for a test
        if stage != "fit":
            return
        if not pl_module.automatic_optimization:
            raise ValueError(
                "automatic_optimization is False: the schedule needs a Trainer that steps one "
                "optimizer itself; set it to True, or use csgmcmc.Stepper in your own loop"
            )
        strategy = type(trainer.strategy)
        if not WHOLE & {kind.__name__ for kind in strategy.__mro__}:
            raise ValueError(
                f"strategy {strategy.__name__} does not keep all weights in each process: use "
                "strategy='auto' or 'ddp', or csgmcmc.Chain for sharded models"
            )

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.stepper = Stepper(
            pl_module,
            _only_optimizer(trainer),
            self.schedule,
            self.draws,
            chain_id=self.chain_id,
            layout=ProcessLayout(replica_id=trainer.global_rank, replicas=trainer.world_size),
            words=WORDS,
        )
        if isinstance(self.draws, MemoryDraws) and os.getpid() != self._process:
            raise ValueError(
                "draws in memory would be lost with the processes that this strategy starts: "
                "keep them in a DrawStore"
            )
        self._batches, self._random = 0, None
        if self._loaded.get("settings") is not None:
            check_same(self._loaded["settings"], self.stepper.settings)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check_length(trainer)
        self._loader = _resumable_loader(trainer)
        if self._loader is not None and self._loaded.get("loader") is not None:
            # Lightning does not load it at the end of an epoch.
            self._loader.load_state_dict(self._loaded["loader"])
        self._loaded = {}
        self._running.taken = trainer.global_step
        self._running.begin()

    @property
    def _running(self) -> Stepper:
        assert self.stepper is not None  # noqa: S101  (made before the first batch)
        return self.stepper

    def _check_length(self, trainer: Trainer) -> None:
        """Raise a `ValueError` if the Trainer takes more steps than the schedule; warn if fewer."""
        callbacks = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
        changing = any(isinstance(each, GradientAccumulationScheduler) for each in callbacks)
        total = -1 if changing else trainer.estimated_stepping_batches
        self._stops = total < 0 or math.isinf(total)
        steps = self.schedule.steps
        if self._stops or total == steps:
            return
        advice = f"give it max_steps={steps} and no max_epochs, or the schedule steps={total}"
        if total > steps:
            raise ValueError(
                f"the Trainer takes {total} steps, more than the {steps} of the schedule: {advice}"
            )
        trial = trainer.fast_dev_run  # pyright: ignore[reportAttributeAccessIssue]
        if trainer.is_global_zero and not trial:
            warnings.warn(
                f"the Trainer stops after {total} of the {steps} steps of the schedule, so that "
                f"draws will be missing: {advice}",
                stacklevel=2,
            )

    # One step

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._loader = _resumable_loader(trainer)  # it may be replaced every few epochs

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._batches += 1

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        params, divided_by = self._running.trained, trainer.accumulate_grad_batches
        rescale_short_accumulation(params, self._batches, divided_by)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if trainer.enable_validation:
            self._random = random_state([])
        stepper = self._running
        if trainer.global_step == stepper.taken:  # gradients are still accumulating
            return
        self._batches = 0
        tick = stepper.record()
        log_every = trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
        if log_every and trainer.global_step % log_every == 0:
            self._log(trainer, stepper.sampler.param_groups[0], tick)
        stepper.prepare()
        if self._stops and trainer.global_step == self.schedule.steps:
            trainer.should_stop = True

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Training continues with the random state from before validation, so that draws do not
        # depend on when it runs, and a resumed run need not repeat it.
        if self._random is not None:
            restore_random_state(self._random, [])
            self._random = None

    def _log(self, trainer: Trainer, group: dict[str, Any], tick: Tick) -> None:
        values = {"lr": float(group["lr"]), "cycle": tick.cycle, "draws": len(self.draws)}
        if "temperature" in group:
            values["temperature"] = float(group["temperature"])
        for logger in trainer.loggers:
            named = {f"csgmcmc/{name}": value for name, value in values.items()}
            logger.log_metrics(named, step=tick.step)

    # After the run, and checkpoints

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self._close()

    def _close(self) -> None:
        self._random = None
        if isinstance(self.draws, DrawStore):
            self.draws.close()

    def state_dict(self) -> dict[str, Any]:
        loader = None if self._loader is None else self._loader.state_dict()
        settings = None if self.stepper is None else self.stepper.settings
        return {"settings": settings, "loader": loader}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict


def _only_optimizer(trainer: Trainer) -> torch.optim.Optimizer:
    """The only optimizer; raises a `ValueError` if a scheduler would change its lr."""
    if len(trainer.optimizers) != 1:
        raise ValueError(
            f"configure_optimizers returns {len(trainer.optimizers)} optimizers: return one"
        )
    optimizer = trainer.optimizers[0]
    if not any("lr" in group for group in optimizer.param_groups):
        raise ValueError(
            "configure_optimizers must return a sampler, or an optimizer with an lr, got "
            f"{type(optimizer).__name__}"
        )
    if trainer.lr_scheduler_configs:
        names = ", ".join(type(each.scheduler).__name__ for each in trainer.lr_scheduler_configs)
        raise ValueError(
            f"configure_optimizers returns {names}, but the schedule of SamplingCallback sets lr: "
            "return the sampler alone"
        )
    return optimizer


def _resumable_loader(trainer: Trainer) -> ResumableLoader | None:
    """The `ResumableLoader` of the training data, if there is one."""
    loader = trainer.train_dataloader
    if not isinstance(loader, ResumableLoader):
        return None
    sampler = getattr(loader.loader, "sampler", None)
    if trainer.world_size > 1 and not isinstance(sampler, DistributedSampler):
        raise ValueError(  # Lightning would give an ordinary loader such a sampler
            f"the ResumableLoader gives all {trainer.world_size} processes the same data: make its "
            "loader with sampler=DistributedSampler(data), in the module's train_dataloader"
        )
    return loader
