import json
import tempfile
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from csgmcmc import SGHMC, Recipe, stack
from csgmcmc.arguments import LARGEST
from csgmcmc.distributed import ProcessLayout
from csgmcmc.recipe import SEEDS
from csgmcmc.tuning import suggest_lr

DATA = TensorDataset(torch.randn(30, 3), torch.zeros(30).long())
LOADER = DataLoader(DATA, batch_size=5)
LOSS = nn.functional.cross_entropy

shares = st.floats(0, 1, exclude_max=True)
sizes = st.floats(0, LARGEST)
counts = st.integers(1, 1000)
OPTIONS = {
    "SGHMC": {"momentum": shares, "gradient_variance": shares},
    "PSGLD": {"alpha": shares, "adapt": st.sampled_from(["always", "cold"])},
    "SGLD": {},
}
recipes = st.sampled_from(sorted(OPTIONS)).flatmap(
    lambda sampler: st.builds(
        Recipe,
        sampler=st.just(sampler),
        lr=st.floats(0, LARGEST, exclude_min=True),
        temperature=sizes,
        weight_decay=sizes,
        sampler_options=st.fixed_dictionaries({}, optional=OPTIONS[sampler]),
        epochs=st.one_of(counts, st.floats(0, LARGEST, exclude_min=True)),
        cycles=counts,
        exploration=shares,
        draws_per_cycle=counts,
        seed=st.one_of(st.none(), st.integers(0, SEEDS - 1)),
    )
)


@given(recipes)
def test_what_was_saved_is_loaded(recipe):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.json"
        recipe.save(path)
        assert Recipe.load(path) == recipe


@given(recipes, st.sets(st.sampled_from(sorted(json.loads(Recipe().to_json())))))
def test_absent_values_are_the_defaults(recipe, names):
    values = json.loads(recipe.to_json())
    if "sampler" in names:
        names = names | {"sampler_options"}  # which are the sampler's
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.json"
        path.write_text(
            json.dumps({name: values[name] for name in names if name != "sampler_options"})
        )
        loaded = Recipe.load(path, defaults=Recipe(lr=0.7))
        for name, value in json.loads(loaded.to_json()).items():
            if name == "sampler_options" or name not in names:
                assert value == json.loads(Recipe(lr=0.7).to_json())[name]
            else:
                assert value == values[name]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no recipe: it must be one JSON object"),
        ('{"beta": 1, "M": 4}', "has M, beta, which no recipe has: choose from sampler, lr"),
        ('{"lr": "0.1"}', "lr must be a number, got '0.1'"),
        ('{"cycles": 2.5}', "cycles must be a whole number, got 2.5"),
        (
            '{"samples_per_cycle": 3, "options": {}}',
            "names of csgmcmc 0.1: options is now sampler_options, samples_per_cycle is now draws_",
        ),
    ],
)
def test_a_file_of_something_else_is_refused(text, words, tmp_path):
    path = tmp_path / "some.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=words) as caught:
        Recipe.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"sampler": "SGD"}, "sampler must be one of 'PSGLD', 'SGHMC', 'SGLD', 'SGNHT', got 'SGD'"),
        ({"lr": 0}, "lr must be above 0, got 0"),
        ({"exploration": 1}, "exploration must be at least 0 and below 1, got 1"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"sampler_options": 3}, "sampler_options must be a dictionary, got 3"),
        (
            {"sampler": "SGLD", "sampler_options": {"momentum": 0.9}},
            "has momentum, which SGLD does not take there: choose from prior",
        ),
        (
            {"sampler_options": {"chain_id": 1}},
            "sampler_options has chain_id, which SGHMC does not take there",
        ),
        (
            {"sampler_options": {"num_data": 5}},
            "sampler_options has num_data, which SGHMC does not take there",
        ),
    ],
)
def test_bad_values_are_refused_by_name(values, words):
    with pytest.raises(ValueError, match=words):
        Recipe(**values)


@pytest.mark.parametrize("name", [each.name for each in fields(Recipe)])
@pytest.mark.parametrize(
    "tensor",
    [torch.eye(2).to_sparse(), torch.zeros(2, device="meta")],
    ids=["sparse", "without data"],
)
def test_tensors_that_are_no_lists_are_refused_by_name(name, tensor):
    with pytest.raises(ValueError, match=f"{name} must be"):
        Recipe(**{name: tensor})


def test_what_is_no_json_is_not_saved(tmp_path):
    recipe = Recipe(sampler_options={"prior": torch.distributions.Normal(0, 1)})
    with pytest.raises(ValueError, match="sampler_options cannot be written as JSON"):
        recipe.save(tmp_path / "recipe.json")
    assert not list(tmp_path.iterdir())


def test_another_sampler_begins_without_options():
    recipe = Recipe(sampler_options={"momentum": 0.5}, lr=0.3)
    assert recipe.replace(lr=0.2).sampler_options == {"momentum": 0.5}
    assert recipe.replace(sampler="SGLD") == Recipe(sampler="SGLD", lr=0.3)
    assert recipe.replace(sampler="PSGLD", sampler_options={"alpha": 0.9}).sampler_options == {
        "alpha": 0.9
    }


@given(st.floats(1, 200), st.integers(1, 20), st.integers(1, 100))
def test_cycles_are_equally_long_and_the_epochs_are_kept(epochs, cycles, epoch):
    recipe = Recipe(epochs=epochs, cycles=cycles, draws_per_cycle=1, exploration=0)
    schedule = recipe.make_schedule(epoch)
    assert schedule.steps == schedule.cycle_length * cycles
    assert schedule.total_draws == cycles
    wanted = epochs * epoch
    assert abs(schedule.steps - wanted) <= max(cycles / 2, cycles - wanted) + 1e-6 * wanted


def test_a_chain_has_the_recipes_values():
    recipe = Recipe(
        lr=0.2, temperature=0.5, weight_decay=0.1, sampler_options={"momentum": 0.7}, epochs=20
    )
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    chain = recipe.make_chain(model, LOSS, LOADER, accumulate=2, clip=1.0, progress=False)
    sampler = chain.sampler
    assert isinstance(sampler, SGHMC)
    (group,) = sampler.param_groups
    for name, value in {
        "initial_lr": 0.2,
        "initial_temperature": 0.5,
        "weight_decay": 0.1,
        "momentum": 0.7,
        "num_data": 30,
    }.items():
        assert group[name] == value
    assert len(group["params"]) == 1
    assert chain.schedule.steps == 20 * 3
    assert chain.clip == 1
    assert len(chain.run()) == 12


def test_chains_are_numbered_by_their_place():
    here = ProcessLayout(chain_id=2, chains=3)
    assert Recipe().make_chain(nn.Linear(3, 2), LOSS, LOADER, layout=here).chain_id == 2
    stacked = stack(lambda: nn.Linear(3, 2), chains=4)
    assert Recipe().make_chain(stacked, LOSS, LOADER, layout=here).chain_id == 8


class Endless(IterableDataset):
    def __iter__(self):
        yield DATA[0]


def test_data_without_a_length_is_refused():
    with pytest.raises(ValueError, match="the length of the loader is not known"):
        Recipe().make_chain(nn.Linear(3, 2), LOSS, DataLoader(Endless()), num_data=30)


def test_without_lr_a_chain_has_that_of_a_range_test():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    before = model.weight.clone()
    chain = Recipe(epochs=20).make_chain(model, LOSS, LOADER, progress=False)
    assert torch.equal(model.weight, before)  # the test had a copy
    lr = chain.sampler.param_groups[0]["initial_lr"]
    assert lr == suggest_lr(model, LOSS, LOADER, recipe=Recipe(), num_data=30).lr
    again = Recipe(epochs=20).make_chain(model, LOSS, LOADER, progress=False)
    assert again.sampler.param_groups[0]["initial_lr"] == lr
    assert chain.run()


def test_a_sampler_alone_needs_an_lr():
    with pytest.raises(ValueError, match="lr is not given, and only make_chain can find one"):
        Recipe().make_sampler([torch.zeros(1)], num_data=10)
    replicas = ProcessLayout(replicas=2)
    with pytest.raises(ValueError, match="lr is not given, and a range test has one process"):
        Recipe().make_chain(nn.Linear(3, 2), LOSS, LOADER, layout=replicas)


def test_generators_of_the_data_are_where_they_were_before_the_chain_runs():
    """N is asked of an example, and the range test runs: neither may change what follows."""
    generator = torch.Generator().manual_seed(3)

    class Noisy(TensorDataset):
        def __getitem__(self, index):
            inputs, label = super().__getitem__(index)
            return inputs + torch.randn(3, generator=generator), label

    before = generator.get_state()
    loader = DataLoader(Noisy(*DATA.tensors), batch_size=5)
    Recipe(epochs=20, cycles=1).make_chain(
        nn.Linear(3, 2), LOSS, loader, generators=[generator], progress=False
    )
    assert torch.equal(generator.get_state(), before)
