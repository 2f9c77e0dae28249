"""docs/quickstart.ipynb is made from the page, and its cells run."""

import json

import pytest

from scripts.notebook import FILE, PAGE, notebook


def cells(kind: str) -> list[str]:
    found = json.loads(FILE.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


def test_the_notebook_is_that_of_the_page():
    now = notebook(PAGE.read_text(encoding="utf-8"))
    assert FILE.read_text(encoding="utf-8") == now, "run `make notebook`"


def test_text_and_code_are_in_cells_of_their_own():
    assert len(cells("code")) >= 5
    assert cells("markdown")[0].startswith("# Quickstart")
    assert not any("```python" in text for text in cells("markdown"))
    assert "chain.run(" in "\n".join(cells("code"))


@pytest.mark.slow  # `make test` runs the same lines on the page
def test_the_cells_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for number, source in enumerate(cells("code")):
        exec(compile(source, f"cell {number}", "exec"), names)  # noqa: S102
    said = capsys.readouterr().out
    assert "accuracy" in said
    assert "calibrated  yes" in said
