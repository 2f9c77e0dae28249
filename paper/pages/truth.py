"""The page of distances to the posterior predictive distribution of long HMC."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from paper.experiments.truth import best_lrs
from paper.experiments.truth_runs import ENSEMBLES, METHODS
from paper.report.compare import all_lower
from paper.report.page import (
    COLOURS,
    INK,
    Claim,
    Grid,
    Page,
    Part,
    Picture,
    Results,
    mean_and_error,
    new_figure,
)

HMC = "HMC, one chain"
NAMES = {"digits": ("digits", "letters"), "moons": ("two moons", "a wider plane")}
NOT_THE_PAPER = "not in the paper"
TRADITIONAL = {"cSGHMC": "SGHMC", "cSGHMC, 4 chains": "SGHMC, 4 chains", "cSGLD": "SGLD"}
"""Cyclical samplers, and the same with a constant step size."""
SHOWN = {  # in the picture: colour, and line
    "cSGHMC": (COLOURS[0], "-"),
    "cSGLD": (COLOURS[4], "-"),
    "SGHMC": (COLOURS[2], "-"),
    "ensemble of 4": (COLOURS[5], "--"),
    "ensemble of 10": (COLOURS[1], "--"),
    "Snapshot-SGDM": (COLOURS[3], "--"),
    "SWAG": (COLOURS[6], ":"),
    "MC dropout": (COLOURS[7], ":"),
}
HOT = 10.0
TICKS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)

Row = Mapping[str, Any]
Scores = Mapping[int, Mapping[str, Mapping[int, Row]]]
"""Rows by budget, method and seed."""


def page(results: Results) -> Page:
    """Claims, and for each data set the reference, a table and a picture."""
    config, records = results["config"], list(results["records"].values())
    claims: list[Claim] = []
    parts: list[Part] = [_settings(config)]
    for case in config["cases"]:
        data = case["problem"]["data"]
        own = [record for record in records if record["data"] == data]
        references = [record for record in own if "probs" in record]
        runs = [record for record in own if "probs" not in record]
        budgets = [plan["budget"] for plan in case["plans"]]
        if not references or {record["budget"] for record in runs} != set(budgets):
            continue  # of a run that is not finished
        reference = references[0]
        chosen = _chosen(runs, reference)
        claims += [*_cycles(data, chosen, budgets), *_claims(data, chosen, budgets)]
        parts += [_reference(data, reference, case), _chains(data, chosen, budgets)]
        parts += [_table(data, chosen, budgets)]
        parts += [_picture(data, chosen, budgets, reference), _search(data, runs)]
    return Page(
        title="Truth: distance to the posterior itself",
        summary=(
            "For small networks long HMC gives the posterior predictive distribution. How near is "
            "each method to it, at equal numbers of minibatch gradients: total variation of the "
            "predicted probabilities, and agreement of the predicted class, as in Izmailov et al. "
            "2021."
        ),
        claims=claims,
        parts=parts,
    )


def _chosen(runs: Sequence[Row], reference: Row) -> Scores:
    """The rows of every method with its best step size; HMC's own few draws too."""
    found: dict[int, dict[str, dict[int, Row]]] = defaultdict(lambda: defaultdict(dict))
    for budget in dict.fromkeys(record["budget"] for record in runs):
        own = [record for record in runs if record["budget"] == budget]
        best = best_lrs(own)
        for record in own:
            for row in record["rows"]:
                if best[row["method"]] == record["lr"]:
                    found[budget][row["method"]][row["seed"]] = {**row, "lr": record["lr"]}
    for row in reference["few"]:
        found[row["budget"]][HMC][row["seed"]] = row
    return found


def _cycles(data: str, chosen: Scores, budgets: Sequence[int]) -> list[Claim]:
    """The paper's central comparison, at every budget."""
    name, outside = NAMES[data]
    return [
        all_lower(
            f"On {name}, {cyclical} is nearer to HMC than {other} at every number of gradients: "
            f"total variation on {where}",
            "not compared",
            {
                f"{method}, {budget}": chosen[budget].get(method, {})
                for budget in budgets
                for method in (cyclical, other)
            },
            score,
            [(f"{cyclical}, {budget}", f"{other}, {budget}") for budget in budgets],
        )
        for cyclical, other in TRADITIONAL.items()
        if all(chosen[budget].get(method) for budget in budgets for method in (cyclical, other))
        for score, where in (("tv", "test data"), ("outside_tv", outside))
    ]


def _chains(data: str, chosen: Scores, budgets: Sequence[int]) -> Grid:
    """Samplers with and without cycles, in one chain and in several."""
    name, outside = NAMES[data]
    pairs = [method for pair in TRADITIONAL.items() for method in pair[::-1]]
    methods = [method for method in pairs if any(chosen[budget].get(method) for budget in budgets)]
    absent = [method for method in pairs if method not in methods]
    missing = f" Not in these records: {', '.join(absent)}." if absent else ""
    return Grid(
        title=f"{name.capitalize()}: with and without cycles",
        header=[
            "method",
            *(
                f"{budget:,} gradients, {where}"
                for where in ("test", outside)
                for budget in budgets
            ),
        ],
        rows=[
            [
                method,
                *(
                    mean_and_error([row[score] for row in rows.values()], 4) if rows else "-"
                    for score in ("tv", "outside_tv")
                    for budget in budgets
                    for rows in [chosen[budget].get(method, {})]
                ),
            ]
            for method in methods
        ],
        note=(
            "Total variation from HMC's predictions; less is nearer. Several chains share the "
            f"gradients and the number of draws.{missing}"
        ),
    )


def _claims(data: str, chosen: Scores, budgets: Sequence[int]) -> list[Claim]:
    name, outside = NAMES[data]
    largest = budgets[-1]
    pairs = [("cSGHMC", other) for other in ENSEMBLES]
    labelled = {
        f"cSGHMC, {budget}": chosen[budget].get("cSGHMC", {}) for budget in reversed(budgets)
    }
    falling = list(zip(labelled, list(labelled)[1:], strict=False))
    where = f"On {name}, with {largest} gradients, "
    than = "cSGHMC is nearer to HMC than deep ensembles"

    def claim(text: str, score: str) -> Claim:
        return all_lower(text, NOT_THE_PAPER, chosen[largest], score, pairs)

    return [
        claim(f"{where}{than}: total variation on test data", "tv"),
        claim(f"{where}{than}: disagreement of the class on test data", "disagreement"),
        claim(f"{where}{than}: total variation on {outside}", "outside_tv"),
        all_lower(
            f"On {name}, cSGHMC is the nearer to HMC, the more gradients: total variation on test "
            "data",
            NOT_THE_PAPER,
            labelled,
            "tv",
            falling,
        ),
    ]


def _reference(data: str, reference: Row, case: Mapping[str, Any]) -> Grid:
    rows = []
    for part, floor in reference["floor"].items():
        mixing = reference["mixing"][part]
        rows.append(
            [
                NAMES[data][1] if part == "outside" else f"{part} data",
                f"{floor['tv']:.4f}",
                f"{1 - floor['disagreement']:.4f}",
                f"{mixing['r_hat_median']:.4f}",
                f"{mixing['r_hat_largest']:.3f}",
                f"{mixing['effective_draws']:.0f}",
            ]
        )
    length, accepted = case["reference"], reference["accepted"]
    own = reference["scores"]
    return Grid(
        title=f"{NAMES[data][0].capitalize()}: the reference",
        header=[
            *("predictions on", "total variation", "agreement", "R-hat, median"),
            *("R-hat, largest", "effective draws, median"),
        ],
        rows=rows,
        note=(
            f"Network {reference['shape']}, {length['chains']} chains of {length['draws']} draws, "
            f"{reference['gradients']} gradients of all data each; {np.mean(accepted):.0%} of the "
            f"paths accepted ({min(accepted):.0%} to {max(accepted):.0%} by chain). Total "
            "variation and agreement are between the two halves of the chains: what is known of "
            "the posterior is known so well, and the mean of all chains about twice as well. R-hat "
            "and effective draws are of the probabilities of all classes and every fourth point. "
            f"HMC itself: test error {own['error']:.2%}, NLL {own['nll']:.4f}, ECE "
            f"{own['ece']:.4f}."
        ),
    )


def _table(data: str, chosen: Scores, budgets: Sequence[int]) -> Grid:
    lines = []
    for budget in budgets:
        for method in (HMC, *METHODS):
            rows = list(chosen[budget].get(method, {}).values())
            if not rows:
                continue

            def column(score: str, digits: int, rows: Sequence[Row] = rows) -> str:
                return mean_and_error([row[score] for row in rows], digits)

            lines.append(
                [
                    f"{budget}",
                    method,
                    f"{rows[0]['lr']:g}" if "lr" in rows[0] else "",
                    f"{rows[0]['draws']:g}",
                    column("tv", 4),
                    mean_and_error([1 - row["disagreement"] for row in rows], 4),
                    column("outside_tv", 3),
                    mean_and_error([100 * row["error"] for row in rows], 2),
                    column("nll", 4),
                    column("ece", 4),
                    _heat([row["temperature"] for row in rows if "temperature" in row]),
                ]
            )
    name, outside = NAMES[data]
    return Grid(
        title=f"{name.capitalize()}: distance to HMC",
        header=[
            *("gradients", "method", "step size", "draws", "total variation", "agreement"),
            *(f"total variation on {outside}", "test error, %", "NLL", "ECE", "temperature"),
        ],
        rows=lines,
        note=(
            "Mean ± standard error over seeds; on test data unless another is named. "
            f"“{HMC}” is as many draws of a single chain of the reference as samplers keep, "
            "against all the other chains: the distance that is left when a sampler makes no error "
            "but to stop, whatever the number of gradients. The temperature is the mean of "
            "theta . grad U, which is 1 in equilibrium: below, weights have not spread yet; above, "
            "step size and minibatches heat."
        ),
    )


def _heat(values: Sequence[float]) -> str:
    """The temperature; far above 1 its value says no more."""
    if not values:
        return ""
    return mean_and_error(values, 2) if max(values) < HOT else f"above {HOT:g}"


def _picture(data: str, chosen: Scores, budgets: Sequence[int], reference: Row) -> Picture:
    name, outside = NAMES[data]
    figure = new_figure(10, 3.8)
    panels = figure.subplots(1, 3)
    floor = reference["floor"]
    ways = (
        ("tv", "total variation on test data", floor["test"]["tv"]),
        ("disagreement", "disagreement on test data", floor["test"]["disagreement"]),
        ("outside_tv", f"total variation on {outside}", floor["outside"]["tv"]),
    )
    for axes, (score, label, lowest) in zip(panels, ways, strict=True):
        for method, (colour, line) in {**SHOWN, HMC: (INK, "-.")}.items():
            values = [
                [row[score] for row in chosen[budget].get(method, {}).values()]
                for budget in budgets
            ]
            if all(values):
                means = [np.mean(own) for own in values]
                axes.plot(budgets, means, color=colour, linestyle=line, marker=".", label=method)
        axes.axhline(lowest, color=INK, linestyle=":", linewidth=0.8)
        axes.set(xscale="log", xlabel="minibatch gradients", ylabel=label)
        axes.set_xticks(budgets, [f"{budget:,}" for budget in budgets])
        axes.minorticks_off()
        if score == "disagreement":  # which may be 0
            axes.set_ylim(bottom=0)
        else:
            _small_numbers_apart(axes)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return Picture(
        f"{data}-distance",
        figure,
        f"Distance to HMC on {name} against the number of minibatch gradients, mean over seeds; "
        "lower is nearer. Dotted: two halves of HMC's own chains. Methods that are not shown are "
        "in the table.",
    )


def _small_numbers_apart(axes: Axes) -> None:
    """A logarithmic axis with a few plain numbers."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def _search(data: str, runs: Sequence[Row]) -> Grid:
    found: dict[str, dict[int, dict[float, str]]] = defaultdict(lambda: defaultdict(dict))
    for record in runs:
        for method in dict.fromkeys(row["method"] for row in record["rows"]):
            own = [row["validation_tv"] for row in record["rows"] if row["method"] == method]
            found[method][record["budget"]][record["lr"]] = f"{np.mean(own):.4f}"
    budgets = list(dict.fromkeys(record["budget"] for record in runs))
    return Grid(
        title=f"{NAMES[data][0].capitalize()}: the search for step sizes",
        header=["method", *(f"{budget} gradients" for budget in sorted(budgets))],
        rows=[
            [
                method,
                *(
                    ", ".join(f"{lr:g}: {tv}" for lr, tv in sorted(found[method][budget].items()))
                    for budget in sorted(budgets)
                ),
            ]
            for method in METHODS
            if method in found
        ],
        note=(
            "Total variation from HMC on validation data, by step size; the lowest is shown above. "
            "A step size that is not there has diverged."
        ),
    )


def _settings(config: Mapping[str, Any]) -> str:
    plan = config["cases"][0]["plans"][-1]
    return (
        "All methods have one network, one prior, N(0, 1) for every weight, and the samplers have "
        f"temperature 1. Momentum {plan['momentum']:g}, exploration {plan['exploration']:g} of a "
        f"cycle, dropout {plan['dropout']:g}. A budget is the number of minibatch gradients of all "
        "networks of a method together: an ensemble shares it. Each method has the step size whose "
        "predictions on validation data are nearest to HMC's there, so that all are shown at their "
        "best; the largest budget tries that of the one before it, and what more the table of the "
        "search shows. No step size is chosen by test data. SGHMC and SGLD without cycles keep "
        "their step size and discard a fifth of the run. Snapshot "
        "keeps a network for each cycle. SWAG collects weights in the last quarter, at half the "
        "step size. Laplace approximations are at the weights of SGDM: of the last layer with the "
        "whole curvature, of all weights with its diagonal and the logits linear in the weights."
    )
