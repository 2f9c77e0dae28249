"""The figures of the page on convergence, and those of its tables that hold no comparison."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from paper.report.page import COLOURS, INK, Grid, Picture, new_figure

AVERAGES = ("weighted", "plain")
STYLES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (2, 1)))
LINES = 5  # values of alpha_0 in one figure


def rates(record: Mapping[str, Any]) -> Picture:
    """Bias and MSE against K, by alpha_0 and average, with the slopes of theorem 1."""
    figure = new_figure(9, 7)
    axes = figure.subplots(2, 2, sharex=True, sharey="row")
    for row, (term, name) in enumerate({"bias": "bias", "mse": "MSE"}.items()):
        for column, average in enumerate(AVERAGES):
            panel = axes[row, column]
            for count, index in enumerate(_some(record["alpha0"])):
                values = record[average][term][index]
                _line(panel, count, record["K"], values, f"α₀ = {record['alpha0'][index]:g}")
            highest = max(max(values) for values in record[average][term])
            _reference(panel, record["K"], highest, -1.0)
            if (term, average) == ("mse", "plain"):
                _reference(panel, record["K"], highest, -2 / 3)
            panel.set(xscale="log", yscale="log", title=f"{name}, {average} average")
        axes[row, 0].set_ylabel(f"{name} of θ²")
    for panel in axes[1]:
        panel.set_xlabel("steps K")
    axes[0, 1].legend(fontsize="small")
    return Picture(
        "convergence-rates",
        figure,
        "Bias and MSE of averages of θ² on N(0, 1), exact, 4 cycles. Lines fall as 1/K until what "
        "the step size leaves; the plain average's MSE falls more slowly.",
    )


def distances(records: Sequence[Mapping[str, Any]]) -> Picture:
    """W2 against the step for all methods, at the longest run that none of them leaves float64."""
    whole = [
        record
        for record in records
        if all(method["end"] is not None for method in record["methods"].values())
    ]
    record = whole[-1]
    figure = new_figure(9, 4)
    panels = figure.subplots(1, 2, sharey=True)
    for panel, kind in zip(panels, ("equal sum", "equal first step"), strict=True):
        shown = [name for name in record["methods"] if name == "cyclical" or name.endswith(kind)]
        for count, name in enumerate(shown):
            _line(panel, count, record["shown"], record["methods"][name]["curve"], name)
        panel.set(xscale="log", yscale="log", xlabel="step", title=kind)
        panel.legend(fontsize="small")
    least = min(method["end"] for method in record["methods"].values())
    panels[0].set_ylim(least / 2, 100)  # what an unstable start throws out is off the picture
    panels[0].set_ylabel("W₂ to the target")
    return Picture(
        "convergence-distance",
        figure,
        f"W₂ to a Gaussian in three dimensions, exact; K = {record['K']:,}, "
        f"α₀ = {record['alpha0']:g}. W₂ at K: {_ends(record, 'cyclical')}; "
        f"{_ends(record, 'equal sum')}; {_ends(record, 'equal first step')}.",
    )


def _ends(record: Mapping[str, Any], kind: str) -> str:
    found = record["methods"].items()
    return ", ".join(f"{name} {row['end']:.2g}" for name, row in found if name.endswith(kind))


def floors(families: Mapping[str, Mapping[str, Any]]) -> Picture:
    """W2 at the end of the last cycle against K."""
    figure = new_figure(9, 4)
    panels = figure.subplots(1, len(families), sharey=True)
    for panel, (name, record) in zip(panels, families.items(), strict=True):
        for count, index in enumerate(_some(record["alpha0"])):
            label = f"α₀ = {record['alpha0'][index]:g}"
            _line(panel, count, record["K"], record["w2_end"][index], label)
        panel.set(xscale="log", yscale="log", xlabel="steps K", title=name)
    panels[0].set_ylabel("W₂ to the target")
    panels[0].legend(fontsize="small")
    return Picture(
        "convergence-floor",
        figure,
        "W₂ to N(0, 1) at the end of the last cycle. Cycles of a fixed length have a floor that "
        "falls with α₀; cycles that grow with K lower their steps ever more slowly, and have none.",
    )


def wells(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Picture:
    """W2 against the step on the double well, mean and standard error over seeds."""
    figure = new_figure(9, 4.5)
    panel = figure.subplots()
    for count, (name, seeds) in enumerate(runs.items()):
        values = np.array([seed["w2"] for seed in seeds])
        mean = values.mean(axis=0)
        if len(mean) == 1:  # exact draws, at no step
            panel.axhline(mean[0], color=INK, linestyle=":", label=name)
            continue
        colour = _line(panel, count, seeds[0]["steps"], mean, name)
        if len(seeds) > 1:
            error = values.std(axis=0, ddof=1) / len(seeds) ** 0.5
            low, high = np.maximum(mean - error, mean / 10), mean + error
            panel.fill_between(seeds[0]["steps"], low, high, color=colour, alpha=0.25, linewidth=0)
    panel.set(yscale="log", xlabel="step", ylabel="W₂ to the density")
    panel.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return Picture(
        "convergence-well",
        figure,
        "Chains that start in the lighter of two wells; bands are a standard error over seeds, "
        "and the dotted line is the distance of as many exact draws.",
    )


def theorem_two(vanishing: Mapping[str, Any], bounds: Mapping[str, Any]) -> Grid:
    """W2 and its bound as alpha_0 falls with K, and its bound at a fixed and the best alpha_0."""
    last = bounds["alpha0"][-1]
    columns = zip(
        vanishing["rows"],
        bounds["bound"][-1],
        bounds["least"],
        bounds["least_with_noise"],
        strict=True,
    )
    return Grid(
        f"Theorem 2 on N(0, 1), W₂ at the start {vanishing['start']:.3f}",
        [
            "K",
            f"W₂, α₀ = K^-{vanishing['beta']:g}",
            "its bound",
            f"bound, α₀ = {last:g}",
            "least bound over α₀ ≥ 0",
            f"the same, σ = {bounds['noise']:g}",
        ],
        [
            [f"{row['K']:,}", *(f"{x:.4g}" for x in (row["w2"], row["bound"], *others))]
            for row, *others in columns
        ],
        note=(
            "C₃ exp(-K α₀ / (2 C₄)) bounds the diffusion's distance after the time K α₀ / 2. "
            "With β > 1 that time goes to 0, the exponential to 1, and what is left is C₃: the "
            "distance at the start, on the Gaussian itself and not only in the bound. At fixed α₀ "
            "the other term grows with K. With exact gradients and K large enough, a choice of α₀ "
            "between the two brings the bound below C₃, which it is at α₀ = 0; with noise σ no "
            "choice does. The first number under the root is 6 in the theorem, which is used here, "
            "and 12 in its proof, with which every bound is larger. N(0, 1) is convex. The theorem "
            "also covers densities that are not; it has not been tried on one, as its constants "
            "are not known there."
        ),
    )


def strongly_convex(record: Mapping[str, Any]) -> Grid:
    """The least ratio of the appendix's bound to W2, by setting."""
    groups: dict[tuple[float, int, float], list[Mapping[str, Any]]] = {}
    for row in record["rows"]:
        groups.setdefault((row["condition"], row["length"], row["sigma"]), []).append(row)
    names = ("stated", "mended", "stepwise")
    return Grid(
        f"The appendix's bound over W₂, least over k ≤ {record['K']:,} and α₀",
        ["M/m", "steps in a cycle", "σ", "as stated", "with σ", "with σ, step by step"],
        [
            [
                *(f"{value:g}" for value in setting),
                *(f"{min(row[f'{name}_least_ratio'] for row in rows):.3g}" for name in names),
            ]
            for setting, rows in groups.items()
        ],
        note=(
            "Below 1 the bound does not hold. As stated it has no σ, only the bias δ of the "
            "gradient, 0 here: a misprint of the theorem that it follows. It divides by the least "
            "step of a cycle, and so grows with the square of the cycle's length, while the "
            "inequality that it starts from, applied with each step's own size, does not."
        ),
    )


def gradient_noise(record: Mapping[str, Any]) -> Grid:
    """Bias by sigma, at the greatest alpha_0."""
    shown = range(len(record["alpha0"]))[-4:]
    slopes = {of: record[f"slope_{of}"] for of in ("alpha0", "sigma")}
    fitted = ", ".join(f"{slope['slope']:.2f} in {of}" for of, slope in slopes.items() if slope)
    return Grid(
        f"Bias of the weighted average of θ² by gradient noise, K = {record['K']:,}",
        ["σ", *(f"α₀ = {record['alpha0'][column]:g}" for column in shown)],
        [
            [f"{sigma:g}", *(f"{row[column]:.3g}" for column in shown)]
            for sigma, row in zip(record["sigma"], record["bias"], strict=True)
        ],
        note=f"Started in the target. Fitted exponents of what σ adds: {fitted}.",
    )


def checks(records: Mapping[str, Any]) -> Grid:
    """Simulated chains beside their exact moments, by the name of their steps."""
    found = {key: record for key, record in records.items() if key.startswith("simulated")}
    return Grid(
        "Simulated chains against the recursion",
        ["steps", "chains", "z-scores", "greatest", "limit", "false-alarm rate of the limit"],
        [
            [
                key.removeprefix("simulated chains, "),
                f"{check['chains']:,}",
                str(sum(map(len, check["z"].values()))),
                f"{check['worst']:.2f}",
                f"{check['limit']:g}",
                f"{check['false_alarm_rate']:.1g}",
            ]
            for key, check in found.items()
        ],
        note=(
            "Means and variances of θ at four steps, mean and MSE of the average of θ². A run with "
            "a score beyond the limit stops with an error."
        ),
    )


def _some(values: Sequence[float]) -> list[int]:
    """Places of at most LINES values, the first and last among them."""
    return sorted({round(place) for place in np.linspace(0, len(values) - 1, LINES)})


def _line(
    panel: Axes, count: int, x: Sequence[float], y: Sequence[float | None], label: str
) -> str:
    colour = COLOURS[count % len(COLOURS)]
    values = [np.nan if value is None else value for value in y]
    style = STYLES[count % len(STYLES)]
    panel.plot(x, values, linestyle=style, color=colour, label=label)
    return colour


def _reference(panel: Axes, steps: Sequence[float], height: float, exponent: float) -> None:
    """A thin line of a given slope, named at its end."""
    x = np.array([steps[0], steps[-1]], dtype=float)
    y = height * (x / x[0]) ** exponent
    panel.plot(x, y, color=INK, linewidth=0.8, linestyle=(0, (1, 3)))
    panel.annotate(f"slope {exponent:.2g}", (x[1], y[1]), ha="right", va="bottom", fontsize="small")
