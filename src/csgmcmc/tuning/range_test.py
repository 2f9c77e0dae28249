"""The range test with a recipe's sampler."""

from collections.abc import Iterable
from typing import Any

from torch import nn

from csgmcmc.batches import Loss
from csgmcmc.loaders import size_of
from csgmcmc.range_test import SuggestedLR, range_test
from csgmcmc.recipe import Recipe
from csgmcmc.samplers import Sampler


def suggest_lr(
    model: nn.Module,
    loss: Loss,
    loader: Iterable[Any],
    *,
    recipe: Recipe | None = None,
    num_data: float | None = None,
    lowest: float = 1e-6,
    highest: float = 100.0,
    steps: int = 200,
    **chain_options: Any,
) -> SuggestedLR:
    """Find a step size for a model, its loss and its data.

    The model, the loader and all random states are left unchanged.

    Args:
        model: the network, at the weights that training will start from.
        loss: mean negative log-likelihood, as `Chain` takes it.
        loader: the training data.
        recipe: its sampler, sampler_options and weight decay are used; `Recipe()` by default.
        num_data: N; it matters only if sampler_options has a prior.
        lowest: lr of the first step, too small to change the loss.
        highest: lr of the last step, too large to train with.
        steps: number of steps; more of them help if the loss is noisy.
        chain_options: further arguments of `Chain`, e.g. `accumulate=2`.
    """
    recipe = Recipe() if recipe is None else recipe
    if num_data is None:
        num_data = size_of(loader) if "prior" in recipe.sampler_options else 1.0

    def make_sampler(params: list[nn.Parameter], lr: float) -> Sampler:
        return recipe.replace(lr=lr, temperature=0.0).make_sampler(params, num_data=num_data)

    limits: Any = {"lowest": lowest, "highest": highest, "steps": steps}
    return range_test(model, loss, loader, make_sampler, **limits, **chain_options)
