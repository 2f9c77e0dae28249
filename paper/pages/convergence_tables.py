"""Tables of the page of theorems 1 and 2."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paper.pages.convergence_figures import AVERAGES
from paper.report.page import Grid, mean_and_error

Records = Mapping[str, Any]

FAMILIES = {
    "number of cycles fixed": "rates, fixed number of cycles",
    "length of cycles fixed": "rates, fixed length of cycles",
}
RATES = {"bias": {"K": -1.0, "alpha0": 1.0}, "mse": {"K": -1.0, "alpha0": 2.0}}
GROWTH = 1.2
DECADES = 2
"""A rate is refuted where the greatest ratio of the error to it, over alpha_0, still grows by more
than GROWTH with each decade of K, over the last DECADES of them. One crossover from one term's
constant to the other's cannot do that, as it could make a fitted exponent look worse."""
ANALYSED = "k^-1"
"""The only decreasing steps that the appendix compares with."""
FAR = 10.0
"""A chain on the Gaussian is said to be thrown far away where W2 passes this."""


def ratios_by_steps(records: Records) -> Grid:
    """Errors over theorem 1's rates."""
    steps = records[FAMILIES["number of cycles fixed"]]["K"]
    return Grid(
        "Bias and MSE over theorem 1's rate, greatest over α₀, by K",
        ["cycles", "average", "of", *(f"{count:,}" for count in steps)],
        [
            [
                family,
                average,
                term,
                *(f"{ratio:.2f}" for ratio in ratios(records[key], term, average)),
            ]
            for family, key in FAMILIES.items()
            for average in AVERAGES
            for term in RATES
        ],
        note=(
            "The rates are 1/(α₀ K) + α₀ for the bias and 1/(α₀ K) + α₀² for the MSE. A rate "
            f"counts as refuted where this still grows by more than {GROWTH:g} times a decade over "
            f"the last {DECADES} decades of K. No grid can prove a rate."
        ),
    )


def ratios(record: Records, term: str, average: str) -> np.ndarray:
    """The error over theorem 1's rate, greatest over alpha_0, for each K."""
    steps, alphas = np.array(record["K"]), np.array(record["alpha0"])[:, None]
    rate = 1 / (alphas * steps) + alphas ** RATES[term]["alpha0"]
    return (np.abs(record[average][term]) / rate).max(axis=0)


def exponents(records: Records) -> Grid:
    """Fitted exponents beside theorem 1's."""
    rows = []
    for family, key in FAMILIES.items():
        for average in AVERAGES:
            for name, fitted in records[key][average]["slopes"].items():
                term, of = name.split("_")
                rows.append([family, average, term, of, f"{RATES[term][of]:g}", *_fit(fitted)])
    return Grid(
        "Exponents of bias and MSE of averages of θ² on N(0, 1)",
        ["cycles", "average", "of", "in", "theorem 1", "fitted", "over", "at"],
        rows,
        note=(
            "Fitted where the term is at least 95% of the whole: the start's share of the bias or "
            "chance's share of the MSE for K, what the step size alone leaves for α₀. The plain "
            "average counts all steps alike, the weighted one by their size, as the lemma does "
            "that theorem 1 follows from. With the number of cycles fixed, the plain average's "
            "MSE falls only as about K^(-2/3): where a long cycle's steps near 0, the chain "
            "stands still, and those equal draws keep their full weight. With the length fixed, "
            "its bias goes over from one multiple of α₀ to another as α₀ grows, and its exponent "
            "stays below the theorem's in between: that refutes nothing."
        ),
    )


def _fit(fitted: Mapping[str, Any] | None) -> list[str]:
    if fitted is None:
        return ["-", "term not dominant here", ""]
    across = f"{fitted['from']:g} to {fitted['to']:g}, {fitted['points']} points"
    return [f"{fitted['slope']:.3f}", across, f"{fitted['at']:g}"]


def theta(records: Records) -> str:
    """Why the test function is not the parameter itself."""
    record = records[FAMILIES["number of cycles fixed"]]
    return (
        f"For θ itself there is no bias of the step size: at K = {record['K'][-1]:,} and "
        f"α₀ = {record['alpha0'][-1]:g} the plain average of θ is off by "
        f"{record['theta_bias'][-1][-1]:.2g}, all of it the start's, that of θ² by "
        f"{record['plain']['bias'][-1][-1]:.2g}. So θ² is the test function here."
    )


def _number(value: float | None) -> str:
    return "overflow" if value is None else f"{value:.3g}"


def distances_to_a_gaussian(distances: Sequence[Records]) -> Grid:
    """W2 of cyclical and of decreasing steps."""
    return Grid(
        "W₂ to a Gaussian with scales 0.5, 1 and 2",
        ["K", "α₀", "steps", "first step", "sum", "W₂ at K", "mean of last quarter", "greatest"],
        [
            [
                f"{record['K']:,}",
                f"{record['alpha0']:g}",
                name,
                *map(_number, (row["first_step"], row["sum"], row["end"])),
                *map(_number, (row["last_quarter_mean"], row["worst"])),
            ]
            for record in distances
            for name, row in record["methods"].items()
        ],
        note=(
            "Cyclical: 4 cycles, so that K is the end of one, and the last quarter is the last. "
            f"At an equal first step W₂ at K is {_ends(distances)}. At an equal sum the first of "
            f"the decreasing steps can be past the limit of stability, and W₂ passes {FAR:g} on "
            f"the way: {_thrown(distances)}."
        ),
    )


def _ends(distances: Sequence[Records]) -> str:
    texts = []
    for rival in rivals(distances[0]["methods"], "equal first step"):
        ends = [record["methods"][rival]["end"] for record in distances]
        texts.append(f"{min(ends):.3g} to {max(ends):.3g} for {rival.split(',')[0]}")
    return ", ".join(texts)


def _thrown(distances: Sequence[Records]) -> str:
    """How often decreasing steps of an equal sum go far away, and where those runs end."""
    texts = []
    for rival in rivals(distances[0]["methods"], "equal sum"):
        rows = [record["methods"][rival] for record in distances]
        ends = [row["end"] for row in rows if row["worst"] is None or row["worst"] > FAR]
        finite = [end for end in ends if end is not None]
        back = f", back to at most {max(finite):.2g} by K" if finite else ""
        lost = f", {len(ends) - len(finite)} lost to overflow" if len(finite) < len(ends) else ""
        texts.append(f"{rival.split(',')[0]} in {len(ends)} of {len(rows)} runs{back}{lost}")
    return "; ".join(texts)


def rivals(methods: Mapping[str, Any], kind: str) -> list[str]:
    """Decreasing steps, those of the appendix first."""
    found = [name for name in methods if name.startswith("k^") and name.endswith(kind)]
    return sorted(found, key=lambda name: not name.startswith(f"{ANALYSED},"))


def double_well(wells: Mapping[str, Mapping[int, Records]]) -> Grid:
    """Distances after the last step."""
    first = next(iter(next(iter(wells.values())).values()))
    return Grid(
        f"Double well with a barrier of {first['barrier']:.2f}, started in the lighter well",
        ["steps", "W₁", "W₂", "mass in the lighter well"],
        [
            [name, *(mean_and_error(last(runs, what), 4) for what in ("w1", "w2", "light_mass"))]
            for name, runs in wells.items()
        ],
        note=f"After {first['steps'][-1]:,} steps; ± is the standard error over seeds.",
    )


def last(runs: Mapping[int, Records], what: str) -> list[float]:
    """One number of each seed, after its last step."""
    return [run[what][-1] for run in runs.values()]
