"""The page of a run in a real browser, where one is installed."""

import pytest

from csgmcmc import DrawStore
from tests.pages.browser import check_fits, needs_browser, on_light_and_dark
from tests.report.support import held_out, run

pytestmark = needs_browser


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    chain, posterior = run(DrawStore(folder / "store", provenance={"note": "x" * 300}))
    path = folder / "report.html"
    posterior.report(held_out(), run=chain, path=path)
    return path


@on_light_and_dark
def test_page_fits_and_figures_are_visible(flags, ink, paper, page, tmp_path):
    for frame in check_fits(page, tmp_path, flags, ink, paper, figures=4):
        assert all(width <= frame["width"] for width, _, _ in frame["figures"])  # none scrolls
