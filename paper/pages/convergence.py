"""The page of theorems 1 and 2: rates, distances, bounds, and a density with two wells.

On Gaussians everything is exact: there a rate or a bound is contradicted by one case. The double
well is simulated, and compared seed by seed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from paper.pages import convergence_figures as figures
from paper.report.compare import difference, outcome, tally, verdict
from paper.report.page import Claim, Grid, Page, Results, mean_and_error
from paper.report.paired import PAIRED_RULE

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
SLACK = 0.1
"""W2 is said to fall where its fitted exponent is beyond this."""
ANALYSED = "k^-1"
"""The only decreasing steps that the appendix compares with."""
CASES = {
    "equal first step": ("after as many steps, h₀ = α₀", "less error (≪) where α₀ ≥ h₀"),
    "equal sum": ("at an equal sum of step sizes", "a faster convergence rate"),
}
"""The two cases of the appendix's informal comparison: what is equal, and what it then says."""
FAR = 10.0
"""A chain on the Gaussian is said to be thrown far away where W2 passes this."""


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
                for term in RATES
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
            "On Gaussians all numbers are exact: one case contradicts a rate or a bound. Where two "
            f"kinds of steps are compared: {PAIRED_RULE}",
            _ratio_table(records),
            _slopes(records),
            _theta(records),
            figures.rates(records[FAMILIES["number of cycles fixed"]]),
            _distances(distances),
            figures.distances(distances),
            figures.theorem_two(
                records["theorem 2, vanishing steps"], records["theorem 2, bounds"]
            ),
            figures.floors({name: records[key] for name, key in FAMILIES.items()}),
            figures.strongly_convex(records["strongly convex"]),
            figures.gradient_noise(records["gradient noise"]),
            _well_table(wells),
            figures.wells({name: list(runs.values()) for name, runs in wells.items()}),
            figures.checks(records),
        ],
    )


def _rate_claim(records: Records, term: str, average: str) -> Claim:
    """Refuted by either way to let K grow; not judged on too short a range of K."""
    growths, texts = [], []
    for family, key in FAMILIES.items():
        record = records[key]
        ratios = _ratios(record, term, average)
        growth = _growth(record["K"], ratios)
        growths.append(growth)
        grows = "" if growth is None else f", {growth:.2f} times a decade of K at the end"
        slopes = {of: record[average]["slopes"][f"{term}_{of}"] for of in ("K", "alpha0")}
        texts.append(
            f"{family}: at most {ratios.max():.2g} times the rate{grows} "
            f"(fitted {_exponents(slopes)})"
        )
    judged = [None if growth is None else growth <= GROWTH for growth in growths]
    if None in judged:
        texts.append("too short a range of K to judge")
    power = "α₀²" if term == "mse" else "α₀"
    name = {"bias": "Bias", "mse": "MSE"}[term]
    return Claim(
        text=f"{name} of the {average} average is O(1/(α₀ K) + {power})",
        paper="bounded multiple of the rate",
        ours="; ".join(texts),
        holds=False if False in judged else None if None in judged else True,
    )


def _ratios(record: Records, term: str, average: str) -> np.ndarray:
    """The error over theorem 1's rate, greatest over alpha_0, for each K."""
    steps, alphas = np.array(record["K"]), np.array(record["alpha0"])[:, None]
    rate = 1 / (alphas * steps) + alphas ** RATES[term]["alpha0"]
    return (np.abs(record[average][term]) / rate).max(axis=0)


def _growth(steps: Sequence[int], ratios: np.ndarray) -> float | None:
    """The factor for each of the last DECADES of K; None where there are fewer."""
    if steps[-1] < 10**DECADES * steps[0]:
        return None
    first = int(np.searchsorted(steps, steps[-1] / 10**DECADES))
    return float((ratios[-1] / ratios[first]) ** (1 / np.log10(steps[-1] / steps[first])))


def _exponents(found: Mapping[str, Mapping[str, Any] | None]) -> str:
    names = {"K": "K", "alpha0": "α₀"}
    return ", ".join(
        f"{names[of]}^{fitted['slope']:.2f}" if fitted else f"{names[of]} nowhere dominant"
        for of, fitted in found.items()
    )


def _bound_claim(records: Records) -> Claim:
    bound = np.array(records["theorem 2, bounds"]["bound"])
    ratios = np.array([bound / np.array(records[key]["w2_end"]) for key in FAMILIES.values()])
    return Claim(
        text="Theorem 2 bounds W₂ to the target after K steps: tried on one target, which is "
        "convex, with exact gradients",
        paper="bound ≥ W₂, whether or not U is convex; 6 + C₂Kα₀/2 in the theorem, 12 + C₂Kα₀/2 "
        "in its proof",
        ours=f"with the theorem's 6, the bound is {ratios.min():.3g} to {ratios.max():.3g} times "
        "W₂ on N(0, 1); with the proof's 12 it is larger",
        holds=bool(ratios.min() >= 1),
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
        holds=last["bound"] >= start and last["w2"] > first["w2"],
    )


def _distance_claim(records: Records) -> Claim:
    number, length = (records[key] for key in FAMILIES.values())
    falls, floor = number["w2_slope_K"], length["w2_slope_alpha0"]
    text = "At the end of a cycle cSGLD converges in W₂: fixed α₀ and growing K, then falling α₀"
    if falls is None or floor is None:
        return Claim(text, "bound of theorem 2", "too few K to fit exponents", None)
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
        holds=falls["slope"] < -SLACK and floor["slope"] > SLACK,
    )


def _rivals(methods: Mapping[str, Any], kind: str) -> list[str]:
    """Decreasing steps, those of the appendix first."""
    found = [name for name in methods if name.startswith("k^") and name.endswith(kind)]
    return sorted(found, key=lambda name: not name.startswith(f"{ANALYSED},"))


def _gaussian_claim(distances: Sequence[Records], kind: str) -> Claim:
    """Judged at step K, which is best for cyclical steps, and against the appendix's steps."""
    texts, outcomes = [], []
    for rival in _rivals(distances[0]["methods"], kind):
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
        ours=f"{tally(outcomes[0])}: {_with_others(texts)}",
        holds=verdict(outcomes[0]),
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


def _last(runs: Mapping[int, Records], what: str) -> list[float]:
    return [run[what][-1] for run in runs.values()]


def _well_claim(wells: Mapping[str, Mapping[int, Records]], kind: str) -> Claim:
    """Seeds are of the noise, and methods share them."""
    ours = _last(wells["cyclical"], "w2")
    rivals = _rivals(wells, kind)
    low, high = (
        {seed: run["w2"][-1] for seed, run in wells[name].items()}
        for name in ("cyclical", rivals[0])
    )
    outcomes = [outcome(difference(low, high))]
    texts = [
        f"{rival.split(',')[0]}: {mean_and_error(_last(wells[rival], 'w2'), 3)}" for rival in rivals
    ]
    when, said = CASES[kind]
    return Claim(
        text=f"Double well: cSGLD is nearer than steps h₀/k {when}",
        paper=said,
        ours=f"{tally(outcomes)}: W₂ cSGLD {mean_and_error(ours, 3)}; {_with_others(texts)}",
        holds=verdict(outcomes),
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
        holds=kept == len(rows),
    )


def _ratio_table(records: Records) -> Grid:
    steps = records[FAMILIES["number of cycles fixed"]]["K"]
    return Grid(
        "Bias and MSE over theorem 1's rate, greatest over α₀, by K",
        ["cycles", "average", "of", *(f"{count:,}" for count in steps)],
        [
            [
                family,
                average,
                term,
                *(f"{ratio:.2f}" for ratio in _ratios(records[key], term, average)),
            ]
            for family, key in FAMILIES.items()
            for average in figures.AVERAGES
            for term in RATES
        ],
        note=(
            "The rates are 1/(α₀ K) + α₀ for the bias and 1/(α₀ K) + α₀² for the MSE. A rate "
            f"counts as refuted where this still grows by more than {GROWTH:g} times a decade over "
            f"the last {DECADES} decades of K. No grid can prove a rate."
        ),
    )


def _slopes(records: Records) -> Grid:
    rows = []
    for family, key in FAMILIES.items():
        for average in figures.AVERAGES:
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


def _theta(records: Records) -> str:
    record = records[FAMILIES["number of cycles fixed"]]
    return (
        f"For θ itself there is no bias of the step size: at K = {record['K'][-1]:,} and "
        f"α₀ = {record['alpha0'][-1]:g} the plain average of θ is off by "
        f"{record['theta_bias'][-1][-1]:.2g}, all of it the start's, that of θ² by "
        f"{record['plain']['bias'][-1][-1]:.2g}. So θ² is the test function here."
    )


def _number(value: float | None) -> str:
    return "overflow" if value is None else f"{value:.3g}"


def _distances(distances: Sequence[Records]) -> Grid:
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
    for rival in _rivals(distances[0]["methods"], "equal first step"):
        ends = [record["methods"][rival]["end"] for record in distances]
        texts.append(f"{min(ends):.3g} to {max(ends):.3g} for {rival.split(',')[0]}")
    return ", ".join(texts)


def _thrown(distances: Sequence[Records]) -> str:
    """How often decreasing steps of an equal sum go far away, and where those runs end."""
    texts = []
    for rival in _rivals(distances[0]["methods"], "equal sum"):
        rows = [record["methods"][rival] for record in distances]
        ends = [row["end"] for row in rows if row["worst"] is None or row["worst"] > FAR]
        finite = [end for end in ends if end is not None]
        back = f", back to at most {max(finite):.2g} by K" if finite else ""
        lost = f", {len(ends) - len(finite)} lost to overflow" if len(finite) < len(ends) else ""
        texts.append(f"{rival.split(',')[0]} in {len(ends)} of {len(rows)} runs{back}{lost}")
    return "; ".join(texts)


def _well_table(wells: Mapping[str, Mapping[int, Records]]) -> Grid:
    first = next(iter(next(iter(wells.values())).values()))
    return Grid(
        f"Double well with a barrier of {first['barrier']:.2f}, started in the lighter well",
        ["steps", "W₁", "W₂", "mass in the lighter well"],
        [
            [name, *(mean_and_error(_last(runs, what), 4) for what in ("w1", "w2", "light_mass"))]
            for name, runs in wells.items()
        ],
        note=f"After {first['steps'][-1]:,} steps; ± is the standard error over seeds.",
    )
