"""Writes the report into the folder of the results that it is made from."""

import re
from pathlib import Path, PurePath

from csgmcmc.pages import as_element, draw
from paper.report import html, markdown
from paper.report.chapter import read_chapters
from paper.report.page import Picture

LIGHT_INK, DARK_INK = "#1f2328", "#e6e9ed"
"""Text colours of the light and the dark scheme, as in page.css."""


def as_file(drawn: str) -> str:
    """A complete SVG file that follows the reader's colour scheme."""
    dark = f"@media (prefers-color-scheme:dark){{svg{{color:{DARK_INK}}}}}"
    style = f"<style>svg{{color:{LIGHT_INK}}}{dark}</style>"
    return re.sub(r"(<svg\b[^>]*>)", rf"\1{style}", drawn, count=1)


def address(chapter: str, picture: str) -> str:
    """The path of a figure in the report."""
    return f"figures/{chapter}-{picture.removeprefix(f'{chapter}-')}.svg"


def write_report(folder: Path) -> list[Path]:
    """Write README.md, a page for each experiment, their figures and index.html into `folder`."""
    chapters = read_chapters(folder)
    files, elements, addresses = {}, {}, {}
    for chapter in chapters:
        for part in chapter.page.parts if chapter.page else ():
            if isinstance(part, Picture):
                path = address(chapter.name, part.name)
                drawn = draw(part.figure, PurePath(path).stem)
                addresses[chapter.name, part.name] = path
                files[path] = as_file(drawn)
                elements[path] = as_element(drawn, PurePath(path).stem)
    pages = {
        markdown.page_name(chapter.name): markdown.render_chapter(chapter, addresses)
        for chapter in chapters
    }
    index = markdown.render_index(chapters)
    files |= {"README.md": index, **{f"{name}.md": text for name, text in pages.items()}}
    files["index.html"] = html.render(index, pages, elements)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    return [folder / name for name in files]
