"""Classes in an order, such as grades, by cumulative logits.

P(class <= k) = sigmoid(cuts[k] - score)
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from csgmcmc.arguments import check_items, check_number
from csgmcmc.posterior.likelihoods.base import ClassLikelihood, at_least_float32


class Ordinal(ClassLikelihood):
    """Classes in an order, by a score and cut points between the classes.

    Outputs are scores, of shape (batch,) or (batch, 1), or pairs (tuples) of those and the cut
    points, ascending, of shape (classes - 1,). Targets are class numbers, of shape (batch,).

    Args:
        cuts: the cut points, ascending, if the model returns only scores.
    """

    name = "ordinal"

    def __init__(self, cuts: Sequence[float] | None = None) -> None:
        if cuts is not None:
            given = check_items("cuts", cuts, "numbers")
            cuts = [check_number("each of cuts", cut) for cut in given]
            if not cuts or any(low >= high for low, high in pairwise(cuts)):
                raise ValueError(f"cuts must be numbers in ascending order, got {cuts}")
        self.cuts = cuts

    def log_probs(self, outputs: Any) -> tuple[Tensor, int]:
        pair = isinstance(outputs, (tuple, list))
        if pair == (self.cuts is not None) or (pair and len(outputs) != 2):
            raise ValueError("outputs must be scores with cuts= given, or pairs of scores and cuts")
        scores = at_least_float32(outputs[0] if pair else outputs)
        scores = scores.flatten(1) if scores.shape[2:] == (1,) else scores
        cuts = at_least_float32(outputs[1]) if pair else scores.new_tensor([self.cuts])
        # sigmoid(a) - sigmoid(b) = sigmoid(a) * sigmoid(-b) * (1 - exp(b - a)), without cancelling.
        upper = cuts.unsqueeze(-1) - scores.unsqueeze(1)  # (draws, classes - 1, batch)
        gaps = torch.log(-torch.expm1(cuts[:, :-1] - cuts[:, 1:])).unsqueeze(-1)
        middle = logsigmoid(upper[:, 1:]) + logsigmoid(-upper[:, :-1]) + gaps
        parts = [logsigmoid(upper[:, :1]), middle, logsigmoid(-upper[:, -1:])]
        return torch.cat(parts, dim=1), 1
