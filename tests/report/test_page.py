"""The page of a run: its sections, accessibility, and escaped text."""

import json
import math
import os
import re
from dataclasses import replace

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from csgmcmc import DrawStore, MemoryDraws, Posterior
from csgmcmc.checks import Verdict
from csgmcmc.checks.evaluation import evaluate
from csgmcmc.checks.posterior_check import VERDICTS, judge
from csgmcmc.cli import app
from csgmcmc.posterior import Gaussian
from csgmcmc.report import report_folder
from csgmcmc.report.page import Findings, logged_traces, make_page
from tests.pages.reader import Reader
from tests.report.support import held_out, run

NASTY = """</title><script>alert("x")</script> $x_2$ & 'j' <b>"""
ALL = ["verdicts", "trace", "scores", "calibration", "sampling", "provenance"]


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
    return posterior.report(loader, title=NASTY, run=chain).html


@pytest.fixture(scope="module")
def reader(page):
    return Reader(page)


def test_sections_links_and_figures(reader):
    assert reader.sections == ALL
    assert [link["href"] for link in reader.all("a")[:-1]] == [f"#{name}" for name in ALL]
    assert reader.all("a")[-1]["href"] == "#contents"
    assert len(reader.all("figure")) == 4
    for words in ("sampling", "mixing", "calibrated", "better"):
        assert words in reader.text.lower()


def test_page_shows_the_numbers_of_the_check(sampled, reader):
    _, posterior = sampled
    check = posterior.check(held_out())
    numbers = check.numbers
    assert f"NLL {numbers['nll']:.4f}, error {100 * numbers['error']:.2f}%" in reader.text
    assert "on 50 held-out data points" in reader.text
    assert check.mixing.words in reader.text
    assert check.calibrated.words in reader.text
    assert "9 draws, 3 cycles, 1 chain." in reader.text


def test_page_needs_no_network(page, reader):
    assert not re.search(r"(?<!xmlns=\")(?<!xlink=\")https?://", page)
    assert "@import" not in page
    for tag, attributes in reader.elements:
        assert tag not in ("link", "img", "script", "iframe")
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith("#")


def test_accessible_structure(reader):
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for drawing in reader.all("svg"):
        assert drawing["role"] == "img"
        assert drawing["aria-labelledby"] in ids
    for link in reader.all("a"):
        assert link["href"].removeprefix("#") in ids
    for heading in reader.all("th"):
        assert heading["scope"] in ("row", "col")


def test_text_is_escaped(reader):
    assert not reader.all("script")
    assert not reader.all("b")
    assert reader.text.count(NASTY) == 3  # title, heading, provenance


def test_page_without_data_asks_for_them(sampled):
    _, posterior = sampled
    reader = Reader(posterior.report().html)
    assert reader.sections == ["trace", "provenance"]
    assert "need held-out data: posterior.report(loader)." in reader.text


def test_page_of_draws_in_memory():
    _, posterior = run(MemoryDraws(), cycles=1)
    reader = Reader(posterior.report(held_out()).html)
    assert reader.sections == ["verdicts", "scores", "calibration"]
    assert "needs the run that made the draws: run=" in reader.text
    assert Reader(posterior.report().html).sections == []


def test_run_of_the_posterior_is_the_default():
    chain, posterior = run(MemoryDraws(), cycles=1)
    known = Posterior(posterior.model, posterior.draws, progress=False, run=chain)
    reader = Reader(known.report(held_out()).html)
    assert reader.sections == ["verdicts", "scores", "calibration", "sampling"]


def test_page_of_a_single_draw():
    chain, posterior = run(MemoryDraws(), cycles=1)
    single = posterior.with_draws(posterior.draws[:1])
    reader = Reader(single.report(held_out(), run=chain).html)
    assert "1 draw, 1 cycle, 1 chain." in reader.text
    assert reader.sections == ["verdicts", "scores", "calibration"]  # no temperatures


def test_page_of_numbers():
    torch.manual_seed(0)
    model, draws = nn.Linear(3, 1), MemoryDraws()
    for step in range(4):
        nn.init.normal_(model.weight)
        draws.append(model, step=step)
    posterior = Posterior(model, draws, likelihood=Gaussian(variance=0.5), progress=False)
    loader = [(torch.randn(30, 3), torch.randn(30))]
    reader = Reader(posterior.report(loader).html)
    assert reader.sections == ["verdicts", "scores", "calibration"]
    assert "RMSE" in reader.text
    assert "90% intervals contain" in reader.text


def test_inconsistent_arguments_are_rejected(sampled):
    _, posterior = sampled
    with pytest.raises(ValueError, match="run="):
        posterior.report(held_out(), loss=nn.functional.cross_entropy)
    with pytest.raises(ValueError, match="title"):
        posterior.report(title=3)


def test_save_and_notebook_display(sampled, tmp_path):
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
    evaluation = evaluate(posterior, held_out())
    check = posterior.check(held_out(), run=chain)
    return Findings(evaluation, check)


def test_names_of_parameters_and_words_are_escaped(findings):
    report = next(iter(findings.check.parameters.values()))
    names = [NASTY, "$\\frac$", "x" * 500, "{}%s"]
    verdicts = dict.fromkeys(VERDICTS, Verdict(None, NASTY))
    verdicts |= {"learned": Verdict(None, NASTY, (NASTY,))}
    check = replace(findings.check, **verdicts, parameters=dict.fromkeys(names, report))
    reader = Reader(make_page("\udcff", [], None, findings._replace(check=check)).html)
    assert not reader.all("script")
    assert not reader.all("b")
    assert reader.text.count(NASTY) == 7  # six verdicts, an advice
    assert "\\udcff" in reader.text


def test_infinite_nll(sampled):
    _, posterior = sampled
    found = evaluate(posterior, held_out())
    impossible = found.log_scores.copy()
    impossible[:, 0] = -math.inf
    found = replace(found, log_scores=impossible)
    check = judge(posterior, found, None)
    page = make_page("bad", [], None, Findings(found, check))
    assert "NLL inf" in Reader(page.html).text


def test_damaged_logs_are_left_out(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    row = {"step": 0, "cycle": 0, "lr": 0.1, "temperature": 0.0, "loss": 1.0}
    (logs / "0000.jsonl").write_text(json.dumps(row) + "\n" + '{"step": 1')
    (logs / "0001.jsonl").write_text(json.dumps({**row, "loss": "x"}))
    (logs / "0002.jsonl").write_text(json.dumps({"step": 3}))
    (logs / "0003.jsonl").write_bytes(b"\xff[" * 100)
    (logs / "own.jsonl").write_text(json.dumps(row))
    ((chain_id, trace),) = logged_traces(tmp_path).items()
    assert chain_id == 0
    assert trace["loss"].tolist() == [1.0]


def command(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_page_of_a_folder(sampled, folder, tmp_path):
    reader = Reader(report_folder(folder).html)
    assert reader.sections == ["trace", "provenance"]
    assert str(folder) in reader.text
    assert "9 draws, 3 cycles, 1 chain." in reader.text
    assert report_folder(str(folder), title="Mine").html.count("Mine") == 2
    with pytest.raises(ValueError, match="folder"):
        report_folder(tmp_path)


def test_command_makes_the_page_of_a_folder(sampled, folder):
    result = command(folder)
    assert result.exit_code == 0, result.output
    reader = Reader((folder / "report.html").read_text(encoding="utf-8"))
    assert reader.sections == ["trace", "provenance"]


def test_command_reports_unwritable_paths_in_one_line(folder, tmp_path):
    os.mkfifo(tmp_path / "pipe")  # as a device such as /dev/null
    for out in (tmp_path, tmp_path / "none" / "page.html", tmp_path / "pipe", "x" * 300):
        result = command(folder, "--out", out)
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
        assert isinstance(result.exception, SystemExit)
    assert (tmp_path / "pipe").is_fifo()


def test_settings_are_in_words_and_not_in_json(page, reader):
    assert "Cyclical(steps=90, cycles=3, exploration=0.5, keep=Keep(per_cycle=3))" in reader.text
    assert "loader=DataLoader, sampler=RandomSampler, num_workers=0, batches=4" in reader.text
    assert "num_data=40, momentum=0.8" in reader.text
    assert "{&quot;" not in page


def test_tables_have_the_name_of_each_column_in_each_row_for_phones(page):
    """There a row is a block: no column is cut off."""
    tables = re.findall("<table.*?</table>", page, flags=re.DOTALL)
    assert len(tables) == 3
    assert all("stacked" in table for table in tables)
    assert page.count('data-label="NLL"') == page.count('data-label="weight"') == 3


def test_a_run_that_is_not_finished_is_called_that(tmp_path):
    draws = DrawStore(tmp_path)
    run(draws)
    assert "Not finished" not in report_folder(tmp_path).html
    draws.lock_chain(1, provenance={"total_draws": 4})
    draws.close()
    assert "Not finished: 13 draws are planned" in report_folder(tmp_path).html
