import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from csgmcmc import Recipe, Task, stack
from csgmcmc.randomness import seeded
from csgmcmc.task import as_task, check_pairs, load_function, make_task, with_own_start

LOSS = nn.functional.cross_entropy
DATA = TensorDataset(torch.randn(30, 3), torch.zeros(30).long())


def make():
    """Everything that can be random is."""
    train, held_out = random_split(DATA, [20, 10])
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    return model, LOSS, DataLoader(train, batch_size=5), DataLoader(held_out)


def weights(task):
    return nn.utils.parameters_to_vector(task.model.parameters())


def test_a_task_comes_in_three_forms():
    parts = make()
    for form in (parts, Task(*parts), dict(zip(("model", "loss", "data"), parts, strict=False))):
        task = as_task(form)
        assert (task.model, task.loss, task.data) == parts[:3]
        assert task.recipe == Recipe()
    assert as_task(parts).validation is parts[3]
    assert as_task(parts[:3]).validation is None


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, "must return .*; it returned NoneType"),
        ((1, 2), "it returned a tuple of 2"),
        ({"model": nn.Linear(1, 1), "los": LOSS}, "los is not part of a task: choose from model, "),
        ({"model": nn.Linear(1, 1)}, "the task has no loss, data"),
        ((3, LOSS, []), "model must be a torch.nn.Module, got int"),
        ((stack(lambda: nn.Linear(1, 1), 2), LOSS, []), "single network, not a stack"),
        ((nn.Linear(1, 1), 3, []), "loss must be a function, got "),
        ((nn.Linear(1, 1), LOSS, iter([])), "data must be a loader with a length"),
        ((nn.Linear(1, 1), LOSS, [], 3), "validation must be a loader or None, got int"),
    ],
)
def test_what_is_no_task_is_refused(found, words):
    with pytest.raises(ValueError, match=words):
        as_task(found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"likelihood": "gauss"}, "likelihood must be one of 'categorical'"),
        ({"recipe": {"lr": 1}}, "recipe must be a csgmcmc.Recipe, got dict"),
        (
            {"chain_options": {"clipp": 1}},
            "arguments of Chain, .* choose from device, accumulate, clip",
        ),
        ({"chain_options": {"layout": None}}, "arguments of Chain"),
    ],
)
def test_parts_of_a_task_are_checked_before_it_runs(options, words):
    with pytest.raises(ValueError, match=words):
        Task(nn.Linear(1, 1), LOSS, [], **options)


def test_a_task_depends_on_the_seed_alone():
    first, again, other = make_task(make, 3), make_task(make, 3), make_task(make, 4)
    assert torch.equal(weights(first), weights(again))
    assert first.data.dataset.indices == again.data.dataset.indices
    assert not torch.equal(weights(first), weights(other))


def drawn():
    return torch.rand(1), random.random(), np.random.rand()  # noqa: NPY002, S311


def test_seeds_leave_the_generators_as_they_were():
    with seeded(1):
        expected = drawn(), drawn()
    with seeded(1):
        first = drawn()
        with seeded(7):
            inside = drawn()
        assert (first, drawn()) == expected
    with seeded(7):
        assert drawn() == inside != first


def test_chains_have_the_same_data_and_starts_of_their_own():
    first = make_task(make, 3)
    second = with_own_start(first, make, 3, chain_id=1)
    assert with_own_start(first, make, 3, chain_id=0) is first
    assert second.data is first.data
    assert second.validation is first.validation
    ours, theirs = first.model.state_dict(), second.model.state_dict()
    assert torch.equal(ours["0.weight"], theirs["0.weight"])  # which is frozen
    assert not torch.equal(ours["1.weight"], theirs["1.weight"])
    again = with_own_start(make_task(make, 3), make, 3, chain_id=1)
    assert torch.equal(weights(second), weights(again))
    # Another seed is another run, all through: its first chain is none of this one's.
    assert not torch.equal(weights(make_task(make, 4)), weights(second))


def test_a_model_that_is_not_made_anew_is_refused():
    model, loss, data, _ = make()
    first = make_task(lambda: (model, loss, data), 0)
    with pytest.raises(ValueError, match="the same weights when it was called again"):
        with_own_start(first, lambda: (model, loss, data), 0, chain_id=1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    names = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - names:
        del sys.modules[name]


def test_functions_are_found_by_module_and_by_file(folder):
    (folder / "deep").mkdir()
    (folder / "deep" / "helper.py").write_text("answer = 42")
    text = "import {}helper\ndef make():\n    return {}helper.answer"
    (folder / "deep" / "my-script.py").write_text(text.format("", ""))
    (folder / "deep" / "inside.py").write_text(text.format("deep.", "deep."))
    assert load_function("deep.inside:make")() == 42
    assert load_function("deep/my-script.py:make")() == 42
    assert load_function(f"{folder}/deep/my-script.py:make")() == 42


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("script", "'script' must be MODULE:FUNCTION, for example my_module:make_run"),
        (":make", "must be MODULE:FUNCTION"),
        ("script:", "must be MODULE:FUNCTION"),
        ("nothing:make", "there is no module 'nothing' in this folder"),
        ("nothing.deep:make", r"there is no module 'nothing\.deep' in this folder"),
        (".script:make", "there is no module"),
        ("nothing.py:make", "there is no file nothing.py"),
        ("script:nothing", "script has no function 'nothing'"),
        ("script:number", "script has no function 'number'"),
        ("script:wants", "script:wants must take no arguments, but requires one, two"),
        ("random.py:make", "random.py has the name of another module, random"),
    ],
)
def test_what_is_not_there_is_said(folder, address, words):
    lines = ["number = 3", "def wants(one, *, two, three=3): ...", "def make(): ..."]
    (folder / "script.py").write_text("\n".join(lines))
    (folder / "random.py").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=words):
        load_function(address)


def test_what_a_script_misses_is_its_own_error(folder):
    (folder / "script.py").write_text("import not_installed")
    with pytest.raises(ModuleNotFoundError, match="not_installed"):
        load_function("script:make")


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([], "validation is empty"),
        ([torch.zeros(3)], "pairs of inputs and targets"),
        ([(torch.zeros(3), [1, 2, 3])], "pairs of inputs and targets"),
        ([(torch.zeros(3, 2), torch.zeros(3))], "targets are not integers"),
    ],
)
def test_data_that_cannot_be_scored_are_refused(batches, words):
    with pytest.raises(ValueError, match=words):
        check_pairs(batches, "categorical")


def test_what_a_script_draws_while_it_is_imported_is_the_same_in_every_process(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    Path("drawn_script.py").write_text(
        "import torch\nrows = torch.randperm(100).tolist()\ndef make(): ...\n"
    )
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        load_function("drawn_script:make")
        assert torch.equal(torch.get_rng_state(), state)
        found.append(sys.modules.pop("drawn_script").rows)
    assert found[0] == found[1]
