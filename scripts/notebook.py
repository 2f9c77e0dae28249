"""Writes docs/quickstart.ipynb from docs/quickstart.md: its text, and its snippets as cells.

    .venv/bin/python scripts/notebook.py        # or: make notebook

The page is the source. A test compares the two, and another one executes the cells.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "quickstart.md"
FILE = ROOT / "docs" / "quickstart.ipynb"
SNIPPET = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def main() -> int:
    """Write the file."""
    FILE.write_text(notebook(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{FILE.relative_to(ROOT)} is written\n")
    return 0


def notebook(page: str) -> str:
    """The text of the notebook."""
    parts = SNIPPET.split(page)  # text and snippets in turn
    cells = [
        cell(number, "code" if number % 2 else "markdown", part.strip("\n"))
        for number, part in enumerate(parts)
        if part.strip()
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    found = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def cell(number: int, kind: str, text: str) -> dict[str, Any]:
    """A cell without outputs: what the page shows of them is in its text."""
    lines = text.splitlines(keepends=True)
    found = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": lines}
    return found | ({"execution_count": None, "outputs": []} if kind == "code" else {})


if __name__ == "__main__":
    sys.exit(main())
