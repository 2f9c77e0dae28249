"""The page of a run in a real browser, where one is installed."""

import pytest

from csgmcmc import DrawStore
from csgmcmc.pages import DARK_INK, LIGHT_INK
from tests.pages.browser import WIDTHS, look_at, needs_browser, rgb
from tests.report.support import held_out, other, run

pytestmark = needs_browser


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    chain, posterior = run(DrawStore(folder / "store", provenance={"note": "x" * 300}))
    options = {"stepper": chain.stepper, "loss": chain.loss, "data": chain.data}
    path = folder / "report.html"
    posterior.report(held_out(), other=other(), path=path, **options)
    return path


@pytest.mark.parametrize(
    ("flags", "ink", "paper"),
    [
        ([], LIGHT_INK, "#ffffff"),
        (["--blink-settings=preferredColorScheme=0"], DARK_INK, "#15191f"),
    ],
    ids=["light", "dark"],
)
def test_the_page_fits_and_every_figure_shows(flags, ink, paper, page, tmp_path):
    seen, console = look_at(page, tmp_path, *flags)
    assert console == []
    assert [frame["width"] for frame in seen] == list(WIDTHS)
    for frame in seen:
        assert frame["scrolls"] <= frame["width"]
        assert len(frame["figures"]) == 6
        for width, height, right in frame["figures"]:
            assert 200 < width <= frame["width"]
            assert height > 50
            assert right <= frame["width"]
        assert set(frame["ink"]) == {rgb(ink)}
        assert frame["paper"] == rgb(paper)
