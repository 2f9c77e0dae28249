"""Pages in a real browser, where one is installed: Chromium, without a window."""

import json
import re
import shutil
import subprocess

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

WIDTHS = (360, 400, 800, 1400)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # which is small in containers
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
        timeout=400,
        check=True,
    )
    seen = re.search(r'<pre id="seen">(.*?)</pre>', result.stdout, re.DOTALL)
    assert seen, result.stdout
    console = [line for line in result.stderr.splitlines() if ":CONSOLE:" in line]
    return json.loads(seen[1]), console


on_light_and_dark = pytest.mark.parametrize(
    ("flags", "ink", "paper"),
    [
        ([], "#1f2328", "#ffffff"),
        (["--blink-settings=preferredColorScheme=0"], "#e6e9ed", "#15191f"),
    ],
    ids=["light", "dark"],
)


def check_fits(page, folder, flags, ink, paper, figures):
    """Nothing is wider than the screen, and every figure shows, in the colours of the page.

    Returns what the browser sees.
    """
    seen, console = look_at(page, folder, *flags)
    assert console == []
    assert [frame["width"] for frame in seen] == list(WIDTHS)
    for frame in seen:
        assert frame["scrolls"] <= frame["width"]
        assert len(frame["figures"]) == figures
        for width, height, right in frame["figures"]:
            assert width > 200
            assert height > 50
            assert right <= frame["width"]
        assert min(frame["drawn"]) > 200
        assert set(frame["ink"]) == {rgb(ink)}
        assert frame["paper"] == rgb(paper)
    return seen


def rgb(colour):
    """A colour as a browser says it."""
    return "rgb({}, {}, {})".format(*bytes.fromhex(colour.removeprefix("#")))
