import re
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc
from csgmcmc import SGHMC, SGLD, Chain, Constant, Cyclical, Keep, Posterior, Stepper
from csgmcmc.distributed import ProcessLayout
from csgmcmc.errors import DivergedError, SamplingWarning
from csgmcmc.loop.watch import Watch
from tests.support import same_bits
from tests.test_cost import Count

STEPS = 400


def noisy_data(size: int = 400) -> TensorDataset:
    """Labels that the inputs do not tell: gradients that differ from batch to batch."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(size, 6, generator=generator)
    return TensorDataset(inputs, torch.randint(3, (size,), generator=generator))


def make_chain(sampler=SGHMC, *, batch_size=40, lr=0.1, temperature=1.0, num_data=400, **options):
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    loader = DataLoader(noisy_data(), batch_size, shuffle=True)
    kind = sampler(
        model.parameters(),
        lr,
        num_data=num_data,
        temperature=temperature,
        weight_decay=1e-2,
        seed=0,
    )
    schedule = Cyclical(STEPS, cycles=2, exploration=0.5, draws_per_cycle=4)
    return Chain(model, cross_entropy, loader, kind, schedule, progress=False, **options)


def warned(chain: Chain) -> list[str]:
    """What a run warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chain.run()
    assert all(each.category is SamplingWarning for each in caught)
    return [str(each.message) for each in caught]


# The noise


def test_a_check_in_a_callback_leaves_the_chains_generators_alone():
    def last_weight(checks: bool) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)

        class Jittered(torch.utils.data.Dataset):
            def __len__(self):
                return 400

            def __getitem__(self, index):
                inputs, target = noisy_data()[index]
                return inputs + torch.randn(6, generator=generator), target

        def look(info):
            if checks and info.tick.step == STEPS - 2:
                run = {"run": chain.stepper, "loss": chain.loss, "data": chain.data}
                held_out = DataLoader(noisy_data(), 100)
                Posterior(chain.model, chain.draws).check(held_out, **run)

        torch.manual_seed(0)
        model = nn.Linear(6, 3)
        loader = DataLoader(Jittered(), 40)
        sampler = SGLD(model.parameters(), 0.1, num_data=400, seed=0)
        schedule = Constant(STEPS, draws=4)
        options = {"generators": [generator], "callbacks": look, "watch": False}
        chain = Chain(model, cross_entropy, loader, sampler, schedule, progress=False, **options)
        chain.run()
        return model.weight.detach()

    assert torch.equal(last_weight(checks=True), last_weight(checks=False))


def test_the_warning_is_of_the_line_that_runs_the_chain():
    chain = make_chain(num_data=40)
    with pytest.warns(SamplingWarning) as caught:
        chain.run()
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampler": SGLD},
        {"temperature": 0.0},
        {"temperature": 1e-5},
        {"num_data": 40, "watch": False},
        {"accumulate": 2},
        {"clip": 1e-3},
    ],
)
def test_runs_that_are_as_asked_for_are_silent(options):
    assert warned(make_chain(**options)) == []


class StandardGaussian(nn.Module):
    """A density that begins at its mode."""

    def __init__(self):
        super().__init__()
        self.points = nn.Parameter(torch.zeros(1, 2))

    def forward(self):
        return self.points.square().sum() / 2


def test_plain_optimizers_and_densities_are_silent():
    model = nn.Linear(6, 3)
    loader = DataLoader(noisy_data(), 10)
    schedule = Constant(60, keep=Keep(every=10))
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    assert warned(Chain(model, cross_entropy, loader, sgd, schedule, progress=False)) == []
    density = StandardGaussian()
    cold = SGLD(density.parameters(), 0.1, num_data=1, temperature=1e-6)
    assert warned(Chain(density, None, None, cold, schedule, progress=False)) == []


# The batches


def chain_of(loader, **options) -> Chain:
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    size = len(loader.dataset)
    sampler = SGHMC(model.parameters(), 0.1, num_data=size, seed=0)
    schedule = Constant(60, draws=1)
    return Chain(model, cross_entropy, loader, sampler, schedule, progress=False, **options)


def in_order():
    inputs, labels = noisy_data().tensors
    order = labels.argsort()
    return TensorDataset(inputs[order], labels[order])


def test_sorted_data_without_shuffling_are_warned_of():
    (words,) = warned(chain_of(DataLoader(in_order(), 40)))
    assert "shuffle=True" in words
    silent = (
        DataLoader(in_order(), 40, shuffle=True),
        DataLoader(noisy_data(), 40),  # in an order that does not matter
        DataLoader(in_order(), 400),  # there are no minibatches
    )
    for loader in silent:
        assert warned(chain_of(loader)) == []


def test_nan_in_a_batch_is_warned_of_before_the_chain_diverges():
    inputs, labels = noisy_data().tensors
    inputs[7, 2] = torch.nan
    chain = chain_of(DataLoader(TensorDataset(inputs, labels), 40))
    with pytest.warns(SamplingWarning, match="nan"), pytest.raises(DivergedError) as error:
        chain.run()
    assert "a batch of the data holds nan" in error.value.__notes__[0]
    assert any("nan" in words for words in chain.stepper.problems)


def test_a_replica_that_does_not_write_is_silent():
    """Of the replicas of a chain, one speaks."""
    assert warned(make_chain(num_data=40, layout=ProcessLayout(replica_id=1))) == []


def test_watching_changes_no_bit_and_costs_the_same_for_a_longer_run():
    added = []
    for steps in (120, 240):
        found = []
        for watch in (True, False):
            chain = make_chain(watch=watch, clip=1e3)
            chain.stepper.schedule = Constant(steps, draws=1)
            with Count() as count:
                chain.run()
            found.append((chain, count.total, torch.get_rng_state()))
        (watched, dear, state), (plain, cheap, same_state) = found
        assert same_bits(watched.model, plain.model)
        assert str(watched.sampler.state_dict()) == str(plain.sampler.state_dict())
        assert torch.equal(state, same_state)
        assert all(map(torch.equal, gradients(watched), gradients(plain)))
        added.append(dear - cheap)
    assert 0 < added[0] == added[1] < 500


def gradients(chain: Chain) -> list[torch.Tensor]:
    return [param.grad for param in chain.model.parameters() if param.grad is not None]


# The loss


def regression(lr: float) -> Chain:
    """A quadratic: the curvature of the mean loss is 2, so that lr is stable below 1."""
    inputs = torch.tensor([[1.0], [-1.0]])
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    sampler = SGLD(model.parameters(), lr, num_data=2, temperature=0.0)
    schedule = Constant(1000, draws=1)
    return Chain(model, mse_loss, [(inputs, inputs)], sampler, schedule, progress=False)


def test_an_unstable_lr_is_warned_of_before_the_chain_diverges():
    unstable = "lr is too high, and the chain may diverge"
    with (
        pytest.warns(SamplingWarning, match=unstable) as caught,
        pytest.raises(DivergedError) as diverged,
    ):
        regression(lr=1.1).run()
    (said,) = re.findall(r"at step (\d+)", str(caught[0].message))
    assert len(caught) == 1
    assert int(said) < diverged.value.tick.step / 2


def test_a_stable_lr_is_silent():
    assert warned(regression(lr=0.99)) == []


def losses_as_given(losses: list[float], cycles: int, **options) -> Chain:
    """A chain whose loss is what the data say."""
    model = nn.Linear(1, 1)
    sampler = SGLD(model.parameters(), 0.1, num_data=1000, temperature=0.0)
    schedule = Cyclical(len(losses), cycles, exploration=0.5, draws_per_cycle=1)

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return batch + 0 * model.weight.sum()  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]

    batches = [torch.tensor(each) for each in losses]
    return Chain(model, loss, batches, sampler, schedule, progress=False, **options)


def test_a_high_loss_is_warned_of_at_the_end_of_a_cycle_and_not_in_its_middle():
    middle = [1.0] + 60 * [2.8] + 60 * [0.5]
    assert warned(losses_as_given(middle, cycles=1)) == []
    (words,) = warned(losses_as_given(middle[:61], cycles=1))
    assert "the loss is 2.8 at the end of cycle 1, and was 1 at the first step" in words
    (words,) = warned(losses_as_given([1.0] + 59 * [2.8] + 60 * [0.5], cycles=2))
    assert "at the end of cycle 1" in words


def test_one_bad_batch_is_not_warned_of():
    assert warned(losses_as_given([2.3, 2.0, 40.0, *50 * [1.0]], cycles=1)) == []


def test_a_jump_is_warned_of_if_the_cycle_ends_before_the_loss_recovers():
    """At a restart the large lr may undo what was learned, which is what it is for."""
    jump = [*20 * [2.3], *30 * [0.1], 9.0, 40.0, 90.0, 20.0, 8.0]
    assert warned(losses_as_given([*jump, *15 * [1.9], *30 * [0.1]], cycles=1)) == []
    (words,) = warned(losses_as_given([*jump, *45 * [1.9]], cycles=1))
    assert "the loss jumped to 20 and is 1.9 at the end of cycle 1, and was 2.3 at the" in words


def test_an_easy_first_batch_causes_no_warning():
    """Of losses that differ much from one batch to the next, as those of single data points do."""
    losses = (50 * torch.randn(600, generator=torch.Generator().manual_seed(0)) ** 2).tolist()
    assert warned(losses_as_given([0.1, *losses], cycles=1)) == []
    (words,) = warned(losses_as_given([0.1, *losses, *[50 * each for each in losses]], cycles=1))
    assert "and was 0.1 at the first step" in words


def test_a_resumed_run_is_compared_with_its_first_step(tmp_path):
    """Not with that at which it resumed: there the loss is lower, and it rises in each cycle."""

    def chain(**options) -> Chain:
        losses = [6.9, *49 * [1.0], *50 * [3.5], *20 * [1.0]]
        store = csgmcmc.DrawStore(tmp_path)
        return losses_as_given(losses, 1, draws=store, checkpoint_every=40, **options)

    def stop(moment) -> None:
        if moment.tick.step == 45:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chain(callbacks=stop).run()
    resumed = chain()
    with warnings.catch_warnings(action="error"):
        resumed.run(resume=True)
    saved = torch.load(tmp_path / "checkpoints" / "0000.pt", weights_only=True)
    assert saved["watch"] == {"start_loss": pytest.approx(6.9)}


def test_losses_below_zero_are_compared_too():
    """A density of the data may be above 1."""
    assert warned(losses_as_given([-5.0] + 60 * [-1.0], cycles=1)) == []
    (words,) = warned(losses_as_given([-5.0] + 60 * [9.0], cycles=1))
    assert "and was -5 at the first step" in words


# Loops written by hand


def stepper_of(losses: list[float], chain_id: int = 0) -> Stepper:
    """A stepper that takes no step: the losses are given to the watch one by one."""
    model = nn.Linear(1, 1)
    sampler = SGLD(model.parameters(), 0.1, num_data=1000, temperature=0.0, chain_id=chain_id)
    return Stepper(model, sampler, Constant(len(losses), draws=1))


def watch_losses(watch: Watch, stepper: Stepper, losses: list[float], first: int = 0) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step, loss in enumerate(losses, start=first):
            watch.look(stepper.schedule(step), loss)
    assert all(each.filename == __file__ for each in caught)
    return [str(each.message) for each in caught]


def test_watch_a_hand_written_loop():
    losses = [1.0] + 60 * [9.0]
    stepper = stepper_of(losses, chain_id=3)
    (words,) = watch_losses(Watch(stepper, []), stepper, losses)
    assert words.startswith("chain 3: the loss is 9 at step 2")


def test_the_state_of_a_watch_is_the_loss_of_the_first_step():
    losses = [6.9, *30 * [1.0], *30 * [3.5]]
    stepper = stepper_of(losses)
    first = Watch(stepper, [])
    assert first.start is None
    assert watch_losses(first, stepper, losses[:31]) == []
    assert first.start == 6.9
    resumed = Watch(stepper, [])
    resumed.start = first.start
    assert watch_losses(resumed, stepper, losses[31:], first=31) == []
    forgetful = Watch(stepper, [])
    assert watch_losses(forgetful, stepper, [1.0, *losses[32:]], first=31)


def loop(steps=30, *, zero=True, double=False, in_place=False, passes=1, num_data=400, lr=0.1):
    """A loop of one's own, and what it warns of."""
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    sampler = SGHMC(model.parameters(), lr, num_data=num_data, seed=0)
    stepper = Stepper(model, sampler, Constant(steps, draws=1))
    loader = DataLoader(noisy_data(), 40, shuffle=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x, y in stepper.batches(loader):
            if zero:
                sampler.zero_grad(set_to_none=not in_place)
            loss = torch.zeros(())
            for _ in range(passes):
                loss = cross_entropy(model(x), y)
                (loss / passes).backward()
            if double:
                sampler.step()
            stepper.step(loss)
    said = [str(each.message) for each in caught]
    assert len(stepper.problems) == len(said)
    return said


def test_loops_that_are_right_are_silent():
    assert loop() == loop(in_place=True) == loop(passes=3) == loop(passes=2, in_place=True) == []


def test_forgotten_zero_grad_is_noticed():
    assert "zero_grad()" in loop(zero=False)[0]


def test_a_step_besides_the_steppers_is_noticed():
    (words,) = loop(double=True)
    assert "stepper.step()" in words


def test_a_stepper_compares_num_data_and_the_loss():
    (words,) = loop(num_data=40)
    assert "make the sampler with num_data=400" in words
    assert any("lr" in words for words in loop(steps=100, lr=30.0))


def test_batches_are_looked_at_before_they_are_moved(monkeypatch):
    """On a GPU looking at a moved batch would wait, and some devices have no double precision."""
    seen: list[Any] = []
    monkeypatch.setattr(Watch, "look_at_batch", lambda _, batch: seen.append(batch))
    model, batches = nn.Linear(2, 2), [(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))]
    sampler, schedule = SGLD(model.parameters(), 0.1, num_data=4), Constant(3, draws=1)
    Chain(model, cross_entropy, batches, sampler, schedule, device="cpu", progress=False).run()
    assert [batch is batches[0] for batch in seen] == [True] * 3
