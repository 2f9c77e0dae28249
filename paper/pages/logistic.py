"""The page of Bayesian logistic regression."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paper.pages.logistic_figures import (
    METHODS,
    PAPER,
    Record,
    Rows,
    batch_name,
    moments_picture,
    sizes_picture,
)
from paper.report.gaps import Gap, above, paired, tally, within
from paper.report.page import Claim, Grid, Page, Picture, Results, mean_and_error

PAIRS = (("cSGLD", "SGLD"), ("cSGHMC", "SGHMC"))
REACHED = 0.9
"""Share of the paper's figure that counts as reaching it."""
ALIKE = 0.1
"""Share of the larger mean by which two that are called alike may differ, if not clearly."""


def page(results: Results) -> Page:
    """Claims on the order and size of the figures, tables, what the moments say, the search."""
    config = results["config"]
    records = list(results["records"].values())
    references = {r["dataset"]: r for r in records if r["method"] == "reference"}
    trials = [record for record in records if record["method"] == "trial"]
    rows = {
        (record["dataset"], record["method"], record["batch"]): record
        for record in records
        if record["method"] in METHODS
    }
    batches: Sequence[int | None] = config["batches"]
    return Page(
        title="Bayesian logistic regression: effective sample sizes",
        summary=(
            "Samplers with cyclical and with decreasing step sizes on posteriors of one mode: how "
            "many independent draws theirs are worth, and how far their moments are from the "
            "truth."
        ),
        claims=[
            *(_more_draws(rows, name, batches) for name in config["datasets"]),
            *_on_heart(rows, batches),
            *_absolute(rows),
            _accuracy(rows, config),
        ],
        parts=[
            _settings(config, rows),
            _headline(config, rows),
            sizes_picture(config, rows),
            *(_sizes(config, rows, batch) for batch in batches),
            _what_moments_say(config, rows),
            *(_moments(config, rows, batch) for batch in batches),
            moments_picture(config, rows),
            *_search(config, trials, rows),
            _references(references),
        ],
    )


def _claim(text: str, paper: str, ours: str, gaps: Sequence[Gap], **options: Any) -> Claim:
    return Claim(text, paper, f"{tally(gaps)}: {ours}", gaps=gaps, **options)


def _more_draws(rows: Rows, dataset: str, batches: Sequence[int | None]) -> Claim:
    """Of the pairs where the paper has more; on other data, of all."""
    found = PAPER.get(dataset)
    pairs = [pair for pair in PAIRS if not found or found[pair[0]] > found[pair[1]]]
    ours = [
        f"{batch_name(batch)}: "
        + ", ".join(
            f"{one} {_size(rows[dataset, one, batch])} against {_size(rows[dataset, other, batch])}"
            for one, other in pairs
        )
        for batch in batches
    ]
    sizes = {
        (method, batch): rows[dataset, method, batch]["ess_truncated"]
        for pair in pairs
        for method in pair
        for batch in batches
    }
    return _claim(
        f"{dataset.capitalize()}: cyclical step sizes give more effective draws than decreasing "
        "ones",
        ", ".join(f"{one} {found[one]} against {found[other]}" for one, other in pairs)
        if found
        else "not among its data",
        "; ".join(ours),
        [
            paired(sizes[other, batch], sizes[one, batch])
            for one, other in pairs
            for batch in batches
        ],
    )


def _on_heart(rows: Rows, batches: Sequence[int | None]) -> list[Claim]:
    pairs = {
        batch: [rows["heart", method, batch] for method in ("SGHMC", "cSGHMC")]
        for batch in batches
        if ("heart", "SGHMC", batch) in rows
    }
    if not pairs:
        return []
    gaps = []
    for pair in pairs.values():
        sizes = [record["ess_truncated"] for record in pair]
        larger = max(float(np.mean(each)) for each in sizes)
        gaps += within(paired(*sizes), ALIKE * larger)
    return [
        _claim(
            "On Heart, whose posterior is simple, SGHMC does as well as cSGHMC",
            "5000 and 5000",
            "; ".join(
                f"{batch_name(batch)}: {_size(pair[0])} and {_size(pair[1])}"
                for batch, pair in pairs.items()
            ),
            gaps,
            unstated=True,
        )
    ]


def _absolute(rows: Rows) -> list[Claim]:
    found = [
        (record, PAPER[dataset][method])
        for (dataset, method, _), record in rows.items()
        if method in PAPER.get(dataset, {})
    ]
    if not found:
        return []
    truncated = [float(np.mean(record["ess_truncated"])) / paper for record, paper in found]
    # By this formula a size can be negative, or above the number of draws: such a one is none.
    sizes = [
        [size / paper for size in record["ess_untruncated"] if 0 < size <= record["draws"]]
        for record, paper in found
    ]
    untruncated = [float(np.mean(kept)) for kept in sizes if kept]
    runs = sum(len(record["ess_untruncated"]) for record, _ in found)
    by_formula = (
        f"{min(untruncated):.1%} to {max(untruncated):.1%} of these" if untruncated else "nothing"
    )
    figures = [figure for each in PAPER.values() for figure in each.values()]
    return [
        _claim(
            "The figures of the paper's table, from the settings that it states (at least "
            f"{REACHED:.0%} of each)",
            f"{min(figures)} to {max(figures)}",
            f"by the paper's formula {by_formula}, truncated {min(truncated):.1%} to "
            f"{max(truncated):.1%}; of {runs} runs, the formula gives a size below 0 or above the "
            f"number of draws in {runs - sum(map(len, sizes))}, which means nothing and is left "
            "out",
            # A row of which nothing is left neither reaches the paper's figure nor misses it.
            [above(kept, REACHED) for kept in sizes if kept],
            unstated=True,
        )
    ]


def _accuracy(rows: Rows, config: Mapping[str, Any]) -> Claim:
    cases = [
        (rows[dataset, one, batch]["mean_error"], rows[dataset, other, batch]["mean_error"])
        for dataset in config["datasets"]
        for batch in config["batches"]
        for one, other in PAIRS
    ]
    cyclical, decreasing = ([float(np.mean(case[side])) for case in cases] for side in (0, 1))
    return _claim(
        "Cycles put together approximate the posterior more accurately",
        "said, with no figure",
        f"error of the posterior mean, in posterior sds: {min(cyclical):.2f} to "
        f"{max(cyclical):.2f} with cyclical steps, {min(decreasing):.2f} to "
        f"{max(decreasing):.2f} with decreasing ones",
        [paired(one, other) for one, other in cases],
    )


def _settings(config: Mapping[str, Any], rows: Rows) -> str:
    draws = {record["method"]: record["draws"] for record in rows.values()}
    friction = {record["method"]: 1 - record["momentum"] for record in rows.values()}
    return (
        f"K = {config['steps']:,} iterations, the first {config['burn_in']:,} of them burn-in; "
        f"M = {config['cycles']} and β = {config['exploration']} for the cyclical samplers, and "
        f"η = {friction['SGHMC']:g} for SGHMC. Cyclical samplers keep {draws['cSGLD']:,} "
        f"draws, as exploration has none; the others {draws['SGLD']:,}, with a step size of "
        f"a·k^-{config['gamma']}, k from 1 after the burn-in. Step sizes are the paper's, the same "
        "for both kinds, and on breast cancer those of Heart, untuned. Columns are standardised, "
        "an intercept is added, the prior is N(0, I), and chains start from a draw of it. Batches "
        "are drawn with replacement. Numbers are mean ± standard error over "
        f"{config['seeds']} independent seeds, the same for all rows; effective sample sizes are "
        "medians over the coordinates. “Truncated” sums the paper's formula up to the first lag "
        "with an autocorrelation below 0.05, the rule of Hoffman and Gelman, whom the paper "
        f"follows; the claims have these sizes. Two are alike whose "
        f"means differ by clearly less than {ALIKE:.0%}."
    )


def _headline(config: Mapping[str, Any], rows: Rows) -> Grid:
    header = ["method", "batch"]
    for dataset in config["datasets"]:
        header += [dataset.capitalize(), *(["paper"] if dataset in PAPER else [])]
    lines = []
    for method in METHODS:
        for batch in config["batches"]:
            line = [method, str(batch or "all")]
            for dataset in config["datasets"]:
                line.append(_size(rows[dataset, method, batch]))
                if dataset in PAPER:
                    line.append(str(PAPER[dataset].get(method, "-")))
            lines.append(line)
    return Grid("Effective sample size, truncated", header, lines)


def _sizes(config: Mapping[str, Any], rows: Rows, batch: int | None) -> Grid:
    lines = []
    for dataset in config["datasets"]:
        for method in METHODS:
            record = rows[dataset, method, batch]
            lines.append(
                [
                    dataset.capitalize(),
                    method,
                    f"{record['lr']:.3g}",
                    f"{record['draws']:,}",
                    str(PAPER.get(dataset, {}).get(method, "-")),
                    _size(record, "ess_untruncated"),
                    _size(record),
                    _size(record, "ess_usual"),
                ]
            )
    return Grid(
        f"Effective sample sizes, {batch_name(batch)}",
        ["data", "method", "lr", "draws", "paper", "its formula", "truncated", "usual"],
        lines,
        note="“Its formula” is not truncated: what it gives below 0 or above the number of draws "
        "means nothing. “Usual” is rank-normalised, with the chain's own "
        "mean and variance (Vehtari et al. 2021): it does not see that a distribution is too wide.",
    )


def _what_moments_say(config: Mapping[str, Any], rows: Rows) -> str:
    ranges = []
    for batch in config["batches"]:
        cyclical, decreasing = (
            [
                rows[dataset, pair[side], batch]["pooled"]["sd_ratio"]
                for dataset in config["datasets"]
                for pair in PAIRS
            ]
            for side in (0, 1)
        )
        ranges.append(
            f"{batch_name(batch)}: {min(cyclical):.2f} to {max(cyclical):.2f} with cyclical "
            f"steps, {min(decreasing):.2f} to {max(decreasing):.2f} with decreasing ones"
        )
    return (
        "**What cannot be gamed.** The effective sample size says how correlated draws are, and "
        "the paper's formula not even that: untruncated, it depends on nothing but the mean and "
        "the second moment. A chain can also have many effective draws of the wrong distribution: "
        "small "
        "batches make gradients noisy, and large steps add that noise to the posterior's spread. "
        "So the next tables compare mean and standard deviation with the reference's: of each run, "
        "where slow chains are too narrow, as they have seen only a part of the posterior; and of "
        "all runs together, which shows whether the stationary distribution is wrong. Median ratio "
        f"of sds, all runs together: {'; '.join(ranges)}."
    )


def _moments(config: Mapping[str, Any], rows: Rows, batch: int | None) -> Grid:
    lines = []
    for dataset in config["datasets"]:
        for method in METHODS:
            record = rows[dataset, method, batch]
            pooled = record["pooled"]
            lines.append(
                [
                    dataset.capitalize(),
                    method,
                    mean_and_error(record["mean_error"], 3),
                    mean_and_error(record["sd_ratio"], 3),
                    mean_and_error(record["sd_worst"], 2),
                    f"{pooled['mean_error']:.3f}",
                    f"{pooled['sd_ratio']:.3f}",
                    f"{pooled['sd_worst']:.2f}",
                ]
            )
    titles = ("mean error", "sd ratio", "worst sd")
    return Grid(
        f"Errors of the moments, {batch_name(batch)}",
        ["data", "method", *titles, *(f"{title}, all runs" for title in titles)],
        lines,
        note="Mean error: root mean square over coordinates, in posterior sds. Sd ratio: median "
        "over coordinates, 1 is right. Worst sd: largest factor by which one is too large or too "
        "small.",
    )


def _search(
    config: Mapping[str, Any], trials: Sequence[Record], rows: Rows
) -> list[Grid | Picture | str]:
    batches: Sequence[int | None] = config["batches"]
    excesses = config["search_excesses"]
    on = config["search_on"]
    chosen = {batch: rows[on, "best", batch]["choice"] for batch in batches}
    cells = {}
    for trial in trials:
        choice = trial["choice"]
        mark = " *" if choice == chosen[trial["batch"]] else ""
        text = f"{np.mean(trial['ess_truncated']):.0f} ({trial['pooled']['sd_ratio']:.2f}){mark}"
        cells[(trial["batch"], *choice.values())] = text
    lines = [
        [
            f"{momentum}",
            f"{cycles}",
            *(cells[batch, momentum, cycles, excess] for batch in batches for excess in excesses),
        ]
        for momentum in config["search_momentums"]
        for cycles in config["search_cycles"]
    ]
    found = "; ".join(
        f"{batch_name(batch)}: momentum {choice['momentum']}, M = {choice['cycles']}, excess "
        f"{choice['excess']}"
        for batch, choice in chosen.items()
    )
    text = (
        f"**Our best settings** are cSGHMC's, chosen on {on.capitalize()} alone, with "
        f"{config['search_seeds']} seeds that are not reported: most effective draws, truncated, "
        "among the settings whose median sd over all runs is within "
        f"{config['search_sd_tolerance']:.0%} of the reference's, or the nearest where there is "
        "none. What is carried over to the other data is momentum, M, and "
        "the excess: lr is where the stationary distribution of the discrete update, with the "
        "curvature as the variance of a data point's gradient, has 1 + excess times the right "
        f"variance along the steepest direction at the start of a cycle. Chosen: {found}."
    )
    grid = Grid(
        f"Search on {on.capitalize()}: truncated effective sample size (sd ratio, all runs)",
        [
            "momentum",
            "M",
            *(f"{batch_name(b)}, excess {excess}" for b in batches for excess in excesses),
        ],
        lines,
        note="* is chosen.",
    )
    return [text, grid]


def _references(references: Mapping[str, Record]) -> Grid:
    return Grid(
        "The references: Hamiltonian Monte Carlo with exact gradients",
        ["data", "N", "parameters", "R-hat", "smallest ESS", "error of a mean", "curvatures"],
        [
            [
                name.capitalize(),
                f"{record['num_data']:,}",
                str(record["dimension"]),
                f"{record['r_hat']:.4f}",
                f"{record['ess']:,.0f}",
                f"{record['standard_error']:.4f}",
                f"{record['smallest_curvature']:.2g} to {record['largest_curvature']:.2g}",
            ]
            for name, record in references.items()
        ],
        note="R-hat and error of a mean are the largest over coordinates, the error in posterior "
        "sds; ESS is the smaller of bulk and tail. Curvatures are those of U/N at the mode.",
    )


def _size(record: Record, kind: str = "ess_truncated") -> str:
    return mean_and_error(record[kind], 0 if np.mean(record[kind]) >= 100 else 1)
