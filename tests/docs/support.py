"""What the tests of the documentation share."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    """README, and every page of docs."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def imports_of(page: Path) -> Iterator[str]:
    """What the snippets of a page import from this library, by full name."""
    for snippet in SNIPPET.findall(page.read_text(encoding="utf-8")):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("csgmcmc"):
                for alias in node.names:
                    yield f"{node.module}.{alias.name}"


def find(name: str) -> Any:
    """The module, class, function or attribute of this full name; raises if there is none."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module_name = ".".join(parts[:length])
        try:
            found: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise  # the module is there; something that it imports is not
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(f"there is no module in {name}", name=name)
