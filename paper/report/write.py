"""Writes the report into the folder of the results that it is made from."""

import re
from pathlib import Path, PurePath

from csgmcmc.pages import draw
from paper.report import markdown
from paper.report.chapter import read_chapters
from paper.report.page import Picture

LIGHT_INK, DARK_INK = "#1f2328", "#e6e9ed"
"""Text colours of the light and the dark scheme."""


def as_file(drawn: str) -> str:
    """A complete SVG file that follows the reader's colour scheme."""
    dark = f"@media (prefers-color-scheme:dark){{svg{{color:{DARK_INK}}}}}"
    style = f"<style>svg{{color:{LIGHT_INK}}}{dark}</style>"
    return re.sub(r"(<svg\b[^>]*>)", rf"\1{style}", drawn, count=1)


def address(chapter: str, picture: str) -> str:
    """The path of a figure in the report."""
    return f"figures/{chapter}-{picture.removeprefix(f'{chapter}-')}.svg"


def write_report(folder: Path) -> list[Path]:
    """Write README.md, a page for each experiment and their figures into `folder`."""
    chapters = read_chapters(folder)
    files = {"README.md": markdown.render_index(chapters)}
    for chapter in chapters:
        addresses = {}
        for part in chapter.page.parts if chapter.page else ():
            if isinstance(part, Picture):
                path = addresses[chapter.name, part.name] = address(chapter.name, part.name)
                files[path] = as_file(draw(part.figure, PurePath(path).stem))
        page = markdown.page_name(chapter.name)
        files[f"{page}.md"] = markdown.render_chapter(chapter, addresses)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    return [folder / name for name in files]
