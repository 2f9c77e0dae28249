"""docs/gallery.md has every figure, with the script that draws it."""

import re

from scripts.gallery import FILE, gallery
from scripts.site_hooks import LINK, script_of
from tests.docs.support import DOCS, ROOT


def test_the_gallery_is_up_to_date():
    assert FILE.read_text(encoding="utf-8") == gallery(), "run `make gallery`"


def test_every_figure_is_there_with_a_script_that_exists():
    page = gallery()
    files = {*(DOCS / "images").glob("*.png"), *(DOCS / "results" / "figures").glob("*.svg")}
    shown = re.findall(r"^!\[.*\]\((\S+)\)\{", page, re.MULTILINE)
    assert sorted(shown) == sorted(path.relative_to(DOCS).as_posix() for path in files)
    scripts = [script_of(link, "gallery.md") for link in LINK.findall(page)]
    assert len(scripts) == len(files)
    assert [script for script in scripts if not (ROOT / script).exists()] == []


def test_links_to_scripts_are_understood_from_any_folder():
    link = "../../examples/demo/moons.py"
    assert LINK.findall(f"[x]({link}) [y](other.md)") == [link]
    assert script_of(link, "howto/report.md") == "examples/demo/moons.py"
