"""From trained weights to a posterior around them, at a small part of the cost of training.

The chain starts where training ended, so that it needs no exploration: a constant step size, a
short burn-in, then draws.

    posterior = posterior_from_trained(model, cross_entropy, loader, epochs=10)
    posterior = posterior_from_trained(model, cross_entropy, loader, epochs=10, only="last layer")
"""

import copy
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from csgmcmc.arguments import check_count, check_items, check_kind, check_number, shown
from csgmcmc.draws import DrawStore, MemoryDraws, keep_trainable
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

LAST_LAYER = "last layer"
# Options of the chain that the range test takes, too.
RANGE_TEST_OPTIONS = ("device", "accumulate", "clip", "autocast", "generators")


def posterior_from_trained(
    model: nn.Module,
    loss: Loss,
    data: Any,
    *,
    epochs: float,
    only: str | Sequence[str] | None = None,
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
    """Sample the posterior around trained weights, of all of them or of a part.

    SGHMC with momentum 0.9 runs at a constant lr, beginning at the weights of `model`, which is
    not changed. What is not sampled stays as it is, batch-norm statistics too; dropout is off.

    Args:
        model: the trained network.
        loss: mean negative log-likelihood, as `Chain` takes it; without the prior.
        data: loader of the training data; it must have a length.
        epochs: passes over the data, for example a tenth of those of the training. The first fifth
            is burn-in.
        only: which weights to sample: "last layer", or names of parameters or of modules, such as
            "head" or ["encoder.3", "head.bias"]. By default all that require gradients.
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
    sampled = _prepared(model, only)
    batches = describe_loader(data)["batches"]
    if batches is None:
        raise ValueError("data has no length, so that steps cannot be counted in epochs")
    steps = max(1, round(epochs * batches / accumulate))
    burn_in = int(0.2 * steps)  # a chain that starts at a mode only has to spread out
    if draws > steps - burn_in:
        raise ValueError(
            f"draws={draws} is more than the {steps - burn_in} steps after the burn-in of "
            f"epochs={epochs:g}: give more epochs or fewer draws"
        )
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
        schedule = Constant(steps, burn_in=burn_in, draws=draws)
        store = None if folder is None else DrawStore(folder, only=keep_trainable(sampled))
        chain = Chain(sampled, loss, data, sampler, schedule, store, **chain_options)
        chain.start = MemoryDraws()
        chain.start.append(sampled, step=0)
        chain.stepper.settings["trained weights, checksum"] = checksum(all_tensors(sampled))
        kept = chain.run(resume=store is not None)
    return Posterior(sampled, kept, **(posterior_options or {}), run=chain)


def _prepared(model: nn.Module, only: str | Sequence[str] | None) -> nn.Module:
    """A copy of `model` in which only the chosen weights require gradients.

    Modules without any of them are in evaluation mode: dropout, and frozen batch normalisation.
    """
    model = copy.deepcopy(model)
    if only is not None:
        names = [only] if isinstance(only, str) else check_items("only", only, "a list of names")
        chosen = {name for each in names for name in _parameters_named(model, each)}
        model.requires_grad_(False)
        for name, param in model.named_parameters(remove_duplicate=False):
            if name in chosen:
                param.requires_grad_(True)
    if not any(param.requires_grad for param in model.parameters()):
        raise ValueError("no weight of the model requires gradients: name some by only=")
    model.train()
    for module in model.modules():
        if not any(param.requires_grad for param in module.parameters()):
            module.eval()
    return model


def _parameters_named(model: nn.Module, wanted: str) -> list[str]:
    """Names of the parameters that `wanted`, a parameter, a module or "last layer", stands for."""
    names = dict(model.named_parameters(remove_duplicate=False))
    if wanted == LAST_LAYER:
        # A norm has vectors only; it may come after the layer that gives the outputs.
        matrices = [name for name, param in names.items() if param.ndim > 1]
        if not matrices:
            raise ValueError(f'only="{LAST_LAYER}", but the model has no layer with a matrix')
        layer = matrices[-1].rpartition(".")[0]
        return [name for name in names if name.rpartition(".")[0] == layer]
    found = [name for name in names if name == wanted or name.startswith(f"{wanted}.")]
    if not found:
        known = ", ".join(dict.fromkeys(name.rpartition(".")[0] or name for name in names))
        raise ValueError(
            f"only has {shown(wanted)}, which no parameter or module of the model is called: "
            f'choose from "{LAST_LAYER}", {known}'
        )
    return found
