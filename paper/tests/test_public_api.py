"""The paper uses the public API of the library only: exported names of its packages."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(ROOT.rglob("*.py"))


def private_imports(source: str) -> Iterator[str]:
    """What a file imports from the library that no package of it exports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("csgmcmc."):
                    yield alias.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "csgmcmc":
            public = exported(node.module or "")
            yield from (f"{node.module}.{a.name}" for a in node.names if a.name not in public)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "csgmcmc":
            yield from {f"csgmcmc.{node.attr}"} - {f"csgmcmc.{n}" for n in exported("csgmcmc")}


def exported(name: str) -> set[str]:
    """The names in `__all__` of a package; the classes of `errors`, all of `pages`."""
    module = importlib.import_module(name)
    if name == "csgmcmc.errors":
        return {key for key in vars(module) if key.endswith(("Error", "Warning"))}
    if name == "csgmcmc.pages":
        return {key for key in vars(module) if not key.startswith("_")}
    return set(getattr(module, "__all__", ()))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_only_exported_names_are_imported(file):
    assert list(private_imports(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from csgmcmc.samplers.sgld import SGLD", "csgmcmc.samplers.sgld.SGLD"),
        ("from csgmcmc.arguments import check_count", "csgmcmc.arguments.check_count"),
        ("from csgmcmc.samplers import subclasses_in", "csgmcmc.samplers.subclasses_in"),
        ("def f():\n    from csgmcmc.draws import _x", "csgmcmc.draws._x"),
        ("import csgmcmc.samplers.base", "csgmcmc.samplers.base"),
        ("import csgmcmc\ncsgmcmc.loop.chain", "csgmcmc.loop"),
    ],
)
def test_a_private_import_is_found(source, found):
    assert list(private_imports(source)) == [found]
