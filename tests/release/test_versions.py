"""One version, in all places that name it; the rest of a release is `make release-check`."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import csgmcmc
from scripts.release_check import (
    EXPECTED,
    PAGES,
    SNIPPET,
    WITHOUT_PAGE,
    machine_problems,
    sdist_problems,
)

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_there_is_one_version():
    newest = re.findall(r"^## (\d+\.\d+\.\d+)", CHANGES, re.MULTILINE)[0]
    assert PROJECT["version"] == newest == CITATION["version"] == csgmcmc.__version__


def test_versions_of_the_changelog_fall():
    found = re.findall(r"^## (\d+)\.(\d+)\.(\d+)", CHANGES, re.MULTILINE)
    numbers = [tuple(map(int, version)) for version in found]
    assert numbers == sorted(set(numbers), reverse=True)


def test_the_citation_says_what_the_package_says():
    assert CITATION["license"] == PROJECT["license"]
    assert CITATION["references"][0]["url"] == PROJECT["urls"]["Paper"]
    assert CITATION["authors"][0]["name"] in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_package_is_marked_as_typed():
    assert (Path(csgmcmc.__file__).parent / "py.typed").exists()
    assert "Typing :: Typed" in PROJECT["classifiers"]


def test_an_sdist_that_is_whole_has_no_problem():
    more = ["docs/results/figures/a.svg", "docs/results/truth.md", "docs/images/a.png"]
    more += ["tests/draws/fixtures/store-0.2.0/draws/0000-000000003.safetensors"]
    assert sdist_problems([*EXPECTED, *more]) == []


@pytest.mark.parametrize(
    "name",
    [
        "docs/results/mixture.json",
        "docs/results/draws/a/store.json",
        "runs/a.log",
        "tests/draw.safetensors",
        "src/csgmcmc/__pycache__/a.pyc",
        "data/mnist.gz",
    ],
)
def test_what_does_not_belong_into_an_sdist_is_found(name):
    assert sdist_problems([*EXPECTED, name]) == [f"{name} does not belong there"]


def test_what_an_sdist_misses_is_found():
    files = [name for name in EXPECTED if name != "LICENSE"]
    assert sdist_problems(files) == ["LICENSE is missing"]


def test_what_names_a_folder_of_this_machine_is_found():
    here = f"data = '{ROOT}/data'".encode()
    assert machine_problems({"a.py": here, "b.py": b"data"}) == [f"a.py names {ROOT}"]


def test_every_extra_is_tried_by_a_page_that_says_to_install_it():
    named = {name for extras in PAGES for name in extras.split(",")}
    assert named | WITHOUT_PAGE == set(PROJECT["optional-dependencies"])
    for extras, name in PAGES.items():
        page = (ROOT / "docs" / "howto" / f"{name}.md").read_text(encoding="utf-8")
        assert f"pip install '.[{extras}]'" in page
        assert SNIPPET.findall(page)


def test_the_lowest_versions_are_those_that_are_tested():
    """Of what the library and the extras for users need; torch apart, see CONTRIBUTING."""
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    tested = dict(line.lower().split("==") for line in lines if "==" in line)
    extras = [
        each
        for name, needed in PROJECT["optional-dependencies"].items()
        if name not in {"triton", "docs", "test", "dev"}
        for each in needed
    ]
    lowest = {}
    for each in [*PROJECT["dependencies"], *extras]:
        name, version = re.findall(r"^([\w-]+)>=([\d.]+)", each)[0]
        lowest[name.lower()] = version
    del lowest["torch"]
    assert len(lowest) > 12
    short = {name: re.sub(r"(\.0)+$", "", tested[name]) for name in lowest}
    assert short == {name: re.sub(r"(\.0)+$", "", version) for name, version in lowest.items()}


def test_the_workflow_runs_targets_that_exist_on_all_versions_of_python():
    path = ROOT / ".github" / "workflows" / "test.yml"
    if not path.exists():
        pytest.skip("a source distribution has no workflows")
    text = path.read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    targets = set(re.findall(r"\bmake ([\w-]+)", text))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"test", "test-slow", "test-lowest", "release-check"} == targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    matrix = jobs["test"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert {each["os"] for each in matrix["include"]} == {"macos-latest"}
    torch = re.findall(r"TORCH=([\d.]+)", text)
    assert [f"torch>={version}".removesuffix(".0") for version in torch] == [
        each for each in PROJECT["dependencies"] if each.startswith("torch")
    ]
