"""Results and pages to make reports of."""

import json

import numpy as np

from paper.report.chapter import Chapter
from paper.report.page import COLOURS, Claim, Grid, Page, Picture, new_figure

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
            Claim(NASTY, NASTY, "1 < 2", holds=True),
            Claim("second", "0.5", "0.7", holds=False),
            Claim("third", "", "too few seeds", holds=None),
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
    figure = new_figure(9, 3)
    axes = figure.subplots()
    if name == "lines":
        axes.plot([1, 2, 3], color=COLOURS[0], label="a line", marker="o")
        axes.legend()
    else:
        axes.pcolormesh(np.arange(12.0).reshape(3, 4), rasterized=True)
    axes.set(xlabel="step", ylabel="loss", title="title")
    return Picture(name, figure, f"Caption of {name}. {NASTY}")


def make_chapter():
    return Chapter(make_results(), make_page())


def save(folder, **changes):
    results = make_results(**changes)
    (folder / f"{results['experiment']}.json").write_text(json.dumps(results))
