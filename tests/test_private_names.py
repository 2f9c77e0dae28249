"""No module reads the underscore names of another: what two need has a name of its own."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "csgmcmc"
# Names of torch and of the standard library that have no public form.
FOREIGN = (
    "_BatchNorm",
    "_DropoutNd",
    "_asdict",
    "_buffers",
    "_check_sample_weight",  # of scikit-learn
    "_disable_dynamo",
    "_execution_engine",
    "_exit",
    "_foreach_",
    "_forward_",
    "_is_profiler_enabled",
    "_optimizer_step_",
    "_parameters",
    "_pytree",
    "_replace",  # of a named tuple
    "_version",
)


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined_in(tree: ast.Module) -> set[str]:
    """Names that a module defines or assigns, as functions, classes or attributes."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def foreign_names(tree: ast.Module) -> list[str]:
    own = defined_in(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("csgmcmc"):
            found += [alias.name for alias in node.names if private(alias.name)]
        elif isinstance(node, ast.Attribute) and private(node.attr):
            inherited = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not (inherited or node.attr in own or node.attr.startswith(FOREIGN)):
                found.append(node.attr)
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: p.stem)
def test_private_names_stay_in_their_module(path):
    assert foreign_names(ast.parse(path.read_text())) == []


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from csgmcmc.draws.store import _read", ["_read"]),
        ("posterior._members", ["_members"]),
        ("self._x = 1\nother._x", []),
        ("torch._foreach_add_(a, b)", []),
    ],
)
def test_the_check_finds_them(code, names):
    assert foreign_names(ast.parse(code)) == names
