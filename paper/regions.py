"""Regions of a density: found by clustering draws, and weighted by their mass."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree
from scipy.special import gammaln, logsumexp

from paper.arguments import check_count, check_number

MAX_CLUSTERED = 5_000  # draws that are clustered; others get the region of the nearest
MIN_CLUSTER = 10  # draws of a region
# Draws that `mass_weights` needs: with fewer, the ellipsoid of a region is poorly estimated.
MIN_DRAWS, MIN_DRAWS_PER_DIMENSION = 50, 10

Floats = NDArray[np.float64]


def find_regions(
    points: ArrayLike, *, smallest_share: float = 0.01, seed: int = 0
) -> NDArray[np.int64]:
    """Number of the region of each draw, found by clustering; the number of regions is not given.

    HDBSCAN (Campello et al. 2013) of the draws, or of a random subset if there are many. Draws that
    it leaves out get the region of the nearest draw that has one.

    Args:
        points: the draws, of shape (draws, dimensions); for networks, their predictions.
        smallest_share: a region has at least this share of the draws, and at least ten.
        seed: of the random subset.
    """
    from sklearn.cluster import HDBSCAN  # noqa: PLC0415  (takes a second to import)

    places = np.asarray(points, dtype=float)
    check_count("number of points", len(places), at_least=MIN_CLUSTER)
    if not 0 < check_number("smallest_share", smallest_share) <= 1:
        raise ValueError(f"smallest_share must be above 0 and at most 1, got {smallest_share}")
    clustered = places
    if len(places) > MAX_CLUSTERED:
        chosen = np.random.default_rng(seed).choice(len(places), MAX_CLUSTERED, replace=False)
        clustered = places[chosen]
    smallest = max(MIN_CLUSTER, int(smallest_share * len(clustered)))
    clustering = HDBSCAN(
        min_cluster_size=smallest,
        allow_single_cluster=True,
        copy=True,  # pyright: ignore[reportArgumentType]  (its type was derived from a warning)
    )
    labels = clustering.fit_predict(clustered)
    if labels.max() < 0:
        return np.zeros(len(places), dtype=np.int64)  # all of it is one region
    found = labels >= 0
    _, nearest = KDTree(clustered[found]).query(places)
    return labels[found][nearest].astype(np.int64)


def mass_weights(
    points: ArrayLike,
    log_densities: ArrayLike,
    regions: ArrayLike,
    *,
    temperature: float = 1.0,
    level: float = 0.5,
) -> Floats:
    """Weigh the regions of a density by their mass, not by the number of draws in them.

    The harmonic mean with its two faults removed (Gelfand and Dey 1994; Robert and Wraith 2009):
    only draws inside an ellipsoid E_m around the region's mean count, so that no density in the
    mean is close to 0, and the volume of E_m, which is its prior mass under a flat prior, is known:

        mass_m = volume(E_m) / [ 1/K_m * sum_j 1(theta_j in E_m) / density(theta_j)^(1/T) ].

    The ellipsoid is made from one half of the draws and evaluated with the other half, and vice
    versa. Every region needs fifty draws, and ten for each dimension, and the draws must follow the
    density within their region. The weights sum to 1; draws of one region share its weight equally.

    Args:
        points: the draws, of shape (draws, dimensions).
        log_densities: log of the density, up to a constant, at each draw.
        regions: number of the region of each draw; -1 leaves it out.
        temperature: T of the density exp(-U / T) that the draws follow.
        level: share of a region's draws inside its ellipsoid.
    """
    places, labels = np.asarray(points, dtype=float), np.asarray(regions)
    values = np.asarray(log_densities, dtype=float)
    if places.ndim != 2 or len(places) != len(values):
        raise ValueError(f"points must have shape ({len(values)}, d), got {places.shape}")
    if not check_number("temperature", temperature) > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    if not 0 < check_number("level", level) <= 1:
        raise ValueError(f"level must be above 0 and at most 1, got {level}")
    log_weights = np.full(len(values), -np.inf)
    for label in np.unique(labels[labels >= 0]):
        own = labels == label
        here, log_density = places[own], values[own] / temperature
        needed = max(MIN_DRAWS, MIN_DRAWS_PER_DIMENSION * places.shape[1])
        if len(here) < needed:
            raise ValueError(
                f"region {label} has {len(here)} draws in {places.shape[1]} dimensions: it needs "
                f"at least {needed}"
            )
        halves = [(here[0::2], here[1::2], log_density[1::2])]
        halves += [(here[1::2], here[0::2], log_density[0::2])]
        try:
            masses = np.array([_log_mass(*half, level) for half in halves])
        except np.linalg.LinAlgError as error:
            raise ValueError(f"the draws of region {label} do not span all dimensions") from error
        log_weights[own] = _log_mean(masses) - math.log(len(here))
    return np.exp(log_weights - logsumexp(log_weights))


def _log_mass(made_from: Floats, points: Floats, log_densities: Floats, level: float) -> float:
    """Log of the mass of a region, from its `points` inside an ellipsoid of other draws of it."""
    dimensions = points.shape[1]
    centre = made_from.mean(axis=0)
    factor = np.linalg.cholesky(np.atleast_2d(np.cov(made_from.T)))
    squares = np.square(np.linalg.solve(factor, (points - centre).T)).sum(axis=0)
    own_squares = np.square(np.linalg.solve(factor, (made_from - centre).T)).sum(axis=0)
    radius = np.quantile(own_squares, level)
    log_unit_ball = dimensions / 2 * math.log(math.pi) - gammaln(dimensions / 2 + 1)
    log_stretch = np.log(np.diag(factor)).sum()
    log_volume = log_unit_ball + log_stretch + dimensions / 2 * math.log(radius)
    outside_adds_nothing = np.where(squares <= radius, -log_densities, -np.inf)
    return float(log_volume - _log_mean(outside_adds_nothing))


def _log_mean(log_values: Floats) -> float:
    return np.logaddexp.reduce(log_values) - math.log(len(log_values))
