"""The figures of the page of the 25 Gaussians."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from paper.report.page import COLOURS, Picture, new_figure

MODES = 25

# No paper of its own: where there are no draws, the page's is seen.
SHADES = LinearSegmentedColormap.from_list("draws", [(0, 0.45, 0.7, 0), (0, 0.45, 0.7, 1)])

Record = Mapping[str, Any]


def densities(
    config: Mapping[str, Any], records: Mapping[str, Record], group: str, reading: str
) -> Picture:
    """Draws of the first run of each method, beside exact ones."""
    names = {"exact draws": "target"} | {
        f"{method}, {reading}": method for method in ("SGLD", "cSGLD")
    }
    figure = new_figure(9, 3.2)
    for axes, (key, name) in zip(figure.subplots(1, 3), names.items(), strict=True):
        record = records[key]
        _density(axes, record["histograms"][group], record["view"])
        axes.set_title(name)
    chains = f"{config['chains']} chains" if group == "pooled" else "one chain"
    found = {
        name: records[key][group]["modes_covered"][0]
        for key, name in names.items()
        if name != "target"
    }
    return Picture(
        "parallel" if group == "pooled" else "single",
        figure,
        f"Draws of {chains} of {config['steps']:,} iterations, the first of all runs. "
        + ", ".join(f"{name} covers {modes:g} of the modes" for name, modes in found.items())
        + ". The darkest shade is the 99.5th percentile of each panel's filled cells.",
    )


def _density(axes: Axes, lines: Sequence[str], view: Sequence[float]) -> None:
    counts = np.array([[int(count) for count in line.split()] for line in lines])
    top = np.percentile(counts[counts > 0], 99.5) if counts.any() else 1
    low, high = view
    square = (low, high, low, high)
    axes.imshow(counts, cmap=SHADES, vmin=0, vmax=top, origin="lower", extent=square)
    axes.set(xticks=range(-4, 5, 2), yticks=range(-4, 5, 2))


def masses(weighed: Mapping[str, Record], best: tuple[str, str], first: str) -> Picture:
    """Shares of the modes with the settings `first`, and with the best settings and weights."""
    shown = {
        "visits, the paper's settings": weighed[first]["weightings"]["visits"],
        "visits, best settings": weighed[best[0]]["weightings"]["visits"],
        f"{best[1]}, best settings": weighed[best[0]]["weightings"][best[1]],
    }
    figure = new_figure(9, 3.6)
    axes = figure.subplots()
    places = np.arange(1, MODES + 1)
    for index, ((name, scores), marker) in enumerate(zip(shown.items(), "x^o", strict=False)):
        shares = np.array(scores["shares"])
        spread = 0 if len(shares) == 1 else shares.std(axis=0, ddof=1)
        axes.errorbar(
            places + 0.25 * (index - 1),
            shares.mean(axis=0),
            yerr=spread,
            fmt=marker,
            markersize=4,
            elinewidth=1,
            color=COLOURS[(1, 2, 0)[index]],
            label=name,
        )
    axes.axhline(1 / MODES, color=COLOURS[5], linewidth=1, linestyle="--", label="truth")
    axes.set(xlabel="mode, from the lower left", ylabel="share of the weight", ylim=(0, None))
    axes.margins(x=0.01)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4)
    return Picture(
        "masses",
        figure,
        "The share of each mode, mean over the runs, with bars of one standard deviation of a run. "
        f"Best settings: {best[0]}.",
    )
