"""The report in a real browser, where one is installed."""

import pytest

from paper.experiments import find_experiments, reproduce
from paper.report import chapter as chapters
from paper.report.write import write_report
from paper.tests.report.support import make_page, save
from tests.pages.browser import WIDTHS, check_fits, look_at, needs_browser, on_light_and_dark

pytestmark = needs_browser


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a real experiment, and of one that has all that a page may have."""
    folder = tmp_path_factory.mktemp("report")
    reproduce(find_experiments()["schedule"], "smoke", folder)
    save(folder)
    with pytest.MonkeyPatch.context() as patch:
        made = chapters.make_page
        patch.setattr(
            chapters,
            "make_page",
            lambda results: make_page() if results["experiment"] == "nasty" else made(results),
        )
        write_report(folder)
    return folder / "index.html"


@on_light_and_dark
def test_the_page_fits_and_every_figure_shows(flags, ink, paper, page, tmp_path):
    check_fits(page, tmp_path, flags, ink, paper, figures=3)


def test_a_page_that_is_wrong_is_seen_to_be(tmp_path):
    page = tmp_path / "index.html"
    page.write_text(
        '<body><div style="width:900px">wide</div><figure><svg width="0" height="0"></svg></figure>'
        '<script>console.error("broken")</script></body>'
    )
    seen, console = look_at(page, tmp_path / "profile")
    assert seen[0]["scrolls"] >= 900
    assert seen[0]["figures"][0][:2] == [0, 0]
    assert len(console) == len(WIDTHS)
    assert "broken" in console[0]
