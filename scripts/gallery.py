"""Writes docs/gallery.md: every figure of the docs, with its page, its command and its script.

.venv/bin/python scripts/gallery.py        # or: make gallery
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

from paper.pages import module_of

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FILE = DOCS / "gallery.md"
IMAGE = re.compile(r"!\[(.*?)\]\((\S+?\.(?:png|svg))\)")
SCRIPTS = {  # the figures of docs/images: what draws them, and the command
    "mixture": ("examples/demo/mixture.py", "`make demo`"),
    "moons": ("examples/demo/moons.py", "`make demo`"),
    "regression": ("examples/demo/regression.py", "`make demo`"),
    "noise-per-row": ("benchmarks/noise_per_row.py", "`python benchmarks/noise_per_row.py`"),
    "scaling": ("benchmarks/scaling.py", "`make bench`"),
    "tables-beside": ("benchmarks/tables_beside.py", "`python -m benchmarks.tables_beside show`"),
    "trained-network": (
        "benchmarks/trained_held_out.py",
        "`python benchmarks/trained_held_out.py figure`",
    ),
    "networks-and-cycles": (
        "benchmarks/networks_and_cycles.py",
        "`python -m benchmarks.networks_and_cycles figure`",
    ),
    "clinc": ("benchmarks/clinc_page.py", "`python -m benchmarks.clinc_page`"),
    "how-it-works": ("scripts/how_it_works.py", "`python scripts/how_it_works.py`"),
    "report": ("src/csgmcmc/report/page.py", "the snippet of its page, in a browser"),
}
HEAD = """\
# Gallery

All figures of these pages, below the page that explains them, with the script that draws them.
`make gallery` writes this list.
"""


class Figure(NamedTuple):
    """A figure: where it is, what it shows, and the first page that has it."""

    path: Path
    caption: str
    page: Path


def main() -> int:
    """Write the page."""
    FILE.write_text(gallery(), encoding="utf-8")
    sys.stdout.write(f"{FILE.relative_to(ROOT)} is written\n")
    return 0


def gallery() -> str:
    """The page."""
    parts = [HEAD]
    for part, is_paper in (("The library", False), ("The paper, reproduced", True)):
        chosen = [each for each in figures() if ("results" in each.page.parts) == is_paper]
        parts.append(f"## {part}\n")
        for page in sorted({each.page for each in chosen}):
            heading = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            parts.append(f"### [{heading}]({page.relative_to(DOCS).as_posix()})\n")
            parts += [entry(each) for each in sorted(chosen) if each.page == page]
    return "\n".join(parts)


def entry(figure: Figure) -> str:
    """A figure with its links."""
    script, command = made_by(figure)
    return (
        f"![{figure.caption}]({figure.path.relative_to(DOCS).as_posix()}){{ loading=lazy }}\n\n"
        f"Drawn by [`{script}`](../{script}): {command}\n"
    )


def made_by(figure: Figure) -> tuple[str, str]:
    """The script that draws it, and the command that runs it."""
    if figure.path.parent.name == "images":
        return SCRIPTS[figure.path.stem]
    experiment = figure.page.stem
    return f"paper/pages/{module_of(experiment)}.py", f"`python -m paper run {experiment}`"


def figures() -> list[Figure]:
    """Each figure once, with a page of results if one has it, else with the first page."""
    found: dict[Path, Figure] = {}
    for page in sorted(DOCS.rglob("*.md"), key=lambda each: ("results" in each.parts, each.name)):
        if page == FILE:
            continue
        for caption, link in IMAGE.findall(page.read_text(encoding="utf-8")):
            path = (page.parent / link).resolve()
            if path not in found or "results" in page.parts:
                found[path] = Figure(path, caption, page)
    return list(found.values())


if __name__ == "__main__":
    sys.exit(main())
