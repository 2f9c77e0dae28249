"""The page docs/api/index.md lists all public names, and there are few of them."""

import re
from importlib import import_module
from inspect import isclass

import pytest

import csgmcmc
from tests.docs.support import DOCS

PACKAGES = (
    *("samplers", "noise", "schedules", "loop", "draws", "posterior"),
    *("checks", "report", "diagnostics", "estimators"),
)
INTEGRATIONS = ("lightning", "transformers")
MAX_AT_THE_TOP = 30
MAX_IN_PACKAGES = 70


def listed() -> dict[str, list[str]]:
    """The names of each table of the page, by package."""
    text = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    sections = re.split(r"^## \[?(\S+?)(?:\]\(\S+\))?$", text, flags=re.MULTILINE)[1:]
    return {
        title: re.findall(r"^\| `(\w+)` \|", body, re.MULTILINE)
        for title, body in zip(sections[::2], sections[1::2], strict=True)
        if title.startswith("csgmcmc")
    }


def row_of(module: str) -> str:
    text = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    return re.findall(rf"^\| `{re.escape(module)}` \| (.*) \|$", text, re.MULTILINE)[0]


@pytest.mark.parametrize("package", ["csgmcmc", *(f"csgmcmc.{name}" for name in PACKAGES)])
def test_the_page_lists_the_names_of_a_package(package):
    assert sorted(listed()[package]) == sorted(import_module(package).__all__)


def test_the_page_lists_no_other_package():
    assert listed().keys() == {"csgmcmc", *(f"csgmcmc.{name}" for name in PACKAGES)}


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_the_page_lists_the_names_of_an_integration(name):
    module = pytest.importorskip(f"csgmcmc.integrations.{name}")
    assert set(module.__all__) <= set(re.findall(r"`(\w+)`", row_of(module.__name__)))


def test_the_page_lists_all_errors():
    errors = import_module("csgmcmc.errors")
    public = {
        name
        for name, member in vars(errors).items()
        if isclass(member) and issubclass(member, Exception) and not name.startswith("_")
    }
    assert set(re.findall(r"`(\w+)`", row_of("csgmcmc.errors"))) == public


def test_there_are_few_public_names():
    assert len(csgmcmc.__all__) <= MAX_AT_THE_TOP
    names = [name for package in PACKAGES for name in import_module(f"csgmcmc.{package}").__all__]
    assert len(names) <= MAX_IN_PACKAGES, len(names)


@pytest.mark.parametrize("package", ["csgmcmc", "csgmcmc.diagnostics"])
def test_a_name_that_never_existed_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        getattr(import_module(package), "Nothing")  # noqa: B009
