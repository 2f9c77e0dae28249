"""One network that is trained to predict as the average of many does.

    min over the student's weights of  E_x KL(p(. | x) || q(. | x)),

with p the averaged probabilities and q those of the student (Hinton, Vinyals and Dean, "Distilling
the Knowledge in a Neural Network", 2015; Balan et al., "Bayesian Dark Knowledge", NeurIPS 2015).
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import poisson_nll_loss

from csgmcmc.arguments import check_number
from csgmcmc.loaders import describe_loader
from csgmcmc.loop import Chain
from csgmcmc.posterior.likelihoods.base import ClassLikelihood
from csgmcmc.posterior.predictive import ClassPredictive
from csgmcmc.randomness import generators_of, seeded
from csgmcmc.schedules import Cyclical

if TYPE_CHECKING:
    from csgmcmc.posterior.posterior import Posterior

Taught = tuple[Tensor, Tensor]
"""Averaged probabilities, (classes, batch, ...), and mutual information, (batch, ...)."""


def distill(
    posterior: "Posterior",
    student: nn.Module,
    loader: Iterable[Any],
    optimizer: torch.optim.Optimizer,
    *,
    epochs: float,
    mix: bool = False,
    mutual_information: bool = False,
    seed: int = 0,
    **chain_options: Any,
) -> nn.Module:
    """Train `student` in place; see `Posterior.distill`."""
    likelihood = posterior.likelihood
    if not isinstance(likelihood, ClassLikelihood):
        raise ValueError(f"only probabilities of classes can be distilled, not {likelihood}")
    if likelihood.temperature is not None:  # the student has the scaled probabilities unscaled
        likelihood = likelihood.scaled(1.0)
    check_number("epochs", epochs, above=0)
    batches = describe_loader(loader)["batches"]
    if batches is None:
        raise ValueError("loader has no length, so that steps cannot be counted in epochs")

    def loss(outputs: Any, taught: Taught) -> Tensor:
        probs, uncertainty = taught
        if not mutual_information:
            return divergence(probs, likelihood.log_probs(outputs.unsqueeze(0))[0][0])
        logits, log_uncertainty = outputs
        both = divergence(probs, likelihood.log_probs(logits.unsqueeze(0))[0][0])
        return both + poisson_nll_loss(log_uncertainty.reshape(uncertainty.shape), uncertainty)

    schedule = Cyclical(max(1, round(epochs * batches)), cycles=1, draws_per_cycle=1)
    lessons = _Lessons(posterior, loader, mix)
    with seeded(seed):
        options = {"watch": False, "progress": posterior.progress, **chain_options}
        Chain(student, loss, lessons, optimizer, schedule, **options).run()
    return student.eval()


def divergence(probs: Tensor, log_probs: Tensor) -> Tensor:
    """Mean KL divergence of predictions from `probs`, both with the classes first."""
    return (torch.xlogy(probs, probs) - probs * log_probs).sum(0).mean()


class _Lessons:
    """The batches of a loader, with what the average predicts in place of targets."""

    def __init__(self, posterior: "Posterior", loader: Iterable[Any], mix: bool) -> None:
        self.posterior, self.loader, self.mix = posterior, loader, mix
        self.generators = generators_of(loader)

    def __iter__(self) -> Iterator[tuple[Any, Taught]]:
        for batch in self.loader:
            inputs, _ = self.posterior.split(batch)
            if self.mix:
                inputs = mixed(inputs)
            average = self.posterior.predict(inputs)
            assert isinstance(average, ClassPredictive)  # noqa: S101  (the likelihood is of classes)
            probs, dim = average.probs, average.class_dim
            probs = torch.stack([1 - probs, probs]) if dim is None else probs.movedim(dim, 0)
            yield inputs, (probs, average.mutual_information)


def mixed(inputs: Any) -> Tensor:
    """Each row averaged with another one, with random weights."""
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        raise ValueError("mix=True needs inputs that are one tensor of floats")
    shares = torch.rand(len(inputs), *[1] * (inputs.ndim - 1)).to(inputs)
    return shares * inputs + (1 - shares) * inputs[torch.randperm(len(inputs))]
