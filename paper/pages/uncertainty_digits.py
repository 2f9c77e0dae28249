"""The page of uncertainty on data that need no download: digits against letters."""

from dataclasses import replace

from paper.pages import uncertainty
from paper.report.page import Page, Results

DATA = (
    "The data stand for MNIST and notMNIST where there is no network: digits of 8x8 pixels from "
    "scikit-learn to train on, and letters from matplotlib's fonts, made in the same way, without "
    "those that could be digits. The paper has neither; its step sizes are taken as they are."
)


def page(results: Results) -> Page:
    """The page of `uncertainty`, with what the data are."""
    made = uncertainty.page(results)
    return replace(made, parts=[DATA, *made.parts])
