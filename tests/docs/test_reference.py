"""The site builds without a warning, and its reference has every public name."""

import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import griffe
import pytest
from typer.main import get_command

from csgmcmc.cli import app
from tests.docs.support import DOCS, ROOT, find


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    # In a process of its own, as `make docs` builds it.
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return folder


def written_by_hand() -> set[str]:
    """Names that a page of the reference describes itself, under a heading of their own."""
    texts = [page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md")]
    return set(re.findall(r"^#+ .*\{ #(csgmcmc\.[\w.]+) \}$", "\n".join(texts), re.MULTILINE))


def test_every_public_name_has_a_place(public, site):
    inventory = (site / "objects.inv").read_bytes().split(b"\n", maxsplit=4)[-1]
    entries = zlib.decompress(inventory).decode().splitlines()
    placed = {entry.split(" ", maxsplit=1)[0] for entry in entries}
    assert len(public) > 50
    assert sorted(public - placed - written_by_hand()) == []


@pytest.mark.parametrize("page", sorted((DOCS / "api").glob("*.md")), ids=lambda page: page.stem)
def test_a_page_says_where_its_docstrings_are(page):
    """In the repository nothing else of a page of the reference can be read."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"`(src/[\w./]+)`", text)
    assert bool(found) == ("\n::: " in text)
    for module in re.findall(r"^::: (.+)", text, re.MULTILINE):
        path = "src/" + module.replace(".", "/")
        assert any(each.startswith(path) or path.startswith(each) for each in found), module
    assert all((ROOT / each).exists() for each in found)


def test_every_command_is_listed():
    text = (DOCS / "api" / "cli.md").read_text(encoding="utf-8")
    commands = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    assert set(re.findall(r"^\| `csgmcmc (\S+)`", text, re.MULTILINE)) == set(commands)


def test_every_public_name_is_documented(objects):
    undocumented = {name for name, found in objects.items() if not found.has_docstring}
    assert sorted(undocumented - written_by_hand()) == []


def test_every_public_method_is_documented(objects):
    """By itself, or by what it overrides; fields stand in the docstring of their class."""
    classes = {found.path: found for found in objects.values() if found.is_class}
    undocumented = [
        member.path
        for found in classes.values()
        for name, member in found.members.items()
        if not name.startswith("_") and (member.is_function or "property" in member.labels)
        if not any(_documents(each, name) for each in [found, *found.mro()])
        if not _overrides_another_package(found, name)
    ]
    assert sorted(undocumented) == []


def _documents(found: griffe.Object | griffe.Alias, name: str) -> bool:
    return name in found.members and found.members[name].has_docstring


def _overrides_another_package(found: griffe.Class | griffe.Alias, name: str) -> bool:
    """Whether a base from elsewhere has it, as `nn.Module` has `forward`."""
    bases = [base for each in [found, *found.mro()] for base in each.bases]
    paths = [getattr(base, "canonical_path", str(base)) for base in bases]
    return any(hasattr(find(path), name) for path in paths if not path.startswith("csgmcmc"))
