"""How near draws of the 25 Gaussians come to the truth, with or without weights.

The methods see the draws and the density there. The modes are used for the scores alone.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from scipy.stats import binom

from csgmcmc.posterior import harmonic_weights
from paper.diagnostics import mode_coverage
from paper.regions import find_regions, mass_weights
from paper.targets import Mixture25

FEWEST_DRAWS = 100  # of a region, of which `mass_weights` needs half
DIGITS = 5

Points = NDArray[np.float32]
Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """How well draws match the target."""

    modes_covered: float
    in_mode_mass: float
    """Weight of the draws within three standard deviations of a mode; of the target, 0.989."""
    total_variation: float
    """Between the modes' shares of the weight, a draw counting for its nearest, and the truth."""
    smallest_share: float
    """Of a mode; of the target, 0.04."""


@dataclass(frozen=True)
class Weighed:
    """The draws of one run, weighted in several ways: by name, the score and the modes' shares."""

    regions: int
    scores: dict[str, Score]
    shares: dict[str, list[float]]


def measure(
    points: Points, weights: Weights | None = None, *, radius: float, more_than: int
) -> Score:
    """Score draws, all of the same weight by default; coverage counts draws, not their weight."""
    target = Mixture25()
    modes = target.means.numpy()
    shares, distances = _shares(points, weights)
    inside = distances <= 3 * target.std
    return Score(
        modes_covered=mode_coverage(points, modes, radius, more_than),
        in_mode_mass=float(inside.mean() if weights is None else weights[inside].sum()),
        total_variation=float(np.abs(shares - target.weights.numpy()).sum() / 2),
        smallest_share=float(shares.min()),
    )


def measure_regions(
    points: Points, *, radius: float, more_than: int, smallest_share: float
) -> Weighed:
    """Find regions by clustering the draws, weigh them in three ways, and score each."""
    share = max(smallest_share, min(1.0, FEWEST_DRAWS / len(points)))
    regions = find_regions(points, smallest_share=share)
    log_densities = -Mixture25().potential(torch.as_tensor(points)).double().numpy()
    weightings = {
        "visits": np.full(len(points), 1 / len(points)),
        "harmonic mean": harmonic_weights(log_densities, regions),
        "mass of regions": mass_weights(points, log_densities, regions),
    }
    return Weighed(
        regions=len(np.unique(regions)),
        scores={
            name: measure(points, weights, radius=radius, more_than=more_than)
            for name, weights in weightings.items()
        },
        shares={
            name: _shares(points, weights)[0].round(DIGITS).tolist()
            for name, weights in weightings.items()
        },
    )


def summarise(scores: Sequence[Score]) -> dict[str, list[float]]:
    """All values of each score."""
    rows = [asdict(score) for score in scores]
    return {name: [round(row[name], DIGITS) for row in rows] for name in rows[0]}


def independent_ends(cycles: int) -> float:
    """Mean total variation of visits where each cycle is spent in one mode, chosen at random.

    The modes' shares are then binomial.
    """
    share = 1 / len(Mixture25().means)
    counts = np.arange(cycles + 1)
    gaps = np.abs(counts / cycles - share)
    return round(float(gaps @ binom.pmf(counts, cycles, share)) / share / 2, DIGITS)


def _shares(points: Points, weights: Weights | None) -> tuple[Weights, Weights]:
    """The weight of the draws nearest to each mode, and each draw's distance to its own."""
    modes = Mixture25().means.numpy()
    distances, nearest = KDTree(modes).query(points)
    if weights is None:
        weights = np.full(len(points), 1 / len(points))
    return np.bincount(nearest, weights, len(modes)).astype(float), distances
