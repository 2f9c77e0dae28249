"""Figures of the page of logistic regression, and what they share with its tables."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from paper.report.page import COLOURS, Picture, new_figure, standard_error

PAPER = {
    "australian": {"SGLD": 1676, "cSGLD": 2138, "SGHMC": 1317, "cSGHMC": 4707},
    "german": {"SGLD": 492, "cSGLD": 978, "SGHMC": 2007, "cSGHMC": 2436},
    "heart": {"SGLD": 2199, "cSGLD": 2541, "SGHMC": 5000, "cSGHMC": 5000},
}
"""The paper's table of effective sample sizes."""
METHODS = ("SGLD", "cSGLD", "SGHMC", "cSGHMC", "best")
MARKERS = {"o": "circles", "s": "squares", "D": "diamonds", "^": "triangles"}

Record = Mapping[str, Any]
Rows = Mapping[tuple[str, str, int | None], Record]
"""Records of samplers by data set, method, and size of batch."""


def batch_name(batch: int | None) -> str:
    return f"batch {batch}" if batch else "full batch"


def sizes_picture(config: Mapping[str, Any], rows: Rows) -> Picture:
    """A panel for each data set: ours by size of batch, and the paper's."""
    datasets = config["datasets"]
    figure = new_figure(max(2 * len(datasets), 4), 3.8)
    panels = figure.subplots(1, len(datasets), sharey=True, squeeze=False)[0]
    for panel, dataset in zip(panels, datasets, strict=True):
        for index, (batch, marker) in enumerate(zip(config["batches"], MARKERS, strict=False)):
            sizes = [rows[dataset, method, batch]["ess_truncated"] for method in METHODS]
            panel.errorbar(
                np.arange(len(METHODS)) + 0.25 * (index - 1),
                [np.mean(values) for values in sizes],
                [standard_error(values) for values in sizes],
                fmt=marker,
                color=COLOURS[index],
                label=f"ours, {batch_name(batch)}",
            )
        found = PAPER.get(dataset, {})
        panel.plot(
            [METHODS.index(method) + 0.25 for method in found],
            list(found.values()),
            "_",
            color=COLOURS[5],
            markersize=9,
            markeredgewidth=3,
            label="paper",
        )
        panel.set_yscale("log")
        panel.set_title(dataset.capitalize())
        panel.set_xticks(range(len(METHODS)), METHODS, rotation=60)
    panels[0].set_ylabel("effective sample size, truncated")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return Picture(
        "effective-sample-sizes",
        figure,
        "Truncated effective sample sizes with standard errors, and the figures of the paper, on a "
        "log scale.",
    )


def moments_picture(config: Mapping[str, Any], rows: Rows) -> Picture:
    """A panel for each size of batch: error of the mean against ratio of sds."""
    batches, datasets = config["batches"], config["datasets"]
    figure = new_figure(8, 3.8)
    panels = figure.subplots(1, len(batches), sharex=True, sharey=True, squeeze=False)[0]
    for panel, batch in zip(panels, batches, strict=True):
        panel.axhline(1, color=COLOURS[6], linewidth=1, linestyle="--")
        for method, colour in zip(METHODS, COLOURS, strict=False):
            cyclical = rows[datasets[0], method, batch]["cycles"] is not None
            for dataset, marker in zip(datasets, MARKERS, strict=False):
                record = rows[dataset, method, batch]
                panel.plot(
                    np.mean(record["mean_error"]),
                    np.mean(record["sd_ratio"]),
                    marker,
                    color=colour,
                    markerfacecolor=colour if cyclical else "none",
                    label=method if dataset == datasets[0] else None,
                )
        panel.set(xscale="log", title=batch_name(batch), xlabel="error of the mean, in sds")
    panels[0].set_ylabel("sd, as a share of the right one")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(METHODS)
    )
    shapes = ", ".join(
        f"{shape}: {dataset.capitalize()}"
        for shape, dataset in zip(MARKERS.values(), datasets, strict=False)
    )
    return Picture(
        "moments",
        figure,
        "Means over seeds: a sampler that is right is on the dashed line, far to the left. Open "
        f"marks have decreasing steps, filled ones cyclical; {shapes}.",
    )
