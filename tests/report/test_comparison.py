"""Two posteriors side by side: the differences are those of the same data points."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from typer.testing import CliRunner

from csgmcmc import DrawStore, MemoryDraws, Posterior
from csgmcmc.cli import app
from csgmcmc.posterior import Gaussian
from csgmcmc.report import compare
from tests.pages.reader import Reader
from tests.report.support import classes, held_out, run


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run(DrawStore(folder / "one"))
    run(DrawStore(folder / "other"), cycles=2)
    return folder / "one", folder / "other"


def posterior_of(folder):
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))
    return Posterior(model, DrawStore(folder), progress=False)


def test_differences_are_paired_by_data_point(stores, tmp_path):
    one, other = map(posterior_of, stores)
    loader = DataLoader(classes(200, seed=1), batch_size=33)
    found = compare(one, other, loader, path=tmp_path / "page.html")
    labels = torch.cat([batch[1] for batch in loader]).numpy()
    probs = [each.predict_loader(loader).probs.numpy() for each in (one, other)]
    rows = np.arange(len(labels))
    nll = [-np.log(each[rows, labels]) for each in probs]
    brier = [np.square(each - np.eye(2)[labels]).sum(1) for each in probs]
    wrong = [(each.argmax(1) != labels).astype(float) for each in probs]
    for name, (first, second) in {"NLL": nll, "Brier": brier, "error": wrong}.items():
        difference = found.differences[name]
        expected = (first.mean(), second.mean(), stats.sem(second - first))
        assert (difference.first, difference.second, difference.error) == pytest.approx(
            expected, rel=1e-4, abs=1e-7
        )
        assert difference.interval.value == pytest.approx((second - first).mean(), abs=1e-6)
    assert list(found.differences) == ["NLL", "Brier", "error", "NLL, scaled"]
    page = Reader((tmp_path / "page.html").read_text())
    assert "Cyclical(steps=90, cycles=3" in page.text
    for row in found.rows():
        assert all(cell in page.text for cell in row)
    assert len(str(found).splitlines()) == 1 + len(found.differences)


def test_a_posterior_is_as_good_as_itself_and_better_than_a_worse_one(stores):
    one = posterior_of(stores[0])
    shuffled = DataLoader(classes(100, seed=1), batch_size=20, shuffle=True)
    same = compare(one, one, shuffled, names=("a", "b"))
    assert all(each.error == each.interval.value == 0 for each in same.differences.values())
    worse = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))
    draws = MemoryDraws()
    draws.append(worse, step=0)
    found = compare(Posterior(worse, draws, progress=False), one, shuffled, names=("a", "b"))
    assert found.rows()[1][-1] == "b"
    found = compare(one, Posterior(worse, draws, progress=False), shuffled, names=("a", "b"))
    assert found.rows()[1][-1] == "a"
    assert "Settings that differ" in found.html


def test_numbers_have_a_squared_error():
    draws = MemoryDraws()
    model = nn.Linear(3, 2)
    for step in range(3):
        nn.init.normal_(model.weight, generator=torch.Generator().manual_seed(step))
        draws.append(model, step=step)
    options = {"likelihood": Gaussian(variance=0.5), "progress": False}
    one, other = Posterior(model, draws, **options), Posterior(model, draws[:1], **options)
    inputs = torch.randn(40, 3, generator=torch.Generator().manual_seed(9))
    loader = DataLoader(TensorDataset(inputs, torch.zeros(40, 2)), batch_size=40)
    found = compare(one, other, loader)
    assert list(found.differences) == ["NLL", "squared error"]
    expected = one.predict(inputs).mean.square().mean()
    assert found.differences["squared error"].first == pytest.approx(float(expected), rel=1e-5)


def test_other_targets_are_refused(stores):
    one = posterior_of(stores[0])

    class Changing:
        label = 0

        def __iter__(self):
            self.label = 1 - self.label
            return iter([(torch.randn(50, 3), torch.full((50,), self.label))])

    with pytest.raises(ValueError, match="other targets the second time"):
        compare(one, one, Changing())


SCRIPT = """
from torch import nn
from csgmcmc import Posterior
from tests.report.support import held_out

def made(draws):
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))
    return Posterior(model, draws, progress=False), held_out()

def wrong(draws):
    return None
"""


def test_on_the_command_line(stores, tmp_path):
    def report(*arguments):
        return CliRunner().invoke(app, ["report", *map(str, arguments)])

    script, page = tmp_path / "comparing.py", tmp_path / "page.html"
    script.write_text(SCRIPT)
    result = report(*stores, "--posterior", f"{script}:made", "--out", page)
    assert result.exit_code == 0, result.output
    expected = compare(posterior_of(stores[0]), posterior_of(stores[1]), held_out())
    assert all(row[-2] in page.read_text() for row in expected.rows()[1:])
    assert report(stores[0], "--posterior", f"{script}:made", "--out", page).exit_code == 0
    assert "Is it right?" in page.read_text()
    assert report(*stores, "--out", page).exit_code == 0
    assert "Settings that differ" in page.read_text()
    assert report(*stores, "--posterior", f"{script}:wrong").exit_code == 2
    assert report(*stores, stores[0]).exit_code == 2


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("mine", "FILE.py:FUNCTION"),
        ("missing.py:made", "missing.py"),
        ("mine.py:nothing", "has no function 'nothing'"),
        ("json.py:made", "rename the file"),
    ],
)
def test_a_mistake_in_the_address_of_a_function_is_one_line(
    stores, tmp_path, monkeypatch, address, words
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("mine.py", "json.py"):
        (tmp_path / name).write_text("")
    result = CliRunner().invoke(app, ["report", str(stores[0]), "--posterior", address])
    assert result.exit_code == 2, (result.output, result.exception)
    (line,) = result.stderr.splitlines()
    assert line.startswith("csgmcmc: ")
    assert words in line


def test_an_error_of_the_script_keeps_its_traceback(stores, tmp_path):
    script = tmp_path / "wrong_script.py"
    script.write_text("def made(draws):\n    raise ValueError('of its own')\n")
    arguments = ["report", str(stores[0]), "--posterior", f"{script}:made"]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, ValueError)
    assert str(result.exception) == "of its own"
