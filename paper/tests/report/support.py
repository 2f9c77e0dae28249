"""Results and pages to make reports of."""

import json

from paper.report.chapter import Chapter
from paper.report.page import Claim, Grid, Page, Picture
from paper.report.verdicts import judge
from tests.pages.samples import sample_figure

NASTY = """<script>alert("x")</script> a|b *c* _d_ `e` [f](g) & $h$ ~~i~~ 'j' \\k #l"""


def make_results(**changes):
    return {
        "experiment": "nasty",
        "preset": "smoke",
        "config": {"seeds": 2, "lrs": [0.1, 0.2], "note": NASTY},
        "versions": {"torch": "2.0"},
        "machine": "a machine",
        "command": "python -m paper run nasty --preset smoke",
        "seconds": 12.3,
        "finished": True,
        "records": {},
        **changes,
    }


def make_page():
    """A page with all that a page may have, and text that means something to HTML and Markdown."""
    return Page(
        title=f"Nasty {NASTY}",
        summary=NASTY,
        claims=[
            Claim(NASTY, NASTY, "1 < 2", exact=True),
            Claim("second", "0.5", "0.7", exact=False),
            Claim("third", "", "too few seeds", exact=None),
        ],
        parts=[
            "A paragraph with `code`, *emphasis* and <b>no HTML</b>.",
            Grid(
                NASTY,
                ["method", *(f"column {n}" for n in range(30))],
                [["SGLD", *["-1.23 ± 0.04"] * 30], ["a|b", *["5"] * 30]],
                note=NASTY,
            ),
            make_picture("lines"),
            make_picture("image"),
        ],
    )


def make_picture(name):
    return Picture(name, sample_figure(name), f"Caption of {name}. {NASTY}")


def make_chapter():
    page = make_page()
    return Chapter(make_results(), page, judge(page.claims))


def save(folder, **changes):
    results = make_results(**changes)
    (folder / f"{results['experiment']}.json").write_text(json.dumps(results))
