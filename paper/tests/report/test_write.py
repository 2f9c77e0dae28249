import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from paper import pages
from paper.experiments import find_experiments, reproduce
from paper.experiments.results import duration
from paper.report.chapter import read_chapters
from paper.report.markdown import render_chapter, render_index
from paper.report.page import Picture
from paper.report.write import address, write_report
from paper.tests.report.support import save

COMMITTED = Path(__file__).parents[3] / "docs" / "results"


@pytest.fixture
def folder(tmp_path):
    reproduce(find_experiments()["schedule"], "smoke", tmp_path)
    save(tmp_path, experiment="waiting", finished=False, records={"a": {}})
    return tmp_path


def test_committed_pages_follow_from_the_records():
    index = (COMMITTED / "README.md").read_text(encoding="utf-8")
    chapters = read_chapters(COMMITTED)
    assert len(chapters) == len(list(COMMITTED.glob("*.json"))) > 10
    assert {path.stem for path in COMMITTED.glob("*.md")} == {
        "README",
        *(chapter.name for chapter in chapters),
    }
    assert index == render_index(chapters)
    for chapter in chapters:
        text = (COMMITTED / f"{chapter.name}.md").read_text(encoding="utf-8")
        assert chapter.page
        pictures = [part.name for part in chapter.page.parts if isinstance(part, Picture)]
        addresses = {(chapter.name, name): address(chapter.name, name) for name in pictures}
        assert text == render_chapter(chapter, addresses)
        assert all((COMMITTED / path).exists() for path in addresses.values())
        assert chapter.command.startswith(f"python -m paper run {chapter.name} ")


def contents(folder):
    files = (path for path in folder.rglob("*.*") if path.suffix != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_all_files_are_there_and_links_lead_to_them(folder):
    written = write_report(folder)
    assert sorted(contents(folder)) == [
        "README.md",
        "figures/schedule-step-sizes.svg",
        "schedule.json",
        "schedule.md",
        "waiting.json",
        "waiting.md",
    ]
    assert all(path.is_file() for path in written)
    link = re.compile(r"(?<!\\)\]\((.*?)\)")
    found = {path.name: link.findall(path.read_text()) for path in folder.glob("*.md")}
    assert found == {
        "README.md": ["schedule.md", "waiting.md", *["schedule.md"] * 5],  # with five claims
        "schedule.md": ["figures/schedule-step-sizes.svg", "README.md"],
        "waiting.md": ["README.md"],
    }


def test_the_same_results_are_the_same_bytes(folder):
    write_report(folder)
    first = contents(folder)
    write_report(folder)
    assert contents(folder) == first
    program = (
        "import sys; from pathlib import Path; from paper.report.write import write_report;"
        "write_report(Path(sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}  # where sets have another order
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, env=environment)
    assert contents(folder) == first


def test_the_order_of_the_report(tmp_path):
    names = ["aardvark", "uncertainty", "convergence", "zebra", "logistic", "mixture", "schedule"]
    for name in ("uncertainty-digits", *names):
        save(tmp_path, experiment=name, finished=False)
    found = [chapter.name for chapter in read_chapters(tmp_path)]
    assert found == [
        "schedule",
        "mixture",
        "logistic",
        "convergence",
        "uncertainty",
        "uncertainty-digits",
        "aardvark",
        "zebra",
    ]


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"experiment": "schedule"})])
def test_files_of_something_else_are_named(text, folder):
    (folder / "other.json").write_text(text)
    with pytest.raises(ValueError, match=r"other\.json"):
        write_report(folder)
    assert not (folder / "README.md").exists()


def test_an_empty_folder_and_an_unknown_experiment_are_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no results"):
        write_report(tmp_path)
    save(tmp_path, experiment="unheard")
    with pytest.raises(ValueError, match="there is no page for the experiment 'unheard'"):
        write_report(tmp_path)


def test_results_of_another_version_are_refused(folder):
    path = folder / "schedule.json"
    path.write_text(path.read_text().replace('"sum_of_squares"', '"squares"'))
    with pytest.raises(ValueError, match="results of schedule have no 'sum_of_squares'"):
        write_report(folder)


def test_every_experiment_has_a_page():
    modules = {module.name for module in pkgutil.iter_modules(pages.__path__)}
    assert {pages.module_of(name) for name in find_experiments()} <= modules


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.123, "0.123 s"), (75.24, "75.2 s"), (150, "2 min"), (3599, "60 min"), (7380, "2 h 3 min")],
)
def test_durations(seconds, words):
    assert duration(seconds) == words
