"""Regression with noise of Student's t distribution.

p(y | x) = t_df((y - location) / scale) / scale
"""

from typing import Any

import torch
from torch import Tensor

from csgmcmc.arguments import check_number
from csgmcmc.posterior.likelihoods.base import NumberLikelihood, in_shape, one_or_two, per_point


class StudentT(NumberLikelihood):
    """Regression with heavy-tailed noise, which outliers do not dominate.

    Outputs are locations, or pairs (tuples) of location and scale.

    Args:
        df: degrees of freedom, above 2, so that the noise has a variance.
        scale: of the noise, if the model returns only locations.
    """

    name = "student-t"
    family = "t"

    def __init__(self, df: float = 4.0, scale: float | None = None) -> None:
        self.df = check_number("df", df, above=2)
        self.scale = None if scale is None else check_number("scale", scale, above=0)

    def log_prob(self, outputs: Any, targets: Tensor) -> Tensor:
        found = self.parameters(outputs)
        values = in_shape(targets, found["loc"].shape[1:]).to(found["loc"])
        noise = torch.distributions.StudentT(found["df"], found["loc"], found["scale"])
        return per_point(noise.log_prob(values))

    def parameters(self, outputs: Any) -> dict[str, Tensor]:
        location, scale = one_or_two(outputs, self.scale, "scale")
        return {"df": torch.full_like(location, self.df), "loc": location, "scale": scale}

    def mean_and_variance(self, outputs: Any) -> tuple[Tensor, Tensor]:
        location, scale = one_or_two(outputs, self.scale, "scale")
        return location, scale.square() * (self.df / (self.df - 2))
