import io
import math
import os
import re
import shutil
import subprocess
import warnings

import pytest
import torch
from rich.console import Console
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import SGHMC, SGLD, Chain, Constant, Cyclical, DrawStore, Keep, MemoryDraws, Tick
from csgmcmc.errors import (
    DivergedError,
    LockedError,
    SamplingWarning,
    StoreError,
    StoreWarning,
)
from csgmcmc.loop import read_scalars
from csgmcmc.loop.display import Display
from tests.loop.support import Noisy, make_chain
from tests.support import HESSIAN, MODE, assert_moments, eigen_covariance, same_bits


class Quadratic(nn.Module):
    """Many chains of one density in one parameter: U summed over them is a sum over chains."""

    def __init__(self, chains: int) -> None:
        super().__init__()
        self.points = nn.Parameter(MODE.repeat(chains, 1))

    def forward(self) -> torch.Tensor:
        offsets = self.points - MODE
        return ((offsets @ HESSIAN) * offsets).sum() / 2


def test_a_density_has_the_exact_law():
    model = Quadratic(20_000)
    sampler = SGHMC(model.parameters(), lr=0.2, num_data=1, seed=2)
    chain = Chain(model, None, None, sampler, Constant(300, draws=1), progress=False)
    (draw,) = chain.run()
    covariance = eigen_covariance(lambda c: SGHMC.stationary_variance(c, lr=0.2, num_data=1))
    assert_moments(draw.tensors()["points"], covariance)


def hand_written(loader, steps, schedule, **options):
    """The loop that users write."""
    torch.manual_seed(5)
    model = nn.Linear(6, 2)
    sampler = SGHMC(model.parameters(), lr=0.1, num_data=40, seed=3, **options)
    step = 0
    while step < steps:
        for inputs, labels in loader:
            if step == steps:
                break
            schedule.apply(sampler, step)
            sampler.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            sampler.step()
            step += 1
    return model


def linear_chain(loader, schedule, loss=cross_entropy, **options):
    torch.manual_seed(5)
    model = nn.Linear(6, 2)
    sampler = SGHMC(model.parameters(), lr=0.1, num_data=40, seed=3)
    return Chain(model, loss, loader, sampler, schedule, **{"progress": False, **options})


def plain_data(count=40):
    data = Noisy(count)
    return TensorDataset(data.inputs, data.labels)


def test_it_is_the_hand_written_loop():
    schedule = Cyclical(33, cycles=3, exploration=0.5, keep=Keep(every=1))
    loader = DataLoader(plain_data(), batch_size=8)
    chain = linear_chain(loader, schedule)
    chain.run()
    assert same_bits(chain.model, hand_written(loader, 33, schedule))


def test_accumulated_batches_are_one_large_batch():
    schedule = Constant(10)
    large = linear_chain(DataLoader(plain_data(), batch_size=20), schedule)
    small = linear_chain(DataLoader(plain_data(), batch_size=5), schedule, accumulate=4)
    large.run()
    small.run()
    torch.testing.assert_close(small.model.state_dict(), large.model.state_dict())


def test_any_other_batch_goes_to_the_loss_with_the_model():
    pairs = [(torch.randn(4, 6), torch.tensor([0, 1, 0, 1])) for _ in range(3)]
    batches = [{"x": inputs, "y": labels} for inputs, labels in pairs]
    by_pair = linear_chain(pairs, Constant(6))
    by_dict = linear_chain(
        batches, Constant(6), lambda model, b: cross_entropy(model(b["x"]), b["y"])
    )
    by_pair.run()
    by_dict.run()
    assert same_bits(by_pair.model, by_dict.model)


def test_clipping_bounds_the_gradient():
    norms = []

    def look(moment):
        grads = [p.grad for p in moment.chain.model.parameters()]
        norms.append(float(nn.utils.get_total_norm(grads)))

    linear_chain(
        DataLoader(plain_data(), batch_size=8), Constant(5), clip=0.1, callbacks=look
    ).run()
    assert norms == pytest.approx([0.1] * 5, rel=1e-3)


def test_callbacks_see_every_step_draw_and_cycle_end():
    seen = {"step": [], "lr": [], "draw": [], "cycle": []}

    def look(info):
        seen["step"].append(info.tick.step)
        if info.tick.collect:
            seen["draw"].append((info.tick.step, len(info.chain.draws)))
        if info.ends_cycle:
            seen["cycle"].append(info.tick.cycle)

    schedule = Cyclical(20, cycles=2, exploration=0.5, draws_per_cycle=2)
    linear_chain(
        DataLoader(plain_data(), batch_size=8),
        schedule,
        callbacks=[look, lambda info: seen["lr"].append(info.lr)],
    ).run()
    assert seen["step"] == list(range(20))
    assert seen["lr"] == [pytest.approx(0.1 * schedule(step).lr_scale) for step in range(20)]
    collected = [tick.step for tick in map(schedule, range(20)) if tick.collect]
    assert seen["draw"] == list(zip(collected, [1, 2, 3, 4], strict=True))
    assert seen["cycle"] == [0, 1]


def test_a_loss_that_is_not_finite_stops_the_chain_and_loses_nothing(tmp_path):
    def explode(moment):
        if moment.tick.step == 33:
            with torch.no_grad():
                next(moment.chain.model.parameters()).fill_(math.inf)

    with pytest.raises(
        DivergedError, match=r"chain 0 diverged: the loss is not finite at step 34"
    ) as e:
        make_chain(tmp_path, callbacks=explode).run()
    message = str(e.value)
    assert "cycle 1, sample, lr" in message
    assert "Lower lr" in message
    assert "continues from step 28" in e.value.__notes__[0]
    assert e.value.tick.step == 34
    draws = DrawStore(tmp_path)
    assert [draw.step for draw in draws] == [24, 29]
    assert draws.verify() == []
    state = torch.load(tmp_path / "checkpoints" / "0000.pt", weights_only=True)
    assert state["taken"] == 28
    assert all(value.isfinite().all() for value in state["model"].values())
    make_chain(tmp_path).run(resume=True)
    assert len(DrawStore(tmp_path)) == 12


def test_weights_that_are_not_finite_are_never_kept(tmp_path):
    """A weight can be lost while the loss still looks well."""

    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(6, 2), nn.Parameter(torch.zeros(1))

        def forward(self, inputs):
            return self.used(inputs)

    model = Spare()
    model.spare.data.fill_(math.nan)
    sampler = SGLD(model.parameters(), lr=0.1, num_data=40)
    loader = DataLoader(plain_data(), batch_size=8)
    chain = Chain(
        model, cross_entropy, loader, sampler, Constant(9, keep=Keep(every=1)), DrawStore(tmp_path),
        progress=False,
    )  # fmt: skip
    with pytest.raises(DivergedError, match="a weight is not finite at step 0"):
        chain.run()
    assert len(DrawStore(tmp_path)) == 0


def with_loss(loss) -> None:
    """Run a chain with a loss."""
    linear_chain(DataLoader(plain_data(), batch_size=8), Constant(3), loss).run()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: linear_chain([], Constant(3)), "data is empty"),
        (lambda: linear_chain(iter([]), Constant(3)).run(), "data is empty"),
        (
            lambda: linear_chain(
                DataLoader(plain_data(), batch_size=8),
                Constant(3),
                lambda outputs, labels: cross_entropy(outputs, labels, reduction="none"),
            ).run(),
            r"loss must .*\(8,\)",
        ),
        (lambda: with_loss(lambda outputs, _: outputs.mean().item()), "loss must .* a float"),
        (lambda: with_loss(lambda outputs, _: outputs.detach().mean()), r"loss .*detach\(\)"),
        (lambda: with_loss(lambda *_: torch.tensor(3)), r"loss .*detach\(\)"),
        (lambda: with_loss(lambda *_: None), "loss must .* a NoneType"),
        (lambda: with_loss(lambda *_: torch.ones((), requires_grad=True)), "no parameter of the"),
        (lambda: linear_chain(None, Constant(3)), "loss and data go together"),
        (lambda: linear_chain([1], Constant(3), accumulate=0), "accumulate must be at least 1"),
        (lambda: linear_chain([1], Constant(3), clip=0), "clip must be above 0, got 0"),
        (lambda: linear_chain([1], Constant(3), checkpoint_every=0), "checkpoint_every"),
        (lambda: linear_chain([1], Constant(3), chain_id=-1), "chain_id must be at least 0"),
        (lambda: linear_chain([1], Constant(3), chain_id=2), "draws the noise of chain 0"),
    ],
)
def test_bad_input_is_one_clear_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_nothing_to_train_is_refused():
    model = nn.Linear(2, 2).requires_grad_(False)
    sampler = SGLD([torch.zeros(1)], lr=0.1, num_data=1)
    with pytest.raises(ValueError, match="no trainable parameter"):
        Chain(model, cross_entropy, [1], sampler, Constant(3))
    with pytest.raises(ValueError, match=r"of shape \(1,\) that is not the model's"):
        Chain(nn.Linear(2, 2), cross_entropy, [1], sampler, Constant(3))


def test_two_runs_of_one_chain_at_once_are_refused(tmp_path):
    store = DrawStore(tmp_path)
    store.lock_chain(0)
    with pytest.raises(LockedError):
        make_chain(tmp_path).run()


def test_chains_of_one_store_have_the_samplers_number(tmp_path):
    for number in (0, 3):
        torch.manual_seed(5)
        model = nn.Linear(6, 2)
        sampler = SGLD(model.parameters(), lr=0.1, num_data=40, seed=1, chain_id=number)
        loader = DataLoader(plain_data(), batch_size=8)
        schedule = Constant(10, draws=2)
        Chain(
            model, cross_entropy, loader, sampler, schedule, DrawStore(tmp_path), progress=False
        ).run()
    assert DrawStore(tmp_path).chain_ids == [0, 3]
    provenance = DrawStore(tmp_path).headers()[3]["provenance"]
    assert provenance["sampler"] == "SGLD"
    assert provenance["schedule"] == {
        "kind": "Constant",
        "steps": 10,
        "keep": {"per_cycle": 2},
    }


def test_a_plain_torch_optimizer_runs_too():
    model = nn.Linear(6, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = Cyclical(20, cycles=2, draws_per_cycle=1)
    loader = DataLoader(plain_data(), batch_size=8)
    assert len(Chain(model, cross_entropy, loader, optimizer, schedule, progress=False).run()) == 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_compile_gives_the_same_run():
    schedule = Constant(5)
    loader = DataLoader(plain_data(), batch_size=8)
    eager, compiled = linear_chain(loader, schedule), linear_chain(loader, schedule, compile=True)
    eager.run()
    compiled.run()
    torch.testing.assert_close(eager.model.state_dict(), compiled.model.state_dict())


def test_autocast_and_device_reach_the_model():
    seen = []

    def loss(outputs, labels):
        seen.append(outputs.dtype)
        return cross_entropy(outputs.float(), labels)

    loader = DataLoader(plain_data(), batch_size=8)
    options = {"autocast": torch.float16, "device": "cpu", "watch": False}
    chain = linear_chain(loader, Constant(1), loss, **options)
    chain.run()
    assert seen == [torch.float16]


def test_scalars_are_logged_and_survive_a_resume(tmp_path):
    class Stop(Exception):  # noqa: N818
        pass

    def stop(moment):
        if moment.tick.step == 70:
            raise Stop

    with pytest.raises(Stop):
        make_chain(tmp_path, callbacks=stop).run()
    make_chain(tmp_path).run(resume=True)
    scalars = read_scalars(tmp_path / "logs" / "0000.jsonl")
    assert scalars["step"].tolist() == list(range(120))
    assert scalars["draws"][-1] == 12
    assert scalars["lr"][0] == pytest.approx(0.1)
    assert set(scalars["stage"]) == {"explore", "sample"}


def test_progress_is_a_line_now_and_then_without_a_terminal(monkeypatch):
    monkeypatch.setattr("csgmcmc.loop.display.LINE_SECONDS", 0.0)
    output = io.StringIO()
    display = Display("chain 3", 10, 2, 0, console=Console(file=output))
    with display:
        tick = Tick(4, 1, "sample", 0.5, 1.0, collect=True)
        display.update(tick, lr=0.05, temperature=1.0, loss=0.25, draws=7)
    for words in ("chain 3: step 5/10", "cycle 2/2", "sample lr 0.05"):
        assert words in output.getvalue()
    assert re.search(r"T 1, \d:\d\d:\d\d left", output.getvalue())


def test_progress_is_a_bar_on_a_terminal_and_nothing_when_off():
    tick = Tick(9, 1, "sample", 0.5, 1.0, collect=True)
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=150)
    with Display("chain 3", 10, 2, 0, console=console) as display:
        display.update(tick, lr=0.05, temperature=1.0, loss=0.25, draws=7)
    assert "7 draws" in output.getvalue()
    finished = io.StringIO()
    with Display("chain 3", 10, 2, 10, console=Console(file=finished)):
        assert "chain 3 is already finished: nothing was run" in finished.getvalue()
    silent = io.StringIO()
    with Display("x", 10, 2, 0, shown=False, console=Console(file=silent)) as display:
        display.update(tick, lr=0.05, temperature=1.0, loss=0.25, draws=7)
    assert silent.getvalue() == ""


@pytest.mark.parametrize(
    ("columns", "details"),
    [
        (60, "loss 0.0123 cycle 3/8"),
        (80, "loss 0.0123 cycle 3/8 7 draws"),
        (160, "loss 0.0123 cycle 3/8 7 draws explore lr 0.05 T 1e-05"),
    ],
)
def test_the_bar_has_step_and_time_and_what_fits_beside_them(columns, details, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=columns)
    with Display("chain 0", 2500, 8, 0, console=console) as display:
        tick = Tick(799, 2, "explore", 0.5, 1.0, collect=False)
        display.update(tick, lr=0.05, temperature=1e-5, loss=0.01234, draws=7)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.getvalue())
    line = plain.split("\r")[-1].splitlines()[0]
    assert re.match(rf"chain 0 \S+ *800/2500 {details}", line)
    assert re.search(r" [-\d:]+ *$", line)
    assert len(line) <= columns


def test_what_is_interrupted_says_where_it_stopped_and_how_to_go_on(tmp_path):
    def stop(moment) -> None:
        if moment.tick.step == 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        make_chain(tmp_path, callbacks=stop).run()
    assert caught.value.__notes__ == [
        "chain 0 was stopped at step 51 of 120 with 4 of 12 draws; run(resume=True) continues "
        "from step 49"
    ]
    with pytest.raises(KeyboardInterrupt) as caught:
        make_chain("", draws=MemoryDraws(), callbacks=stop).run()
    (note,) = caught.value.__notes__
    assert "4 of 12 draws, which are in memory; to resume a run, keep its draws in" in note


def test_an_error_after_some_steps_says_where_the_run_stopped(tmp_path):
    def fail(moment) -> None:
        if moment.tick.step == 50:
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine") as caught:
        make_chain(tmp_path, callbacks=fail).run()
    assert caught.value.__notes__[0].startswith("chain 0 was stopped at step 51 of 120 with 4 of")
    with pytest.raises(ValueError, match="has begun already") as caught:
        make_chain(tmp_path).run()
    assert not hasattr(caught.value, "__notes__")


def test_a_store_that_would_stay_empty_is_warned_of(tmp_path):
    with pytest.warns(SamplingWarning, match="keeps no draws, so that the store stays empty"):
        assert len(make_chain(tmp_path, schedule=Constant(2)).run()) == 0
    make_chain(tmp_path / "quiet", schedule=Constant(2), watch=False).run()
    make_chain("", draws=MemoryDraws(), schedule=Constant(2)).run()


@pytest.mark.parametrize("size", ["160k", "300k"])
def test_a_full_disk_stops_the_run_and_resume_goes_on(tmp_path, size):
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    (tmp_path / "small").mkdir()
    where = str(tmp_path / "small")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", where]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        ballast = tmp_path / "small" / "ballast"
        free = int(size[:-1]) * 1024 - 110_000
        ballast.write_bytes(b"x" * max(free, 0))
        with pytest.raises(StoreError, match="the disk is full"):
            make_chain(tmp_path / "small" / "store").run()
        ballast.unlink()
        subprocess.run(["mount", "-o", "remount,size=2m", where], check=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StoreWarning)
            make_chain(tmp_path / "small" / "store").run(resume=True)
            store = DrawStore(tmp_path / "small" / "store")
        assert len(store) == 12
        assert store.verify() == []
    finally:
        subprocess.run(["umount", "--lazy", where], check=True)


def test_an_empty_loader_leaves_no_trace(tmp_path):
    with pytest.raises(ValueError, match="data is empty"):
        make_chain(tmp_path / "store", loader=[])
    assert not (tmp_path / "store").exists()


def test_modes_of_modules_are_kept():
    """Those that the user froze, and all of them after a callback has evaluated the model."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[1].eval()
    seen = []
    model.register_forward_pre_hook(lambda m, _: seen.append([p.training for p in m.modules()]))
    sampler = SGLD(model.parameters(), lr=0.1, num_data=40)
    loader, schedule = DataLoader(plain_data(), batch_size=8), Constant(6, keep=Keep(every=2))
    Chain(
        model, cross_entropy, loader, sampler, schedule,
        callbacks=lambda info: info.chain.model.eval(), progress=False, watch=False,
    ).run()  # fmt: skip
    assert seen == [[True, True, False, True, True]] * 6
    assert model[1].num_batches_tracked == 0
    assert model[2].num_batches_tracked == 6


def test_provenance_is_each_chains_own(tmp_path):
    store = DrawStore(tmp_path, provenance={"note": "mine"})
    for number, lr in ((0, 0.1), (1, 0.5)):
        model = nn.Linear(6, 2)
        sampler = SGLD(model.parameters(), lr=lr, num_data=40, seed=100 + number, chain_id=number)
        loader = DataLoader(plain_data(), batch_size=8)
        Chain(
            model, cross_entropy, loader, sampler, Constant(2, draws=1), store, progress=False
        ).run()
    made = [DrawStore(tmp_path).headers()[number]["provenance"] for number in (0, 1)]
    assert [one["seed"] for one in made] == [100, 101]
    assert [one["groups"]["0"]["initial_lr"] for one in made] == [0.1, 0.5]
    assert made[1]["note"] == "mine"


def test_a_run_that_has_ended_or_failed_is_not_continued_without_resume():
    chain = linear_chain(DataLoader(plain_data(), batch_size=8), Constant(5, keep=Keep(every=1)))
    chain.run()
    with pytest.raises(ValueError, match="chain 0 has begun already"):
        chain.run()
