"""A run goes on with more cycles, begins anew, or is refused where data, model or loss changed."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, Dataset, TensorDataset

from csgmcmc import SGHMC, Chain, Constant, Cyclical, DrawStore, Joined, MemoryDraws, Ramp, stack
from csgmcmc.errors import SettingsMismatchError
from csgmcmc.loop.examples import read_examples
from csgmcmc.report.store import overview

INPUTS = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
LABELS = (INPUTS[:, 0] > 0).long()


class Net(nn.Module):
    """A network whose activation is a function, not a module."""

    def __init__(self, activation=F.relu) -> None:
        super().__init__()
        self.first, self.last, self.activation = nn.Linear(5, 8), nn.Linear(8, 2), activation

    def forward(self, inputs):
        return self.last(F.dropout(self.activation(self.first(inputs)), 0.1, self.training))


def cyclical(cycles: int, **options) -> Cyclical:
    return Cyclical(30 * cycles, cycles, exploration=0.5, draws_per_cycle=2, **options)


def make_chain(
    path: Path | None,
    schedule=None,
    *,
    data: Dataset | None = None,
    activation=F.relu,
    loss=F.cross_entropy,
    chain_id: int = 0,
    chains: int = 1,
    **options,
) -> Chain:
    torch.manual_seed(1)
    model = Net(activation) if chains == 1 else stack(Net, chains)
    sampler = SGHMC(model.parameters(), lr=0.1, num_data=40, seed=1, chain_id=chain_id)
    loader = DataLoader(data or TensorDataset(INPUTS, LABELS), batch_size=10, shuffle=True)
    draws = MemoryDraws() if path is None else DrawStore(path)
    schedule = schedule or cyclical(2)
    options = {"progress": False, "watch": False, **options}
    return Chain(model, loss, loader, sampler, schedule, draws, **options)


def assert_same_draws(draws, others) -> None:
    for one, other in zip(draws, others, strict=True):
        assert one == other
        tensors = other.tensors()
        assert all(torch.equal(value, tensors[name]) for name, value in one.tensors().items())


def stop_at(step):
    def call(info) -> None:
        if info.tick.step == step:
            raise KeyboardInterrupt

    return call


@pytest.mark.parametrize(
    ("make", "chains"),
    [
        (cyclical, 1),
        (cyclical, 2),
        (lambda cycles: Joined([Ramp(7, start=0.1, end=1.0), cyclical(cycles, burn_in=5)]), 1),
    ],
    ids=["cyclical", "stack", "after a ramp"],
)
def test_an_extended_run_has_the_draws_of_one_planned_longer(tmp_path, make, chains):
    longer = make_chain(tmp_path / "longer", make(4), chains=chains).run()
    run = partial(make_chain, tmp_path / "run", make(2), chains=chains)
    assert len(run().run()) == 4 * chains
    assert len(run().run(extend=1)) == 6 * chains
    with pytest.raises(KeyboardInterrupt):
        run(callbacks=stop_at(100)).run(extend=2)
    assert_same_draws(longer, run().run(extend=2))
    assert_same_draws(longer, run().run(extend=2))  # nothing is left to do
    assert "of 8 draws" in overview(DrawStore(tmp_path / "run"), None, {})
    assert make_chain(tmp_path / "run", make(4), chains=chains).run(resume=True)


def test_a_run_in_memory_is_extended_where_it_is():
    longer = make_chain(None, cyclical(4)).run()
    chain = make_chain(None)
    chain.run()
    assert_same_draws(longer, chain.run(extend=2))
    assert chain.schedule.steps == 120
    with pytest.raises(ValueError, match="resume and extend need checkpoints"):
        make_chain(None).run(extend=2)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Constant(60, draws=4), "a Constant has none"),
        (Cyclical(59, 2, exploration=0.5, draws_per_cycle=2), "the last cycle is shorter"),
        (cyclical(2, weight_decay_scales=(1, 2)), "weight_decay_scales must have one number"),
    ],
)
def test_more_cycles_that_would_change_those_before_are_refused(tmp_path, schedule, words):
    make_chain(tmp_path, schedule).run()
    with pytest.raises(ValueError, match=f"extend=2 is not possible: .*{words}"):
        make_chain(tmp_path, schedule).run(extend=2)
    make_chain(tmp_path, schedule).run(resume=True)


def test_another_number_of_cycles_says_how_to_extend(tmp_path):
    make_chain(tmp_path).run()
    with pytest.raises(SettingsMismatchError, match=r"steps was 60 .*run\(extend=2\)"):
        make_chain(tmp_path, cyclical(4)).run(resume=True)


def test_a_run_that_is_overwritten_is_a_new_one_and_other_chains_stay(tmp_path, capsys):
    other = make_chain(tmp_path / "run", chain_id=1).run()
    make_chain(tmp_path / "run", cyclical(3)).run()
    run = make_chain(tmp_path / "run", activation=F.tanh, progress=True)
    draws = run.run(overwrite=True)
    said = " ".join(capsys.readouterr().err.split())
    assert "chain 0: deleting 6 draws, checkpoints and log" in said
    fresh = make_chain(tmp_path / "fresh", activation=F.tanh).run()
    assert_same_draws(fresh, draws.of_chain(0))
    assert_same_draws(other.of_chain(1), DrawStore(tmp_path / "run").of_chain(1))
    assert not DrawStore(tmp_path / "run").problems
    make_chain(tmp_path / "run", activation=F.tanh).run(resume=True)


def test_the_base_of_draws_is_deleted_with_the_last_chain(tmp_path):
    def chain(value):
        first = nn.Linear(5, 3).requires_grad_(False)
        nn.init.constant_(first.weight, value)
        model = nn.Sequential(first, nn.Linear(3, 2))
        sampler = SGHMC(model[1].parameters(), lr=0.1, num_data=40)
        loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=10)
        draws = DrawStore(tmp_path, only=lambda name: name.startswith("1"))
        return Chain(model, F.cross_entropy, loader, sampler, cyclical(2), draws, progress=False)

    chain(1.0).run()
    draws = chain(2.0).run(overwrite=True)
    assert (draws[0].tensors()["0.weight"] == 2).all()


def test_overwrite_begins_anew_and_nothing_else(tmp_path):
    with pytest.raises(ValueError, match="overwrite begins anew"):
        make_chain(tmp_path).run(resume=True, overwrite=True)
    with pytest.raises(ValueError, match="overwrite needs draws in a DrawStore"):
        make_chain(None).run(overwrite=True)
    chain = make_chain(tmp_path)
    chain.run(overwrite=True)
    with pytest.raises(ValueError, match="a chain that has taken no step"):
        chain.run(overwrite=True)
    assert len(DrawStore(tmp_path)) == 4


class Scaled(Dataset):
    """Examples as dictionaries would have them: computed when they are asked for."""

    def __init__(self, scale: float = 1.0, noise=lambda: 0.0) -> None:
        self.scale, self.noise = scale, noise

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, index: int):
        return INPUTS[index] * self.scale + self.noise(), LABELS[index]


SMOOTH = partial(F.cross_entropy, label_smoothing=0.3)
SMOOTH.__name__ = "cross_entropy"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": TensorDataset(4 * INPUTS, LABELS)}, "the data have changed: an example was"),
        ({"data": Scaled(4)}, "the data have changed: an example was"),
        ({"data": TensorDataset(INPUTS, 1 - LABELS)}, "the data have changed: an example was"),
        ({"data": TensorDataset(INPUTS.flip(1), LABELS)}, "the data have changed: an example was"),
        ({"activation": torch.sigmoid}, "loss of some examples .* was"),
        ({"loss": SMOOTH}, "loss of some examples .* was"),
    ],
    ids=["scale", "own data set", "labels", "columns", "activation", "loss"],
)
@pytest.mark.parametrize("stop", [45, None])
def test_changed_data_model_or_loss_are_refused(tmp_path, changes, words, stop):
    if stop is None:
        make_chain(tmp_path).run()
    else:
        with pytest.raises(KeyboardInterrupt):
            make_chain(tmp_path, callbacks=stop_at(stop)).run()
    with pytest.raises(SettingsMismatchError, match=rf"{words}.*run\(overwrite=True\)"):
        make_chain(tmp_path, **changes).run(resume=True)


@pytest.mark.parametrize("noise", [0.0, 1e-5])
def test_data_that_differ_by_rounding_are_the_same(tmp_path, noise):
    make_chain(tmp_path).run()
    data = TensorDataset(INPUTS * (1 + noise), LABELS)
    assert len(make_chain(tmp_path, data=data).run(resume=True)) == 4


def test_random_examples_are_compared_where_they_are_not_random(tmp_path):
    """With augmentation, from the global generator or another one, labels are compared."""
    augmented = Scaled(noise=lambda: torch.rand(()))
    values = read_examples(DataLoader(augmented)).values
    assert values is not None
    assert values[0] is None
    own = torch.Generator().manual_seed(1)
    hidden = Scaled(noise=lambda: torch.rand((), generator=own))
    found = read_examples(DataLoader(hidden))
    assert found.batch is None
    assert found.values is not None
    assert found.values[2:4] == [None, [LABELS[20], LABELS[20]]]
    make_chain(tmp_path, data=augmented).run()
    make_chain(tmp_path, data=hidden).run(resume=True)
    with pytest.raises(SettingsMismatchError, match="the data have changed"):
        make_chain(tmp_path, data=TensorDataset(INPUTS, 1 - LABELS)).run(resume=True)


def test_what_is_random_in_one_example_is_compared_in_none():
    """Two readings of a random flip are the same in half of the examples."""

    class Flipped(Scaled):
        flips = 0

        def __getitem__(self, index: int):
            self.flips += index == 20
            return INPUTS[index] * (-1) ** self.flips, LABELS[index]

    values = read_examples(DataLoader(Flipped())).values
    assert values is not None
    assert values[::2] == [None] * 3
    assert None not in values[1::2]


def test_reading_examples_draws_nothing_and_opens_nothing_of_workers():
    before = torch.get_rng_state(), torch.Generator().manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    read_examples(DataLoader(Scaled(noise=lambda: torch.rand(5, generator=generator))), [generator])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(generator.get_state(), before[1].get_state())

    class Opening(Scaled):
        def __getitem__(self, index: int):
            raise AssertionError

    assert read_examples(DataLoader(Opening(), num_workers=1)).values is None


def test_checkpoints_that_do_not_hold_examples_resume(tmp_path):
    """Those of earlier versions."""
    whole = make_chain(tmp_path / "whole").run()
    with pytest.raises(KeyboardInterrupt):
        make_chain(tmp_path / "cut", callbacks=stop_at(45)).run()
    for path in (tmp_path / "cut" / "checkpoints").glob("*.pt"):
        state = torch.load(path, weights_only=True)
        del state["loss_of_examples"], state["sources"]["examples"]
        torch.save(state, path)
    assert_same_draws(whole, make_chain(tmp_path / "cut").run(resume=True))


def test_a_state_of_a_loop_of_the_users_own_knows_its_data():
    def stepper(inputs):
        chain = make_chain(None, data=TensorDataset(inputs, LABELS))
        return chain.stepper, chain.data

    state = stepper(INPUTS)[0].state_dict()
    stepper(INPUTS)[0].load_state_dict(state)
    with pytest.raises(SettingsMismatchError, match="the data have changed"):
        stepper(4 * INPUTS)[0].load_state_dict(state)
