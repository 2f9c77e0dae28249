"""One network that is trained to predict as an average does.

    min over its weights of  E_x KL(p(. | x) || q(. | x)),    p the average, q the network

(Hinton et al., "Distilling the Knowledge in a Neural Network", 2015; Balan et al., "Bayesian Dark
Knowledge", NeurIPS 2015).
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from csgmcmc.arguments import check_number
from csgmcmc.loop import Chain
from csgmcmc.posterior.likelihoods.base import ClassLikelihood
from csgmcmc.randomness import generators_of, seeded
from csgmcmc.schedules import Cyclical

if TYPE_CHECKING:
    from csgmcmc.posterior.posterior import Posterior


def distill(
    posterior: "Posterior",
    student: nn.Module,
    loader: Any,
    optimizer: torch.optim.Optimizer,
    *,
    epochs: float,
    mix: bool = False,
    seed: int = 0,
    **chain_options: Any,
) -> nn.Module:
    """Train `student` in place; see `Posterior.distill`."""
    check_number("epochs", epochs, above=0)
    likelihood = posterior.likelihood
    if not isinstance(likelihood, ClassLikelihood):
        raise ValueError(f"only probabilities of classes can be distilled, not {likelihood}")
    if likelihood.temperature is not None:  # the student has the scaled probabilities unscaled
        likelihood = likelihood.scaled(1.0)

    def loss(outputs: Any, probs: Tensor) -> Tensor:
        """The divergence; probabilities have the classes first."""
        log_probs = likelihood.log_probs(outputs.unsqueeze(0))[0][0]
        return (torch.xlogy(probs, probs) - probs * log_probs).sum(0).mean()

    schedule = Cyclical(max(1, round(epochs * len(loader))), cycles=1, draws_per_cycle=1)
    options = {"watch": False, "progress": posterior.progress, **chain_options}
    with seeded(seed):
        Chain(student, loss, _Lessons(posterior, loader, mix), optimizer, schedule, **options).run()
    return student.eval()


class _Lessons:
    """The batches of a loader, with what the average predicts in place of targets."""

    def __init__(self, posterior: "Posterior", loader: Iterable[Any], mix: bool) -> None:
        self.posterior, self.loader, self.mix = posterior, loader, mix
        self.generators = generators_of(loader)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            inputs, _ = self.posterior.split(batch)
            inputs = mixed(inputs) if self.mix else inputs
            average = self.posterior.predict(inputs)
            probs, dim = average.probs, average.class_dim
            yield inputs, torch.stack([1 - probs, probs]) if dim is None else probs.movedim(dim, 0)


def mixed(inputs: Any) -> Tensor:
    """Each row averaged with another one, with random weights."""
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        raise ValueError("mix=True needs inputs that are one tensor of floats")
    shares = torch.rand(len(inputs), *[1] * (inputs.ndim - 1)).to(inputs)
    return shares * inputs + (1 - shares) * inputs[torch.randperm(len(inputs))]
