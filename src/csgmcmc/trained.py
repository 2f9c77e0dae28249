"""From trained weights to a posterior around them, at a small part of the cost of training.

The chain starts where training ended, so that it needs no exploration: a constant step size, a
short burn-in, then draws.

    posterior = posterior_from_trained(model, cross_entropy, loader, epochs=10)

To sample a part of the weights, freeze the others: `model.requires_grad_(False)`, then
`model.head.requires_grad_(True)`.
"""

import copy
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from csgmcmc.arguments import check_count, check_kind, check_number
from csgmcmc.draws import DrawStore, keep_trainable
from csgmcmc.draws.tensors import checksum
from csgmcmc.loaders import Loss, describe_loader
from csgmcmc.loop import Chain
from csgmcmc.loop.checkpoint import all_tensors
from csgmcmc.loop.num_data import default_num_data
from csgmcmc.lr_range import TEST_TEMPERATURE, suggest_lr
from csgmcmc.posterior import Posterior
from csgmcmc.randomness import seeded
from csgmcmc.samplers import SGHMC
from csgmcmc.schedules import Constant
from csgmcmc.stacked import Stack

# Options of the chain that the range test takes, too.
RANGE_TEST_OPTIONS = ("device", "accumulate", "clip", "autocast", "generators")


def posterior_from_trained(
    model: nn.Module,
    loss: Loss,
    data: Any,
    *,
    epochs: float,
    draws: int = 20,
    lr: float | None = None,
    temperature: float = 0.03,
    weight_decay: float = 1e-4,
    num_data: float | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    posterior_options: dict[str, Any] | None = None,
    **chain_options: Any,
) -> Posterior:
    """Sample the posterior around trained weights: all that require gradients.

    SGHMC with momentum 0.9 runs at a constant lr, beginning at the weights of `model`, which is
    not changed. Modules whose weights are all frozen are in evaluation mode: their batch-norm
    statistics stay as they are, and their dropout is off.

    Args:
        model: the trained network.
        loss: mean negative log-likelihood, as `Chain` takes it; without the prior.
        data: loader of the training data; it must have a length.
        epochs: passes over the data, for example a tenth of those of the training. The first fifth
            is burn-in.
        draws: how many to keep.
        lr: step size; by default a thirtieth of that at which the loss doubles, from a range test.
        temperature: 1 samples the posterior. With more weights than data a lower one predicts
            better, which is why the default is low; choose it on validation data.
        weight_decay: Gaussian prior of precision N * weight_decay; of the training, if it had one.
        num_data: N; by default the length of the loader's data set, if each example has one target.
        seed: of the noise, and of everything else that is random, such as the order of the data.
        folder: for the draws: a `DrawStore` that has the sampled weights in each draw, and the rest
            once. The same call resumes an interrupted run; with other trained weights it is a
            `SettingsMismatchError`. By default draws are in memory.
        posterior_options: arguments of `Posterior`, e.g. `{"likelihood": "bernoulli"}`.
        chain_options: further arguments of `Chain`, e.g. `clip=1.0`.
    """
    check_kind("model", model, nn.Module, "a torch.nn.Module")
    if isinstance(model, Stack):
        raise ValueError("model is a Stack: give one trained network")
    check_number("epochs", epochs, above=0)
    check_count("draws", draws, at_least=1)
    accumulate = check_count("accumulate", chain_options.get("accumulate", 1), at_least=1)
    if num_data is None:
        num_data = default_num_data(data, chain_options.get("generators", ()))
    sampled = _prepared(model)
    batches = describe_loader(data)["batches"]
    if batches is None:
        raise ValueError("data has no length, so that steps cannot be counted in epochs")
    steps = max(1, round(epochs * batches / accumulate))
    # A chain that starts at a mode only has to spread out.
    schedule = Constant(steps, burn_in=int(0.2 * steps), draws=draws)
    make_sampler = partial(SGHMC, num_data=num_data, momentum=0.9, seed=seed)
    with seeded(seed):  # so that a resumed run finds the same lr
        if lr is None:
            names = chain_options.keys() & RANGE_TEST_OPTIONS
            options = {name: chain_options[name] for name in names}
            # Without the prior, which raises the loss too if it is narrower than in training.
            cold = partial(make_sampler, temperature=TEST_TEMPERATURE)
            lr = suggest_lr(sampled, loss, data, sampler=cold, trained=True, **options).lr
        params = [param for param in sampled.parameters() if param.requires_grad]
        sampler = make_sampler(params, lr, temperature=temperature, weight_decay=weight_decay)
        store = None if folder is None else DrawStore(folder, only=keep_trainable(sampled))
        chain = Chain(sampled, loss, data, sampler, schedule, store, **chain_options)
        chain.stepper.settings["trained weights, checksum"] = checksum(all_tensors(sampled))
        kept = chain.run(resume=store is not None)
    return Posterior(sampled, kept, **(posterior_options or {}), run=chain)


def _prepared(model: nn.Module) -> nn.Module:
    """A copy of `model` whose modules without a weight to sample are in evaluation mode."""
    model = copy.deepcopy(model).train()
    for module in model.modules():
        if not any(param.requires_grad for param in module.parameters()):
            module.eval()
    return model
