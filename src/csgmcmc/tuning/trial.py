"""One trial of a search: a whole run with one recipe, scored after each cycle."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from csgmcmc.chain import StepInfo
from csgmcmc.draws import MemoryDraws
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
    """Train the task's model by a recipe; the log score of its predictions for `batches`.

    `on_step` is called after each step with the share of the budget used, `on_cycle` after each
    cycle but the last with that and the log score so far; it may raise to end the trial.
    """
    draws = MemoryDraws()
    scores: list[Tensor] = []  # of each point, summed over the draws of a cycle
    score = -math.inf

    def step(info: StepInfo) -> None:
        nonlocal score
        on_step((info.tick.step + 1) / info.chain.schedule.steps)
        if not info.ends_cycle:
            return
        posterior = Posterior(
            task.model,
            [draw for draw in draws if draw.cycle == info.tick.cycle],
            likelihood=task.likelihood,
            device=task.chain_options.get("device"),
            autocast=task.chain_options.get("autocast"),
            progress=False,
        )
        scores.append(posterior.log_scores(batches).double().logsumexp(0))
        score = (torch.stack(scores).logsumexp(0) - math.log(len(draws))).mean().item()
        if math.isnan(score):
            raise NonFinitePredictionError("the draws predict numbers that are not finite")
        done = (info.tick.cycle + 1) / recipe.cycles
        if done < 1:
            on_cycle(done, score)

    # Without warnings: bad settings are tried on purpose.
    options = {**trial_options(task), "watch": False, "progress": False}
    callbacks = options.pop("callbacks", ())
    options["callbacks"] = [*([callbacks] if callable(callbacks) else callbacks), step]
    parts = (task.model, task.loss, task.data, draws)
    chain = recipe.make_chain(*parts, num_data=task.num_data, **options)
    with preserved_random_state(chain.generators):  # the next trial has the same order of data
        chain.run()
    return score


def trial_options(task: Task) -> dict[str, Any]:
    """The arguments of `Chain` that a task gives and a trial uses."""
    options = task.chain_options.items()
    return {name: value for name, value in options if name not in IGNORED_CHAIN_OPTIONS}
