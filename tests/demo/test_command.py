"""`python -m examples.demo`."""

from functools import partial

import matplotlib.image
import pytest
import typer
from typer.testing import CliRunner

from examples.demo import __main__ as command


def run(*arguments):
    app = typer.Typer()
    app.command()(command.demo)
    return CliRunner().invoke(app, list(arguments))


def test_demo_prints_tables_and_writes_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "MoonsDemo", partial(command.MoonsDemo, steps=400))
    short = partial(command.RegressionDemo, steps=300, hmc_chains=2, hmc_paths=2)
    monkeypatch.setattr(command, "RegressionDemo", short)
    small = ["--steps", "600", "--digits-steps", "200", "--seeds", "2"]
    out = tmp_path / "deep" / "folder"
    result = run(*small, "--out", str(out))
    assert result.exit_code == 0, result.output
    for word in ("cSGLD, cooling", "4 (pooled)", "truth", "0.989"):
        assert word in result.output
    for word in ("regression", "exact (HMC)", "two moons", "certain far away"):
        assert word in result.output
    for word in ("SGDM", "Snapshot", "cSGHMC", "AUROC", "±", "of 2", "Not ahead"):
        assert word in result.output
    for name in ("mixture", "regression", "moons"):
        assert matplotlib.image.imread(out / f"{name}.png").std() > 0.05


def test_one_part_of_the_demo(tmp_path):
    few = ["--digits-steps", "200", "--seeds", "1", "--out", str(tmp_path)]
    result = run("--part", "digits", *few)
    assert result.exit_code == 0, result.output
    assert "cSGHMC" in result.output
    assert "25 Gaussians" not in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "10"], "cycles"),
        (["--steps", "-3"], "--steps"),
        (["--chains", "0"], "--chains"),
        (["--seed", "-1"], "--seed"),
        (["--digits-steps", "20"], "per_cycle"),
    ],
)
def test_bad_numbers_are_refused_before_anything_runs(arguments, words, tmp_path):
    result = run("--out", str(tmp_path), *arguments)
    assert result.exit_code == 2
    assert words in result.output
