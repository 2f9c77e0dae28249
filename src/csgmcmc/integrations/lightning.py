"""Sampling with a Lightning `Trainer`: a callback, and a loader whose position is saved.

    callback = SamplingCallback(schedule, DrawStore("runs/mine"))
    trainer = lightning.Trainer(max_steps=schedule.steps, callbacks=[callback])
    trainer.fit(module, loader)  # module.configure_optimizers returns a sampler

Lightning's checkpoints hold the weights and, in the sampler's state, its noise. `ResumableLoader`
adds the order of the data, the position in it, and the random state of everything else, so that
`trainer.fit(module, loader, ckpt_path=...)` resumes with the same draws.
"""

import os
from typing import Any

from csgmcmc.arguments import check_count
from csgmcmc.distributed import ProcessLayout
from csgmcmc.draws import Draws, MemoryDraws
from csgmcmc.integrations.gradients import rescale_short_accumulation
from csgmcmc.integrations.missing import require
from csgmcmc.integrations.resumable import ResumableLoader
from csgmcmc.randomness import random_state, restore_random_state
from csgmcmc.schedules import Schedule
from csgmcmc.stepper import LoopWords, Stepper
from csgmcmc.stepper.inputs import check_draws, check_schedule
from csgmcmc.stepper.words import describe_end

require("lightning.pytorch", "lightning")

from lightning.pytorch import Callback, LightningModule, Trainer

from csgmcmc.integrations import lightning_checks as checks

__all__ = ["ResumableLoader", "SamplingCallback"]

WORDS = LoopWords(
    resume="fit(..., ckpt_path=...)",
    exact_resume="a ResumableLoader",
    clip="Trainer(gradient_clip_val=...)",
    mixed_precision="Trainer(precision='bf16-mixed')",
    steps="steps of the schedule and max_epochs",
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
        self.stepper: Stepper | None = None  # made in each run, for its optimizer
        self._process = os.getpid()
        self._batches = 0  # batches accumulated for the next step
        self._stops = False  # whether the schedule ends the run, not the Trainer
        self._loader: ResumableLoader | None = None
        self._loaded: dict[str, Any] = {}
        self._random: dict[str, Any] | None = None  # from before validation
        self._num_data_checked = True

    @property
    def _running(self) -> Stepper:
        assert self.stepper is not None  # noqa: S101  (made before the first batch)
        return self.stepper

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._loaded = {}  # from a checkpoint that was loaded for a test
        if stage == "fit":
            checks.check_loop(trainer, pl_module)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.stepper = Stepper(
            pl_module,
            checks.only_optimizer(trainer),
            self.schedule,
            self.draws,
            chain_id=self.chain_id,
            layout=ProcessLayout(replica_id=trainer.global_rank, replicas=trainer.world_size),
            words=WORDS,
            close_at_end=False,
        )
        accumulated = trainer.accumulate_grad_batches
        self.stepper.batches_per_step = float(accumulated * trainer.world_size)
        checks.check_kept(self.draws, self._process)
        self._batches, self._random = 0, None
        if self._loaded:
            self.stepper.load_position(self._loaded)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stops = checks.is_endless(trainer, self.schedule)
        checks.warn_of_early_stopping(trainer)
        self._loader = checks.resumable_loader(trainer)
        loaded, self._loaded = self._loaded.get("loader"), {}
        if self._loader is not None and loaded is not None:
            self._loader.load_state_dict(loaded)  # Lightning does not at the end of an epoch
        self._num_data_checked = not trainer.is_global_zero
        self._running.taken = trainer.global_step
        self._running.begin()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._loader = checks.resumable_loader(trainer)  # it may be replaced every few epochs

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if not self._num_data_checked:
            self._num_data_checked = True
            checks.check_num_data(trainer, batch)
        self._batches += 1
        self._running.prepare()  # for groups that were added meanwhile, too

    def on_before_optimizer_step(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        params, divided_by = self._running.sampled(), trainer.accumulate_grad_batches
        rescale_short_accumulation(params, self._batches, divided_by)

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        if trainer.enable_validation:
            self._random = random_state([])
        stepper = self._running
        if trainer.global_step == stepper.taken:  # gradients are still accumulating
            return
        self._batches = 0
        tick = stepper.record()
        log_every = trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
        if log_every and stepper.taken % log_every == 0:
            group = stepper.sampler.param_groups[0]
            values = {name: float(group[name]) for name in ("lr", "temperature") if name in group}
            values |= {"cycle": tick.cycle, "draws": len(self.draws)}
            for logger in trainer.loggers:
                named = {f"csgmcmc/{name}": value for name, value in values.items()}
                logger.log_metrics(named, step=tick.step)
        stepper.prepare()
        if self._stops and stepper.done:
            trainer.should_stop = True

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Training continues with the random state from before validation, so that draws do not
        # depend on when it runs, and a resumed run need not repeat it.
        if self._random is not None:
            restore_random_state(self._random, [])
            self._random = None

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        checks.warn_of_early_end(trainer, self._running)

    def teardown(self, *_: Any, **__: Any) -> None:
        self._random = None
        if self.stepper is not None:
            self.stepper.close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        if self.stepper is not None and self.stepper.begun:
            exception.add_note(describe_end(self.stepper))
        self.teardown()

    def state_dict(self) -> dict[str, Any]:
        if self.stepper is None:
            return {}
        loader = None if self._loader is None else self._loader.state_dict()
        return {**self.stepper.position(), "loader": loader}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict
