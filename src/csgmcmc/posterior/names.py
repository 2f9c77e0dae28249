"""Likelihoods by their names."""

from csgmcmc.arguments import check_choice
from csgmcmc.posterior.likelihoods import Bernoulli, Categorical, Likelihood
from csgmcmc.posterior.numbers import Gaussian, NegativeBinomial, Poisson, StudentT
from csgmcmc.posterior.ordinal import Ordinal

NAMED: dict[str, type[Likelihood]] = {
    "categorical": Categorical,
    "bernoulli": Bernoulli,
    "gaussian": Gaussian,
    "student-t": StudentT,
    "poisson": Poisson,
    "negative-binomial": NegativeBinomial,
    "ordinal": Ordinal,
}


def as_likelihood(likelihood: str | Likelihood) -> Likelihood:
    """A likelihood by its name, or itself."""
    if isinstance(likelihood, Likelihood):
        return likelihood
    return NAMED[check_choice("likelihood", likelihood, tuple(NAMED))]()
