"""Which rows a chain learns from, and the weights of the cycles by the rows it does not.

Every chain leaves out a fold of the rows. Together the chains predict every row with networks that
have not seen it, and those predictions weigh the widths of the prior by stacking.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from csgmcmc.posterior import Posterior
from csgmcmc.posterior.weights import log_mean, stacking_weights

Numbers = NDArray[np.int64]

# A tenth of a row for each cycle: it costs nothing where there are many rows, and keeps one cycle
# from getting all the weight where there are fifty.
SMOOTHING = 0.1


def folds(labels: Numbers, count: int, random: np.random.RandomState) -> list[Numbers]:
    """Numbers of the rows of each of `count` folds, at random, with equal shares of each label."""
    order = random.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    return [np.sort(order[first::count]) for first in range(count)]


def rows_without(held_out: Sequence[Numbers], count: int) -> list[Tensor]:
    """For each fold the rows of a table of `count` rows that are not in it."""
    return [torch.from_numpy(np.setdiff1d(np.arange(count), fold)) for fold in held_out]


def weights_of_cycles(
    posterior: Posterior,
    held_out: Sequence[Numbers],
    features: Tensor,
    targets: Tensor,
    row_weights: Tensor,
) -> NDArray[np.float64]:
    """The weight of each cycle, of all chains together, that predicts held-out rows best.

    Chain i has not seen the rows of `held_out[i]`.
    """
    cycles = np.array([draw.cycle for draw in posterior.draws])
    chain_ids = np.array([draw.chain_id for draw in posterior.draws])
    scores = []
    for chain_id, rows in enumerate(held_out):
        own = np.flatnonzero(chain_ids == chain_id)
        some = posterior.with_draws([posterior.draws[number] for number in own])
        log_scores = some.log_scores([(features[rows], targets[rows])]).cpu().numpy()
        scores.append([log_mean(log_scores[cycles[own] == one]) for one in np.unique(cycles)])
    points = np.concatenate(scores, axis=1)
    every_row = torch.from_numpy(np.concatenate(held_out))
    in_order = row_weights[every_row].numpy()
    return stacking_weights(points, point_weights=in_order, smoothing=SMOOTHING)
