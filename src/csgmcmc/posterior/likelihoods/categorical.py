"""One of several classes.

p(y = k | x) = softmax(logits)_k
"""

from torch import Tensor

from csgmcmc.arguments import check_count
from csgmcmc.posterior.averages import Average, ClassAverage
from csgmcmc.posterior.likelihoods.base import (
    Likelihood,
    at_least_float32,
    check_logits,
    log_probs_of,
)


class Categorical(Likelihood):
    """One of several classes; outputs are logits, targets class numbers, as for `cross_entropy`.

    Args:
        dim: dimension of the classes in the outputs of one model: 1, as in `cross_entropy`, or -1
            if they come last.
        ignore_index: a target that is ignored, as in `cross_entropy`.
    """

    name = "categorical"

    def __init__(self, dim: int = 1, ignore_index: int = -100) -> None:
        self.dim = check_count("dim", dim, at_least=-64)  # as many as a tensor may have
        self.ignore_index = check_count("ignore_index", ignore_index, at_least=-(2**63))

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return log_probs_of(self._log_probs(outputs)[0], targets, self.ignore_index)

    def average(self) -> Average:
        return ClassAverage(self._log_probs)

    def _log_probs(self, outputs: Tensor) -> tuple[Tensor, int]:
        """Log-probabilities (draws, classes, ...), and the dimension of the classes in a batch."""
        check_logits(outputs)
        dim = self.dim if self.dim >= 0 else outputs.ndim - 1 + self.dim
        if not 1 <= dim < outputs.ndim - 1:
            raise ValueError(
                f"outputs of shape {tuple(outputs.shape[1:])} have no classes in dimension "
                f"{self.dim}: for one logit a label, use likelihood='bernoulli'"
            )
        return _log_softmax(at_least_float32(outputs).movedim(dim + 1, 1)), dim


def _log_softmax(logits: Tensor) -> Tensor:
    """Log-probabilities of logits (draws, classes, ...), contiguous.

    torch's own starts threads even for a few numbers, which then wait for a busy core, and it is
    several times slower if classes come last and are few.
    """
    logits = logits.contiguous()
    shifted = logits - logits.amax(1, keepdim=True)
    return shifted.sub_(shifted.exp().sum(1, keepdim=True).log_())
