"""The report in a real browser, where one is installed."""

import json
import re
import shutil
import subprocess

import pytest

from csgmcmc.pages import DARK_INK, LIGHT_INK
from paper.experiments import find_experiments, reproduce
from paper.report import chapter as chapters
from paper.report.write import write_report
from paper.tests.report.support import make_page, save

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

WIDTHS = (360, 1280)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--allow-file-access-from-files",
    "--virtual-time-budget=10000",
]

# The page stays as it is: a frame of each width shows it, and the page around them measures.
LOOK = """<!DOCTYPE html><meta charset="utf-8">
%s
<pre id="seen"></pre>
<script>
const frames = [...document.querySelectorAll("iframe")];
const look = frame => {
  const page = frame.contentDocument, colour = it => getComputedStyle(it).color;
  const box = it => {  // on a phone a figure scrolls inside of its own box
    const b = it.getBoundingClientRect(), outer = it.closest("figure").getBoundingClientRect();
    return [b.width, b.height, outer.right];
  };
  return {
    width: frame.contentWindow.innerWidth,
    scrolls: page.documentElement.scrollWidth,
    figures: [...page.querySelectorAll("figure svg")].map(box),
    drawn: [...page.querySelectorAll("figure svg")].map(it => it.getBBox().width),
    ink: [...page.querySelectorAll("figure svg")].map(colour),
    paper: page.body ? getComputedStyle(page.body).backgroundColor : "",
  };
};
onload = () => { seen.textContent = JSON.stringify(frames.map(look)); };
</script>
"""


def look_at(page, folder, *flags):
    """What the browser sees of a page at each width, and what it says of it on its console."""
    frames = [
        f'<iframe src="{page.name}" width="{width}" height="800"></iframe>' for width in WIDTHS
    ]
    around = page.with_name("around.html")
    around.write_text(LOOK % "\n".join(frames).replace("<iframe", '<iframe style="border:0"'))
    assert CHROMIUM
    result = subprocess.run(
        [CHROMIUM, *FLAGS, *flags, f"--user-data-dir={folder}", "--dump-dom", around.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    seen = re.search(r'<pre id="seen">(.*?)</pre>', result.stdout, re.DOTALL)
    assert seen, result.stdout
    console = [line for line in result.stderr.splitlines() if ":CONSOLE:" in line]
    return json.loads(seen[1]), console


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


def rgb(colour):
    return "rgb({}, {}, {})".format(*bytes.fromhex(colour.removeprefix("#")))


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
        assert len(frame["figures"]) == 3
        for width, height, right in frame["figures"]:
            assert width > 200
            assert height > 50
            assert right <= frame["width"]
        assert min(frame["drawn"]) > 200
        assert set(frame["ink"]) == {rgb(ink)}
        assert frame["paper"] == rgb(paper)


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
