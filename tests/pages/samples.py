"""Sample figures with lines, colours, text and an image."""

import numpy as np

from csgmcmc.pages import COLOURS, new_figure


def sample_figure(name):
    """Either "lines" with a legend, or an "image"."""
    figure = new_figure(9, 3)
    axes = figure.subplots()
    if name == "lines":
        axes.plot([1, 2, 3], color=COLOURS[0], label="a line", marker="o")
        axes.legend()
    else:
        axes.pcolormesh(np.arange(12.0).reshape(3, 4), rasterized=True)
    axes.set(xlabel="step", ylabel="loss", title="title")
    return figure
