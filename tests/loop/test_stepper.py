"""The stepper in a hand-written loop: what it keeps, how it resumes, and what it rejects."""

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import (
    SGHMC,
    Chain,
    Constant,
    Cyclical,
    DrawStore,
    Keep,
    MemoryDraws,
    Schedule,
    Stepper,
    stack,
)
from csgmcmc.distributed import ProcessLayout
from csgmcmc.errors import (
    DivergedError,
    DrawConflictError,
    LockedError,
    SettingsMismatchError,
)
from csgmcmc.files import is_locked

LOSS = nn.functional.cross_entropy
SCHEDULE = Cyclical(24, cycles=2, exploration=0.5, draws_per_cycle=3)
EVERY_STEP = Constant(4, keep=Keep(every=1))
LOCK = "chains/0000.lock"


def make_loader() -> DataLoader:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(30, 4, generator=generator)
    return DataLoader(TensorDataset(inputs, (inputs[:, 0] > 0).long()), 8, shuffle=True)


def make_parts(seed=3, **options):
    """A network with dropout and a sampler of it, the same every time."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.2), nn.Linear(6, 2))
    return model, SGHMC(model.parameters(), lr=0.1, num_data=30, seed=seed, **options)


def make_stepper(
    draws: Any = None,
    schedule: Schedule = SCHEDULE,
    sampler_options: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    model, sampler = make_parts(**(sampler_options or {}))
    return Stepper(model, sampler, schedule, draws, **options)


def loop(stepper: Stepper, loader, stop_at: int | None = None):
    """The hand-written loop of the README; the state after `stop_at` steps, if it gets there."""
    for inputs, targets in stepper.batches(loader):
        stepper.sampler.zero_grad()
        loss = LOSS(stepper.model(inputs), targets)
        loss.backward()
        stepper.step(loss)
        if stepper.taken == stop_at:
            return stepper.state_dict()
    return None


def finish_with(stepper: Stepper) -> None:
    """All steps that are left, with gradients of zero."""
    while not stepper.done:
        for param in stepper.trained:
            param.grad = torch.zeros_like(param)
        stepper.step()


def same_draws(first, second) -> bool:
    assert [(draw.chain_id, draw.step) for draw in first] == [
        (draw.chain_id, draw.step) for draw in second
    ]
    return all(
        torch.equal(tensor, other.tensors()[name])
        for one, other in zip(first, second, strict=True)
        for name, tensor in one.tensors().items()
    )


def test_a_hand_written_loop_draws_what_a_chain_draws():
    by_hand, by_chain = make_stepper(), make_parts()
    loop(by_hand, make_loader())
    model, sampler = by_chain
    torch.manual_seed(5)  # the model was made with it, and the loop starts from the same state
    make_parts()
    draws = Chain(model, LOSS, make_loader(), sampler, SCHEDULE, progress=False).run()
    assert len(draws) == 6
    assert same_draws(by_hand.draws, draws)


@pytest.mark.parametrize("stop_at", [1, 7, 12, 23])
def test_a_hand_written_loop_resumes_bit_for_bit(tmp_path, stop_at):
    whole = make_stepper()
    loop(whole, make_loader())
    store = DrawStore(tmp_path / "store")
    torch.save(loop(make_stepper(store), make_loader(), stop_at), tmp_path / "checkpoint.pt")
    torch.rand(3)  # a resumed process is somewhere else
    resumed = make_stepper(DrawStore(tmp_path / "store"))
    resumed.load_state_dict(torch.load(tmp_path / "checkpoint.pt", weights_only=True))
    assert resumed.taken == stop_at
    loop(resumed, make_loader())
    assert same_draws(whole.draws, resumed.draws)


def test_a_loop_with_batches_of_its_own_resumes_bit_for_bit():
    inputs, targets = make_loader().dataset[:]

    def run(stepper, steps):
        for _ in range(steps):
            batch = torch.randint(30, (8,))  # from the global generator, whose state is saved
            stepper.sampler.zero_grad()
            LOSS(stepper.model(inputs[batch]), targets[batch]).backward()
            stepper.step()

    whole, first = make_stepper(), make_stepper()
    run(first, 9)
    state = first.state_dict()
    whole = make_stepper()
    run(whole, 24)
    resumed = make_stepper(first.draws)
    resumed.load_state_dict(state)
    run(resumed, 15)
    assert same_draws(whole.draws, resumed.draws)


def test_a_failed_start_does_not_forget_the_position_in_the_data():
    state = loop(first := make_stepper(), make_loader(), stop_at=9)
    whole = make_stepper()
    loop(whole, make_loader())
    resumed = make_stepper(first.draws)
    resumed.load_state_dict(state)
    with pytest.raises(SettingsMismatchError):
        next(resumed.batches([0, 1]))
    loop(resumed, make_loader())
    assert same_draws(whole.draws, resumed.draws)


def test_a_state_saved_before_the_first_batch_of_a_resumed_loop_is_whole():
    state = loop(first := make_stepper(), make_loader(), stop_at=9)
    whole = make_stepper()
    loop(whole, make_loader())
    between = make_stepper()
    between.load_state_dict(state)
    resumed = make_stepper(first.draws)
    resumed.load_state_dict(between.state_dict())
    loop(resumed, make_loader())
    assert same_draws(whole.draws, resumed.draws)


def test_a_state_of_the_start_resumes_a_chain_that_has_draws(tmp_path):
    stepper = make_stepper(DrawStore(tmp_path))
    start = copy.deepcopy(stepper.state_dict())
    loop(stepper, make_loader())
    again = make_stepper(DrawStore(tmp_path))
    again.load_state_dict(start)
    loop(again, make_loader())  # the same draws again change nothing
    assert len(again.draws) == 6


def test_a_loop_that_is_left_and_entered_again_goes_through_all_data():
    inputs = torch.arange(32.0)[:, None].expand(32, 4)
    loader = DataLoader(TensorDataset(inputs, torch.zeros(32).long()), 8)
    stepper, seen = make_stepper(), []
    while not stepper.done:
        for number, (batch, _) in enumerate(stepper.batches(loader)):
            seen += batch[:, 0].tolist()
            for param in stepper.trained:
                param.grad = torch.zeros_like(param)
            stepper.step()
            if number == 1:
                break
    assert set(seen) == set(range(32))


def test_a_draw_whose_keeping_was_interrupted_is_kept_at_the_next_step(tmp_path, monkeypatch):
    store = DrawStore(tmp_path)
    stepper = make_stepper(store, EVERY_STEP)
    with monkeypatch.context() as patch:
        patch.setattr(store, "append", interrupt)
        with pytest.raises(KeyboardInterrupt):
            finish_with(stepper)
    finish_with(stepper)
    assert [draw.step for draw in store] == [0, 1, 2, 3]


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_a_stepper_that_ends_leaves_the_locks_of_others(tmp_path):
    store = DrawStore(tmp_path)
    store.lock_chain(1)
    finish_with(make_stepper(store, EVERY_STEP))
    assert not is_locked(tmp_path / LOCK)
    assert is_locked(tmp_path / "chains/0001.lock")
    store.close()


def test_step_sets_lr_and_temperature_and_returns_the_tick():
    stepper = make_stepper()
    seen = []
    while not stepper.done:
        for param in stepper.trained:
            param.grad = torch.zeros_like(param)
        tick = stepper.step()
        group = stepper.sampler.param_groups[0]
        assert group["lr"] == 0.1 * tick.lr_scale
        assert group["temperature"] == tick.temperature_scale
        seen.append(tick)
    assert seen == [SCHEDULE(step) for step in range(24)]
    with pytest.raises(ValueError, match="all 24 steps of the schedule have been taken"):
        stepper.step()


@pytest.mark.parametrize("attached", ["before", "after"])
def test_a_torch_scheduler_is_refused(attached):
    """The schedule sets lr, so that it would have no effect."""
    model, sampler = make_parts()
    if attached == "before":
        torch.optim.lr_scheduler.CosineAnnealingLR(sampler, 10)
    stepper = Stepper(model, sampler, SCHEDULE)
    if attached == "after":
        torch.optim.lr_scheduler.CosineAnnealingLR(sampler, 10)
    LOSS(model(torch.ones(2, 4)), torch.tensor([0, 1])).backward()
    with pytest.raises(ValueError, match="sampler has a torch LRScheduler"):
        stepper.step()


def test_a_schedule_with_a_misspelt_stage_is_refused(monkeypatch):
    model = nn.Linear(2, 1)
    sampler = SGHMC(model.parameters(), 0.1, num_data=1)
    misspelt = replace(Constant(9)(3), stage="sampling")  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(Constant, "__call__", lambda *_: misspelt)
    with pytest.raises(ValueError, match=r"stage of a tick of schedule must be one of .*sampling"):
        Stepper(model, sampler, Constant(9))


def test_another_schedule_sampler_or_model_is_not_resumed():
    state = make_stepper().state_dict()
    with pytest.raises(SettingsMismatchError, match=r"schedule\.kind was Cyclical"):
        make_stepper(schedule=EVERY_STEP).load_state_dict(state)
    with pytest.raises(SettingsMismatchError, match=r"momentum was 0\.9 .* is 0\.5 now"):
        make_stepper(sampler_options={"momentum": 0.5}).load_state_dict(state)
    model = nn.Linear(4, 2)
    sampler = SGHMC(model.parameters(), lr=0.1, num_data=30)
    with pytest.raises(SettingsMismatchError):
        Stepper(model, sampler, SCHEDULE).load_state_dict(state)


def test_other_data_or_generators_are_not_resumed():
    state = loop(make_stepper(), make_loader(), stop_at=3)
    assert state is not None
    resumed = make_stepper()
    resumed.load_state_dict(state)
    with pytest.raises(SettingsMismatchError, match=r"data.loader was DataLoader .* is list now"):
        next(resumed.batches([0, 1, 2]))
    resumed = make_stepper(generators=[torch.Generator()])
    resumed.load_state_dict(state)
    with pytest.raises(SettingsMismatchError, match=r"generators was 0 .* is 1 now"):
        next(resumed.batches(make_loader()))


def test_a_loss_that_is_not_finite_moves_nothing():
    stepper = make_stepper()
    before = [param.clone() for param in stepper.trained]
    for param in stepper.trained:
        param.grad = torch.ones_like(param)
    with pytest.raises(DivergedError, match="the loss is not finite at step 0") as caught:
        stepper.step(torch.tensor(math.nan))
    assert "clip" in str(caught.value)
    assert all(map(torch.equal, before, stepper.trained))
    assert stepper.taken == 0


def test_a_loss_whose_sum_overflows_is_finite():
    model = stack(lambda: nn.Linear(2, 2), chains=2)
    stepper = Stepper(model, SGHMC(model.parameters(), lr=0.1, num_data=30), EVERY_STEP)
    stepper.check_loss(torch.tensor([3e38, 3e38]), EVERY_STEP(0))


def test_the_generators_of_a_loader_are_saved_once():
    generator = torch.Generator()
    loader = DataLoader(TensorDataset(torch.zeros(4, 4)), shuffle=True, generator=generator)
    stepper = make_stepper()
    for _ in range(2):
        next(stepper.batches(loader))
    assert stepper.sources.generators == [generator]


def test_a_loss_summed_over_the_chains_of_a_stack_names_them_all():
    model = stack(lambda: nn.Linear(2, 2), chains=2)
    stepper = Stepper(model, SGHMC(model.parameters(), lr=0.1, num_data=30), EVERY_STEP)
    with pytest.raises(DivergedError) as caught:
        stepper.step(torch.tensor(math.nan))
    assert caught.value.chain_ids == [0, 1]


def test_weights_that_are_unfrozen_later_are_checked():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    first.requires_grad_(False)
    model = nn.Sequential(first, second)
    stepper = Stepper(model, SGHMC(model.parameters(), lr=0.1, num_data=3), EVERY_STEP)
    first.requires_grad_()
    with torch.no_grad():
        first.weight.fill_(math.nan)
    with pytest.raises(DivergedError, match="a weight is not finite"):
        finish_with(stepper)
    assert not len(stepper.draws)


def test_weights_that_are_not_finite_are_found_between_draws():
    stepper = make_stepper(schedule=Constant(1000, keep=Keep(every=1000)))
    with torch.no_grad():
        stepper.trained[0].fill_(math.inf)
    with pytest.raises(DivergedError, match="a weight is not finite at step 9"):
        finish_with(stepper)
    assert not len(stepper.draws)


def give_gradients(stepper: Stepper) -> None:
    for param in stepper.trained:
        param.grad = torch.zeros_like(param)


class Normalised(nn.Sequential):
    """Batch normalisation whose running statistics do not matter in training, and a mask."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.register_buffer("mask", torch.tensor([0.0, -math.inf]))
        self.register_buffer("eighths", torch.ones(2).to(torch.float8_e4m3fn))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_buffer_that_is_not_finite_is_not_kept(value):
    model = Normalised()
    sampler = SGHMC(model.parameters(), lr=0.1, num_data=3)
    stepper = Stepper(model, sampler, EVERY_STEP)
    model(torch.randn(4, 2)).sum().backward()
    stepper.step(torch.tensor(0.1))
    assert len(stepper.draws) == 1  # with the mask
    model[1].running_var.fill_(value)  # pyright: ignore[reportCallIssue]
    with pytest.raises(DivergedError, match=r"the buffer 1\.running_var is not finite at step 1"):
        stepper.step(torch.tensor(0.1))
    assert len(stepper.draws) == 1


def test_a_mask_that_becomes_nan_is_not_kept():
    model = Normalised()
    stepper = Stepper(model, SGHMC(model.parameters(), lr=0.1, num_data=3), EVERY_STEP)
    give_gradients(stepper)
    model.mask.fill_(math.nan)  # pyright: ignore[reportCallIssue]
    with pytest.raises(DivergedError, match="the buffer mask is not finite at step 0"):
        stepper.step(torch.tensor(0.1))


def test_the_chains_of_a_stack_whose_buffers_diverged_are_named():
    model = stack(lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), chains=3)
    stepper = Stepper(model, SGHMC(model.parameters(), lr=0.1, num_data=30), EVERY_STEP)
    give_gradients(stepper)
    model.inner[1].running_mean[2] = math.nan  # pyright: ignore[reportIndexIssue]
    with pytest.raises(DivergedError, match="running_mean") as caught:
        stepper.step(torch.tensor([0.1, 0.1, 0.1]))
    assert caught.value.chain_ids == [2]


def test_the_diverged_chains_of_a_stack_are_named():
    model = stack(lambda: nn.Linear(2, 2), chains=3)
    sampler = SGHMC(model.parameters(), lr=0.1, num_data=30)
    stepper = Stepper(model, sampler, EVERY_STEP)
    with pytest.raises(DivergedError) as caught:
        stepper.step(torch.tensor([0.1, math.nan, math.inf]))
    assert caught.value.chain_ids == [1, 2]
    with torch.no_grad():
        stepper.trained[0][1] = math.nan
    with pytest.raises(DivergedError) as caught:
        finish_with(stepper)
    assert caught.value.chain_ids == [1]


def test_a_chain_that_has_begun_needs_its_checkpoint(tmp_path):
    finish_with(make_stepper(DrawStore(tmp_path)))
    again = make_stepper(DrawStore(tmp_path))
    with pytest.raises(ValueError, match=r"has draws already in .*: load a checkpoint"):
        again.step()
    assert not is_locked(tmp_path / LOCK)
    finish_with(make_stepper(DrawStore(tmp_path), sampler_options={"chain_id": 1}))


def test_the_lock_is_held_until_the_end(tmp_path):
    stepper = make_stepper(DrawStore(tmp_path), EVERY_STEP)
    for param in stepper.trained:
        param.grad = torch.zeros_like(param)
    stepper.step()
    assert is_locked(tmp_path / LOCK)
    with pytest.raises(LockedError):
        make_stepper(DrawStore(tmp_path), EVERY_STEP).step()
    finish_with(stepper)
    assert not is_locked(tmp_path / LOCK)


def test_the_lock_is_released_when_the_loop_fails(tmp_path):
    stepper = make_stepper(DrawStore(tmp_path))
    batches = stepper.batches(make_loader())
    next(batches)
    for param in stepper.trained:
        param.grad = torch.zeros_like(param)
    stepper.step()
    assert is_locked(tmp_path / LOCK)
    batches.close()  # as when the loop is left by break or an error
    assert not is_locked(tmp_path / LOCK)


def test_a_loop_that_cannot_tell_its_end_locks_for_each_draw_alone(tmp_path):
    stepper = make_stepper(DrawStore(tmp_path), EVERY_STEP, hold_lock=False)
    stepper.begin()
    stepper.record()
    assert len(stepper.draws) == 1
    assert not is_locked(tmp_path / LOCK)


def test_the_seed_in_the_store_is_that_of_the_checkpoint(tmp_path):
    """Without seed= each sampler makes one up, until it loads the other's."""
    first = make_stepper(sampler_options={"seed": None})
    again = make_stepper(DrawStore(tmp_path), sampler_options={"seed": None})
    again.load_state_dict(first.state_dict())
    finish_with(again)
    seed = again.draws.headers()[0]["provenance"]["seed"]
    assert seed == first.sampler.noise.seed


def test_draws_that_are_lost_are_counted():
    stepper = make_stepper(schedule=EVERY_STEP)
    finish_with(stepper)
    again = make_stepper(schedule=EVERY_STEP)
    again.load_state_dict(stepper.state_dict())
    with pytest.warns(UserWarning, match="4 of the 4 draws before step 4 are not in draws"):
        again.begin()


def test_a_run_that_does_not_resume_exactly(tmp_path):
    """Draws after the checkpoint are there already, and the resumed run finds others."""
    model = stack(lambda: nn.Linear(2, 2), chains=2)

    def make() -> Stepper:
        sampler = SGHMC(model.parameters(), lr=0.1, num_data=30, seed=3)
        return Stepper(model, sampler, EVERY_STEP, DrawStore(tmp_path))

    stepper = make()
    state = copy.deepcopy(stepper.state_dict())
    state["taken"] = 1
    finish_with(stepper)
    before = [draw.tensors() for draw in stepper.draws]
    stepper = make()
    stepper.load_state_dict(state)
    with torch.no_grad():
        stepper.trained[0].add_(1)
    with pytest.warns(UserWarning, match=r"stepper\.batches\(loader\)"):
        finish_with(stepper)
    after = [draw.tensors() for draw in DrawStore(tmp_path)]
    assert len(after) == 8
    for one, other in zip(before, after, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_different_draw_is_refused_in_a_run_that_is_not_resumed(tmp_path):
    """Another process has stored it since, as for loops that lock the chain for each draw."""
    stepper = make_stepper(DrawStore(tmp_path), EVERY_STEP, hold_lock=False)
    stepper.begin()
    other = DrawStore(tmp_path)
    other.append(nn.Linear(2, 2), step=0)
    other.close()
    with pytest.raises(DrawConflictError):
        stepper.record()


def test_weights_of_16_bits_are_warned_of():
    model = nn.Linear(2, 1).bfloat16()
    stepper = Stepper(model, SGHMC(model.parameters(), lr=0.1, num_data=1), EVERY_STEP)
    with pytest.warns(UserWarning, match=r"torch\.bfloat16"):
        stepper.begin()


def test_only_the_process_that_writes_keeps_draws():
    layout = ProcessLayout(replica_id=1, replicas=2)
    stepper = make_stepper(schedule=EVERY_STEP, layout=layout)
    finish_with(stepper)
    assert not len(stepper.draws)


def test_the_chain_is_the_samplers_or_else_what_is_asked_for():
    options: Any = {"sampler_options": {"chain_id": 2}}
    stepper = make_stepper(chain_id=2, **options)
    assert stepper.chain_id == 2
    with pytest.raises(ValueError, match="chain_id=1, but the sampler draws the noise of chain 2"):
        make_stepper(chain_id=1, **options)
    stepper.sampler.reseed(chain_id=5)
    assert stepper.chain_id == 5
    model = nn.Linear(2, 1)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    assert [Stepper(model, plain, SCHEDULE, chain_id=c).chain_id for c in (None, 3)] == [0, 3]
    with pytest.raises(ValueError, match="chain_id must be at least 0, got -1"):
        Stepper(model, plain, SCHEDULE, chain_id=-1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sampler": SGHMC}, "sampler must be a sampler or a torch optimizer"),
        ({"schedule": "cosine"}, "schedule must be a csgmcmc schedule, .* got 'cosine'"),
        ({"draws": "runs"}, "draws must be a DrawStore or MemoryDraws, got 'runs'"),
        ({"model": nn.Linear(4, 2)}, r"a parameter of shape \(6, 4\) that is not the model's"),
        ({"model": nn.Flatten()}, "model has no trainable parameter"),
    ],
)
def test_bad_arguments_are_one_clear_sentence(arguments, words):
    model, sampler = make_parts()
    given = {"model": model, "sampler": sampler, "schedule": SCHEDULE, "draws": MemoryDraws()}
    with pytest.raises(ValueError, match=words):
        Stepper(**{**given, **arguments})


def test_another_weight_decay_of_any_optimizer_is_noticed():
    def stepper(weight_decay: float) -> Stepper:
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=weight_decay)
        return Stepper(model, optimizer, Constant(5, keep=Keep(every=1)), MemoryDraws())

    state = stepper(0.1).state_dict()
    stepper(0.1).load_state_dict(state)
    with pytest.raises(SettingsMismatchError, match=r"initial_weight_decay was 0\.1 .* is 0\.2"):
        stepper(0.2).load_state_dict(state)


def test_a_state_of_something_else_is_refused():
    stepper = make_stepper()
    with pytest.raises(ValueError, match=r"state .* has no settings"):
        stepper.load_state_dict(stepper.model.state_dict())


@pytest.mark.parametrize("loss", ["0.1", None])
def test_a_loss_that_is_not_a_number_is_named(loss):
    stepper = make_stepper()
    with pytest.raises(ValueError, match="loss must be a number"):
        stepper.check_loss(loss, stepper.schedule(0))


def test_a_step_without_gradients_is_refused_and_is_no_step():
    stepper = make_stepper()
    with pytest.raises(ValueError, match=r"no parameter .* has a gradient: call backward\(\)"):
        stepper.step()
    assert stepper.taken == 0
    stepper.model.zero_grad()
