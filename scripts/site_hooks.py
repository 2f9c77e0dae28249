"""What mkdocs does for this site: scripts that a page links to are pages of it.

A link such as `../examples/demo/moons.py` works in the repository as it is. The site has no such
file: there it leads to a page with the script.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, InclusionLevel

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(((?:\.\./)+(?:benchmarks|examples|paper|scripts|src)/[\w/]+\.py)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each script."""
    scripts = {
        script_of(link, page.src_uri)
        for page in files.documentation_pages()
        for link in LINK.findall(page.content_string)
    }
    for script in sorted(scripts):
        text = f"# {script}\n\n````python\n{(ROOT / script).read_text('utf-8')}````\n"
        page = File.generated(config, f"source/{script}.md", content=text)
        page.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let the links lead there."""
    folder = posixpath.dirname(page.file.src_uri)

    def to_source(found: re.Match[str]) -> str:
        target = f"source/{script_of(found[1], page.file.src_uri)}.md"
        return f"]({posixpath.relpath(target, folder or '.')})"

    return LINK.sub(to_source, markdown)


def script_of(link: str, page: str) -> str:
    """The path of a script in the repository, from a link of a page in docs."""
    return posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
