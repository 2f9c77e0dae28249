"""The page of theorems 1 and 2: rates, distances, bounds, and a density with two wells.

On Gaussians everything is exact: there a rate or a bound is contradicted by one case. The double
well is simulated, and compared seed by seed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from paper.pages import convergence_figures as figures
from paper.pages import convergence_tables as tables
from paper.report.gaps import by_seed, tally
from paper.report.page import Claim, Page, Results, mean_and_error

Records = Mapping[str, Any]

SLACK = 0.1
"""W2 is said to fall where its fitted exponent is beyond this."""
CASES = {
    "equal first step": ("after as many steps, h₀ = α₀", "less error (≪) where α₀ ≥ h₀"),
    "equal sum": ("at an equal sum of step sizes", "a faster convergence rate"),
}
"""The two cases of the appendix's informal comparison: what is equal, and what it then says."""


def page(results: Results) -> Page:
    records: Records = results["records"]
    distances = [record for key, record in records.items() if key.startswith("distance")]
    wells = _wells(records)
    return Page(
        title="Convergence: theorems 1 and 2",
        summary=(
            "Bias, mean squared error and 2-Wasserstein distance of cSGLD, exact on Gaussians "
            "for the library's own step sizes, and simulated on a density with two wells."
        ),
        claims=[
            *(
                _rate_claim(records, term, average)
                for term in tables.RATES
                for average in figures.AVERAGES
            ),
            _bound_claim(records),
            _constant_claim(records),
            _distance_claim(records),
            *(_gaussian_claim(distances, kind) for kind in CASES),
            *(_well_claim(wells, kind) for kind in CASES),
            _convex_claim(records, "exact gradients", lambda row: row["sigma"] == 0),
            _convex_claim(records, "noisy gradients", lambda row: row["sigma"] > 0),
        ],
        parts=[
            "On Gaussians all numbers are exact: one case contradicts a rate or a bound. The runs "
            "on the double well share their noise seed by seed.",
            tables.ratios_by_steps(records),
            tables.exponents(records),
            tables.theta(records),
            figures.rates(records[tables.FAMILIES["number of cycles fixed"]]),
            tables.distances_to_a_gaussian(distances),
            figures.distances(distances),
            figures.theorem_two(
                records["theorem 2, vanishing steps"], records["theorem 2, bounds"]
            ),
            figures.floors({name: records[key] for name, key in tables.FAMILIES.items()}),
            figures.strongly_convex(records["strongly convex"]),
            figures.gradient_noise(records["gradient noise"]),
            tables.double_well(wells),
            figures.wells({name: list(runs.values()) for name, runs in wells.items()}),
            figures.checks(records),
        ],
    )


def _rate_claim(records: Records, term: str, average: str) -> Claim:
    """Refuted by either way to let K grow; not judged on too short a range of K."""
    growths, texts = [], []
    for family, key in tables.FAMILIES.items():
        record = records[key]
        ratios = tables.ratios(record, term, average)
        growth = _growth(record["K"], ratios)
        growths.append(growth)
        grows = "" if growth is None else f", {growth:.2f} times a decade of K at the end"
        slopes = {of: record[average]["slopes"][f"{term}_{of}"] for of in ("K", "alpha0")}
        texts.append(
            f"{family}: at most {ratios.max():.2g} times the rate{grows} "
            f"(fitted {_exponents(slopes)})"
        )
    judged = [None if growth is None else growth <= tables.GROWTH for growth in growths]
    if None in judged:
        texts.append("too short a range of K to judge")
    power = "α₀²" if term == "mse" else "α₀"
    name = {"bias": "Bias", "mse": "MSE"}[term]
    return Claim(
        text=f"{name} of the {average} average is O(1/(α₀ K) + {power})",
        paper="bounded multiple of the rate",
        ours="; ".join(texts),
        exact=False if False in judged else None if None in judged else True,
    )


def _growth(steps: Sequence[int], ratios: np.ndarray) -> float | None:
    """The factor for each of the last `DECADES` of K; None where there are fewer."""
    if steps[-1] < 10**tables.DECADES * steps[0]:
        return None
    first = int(np.searchsorted(steps, steps[-1] / 10**tables.DECADES))
    return float((ratios[-1] / ratios[first]) ** (1 / np.log10(steps[-1] / steps[first])))


def _exponents(found: Mapping[str, Mapping[str, Any] | None]) -> str:
    names = {"K": "K", "alpha0": "α₀"}
    return ", ".join(
        f"{names[of]}^{fitted['slope']:.2f}" if fitted else f"{names[of]} nowhere dominant"
        for of, fitted in found.items()
    )


def _bound_claim(records: Records) -> Claim:
    bound = np.array(records["theorem 2, bounds"]["bound"])
    ratios = np.array(
        [bound / np.array(records[key]["w2_end"]) for key in tables.FAMILIES.values()]
    )
    return Claim(
        text="Theorem 2 bounds W₂ to the target after K steps: tried on one target, which is "
        "convex, with exact gradients",
        paper="bound ≥ W₂, whether or not U is convex; 6 + C₂Kα₀/2 in the theorem, 12 + C₂Kα₀/2 "
        "in its proof",
        ours=f"with the theorem's 6, the bound is {ratios.min():.3g} to {ratios.max():.3g} times "
        "W₂ on N(0, 1); with the proof's 12 it is larger",
        exact=bool(ratios.min() >= 1),
    )


def _constant_claim(records: Records) -> Claim:
    record = records["theorem 2, vanishing steps"]
    start, (first, *_, last) = record["start"], record["rows"]
    return Claim(
        text="Theorem 2's rate as stated, α₀ = O(K^-β) with β > 1, keeps the constant C₃",
        paper="W₂ ≤ C₃ + terms that vanish",
        ours=(
            f"C₃ = {start:.3f}, W₂ at the start; from K = {first['K']:,} to {last['K']:,} the "
            f"bound goes from {first['bound']:.3f} to {last['bound']:.3f} and W₂ from "
            f"{first['w2']:.3f} to {last['w2']:.3f}, as the sum of the steps goes to 0"
        ),
        exact=last["bound"] >= start and last["w2"] > first["w2"],
    )


def _distance_claim(records: Records) -> Claim:
    number, length = (records[key] for key in tables.FAMILIES.values())
    falls, floor = number["w2_slope_K"], length["w2_slope_alpha0"]
    text = "At the end of a cycle cSGLD converges in W₂: fixed α₀ and growing K, then falling α₀"
    if falls is None or floor is None:
        return Claim(text, "bound of theorem 2", "too few K to fit exponents")
    within = number["w2_worst"][-1]
    return Claim(
        text=text,
        paper="bound of theorem 2 grows with K at fixed α₀",
        ours=(
            f"number of cycles fixed: W₂ at their end falls as K^{falls['slope']:.2f}, but the "
            f"greatest within the last, at α₀ = {number['alpha0'][-1]:g}, is {within[0]:.3g} for "
            f"K = {number['K'][0]:,} and {within[-1]:.3g} for {number['K'][-1]:,}; length fixed: a "
            f"floor, {length['w2_end'][-1][-1]:.2g} at α₀ = {length['alpha0'][-1]:g} (greatest "
            f"within a cycle {length['w2_worst'][-1][-1]:.2g}), that falls as "
            f"α₀^{floor['slope']:.2f}"
        ),
        exact=falls["slope"] < -SLACK and floor["slope"] > SLACK,
    )


def _gaussian_claim(distances: Sequence[Records], kind: str) -> Claim:
    """Judged at step K, which is best for cyclical steps, and against the appendix's steps."""
    texts, outcomes = [], []
    for rival in tables.rivals(distances[0]["methods"], kind):
        pairs = [(record["methods"]["cyclical"], record["methods"][rival]) for record in distances]
        finite = [(ours, theirs) for ours, theirs in pairs if theirs["end"] is not None]
        ratios = [ours["end"] / theirs["end"] for ours, theirs in finite]
        nearer = sum(ratio < 1 for ratio in ratios)
        outcomes.append([ratio < 1 for ratio in ratios])
        over = sum(
            ours["last_quarter_mean"] < theirs["last_quarter_mean"] for ours, theirs in finite
        )
        lost = len(pairs) - len(finite)
        texts.append(
            f"{rival.split(',')[0]}: nearer in {nearer} of {len(finite)} at step K (W₂ "
            f"{', '.join(f'{ratio:.3g}' for ratio in ratios)} times theirs, K ascending), in "
            f"{over} by the mean of the last quarter{f', {lost} more overflowed' if lost else ''}"
        )
    when, said = CASES[kind]
    return Claim(
        text=f"Gaussian: cSGLD is nearer than steps h₀/k {when}",
        paper=said,
        ours=f"{sum(outcomes[0])} of {len(outcomes[0])} comparisons hold: {_with_others(texts)}",
        exact=all(outcomes[0]) if outcomes[0] else None,
    )


def _with_others(texts: Sequence[str]) -> str:
    """The appendix's comparison, then those that it does not make."""
    return f"{texts[0]}; not compared in the paper: " + "; ".join(texts[1:])


def _wells(records: Records) -> dict[str, dict[int, Records]]:
    """Records of the double well by method and seed."""
    wells: dict[str, dict[int, Records]] = {}
    for key, record in records.items():
        if key.startswith("double well"):
            seed = int(key.rsplit("seed ", 1)[1])
            wells.setdefault(record["method"], {})[seed] = record
    return wells


def _well_claim(wells: Mapping[str, Mapping[int, Records]], kind: str) -> Claim:
    """Seeds are of the noise, and methods share them."""
    ours = tables.last(wells["cyclical"], "w2")
    rivals = tables.rivals(wells, kind)
    low, high = (
        {seed: run["w2"][-1] for seed, run in wells[name].items()}
        for name in ("cyclical", rivals[0])
    )
    gaps = [by_seed(low, high)]
    texts = [
        f"{rival.split(',')[0]}: {mean_and_error(tables.last(wells[rival], 'w2'), 3)}"
        for rival in rivals
    ]
    when, said = CASES[kind]
    return Claim(
        text=f"Double well: cSGLD is nearer than steps h₀/k {when}",
        paper=said,
        ours=f"{tally(gaps)}: W₂ cSGLD {mean_and_error(ours, 3)}; {_with_others(texts)}",
        gaps=gaps,
    )


def _convex_claim(records: Records, name: str, which: Callable[[Records], bool]) -> Claim:
    rows = [row for row in records["strongly convex"]["rows"] if which(row)]
    stated = [row["stated_least_ratio"] for row in rows]
    mended = [row["mended_least_ratio"] for row in rows]
    kept = sum(ratio >= 1 for ratio in stated)
    return Claim(
        text=f"Strongly convex case, {name}: the appendix's bound, as stated",
        paper="bound ≥ W₂",
        ours=(
            f"in {kept} of {len(rows)} settings, least ratio {min(stated):.2g}; with the "
            f"gradient's σ in its last term in {sum(ratio >= 1 for ratio in mended)}, "
            f"least ratio {min(mended):.3g}"
        ),
        exact=kept == len(rows),
    )
