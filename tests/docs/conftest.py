from collections.abc import Iterator

import griffe
import pytest

from tests.docs.support import ROOT, imports_of, pages


@pytest.fixture(scope="session")
def package() -> griffe.Module:
    """The library, read and not run: optional packages need not be there."""
    loaded = griffe.load("csgmcmc", search_paths=[ROOT / "src"], resolve_aliases=True)
    assert isinstance(loaded, griffe.Module)
    return loaded


@pytest.fixture(scope="session")
def public(package) -> set[str]:
    """What is public: in the `__all__` of a room, or imported by a page of the documents.

    Rooms are the packages, and each of the integrations, which are imported one by one.
    """
    rooms = [
        module
        for module in _modules(package)
        if module.is_init_module or module.path.startswith("csgmcmc.integrations.")
    ]
    exported = {f"{room.path}.{name}" for room in rooms for name in room.exports or ()}
    imported = {name for page in pages() for name in imports_of(page)}
    names = (exported | imported) - {"csgmcmc.__version__"}
    return {name for name in names if not _find(package, name).is_module}


@pytest.fixture(scope="session")
def objects(package, public) -> dict[str, griffe.Object | griffe.Alias]:
    """What the public names stand for."""
    return {name: _find(package, name) for name in public}


def _find(package: griffe.Module, name: str) -> griffe.Object | griffe.Alias:
    return package[name.removeprefix("csgmcmc.")]


def _modules(package: griffe.Module) -> Iterator[griffe.Module]:
    yield package
    for module in package.modules.values():
        if isinstance(module, griffe.Module):
            yield from _modules(module)
