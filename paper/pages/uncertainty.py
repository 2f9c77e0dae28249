"""The page of predictive uncertainty on classes that were never seen."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paper.experiments.methods import BY_NAME, COLD, FAMILIES, ONE_OVER_N
from paper.report.gaps import by_seed, tally
from paper.report.page import (
    COLOURS,
    Claim,
    Grid,
    Page,
    Part,
    Picture,
    Results,
    losses_by_lr,
    mean_and_error,
    new_figure,
)

METHODS = tuple(BY_NAME)
CYCLICAL = tuple(family[3] for family in FAMILIES)
SAMPLERS = tuple(name for name, method in BY_NAME.items() if method.hot)
COUNTERPARTS = {family[place + 1]: family[place] for place in (0, 2) for family in FAMILIES}
"""Of each cyclical method, the one without cycles."""
LINES = (":", "-.", "--", "-")
STEP_SIZES = {"paper": "the paper's step sizes", "tuned": "step sizes chosen on validation data"}
NAMES = {"mnist": ("MNIST", "notMNIST"), "digits": ("digits", "letters")}
PAPER = {"mnist": "figure only", "digits": "figure only, of notMNIST"}
LOW = 1
"""Position among `low_entropies` of the entropy below which a prediction is called sure."""

Row = Mapping[str, Any]
Rows = Mapping[tuple[str, str, str], Mapping[int, Row]]
"""Rows of each seed, by part, method and label of the temperature."""


def page(results: Results) -> Page:
    """Claims at both kinds of step size, a table and a figure of each, and the temperatures."""
    config, records = results["config"], list(results["records"].values())
    rows: dict[tuple[str, str, str], dict[int, Row]] = defaultdict(dict)
    for record in records:
        for row in record.get("rows", ()):
            key = record["part"], row["method"], row["temperature_label"]
            rows[key][record["seed"]] = {**row, "lr": record["lr"]}
    scored = next((record for record in records if "rows" in record), None)
    source = config["source"]
    inside, outside = NAMES[source]
    summary = (
        f"A network that has learned {inside} should be unsure of {outside}: how often each method "
        "is sure of itself there, at equal epochs."
    )
    parts: list[Part] = [_settings(config)]
    claims: list[Claim] = []
    if scored is not None:
        low = scored["low_entropies"]
        parts_run = {part for part, _, _ in rows}
        for part in STEP_SIZES:
            if part not in parts_run:  # of a run that is not finished
                continue
            claims += _claims(rows, part, low[LOW], source)
            parts += [_table(rows, part, config, low, outside)]
            summary += f" {_less_trained_in_brief(rows, part, outside)}"
            parts += [_picture(rows, part, scored["largest_entropy"], outside)]
            if part == "paper":
                parts += [_temperatures(rows, config, low[LOW], outside)]
        parts += [_search(records, config)]
    return Page(
        title=f"Uncertainty: entropy on {outside}",
        summary=summary,
        claims=claims,
        parts=parts,
    )


def _claims(rows: Rows, part: str, low: float, source: str) -> list[Claim]:
    at, outside = STEP_SIZES[part], NAMES[source][1]
    losses = {method: _values(rows, part, method, "nll") for method in METHODS}
    shares = {method: _values(rows, part, method, LOW) for method in METHODS}
    entropies = {method: _values(rows, part, method, "entropy_outside") for method in METHODS}
    snapshots = ("Snapshot-SGD", "Snapshot-SGDM")
    without_cycles = tuple(method for method in METHODS if method not in (*CYCLICAL, *snapshots))
    return [
        *(
            _claim(
                f"With {at}, cSGLD and cSGHMC are less often sure of themselves on {outside} than "
                f"{words} (share with entropy up to {low:g})",
                PAPER[source],
                shares,
                [(cyclical, other) for cyclical in CYCLICAL for other in others],
                losses,
            )
            for words, others in (
                ("the methods without cycles", without_cycles),
                ("the Snapshot methods", snapshots),
            )
        ),
        _claim(
            f"With {at}, SGLD and SGHMC are less often sure than SGD and SGDM",
            PAPER[source],
            shares,
            [("SGLD", "SGD"), ("SGHMC", "SGDM")],
            losses,
        ),
        _claim(
            f"With {at}, Snapshot has less entropy on {outside} than the samplers of its kind",
            PAPER[source],
            entropies,
            [("Snapshot-SGD", "cSGLD"), ("Snapshot-SGDM", "cSGHMC")],
            losses,
        ),
    ]


def _claim(
    text: str,
    paper: str,
    values: Mapping[str, Mapping[int, float]],
    pairs: Sequence[tuple[str, str]],
    losses: Mapping[str, Mapping[int, float]],
) -> Claim:
    """A claim that the first of each pair is below the second; `losses` are told beside it."""
    gaps = {pair: by_seed(values[pair[0]], values[pair[1]]) for pair in pairs}
    numbers = ", ".join(
        f"{method} {mean_and_error(list(values[method].values()), 3)}"
        for method in dict.fromkeys(method for pair in pairs for method in pair)
    )
    others = [
        f"{'undecided' if gap.side is None else 'contradicted'}: {first} is {abs(gap.mean):.4f} ± "
        f"{gap.error:.4f} {'below' if gap.mean > 0 else 'above'} {second}"
        for (first, second), gap in gaps.items()
        if not gap.side
    ]
    sides = [by_seed(*(losses[name] for name in pair)).side for pair in pairs]
    better, worse = sides.count(True), sides.count(False)
    named = " and ".join(dict.fromkeys(first for first, _ in pairs))
    nll = f"the test NLL of {named} is better in {better} and worse in {worse} of the {len(pairs)}"
    found = [*gaps.values()]
    ours = "; ".join([f"{tally(found)} ({numbers})", *others, nll])
    doubt = "fits worse" if worse > len(pairs) / 2 else ""
    return Claim(text, paper, ours, gaps=found, doubt=doubt)


def _less_trained(rows: Rows, part: str) -> list[str]:
    """Cyclical methods with more training loss, test NLL and entropy than their counterparts.

    By the mean where there is one seed: this is a warning, and not a claim.
    """

    def is_more(method: str, other: str, score: str) -> bool:
        one, two = (_values(rows, part, name, score) for name in (other, method))
        gap = by_seed(one, two)
        return gap.mean > 0 if gap.seeds == 1 else gap.side is True

    return [
        method
        for method, other in COUNTERPARTS.items()
        if all(is_more(method, other, score) for score in ("train_loss", "nll", "entropy_outside"))
    ]


def _less_trained_in_brief(rows: Rows, part: str, outside: str) -> str:
    at, found = STEP_SIZES[part], _less_trained(rows, part)
    if not found:
        return f"With {at}, no cyclical method is clearly less trained and more unsure at once."
    return (
        f"With {at}, less trained than the same without cycles, by training loss and test NLL: "
        f"{', '.join(found)}. So part of the higher entropy on {outside} is underfitting."
    )


def _less_trained_at_length(rows: Rows, part: str, config: Mapping[str, Any], outside: str) -> str:
    found, plan = _less_trained(rows, part), config["plan" if part == "paper" else "tuned_plan"]
    if not found:
        return "No cyclical method has clearly more training loss, NLL and entropy than without."

    def scores(method: str) -> str:
        error, nll, loss = (_mean(rows, part, method, s) for s in ("error", "nll", "train_loss"))
        return f"test error {error:.2%}, NLL {nll:.4f}, training loss {loss:.4f}"

    against = "; ".join(
        f"{method} with {_draws(rows, part, method)}: {scores(method)}, against "
        f"{COUNTERPARTS[method]} with {_draws(rows, part, COUNTERPARTS[method])}: "
        f"{scores(COUNTERPARTS[method])}"
        for method in found
    )
    return (
        f"In {plan['epochs']} epochs, which {plan['cycles']} cycles divide among them at half the "
        f"step size on average, less is learned than in the same without cycles: {against}. So "
        f"part of the higher entropy on {outside} is underfitting."
    )


def _table(
    rows: Rows, part: str, config: Mapping[str, Any], low: Sequence[float], outside: str
) -> Grid:
    lines = []
    for method in METHODS:
        found = list(_of(rows, part, method).values())
        if not found:
            continue
        lines.append(
            [
                method,
                f"{found[0]['lr']:g}",
                str(found[0]["draws"]),
                mean_and_error([100 * row["error"] for row in found], 2),
                *(
                    mean_and_error([row[score] for row in found], 4)
                    for score in ("nll", "ece", "auroc", "entropy_outside", "entropy_test")
                ),
                *(
                    mean_and_error([row["below"][place] for row in found], 3)
                    for place in range(len(low))
                ),
                mean_and_error([row["train_loss"] for row in found], 4),
            ]
        )
    return Grid(
        title=f"With {STEP_SIZES[part]}, samplers at temperature 1/N",
        header=[
            *("method", "step size", "draws", "test error, %", "NLL", "ECE", "AUROC"),
            *(f"entropy on {outside}", "entropy on test data"),
            *(f"share up to {entropy:g}" for entropy in low),
            "training loss",
        ],
        rows=lines,
        note=(
            f"Mean ± standard error over seeds. AUROC tells {outside} from test data by entropy; "
            f"shares are of {outside}, up to that entropy in nats. The training loss is the mean "
            "of the last epoch's batches, so of an ensemble's last cycle only: it understates the "
            "loss of its members, as the earlier ones have learned less. A network that has "
            "learned less is less sure of everything: read the entropies beside the training loss "
            f"and the AUROC. {_less_trained_at_length(rows, part, config, outside)}"
        ),
    )


def _temperatures(rows: Rows, config: Mapping[str, Any], low: float, outside: str) -> Grid:
    labels = [ONE_OVER_N, *(f"{temperature:g}" for temperature in sorted(config["temperatures"]))]
    lines = []
    for method in SAMPLERS:
        for label in labels:
            found = list(rows.get(("paper", method, label), {}).values())
            if not found:
                continue
            lines.append(
                [
                    method,
                    label,
                    str(len(found)),
                    mean_and_error([100 * row["error"] for row in found], 2),
                    *(
                        mean_and_error([row[score] for row in found], 4)
                        for score in ("nll", "ece", "auroc", "entropy_outside")
                    ),
                    mean_and_error([row["below"][LOW] for row in found], 3),
                ]
            )
    return Grid(
        title="Temperatures of the samplers, with the paper's step sizes",
        header=[
            *("method", "temperature", "seeds", "test error, %", "NLL", "ECE", "AUROC"),
            *(f"entropy on {outside}", f"share up to {low:g}"),
        ],
        rows=lines,
        note=(
            "1/N is the temperature of the published CIFAR code, 0.0045 what the paper says, 1 the "
            "posterior."
        ),
    )


def _search(records: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> Grid:
    losses: dict[str, dict[float, float | None]] = defaultdict(dict)
    for record in records:
        for method, loss in record.get("validation_nll", {}).items():
            losses[method][record["lr"]] = loss
    return Grid(
        title="The search for step sizes",
        header=["method", "NLL on validation data, by step size"],
        rows=[[method, losses_by_lr(losses[method])] for method in METHODS if method in losses],
        note=(
            f"One seed, {config['search_plan']['epochs']} epochs; the lowest is taken, and run for "
            f"{config['tuned_plan']['epochs']} epochs, for which another might be the best."
        ),
    )


def _picture(rows: Rows, part: str, largest: float, outside: str) -> Picture:
    figure = new_figure(9, 3.6)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, family in zip(panels, FAMILIES, strict=True):
        for method, colour, line in zip(family, COLOURS, LINES, strict=False):
            curves = [row["cdf"] for row in _of(rows, part, method).values()]
            if curves:
                entropies = np.linspace(0, largest, len(curves[0]))
                mean = np.mean(curves, axis=0)
                axes.plot(entropies, mean, color=colour, linestyle=line, label=method)
        axes.set(xlabel="entropy, nats", xlim=(0, largest), ylim=(0, 1))
        if axes.lines:
            axes.legend()
    panels[0].set_ylabel(f"share of {outside} up to it")
    return Picture(
        part,
        figure,
        f"Distribution of the entropy on {outside}, mean over seeds, with {STEP_SIZES[part]}; "
        "lower is better. Left without momentum, right with it.",
    )


def _settings(config: Mapping[str, Any]) -> str:
    network, plan, tuned = config["network"], config["plan"], config["tuned_plan"]
    return (
        "The paper states step sizes, cycles, exploration and momentum, and no code of this "
        "experiment is published; the rest is ours. "
        f"Network {'-'.join(map(str, network['sizes']))}, batch {network['batch']}, weight decay "
        f"{network['weight_decay']:g}, momentum {network['momentum']:g} where there is any; "
        f"{plan['epochs']} epochs for every method ({tuned['epochs']} with chosen step sizes, "
        f"which converge sooner), {plan['cycles']} cycles, exploration {plan['exploration']:g}. "
        f'SGLD and SGHMC: the paper\'s "50 iterations" at the full step size are read as epochs '
        f"({plan['burn_in']} here, {tuned['burn_in']} with chosen step sizes), without noise, and "
        "then the step size falls as k^-0.5005, k in epochs: counted in steps, 56 epochs on MNIST "
        "would add up to half an epoch at the full step size. SGD and SGDM: constant step size, "
        "the last weights. Step sizes are chosen by the NLL of the averaged prediction on training "
        f"data held out from a search of {config['search_plan']['epochs']} epochs; no choice sees "
        f"the test data or the other classes. An NLL is called better or worse where a "
        "comparison seed by seed is clear."
    )


def _of(rows: Rows, part: str, method: str) -> Mapping[int, Row]:
    return rows.get((part, method, ONE_OVER_N if method in SAMPLERS else COLD), {})


def _mean(rows: Rows, part: str, method: str, score: str) -> float:
    return float(np.mean([row[score] for row in _of(rows, part, method).values()]))


def _draws(rows: Rows, part: str, method: str) -> str:
    draws = next(iter(_of(rows, part, method).values()))["draws"]
    return f"{draws} draw{'s' if draws > 1 else ''}"


def _values(rows: Rows, part: str, method: str, score: str | int) -> dict[int, float]:
    """A score of each seed; a number is the place of a low entropy."""
    return {
        seed: row["below"][score] if isinstance(score, int) else row[score]
        for seed, row in _of(rows, part, method).items()
    }
