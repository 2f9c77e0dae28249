"""One trial of a search: a whole run with one recipe, scored after each cycle."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from csgmcmc.chain import StepInfo
from csgmcmc.draws import Draw, MemoryDraws
from csgmcmc.errors import CsgmcmcError
from csgmcmc.posterior import Posterior
from csgmcmc.randomness import preserved_random_state
from csgmcmc.recipe import Recipe
from csgmcmc.task import Task

# Arguments of `Chain` that a trial sets itself, or does without, whatever the task says.
IGNORED_CHAIN_OPTIONS = ("progress", "watch", "checkpoint_dir", "checkpoint_every")


class NonFinitePredictionError(CsgmcmcError, ValueError):
    """The draws of a trial predict numbers that are not finite."""


def run_trial(
    task: Task,
    recipe: Recipe,
    batches: list[Any],
    *,
    on_cycle: Callable[[float, float], object],
    on_step: Callable[[float], object],
) -> float:
    """Run a recipe, and return the log score of the posterior predictive on validation data.

    Args:
        task: its model is trained in place.
        recipe: the hyperparameters to try.
        batches: the validation data.
        on_cycle: called after each cycle but the last with the share of the budget used and the
            log score so far; it may raise to end the trial.
        on_step: called after each step with the share of the budget used.
    """
    running = RunningScore(task, batches)
    draws = MemoryDraws()

    def step(info: StepInfo) -> None:
        on_step((info.tick.step + 1) / info.chain.schedule.steps)
        if not info.ends_cycle:
            return
        done = (info.tick.cycle + 1) / recipe.cycles
        running.add([draw for draw in draws if draw.cycle == info.tick.cycle])
        if done < 1:
            on_cycle(done, running.value)

    options = trial_options(task)
    chain = recipe.make_chain(
        task.model,
        task.loss,
        task.data,
        draws,
        num_data=task.num_data,
        **{
            **options,
            "watch": False,  # bad settings are tried on purpose
            "progress": False,
            "callbacks": [*_listed(options.get("callbacks", ())), step],
        },
    )
    with preserved_random_state(chain.generators):  # the next trial has the same order of data
        chain.run()
    return running.value


def trial_options(task: Task) -> dict[str, Any]:
    """The arguments of `Chain` that a task gives and a trial uses."""
    options = task.chain_options.items()
    return {name: value for name, value in options if name not in IGNORED_CHAIN_OPTIONS}


class RunningScore:
    """Mean log score of the posterior predictive of all draws so far; each is evaluated once.

    Args:
        task: its model and likelihood.
        batches: the validation data, in the same order every time.
    """

    def __init__(self, task: Task, batches: list[Any]) -> None:
        self._task, self._batches = task, batches
        self._total: Tensor | None = None
        self._draws = 0

    def add(self, draws: Sequence[Draw]) -> None:
        """Add the draws of another cycle."""
        posterior = Posterior(
            self._task.model,
            draws,
            likelihood=self._task.likelihood,
            device=self._task.chain_options.get("device"),
            autocast=self._task.chain_options.get("autocast"),
            progress=False,
        )
        scores = posterior.log_scores(self._batches).double()
        found = torch.logsumexp(scores, dim=0)
        self._total = found if self._total is None else torch.logaddexp(self._total, found)
        self._draws += len(draws)
        if math.isnan(self.value):
            raise NonFinitePredictionError("the draws predict numbers that are not finite")

    @property
    def value(self) -> float:
        """Mean over the points of the log of the averaged probability."""
        if self._total is None:
            return -math.inf
        return float((self._total - math.log(self._draws)).mean().item())


def _listed(callbacks: Any) -> list[Any]:
    return [callbacks] if callable(callbacks) else list(callbacks)
