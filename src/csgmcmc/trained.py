"""From trained weights to a posterior around them, at a small part of the cost of training.

The chain starts where training ended, so that it needs no exploration: a constant step size and a
short burn-in, or cycles that return. On held-out data the trained network and the draws are then
weighed against each other, and their logits scaled.

    posterior = posterior_from_trained(model, cross_entropy, loader, held_out=held_out, epochs=10)
"""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from csgmcmc.arguments import check_count, check_items, check_kind, check_number, shown
from csgmcmc.draws import DrawStore, MemoryDraws, keep_trainable
from csgmcmc.draws.tensors import checksum
from csgmcmc.errors import SamplingWarning, warn
from csgmcmc.loaders import Loss, describe_loader
from csgmcmc.loop import Chain
from csgmcmc.loop.checkpoint import all_tensors
from csgmcmc.loop.num_data import default_num_data
from csgmcmc.lr_range import TEST_TEMPERATURE, suggest_lr
from csgmcmc.posterior import Posterior
from csgmcmc.posterior.likelihoods import Likelihood
from csgmcmc.posterior.passes import Scores, over_draws
from csgmcmc.randomness import seeded
from csgmcmc.samplers import SGHMC, AdamSGHMC, Sampler
from csgmcmc.schedules import Constant, Cyclical, Joined, Schedule
from csgmcmc.stacked import Stack

LAST_LAYER = "last layer"
# Options of the chain that the range test takes, too.
RANGE_TEST_OPTIONS = ("device", "accumulate", "clip", "autocast", "generators")
# In standard errors: the least gain of the average over the scaled network, for which it is worth
# serving, and the largest loss of the first cycle.
MIN_GAIN, MAX_LOSS = 1.0, 2.0


def posterior_from_trained(
    model: nn.Module,
    loss: Loss,
    data: Any,
    *,
    held_out: Iterable[Any] | None,
    epochs: float,
    cycles: int | None = None,
    only: str | Sequence[str] | None = None,
    draws: int = 20,
    sampler: Callable[..., Sampler] = SGHMC,
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

    The chain begins at the weights of `model`, which is not changed. What is not sampled stays as
    it is, batch-norm statistics too; dropout is off.

    With `held_out` data the network itself is a draw of the posterior, too. The weights of the
    network and of the cycles, and a temperature of their logits, maximise the log score there; the
    network alone, with the temperature that is best for it, is among the candidates, so that no
    other is ever worse. It is what you get, with a `SamplingWarning`, if the average gains less
    than the standard error of the gain.

    Args:
        model: the trained network.
        loss: mean negative log-likelihood, as `Chain` takes it; without the prior.
        data: loader of the training data; it must have a length.
        held_out: loader of data that the network was not trained on, a few hundred points or more;
            not of those that you will test with. None: draws of equal weight, not scaled and
            without the network, which may be worse than it.
        epochs: passes over the data, for example a tenth of those of the training. Without cycles
            the first fifth is burn-in.
        cycles: how many cosine cycles, each with a fifth of sampling at its end; by default none,
            but a constant step size. The end of a cycle should be about as good as the network
            that it began with. You are warned if that of the first is not: take fewer.
        only: which weights to sample: "last layer", or names of parameters or of modules, such as
            "head" or ["encoder.3", "head.bias"]. By default all that require gradients.
        draws: how many to keep, divided among the cycles.
        sampler: a class, such as `AdamSGHMC` after training with Adam or AdamW, or a function that
            takes the same arguments, e.g. `partial(SGHMC, momentum=0.5)`.
        lr: step size; by default a thirtieth of that at which the loss doubles, from a range test,
            and for cycles, which only begin with it, a tenth.
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
    accumulate = check_count("accumulate", chain_options.get("accumulate", 1), at_least=1)
    if num_data is None:
        num_data = default_num_data(data, chain_options.get("generators", ()))
    sampled = _prepared(model, only)
    batches = describe_loader(data)["batches"]
    if batches is None:
        raise ValueError("data has no length, so that steps cannot be counted in epochs")
    steps = max(1, round(epochs * batches / accumulate))
    make_sampler = partial(sampler, num_data=num_data, seed=seed)
    params = [param for param in sampled.parameters() if param.requires_grad]
    is_adaptive = isinstance(make_sampler(params, 1.0), AdamSGHMC)
    schedule = _schedule(steps, cycles, draws, is_adaptive)
    with seeded(seed):  # so that a resumed run finds the same lr
        if lr is None:
            names = chain_options.keys() & RANGE_TEST_OPTIONS
            options = {name: chain_options[name] for name in names}
            # Without the prior, which raises the loss too if it is narrower than in training; and
            # for Adam, whose preconditioner adapts without it, without noise.
            cold = partial(make_sampler, temperature=0.0 if is_adaptive else TEST_TEMPERATURE)
            lr = suggest_lr(sampled, loss, data, sampler=cold, trained=True, **options).lr
            lr *= 1 if cycles is None else 3
        made = make_sampler(params, lr, temperature=temperature, weight_decay=weight_decay)
        store = None if folder is None else DrawStore(folder, only=keep_trainable(sampled))
        chain = Chain(sampled, loss, data, made, schedule, store, **chain_options)
        chain.start = MemoryDraws()
        chain.start.append(sampled, step=0, stage="burn-in")
        chain.stepper.settings["trained weights, checksum"] = checksum(all_tensors(sampled))
        kept = chain.run(resume=store is not None)
    options = {**(posterior_options or {}), "run": chain}
    if held_out is None:
        return Posterior(sampled, kept, **options)
    return _weighed(Posterior(sampled, [*chain.start, *kept], **options), held_out, options)


def _schedule(steps: int, cycles: int | None, draws: int, is_adaptive: bool) -> Schedule:
    """Cycles, or a constant step size after a burn-in, in which preconditioners adapt first."""
    check_count("draws", draws, at_least=1)
    if cycles is not None:
        check_count("cycles", cycles, at_least=1)
        return Cyclical(steps, cycles, draws_per_cycle=-(-draws // cycles))
    burn_in = int(0.2 * steps)  # a chain that starts at a mode only has to spread out
    if draws > steps - burn_in:
        raise ValueError(
            f"draws={draws} is more than the {steps - burn_in} steps after the burn-in: give more "
            "epochs or fewer draws"
        )
    if not is_adaptive or burn_in < 2:
        return Constant(steps, burn_in=burn_in, draws=draws)
    cold, hot = Constant(burn_in // 2, temperature_scale=0.0), steps - burn_in // 2
    return Joined([cold, Constant(hot, burn_in=burn_in - burn_in // 2, draws=draws)])


def _weighed(posterior: Posterior, held_out: Iterable[Any], options: dict[str, Any]) -> Posterior:
    """The same draws, the first of them the trained network, with weights and a temperature."""
    fit, groups, chain = HeldOut(posterior, held_out).fit, posterior.cycles, options["run"]
    network, first = (fit(np.where(groups == number, 0, -1)) for number in (0, 1))
    average = chosen = fit(groups)
    if isinstance(chain.schedule, Cyclical) and errors_ahead(first, network) < -MAX_LOSS:
        warn(
            f"the first cycle predicts worse than the trained network (NLL {first.nll:.4g} and "
            f"{network.nll:.4g}, each scaled): take fewer cycles or more epochs, or a lower lr",
            SamplingWarning,
        )
    if errors_ahead(average, network) < MIN_GAIN:
        chosen = network
        warn(
            f"no gain over the scaled network: keep it (held-out NLL {network.nll:.4g}, of the "
            f"average {average.nll:.4g}, each scaled); the posterior predicts as it does",
            SamplingWarning,
        )
    if chosen.temperature is not None:
        options = {**options, "likelihood": posterior.likelihood.scaled(chosen.temperature)}
    return Posterior(posterior.model, posterior.draws, chosen.weights, **options)


class Fit(NamedTuple):
    """Weights of draws, a temperature of logits if there are any, and held-out log-scores."""

    weights: NDArray[np.float64]
    temperature: float | None
    scores: NDArray[np.float64]

    @property
    def nll(self) -> float:
        """Mean over the held-out points."""
        return -float(self.scores.mean())


class HeldOut:
    """The outputs of every draw for held-out data, in memory, to be scored at any temperature."""

    def __init__(self, posterior: Posterior, loader: Iterable[Any]) -> None:
        self.likelihood = posterior.likelihood
        kept = partial(_Outputs, self.likelihood)
        self._batches = list(over_draws(posterior, loader, "scoring", kept))

    def fit(self, groups: NDArray[np.int64]) -> Fit:
        """The weights of groups of draws, and the temperature, with the best log score.

        Groups are numbered from 0; -1 is none. For each temperature the weights are a convex
        problem; that of the temperature has one dimension.
        """
        from scipy.optimize import minimize_scalar  # noqa: PLC0415  (slow to import)

        def fitted(log_temperature: float) -> Fit:
            return self._stacked(groups, self.likelihood.scaled(math.exp(log_temperature)))

        if self.likelihood.temperature is None:
            return self._stacked(groups, self.likelihood)
        found: Any = minimize_scalar(lambda log: fitted(log).nll, bounds=(-3, 3), method="bounded")
        return fitted(found.x)

    def _stacked(self, groups: NDArray[np.int64], likelihood: Likelihood) -> Fit:
        from csgmcmc.posterior.weights import stacking_weights  # noqa: PLC0415  (slow to import)

        found = torch.cat([batch.scores(likelihood) for batch in self._batches], 1).cpu().numpy()
        weights = stacking_weights(found, groups)
        counted = weights > 0
        scores = np.logaddexp.reduce(found[counted] + np.log(weights[counted])[:, None])
        return Fit(weights, likelihood.temperature, scores)


class _Outputs(Scores):
    """The outputs of all draws for one batch, to be scored later."""

    def add(self, numbers: list[int], outputs: Any) -> None:
        self.parts.append(outputs)

    def scores(self, likelihood: Likelihood) -> torch.Tensor:
        return torch.cat([likelihood.log_prob(part, self.targets) for part in self.parts])


def errors_ahead(one: Fit, other: Fit) -> float:
    """Gain in log score of one fit over another, in standard errors of the paired points."""
    gains = one.scores - other.scores
    return float(gains.mean() / max(gains.std() / math.sqrt(len(gains)), 1e-6))


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
