"""The page of a run: what it shows, what it leaves out, and that text stays text."""

import dataclasses
import json
import math
import os
import re

import numpy as np
import pytest
from torch import nn
from typer.testing import CliRunner

from csgmcmc import DrawStore, MemoryDraws
from csgmcmc.cli import app
from csgmcmc.posterior.evaluation import evaluate
from csgmcmc.posterior.reporting import findings_of
from csgmcmc.report.page import Material, make_report
from csgmcmc.report.traces import Trace, logged_traces
from tests.pages.reader import Reader
from tests.report.support import held_out, other, run

NASTY = """</title><script>alert("x")</script> $x_2$ & 'j' <b>"""
ALL = ["verdicts", "trace", "scores", "uncertainty", "sampling", "provenance"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("run") / "store"


@pytest.fixture(scope="module")
def sampled(folder):
    return run(DrawStore(folder, provenance={"note": NASTY}))


@pytest.fixture(scope="module")
def page(sampled):
    chain, posterior = sampled
    loader = held_out()
    options = {"stepper": chain.stepper, "loss": chain.loss, "data": chain.data}
    return posterior.report(loader, other=other(), title=NASTY, **options).html


@pytest.fixture(scope="module")
def reader(page):
    return Reader(page)


def test_all_is_there(reader):
    assert reader.sections == ALL
    assert [link["href"] for link in reader.all("a")[:-1]] == [f"#{name}" for name in ALL]
    assert reader.all("a")[-1]["href"] == "#contents"
    assert len(reader.all("figure")) == 6
    for words in ("sampling", "mixing", "calibrated", "better"):
        assert words in reader.text.lower()


def test_numbers_are_those_of_the_check(sampled, reader):
    _, posterior = sampled
    check = posterior.check(held_out())
    numbers = check.numbers
    assert f"NLL {numbers['nll']:.4f}, error {100 * numbers['error']:.2f}%" in reader.text
    assert "on 50 held-out data points" in reader.text
    assert check.mixing.words in reader.text
    assert f"Calibration error {numbers['ece']:.3g}, by chance up to" in reader.text
    assert "9 draws, 3 cycles, 1 chain." in reader.text


def test_the_page_is_one_file_that_needs_no_network(page, reader):
    assert not re.search(r"(?<!xmlns=\")(?<!xlink=\")https?://", page)
    assert "@import" not in page
    for tag, attributes in reader.elements:
        assert tag not in ("link", "img", "script", "iframe")
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith("#")


def test_structure_for_readers_of_all_kinds(reader):
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for drawing in reader.all("svg"):
        assert drawing["role"] == "img"
        assert drawing["aria-labelledby"] in ids
    for link in reader.all("a"):
        assert link["href"].removeprefix("#") in ids
    for heading in reader.all("th"):
        assert heading["scope"] in ("row", "col")


def test_text_is_shown_as_it_is_and_never_run(reader):
    assert not reader.all("script")
    assert not reader.all("b")
    assert reader.text.count(NASTY) == 3  # title, heading, provenance


def test_without_data_it_says_what_to_give(sampled):
    _, posterior = sampled
    reader = Reader(posterior.report().html)
    assert reader.sections == ["trace", "provenance", "missing"]
    assert "give held-out data, as in posterior.report(loader)." in reader.text


def test_draws_in_memory_have_neither_log_nor_provenance():
    chain, posterior = run(MemoryDraws(), cycles=1)
    reader = Reader(posterior.report(held_out()).html)
    assert reader.sections == ["verdicts", "scores", "uncertainty", "sampling", "missing"]
    for words in ("give stepper=", "give them as other=", "give stepper=, loss= and data="):
        assert words in reader.text
    reader = Reader(posterior.report(stepper=chain.stepper).html)
    assert reader.sections == ["trace", "missing"]
    assert "The loss along the run: a Chain with a DrawStore logs it." in reader.text


def test_what_makes_no_sense_is_refused(sampled):
    _, posterior = sampled
    with pytest.raises(ValueError, match="give them too, as loader"):
        posterior.report(other=other())
    with pytest.raises(ValueError, match="give its stepper too"):
        posterior.report(held_out(), loss=nn.functional.cross_entropy)
    with pytest.raises(ValueError, match="title must be text"):
        posterior.report(title=3)


def test_it_can_be_saved_and_shown_in_a_notebook(sampled, tmp_path):
    _, posterior = sampled
    report = posterior.report(path=tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == report.html
    assert report.save(str(tmp_path / "b.html")) == tmp_path / "b.html"
    frame = Reader(report._repr_html_())
    assert [tag for tag, _ in frame.elements] == ["iframe"]
    assert frame.all("iframe")[0]["srcdoc"] == report.html
    assert repr(report) == "Report()"


@pytest.fixture(scope="module")
def findings(sampled):
    chain, posterior = sampled
    check = posterior.check(held_out(), stepper=chain.stepper, loss=chain.loss, data=chain.data)
    return findings_of(posterior, evaluate(posterior, held_out()), check, None)


def test_hostile_names_of_parameters_and_words(findings):
    row = next(iter(findings.parameters.values()))
    names = [NASTY, "$\\frac$", "名前", "\udcff", "a\nb\x00", "x" * 500, "{}%s"]
    verdict = {"holds": None, "words": NASTY}
    hostile = dataclasses.replace(
        findings,
        parameters=dict.fromkeys(names, row),
        verdicts=dict.fromkeys(findings.verdicts, verdict),
        advice=[NASTY],
        share_up_to={NASTY: findings.share_up_to["right"]},
    )
    reader = Reader(make_report(Material("\udcff", [], findings=hostile)).html)
    assert not reader.all("script")
    assert not reader.all("b")
    assert reader.text.count(NASTY) == 6  # four verdicts, an advice, a parameter
    assert "\\udcff" in reader.text


def test_numbers_that_are_not_finite_or_missing(findings):
    nothing = dict.fromkeys(("value", "low", "high", "target"))
    row = {"size": 3, "injected": 0.0, "minibatch": 0.0, **nothing}
    many = len(findings.nll_by_draws)
    bad = dataclasses.replace(
        findings,
        nll_by_draws=[math.inf] * many,
        nll_of_draws=[math.nan] * many,
        numbers={"nll": math.inf, "r_hat": math.nan},
        parameters={"w": row},
        cycles=[{**findings.cycles[0], "nll": math.inf, "stacking": None}],
        confidence=[math.nan],
        accuracy=[math.nan],
        count=[0],
    )
    reader = Reader(make_report(Material("bad", [], findings=bad)).html)
    assert "NLL inf" in reader.text


def test_damaged_logs_are_left_out(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    row = {"step": 0, "cycle": 0, "lr": 0.1, "temperature": 0.0, "loss": 1.0}
    (logs / "0000.jsonl").write_text(json.dumps(row) + "\n" + '{"step": 1')
    (logs / "0001.jsonl").write_text(json.dumps({**row, "loss": "x"}))
    (logs / "0002.jsonl").write_text(json.dumps({"step": 3}))
    (logs / "0003.jsonl").write_text(json.dumps({**row, "lr": [1, 2]}))
    (logs / "0004.jsonl").write_text(json.dumps({**row, "lr": 10**400}))
    (logs / "0005.jsonl").write_bytes(b"\xff[" * 100)
    (logs / "own.jsonl").write_text(json.dumps(row))
    (trace,) = logged_traces(tmp_path)
    assert trace.chain_id == 0
    assert trace.loss is not None
    assert trace.loss.tolist() == [1.0]


def test_a_log_of_extreme_numbers_is_drawn():
    numbers = np.array([1e308, -1e308, math.nan, math.inf])
    trace = Trace(
        0, step=np.arange(4.0), cycle=numbers, lr=numbers, temperature=numbers, loss=-numbers
    )
    assert Reader(make_report(Material("x", [], traces=[trace])).html).sections[0] == "trace"


def command(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_the_command_makes_the_same_page(folder, findings):
    findings.save(folder / "report.json")
    result = command(folder)
    assert result.exit_code == 0, result.output
    reader = Reader((folder / "report.html").read_text(encoding="utf-8"))
    assert reader.sections == [*ALL, "missing"]
    assert "return a csgmcmc.Task with other= from the function" in reader.text
    (folder / "report.json").write_text("{}")
    result = command(folder)
    assert result.exit_code == 2
    assert "report.json is damaged: it has no points" in result.output
    (folder / "report.json").unlink()


def test_a_page_that_cannot_be_written_is_one_line(folder, tmp_path):
    os.mkfifo(tmp_path / "pipe")  # as a device such as /dev/null
    for out in (tmp_path, tmp_path / "none" / "page.html", tmp_path / "pipe", "x" * 300):
        result = command(folder, "--out", out)
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
        assert isinstance(result.exception, SystemExit)
    assert (tmp_path / "pipe").is_fifo()
