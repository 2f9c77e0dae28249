"""Regions of weight space, found by clustering the draws."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree

from csgmcmc.arguments import check_count, check_number
from csgmcmc.diagnostics.arrays import check_finite

MOST_CLUSTERED = 5_000  # draws that are clustered; others get the region of the nearest
FEWEST = 10  # draws of a region


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

    places = check_finite("points", points, "draws", "dimensions")
    check_count("number of points", len(places), at_least=FEWEST)
    check_number("smallest_share", smallest_share, above=0, at_most=1)
    clustered = places
    if len(places) > MOST_CLUSTERED:
        chosen = np.random.default_rng(seed).choice(len(places), MOST_CLUSTERED, replace=False)
        clustered = places[chosen]
    smallest = max(FEWEST, int(smallest_share * len(clustered)))
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
