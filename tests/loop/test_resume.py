"""After any stop a chain goes on bit for bit: zero draws lost, zero doubled, all equal."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributions import Normal
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from csgmcmc import SGHMC, SGLD, AdamSGHMC, Constant, Cyclical, DrawStore, Keep, MemoryDraws
from csgmcmc.distributed import ProcessLayout
from csgmcmc.errors import SettingsMismatchError, StoreError, StoreWarning
from csgmcmc.loop import Chain
from csgmcmc.loop.checkpoint import Checkpoints
from tests.loop import support
from tests.loop.support import Noisy, make_chain
from tests.processes import PYTHONPATH

OLD_STORE = Path(__file__).parents[1] / "draws" / "fixtures" / "store-0.1.0"


class Stopped(Exception):  # noqa: N818
    pass


def stop_at(step):
    def call(moment):
        if moment.tick.step == step:
            raise Stopped

    return call


def assert_same_runs(one: Path, other: Path) -> None:
    first, second = DrawStore(one), DrawStore(other)
    assert [(d.chain_id, d.step, d.cycle) for d in first] == [
        (d.chain_id, d.step, d.cycle) for d in second
    ]
    for left, right in zip(first, second, strict=True):
        assert left == right
        ours, theirs = left.tensors(), right.tensors()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    states = [
        torch.load(path / "checkpoints" / "0000.pt", weights_only=True) for path in (one, other)
    ]
    assert states[0]["taken"] == states[1]["taken"]
    for part in ("model", "sampler", "sources"):
        assert _flat(states[0][part]) == _flat(states[1][part]), part


def _flat(value):
    """Nested tensors as something that == can compare."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _flat(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_flat(inner) for inner in value]
    return value


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """An uninterrupted run."""
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("whole")
    draws = make_chain(path).run()
    assert len(draws) == 12
    return path


@pytest.mark.parametrize("stop", [0, 1, 6, 7, 39, 40, 61, 118, 119])
def test_stopped_at_any_step_it_goes_on_bit_for_bit(whole, tmp_path, stop):
    with pytest.raises(Stopped):
        make_chain(tmp_path, callbacks=stop_at(stop)).run()
    random.seed(4)  # what the global generators do meanwhile must not matter
    np.random.seed(5)  # noqa: NPY002
    chain = make_chain(tmp_path)
    torch.manual_seed(99)
    chain.run(resume=True)
    assert_same_runs(whole, tmp_path)


@pytest.mark.parametrize("stop", [9, 30, 45])
def test_an_adaptive_sampler_goes_on_bit_for_bit(tmp_path, stop):
    """While it adapts, while it samples with what it has adapted, and while it adapts anew."""
    make_chain(tmp_path / "whole", kind=AdamSGHMC).run()
    with pytest.raises(Stopped):
        make_chain(tmp_path / "cut", kind=AdamSGHMC, callbacks=stop_at(stop)).run()
    make_chain(tmp_path / "cut", kind=AdamSGHMC).run(resume=True)
    assert_same_runs(tmp_path / "whole", tmp_path / "cut")


def test_stopped_again_and_again(whole, tmp_path):
    for stop in (3, 20, 21, 64, 90):
        with pytest.raises(Stopped):
            make_chain(tmp_path, callbacks=stop_at(stop)).run(resume=True)
    make_chain(tmp_path).run(resume=True)
    make_chain(tmp_path).run(resume=True)  # nothing left to do
    assert_same_runs(whole, tmp_path)


@pytest.mark.parametrize(
    "make_loader",
    [
        lambda: DataLoader(Noisy(), batch_size=8, shuffle=True, num_workers=2),
        lambda: DataLoader(
            Noisy(), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(8)
        ),
        lambda: StatefulDataLoader(Noisy(), batch_size=8, shuffle=True),
        lambda: StatefulDataLoader(Noisy(), batch_size=8, shuffle=True, num_workers=1),
        lambda: [(torch.randn(4, 6), torch.tensor([0, 1, 0, 1])) for _ in range(3)],
    ],
    ids=["workers", "generator", "stateful", "stateful workers", "list"],
)
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
def test_any_loader_goes_on_bit_for_bit(make_loader, tmp_path):
    """Order, position and random transforms, also those in worker processes."""
    torch.manual_seed(0)
    for name, stops in (("whole", []), ("cut", [17, 33])):
        for stop in stops:
            torch.manual_seed(0)
            with pytest.raises(Stopped):
                make_chain(
                    tmp_path / name, loader=make_loader(), steps=48, callbacks=stop_at(stop)
                ).run(resume=True)
        torch.manual_seed(0)
        make_chain(tmp_path / name, loader=make_loader(), steps=48).run(resume=True)
    assert_same_runs(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_generators_of_transforms_are_saved(tmp_path, bits):
    class Augmented(Noisy):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.Generator().manual_seed(1), np.random.Generator(bits(2))

        def __getitem__(self, index):
            scale = 1 + 0.1 * torch.rand((), generator=self.first) + 0.1 * self.second.random()
            return self.inputs[index] * scale, self.labels[index]

    def run(path, **options):
        data = Augmented()
        loader = DataLoader(data, batch_size=8, shuffle=True)
        generators = [data.first, data.second]
        make_chain(path, loader=loader, steps=48, generators=generators, **options).run(resume=True)

    run(tmp_path / "whole")
    with pytest.raises(Stopped):
        run(tmp_path / "cut", callbacks=stop_at(30))
    run(tmp_path / "cut")
    assert_same_runs(tmp_path / "whole", tmp_path / "cut")


def kill_again_and_again(path: Path, kills: int, seed: int, pause: float = 0.01) -> int:
    """Run in a process and kill it at random moments, `kills` times or until it gets through."""
    moments = random.Random(seed)  # noqa: S311
    command = [sys.executable, support.__file__, str(path), str(pause)]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    for done in range(kills):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()  # the first step of this life is done
        time.sleep(moments.uniform(0.0, 0.7))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode in (-signal.SIGKILL, 0)
        if process.returncode == 0:
            return done
    return kills


def finish_and_compare(path: Path, whole: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)  # damaged files are named
        make_chain(path).run(resume=True)
        assert_same_runs(whole, path)


def test_killed_processes_lose_nothing(whole, tmp_path):
    assert kill_again_and_again(tmp_path / "run", kills=3, seed=1, pause=0.05) >= 2
    finish_and_compare(tmp_path / "run", whole)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_killed_processes_lose_nothing(whole, tmp_path, seed):
    """With the ten seeds, at least 50 kills."""
    killed, attempt = 0, 0
    while killed < 6:
        path = tmp_path / f"run{attempt}"
        killed += kill_again_and_again(path, kills=6 - killed, seed=100 * seed + attempt)
        finish_and_compare(path, whole)
        attempt += 1


def shuffled(size, batch_size):
    return DataLoader(Noisy(size), batch_size=batch_size, shuffle=True)


def with_sampler(**options):
    def make(path):
        chain = make_chain(path)
        options_now = {"lr": 0.1, "num_data": 40, "momentum": 0.8, **options}
        sampler = SGHMC(chain.model.parameters(), **options_now)
        loader = DataLoader(Noisy(), batch_size=8, shuffle=True)
        return Chain(chain.model, chain.loss, loader, sampler, chain.schedule, chain.draws)

    return make


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: make_chain(p, accumulate=2), "accumulate was 1 .* is 2 now"),
        (lambda p: make_chain(p, clip=3.0), r"clip was None .* is 3\.0 now"),
        (
            lambda p: make_chain(p, schedule=Constant(9, keep=Keep(every=1))),
            "schedule.kind was Cyclical.* is Constant",
        ),
        (with_sampler(lr=0.2), r"groups\.0\.initial_lr was 0\.1 .* is 0\.2"),
        (with_sampler(prior=Normal(0.0, 1.0)), r"prior was None .* is Normal\(loc: 0\.0"),
        (with_sampler(num_data=41), r"groups\.0\.num_data was 40 .* is 41"),
        (lambda p: make_chain(p, loader=shuffled(39, 8)), "examples was 40"),
        (lambda p: make_chain(p, loader=shuffled(40, 4)), "data.batches was 5"),
        (lambda p: make_chain(p, loader=DataLoader(Noisy(), batch_size=8)), "sampler was Random"),
        (lambda p: make_chain(p, generators=[torch.Generator()]), "generators was 0"),
    ],
)
def test_a_run_that_no_longer_matches_is_refused_and_nothing_is_touched(
    whole, tmp_path, make, words
):
    with pytest.raises(Stopped):
        make_chain(tmp_path, callbacks=stop_at(60)).run()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.suffix != ".lock"}
    with pytest.raises(SettingsMismatchError, match=f"cannot resume: .*{words}"):
        make(tmp_path).run(resume=True)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.suffix != ".lock"}
    assert before == after


def test_another_model_is_refused_by_name(tmp_path):
    def chain(width):
        model = torch.nn.Linear(6, width)
        sampler = SGLD(model.parameters(), lr=0.1, num_data=40)
        loader = DataLoader(Noisy(), batch_size=8)
        loss = torch.nn.functional.cross_entropy
        schedule = Cyclical(20, cycles=2, keep=Keep(every=1))
        return Chain(model, loss, loader, sampler, schedule, DrawStore(tmp_path), progress=False)

    chain(2).run()
    with pytest.raises(SettingsMismatchError, match=r"model\.weight was \(2, 6\).* is \(3, 6\)"):
        chain(3).run(resume=True)


def test_a_finished_run_of_another_network_or_loss_is_refused_by_name(tmp_path):
    def chain(
        between: type[torch.nn.Module] = torch.nn.ReLU, loss=torch.nn.functional.cross_entropy
    ) -> Chain:
        model = torch.nn.Sequential(torch.nn.Linear(6, 4), between(), torch.nn.Linear(4, 2))
        sampler = SGLD(model.parameters(), lr=0.1, num_data=40)
        loader, schedule = DataLoader(Noisy(), batch_size=8), Constant(9, draws=3)
        return Chain(model, loss, loader, sampler, schedule, DrawStore(tmp_path), progress=False)

    chain().run()
    with pytest.raises(
        SettingsMismatchError, match=r"modules\.1 was ReLU .* is Sigmoid now: begin"
    ):
        chain(torch.nn.Sigmoid).run(resume=True)
    with pytest.raises(SettingsMismatchError, match=r"loss was cross_entropy .* is nll_loss"):
        chain(loss=torch.nn.functional.nll_loss).run(resume=True)
    assert len(chain().run(resume=True)) == 3


def test_a_chain_that_has_begun_is_not_begun_again(whole):
    with pytest.raises(ValueError, match=r"chain 0 has begun already in .*: run\(resume=True\)"):
        make_chain(whole).run()


def test_draws_of_another_run_are_not_mixed_with_those_of_a_resumed_one(tmp_path):
    """Draws without a checkpoint are those of a hand-written loop, or of another folder."""
    store = DrawStore(tmp_path)
    store.append(make_chain("", draws=MemoryDraws()).model, step=3)
    store.close()
    with pytest.raises(ValueError, match="chain 0 has draws already"):
        make_chain(tmp_path).run(resume=True)
    assert len(DrawStore(tmp_path)) == 1


def test_resume_without_checkpoints_is_refused(tmp_path):
    with pytest.raises(ValueError, match="resume and extend need checkpoints"):
        make_chain(tmp_path, draws=MemoryDraws()).run(resume=True)


def test_draws_in_memory_can_have_checkpoints(tmp_path):
    with pytest.raises(Stopped):
        make_chain("", draws=MemoryDraws(), checkpoint_dir=tmp_path, callbacks=stop_at(60)).run()
    with pytest.warns(UserWarning, match="4 of the 4 draws before step 56 are not in draws"):
        draws = make_chain("", draws=MemoryDraws(), checkpoint_dir=tmp_path).run(resume=True)
    assert all(draw.step >= 56 for draw in draws)


def test_persistent_workers_are_refused(tmp_path):
    loader = DataLoader(Noisy(), batch_size=8, num_workers=1, persistent_workers=True)
    with pytest.raises(ValueError, match="persistent_workers=False"):
        make_chain(tmp_path, loader=loader)


def test_a_missing_newest_checkpoint_falls_back_to_the_previous(whole, tmp_path):
    """Killed between the two renames of a save."""
    with pytest.raises(Stopped):
        make_chain(tmp_path, callbacks=stop_at(60)).run()
    (tmp_path / "checkpoints" / "0000.pt").unlink()
    make_chain(tmp_path).run(resume=True)
    assert_same_runs(whole, tmp_path)


def test_a_damaged_newest_checkpoint_is_named_and_the_previous_is_used(whole, tmp_path):
    with pytest.raises(Stopped):
        make_chain(tmp_path, callbacks=stop_at(60)).run()
    newest = tmp_path / "checkpoints" / "0000.pt"
    content = bytearray(newest.read_bytes())
    weights = torch.load(newest, weights_only=True)["model"]["0.weight"].numpy().tobytes()
    content[content.index(weights) + 3] ^= 1
    newest.write_bytes(content)
    with pytest.warns(StoreWarning, match=r"0000\.pt is damaged"):
        make_chain(tmp_path).run(resume=True)
    assert_same_runs(whole, tmp_path)


def test_both_checkpoints_damaged_is_said(tmp_path):
    with pytest.raises(Stopped):
        make_chain(tmp_path, callbacks=stop_at(60)).run()
    for path in (tmp_path / "checkpoints").iterdir():
        os.truncate(path, 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        with pytest.raises(
            StoreError, match=r"0000\.pt is damaged: .*; and .*0000\.previous\.pt is damaged: "
        ):
            make_chain(tmp_path).run(resume=True)


def steps_of(checkpoints: Checkpoints) -> list[int]:
    """Steps taken at the newest checkpoint and at the one before."""
    both = (checkpoints.newest, checkpoints.previous)
    return [torch.load(path, weights_only=True)["taken"] for path in both]


def test_a_step_saved_again_keeps_the_one_before(tmp_path):
    """Else a replica could lose the last checkpoint that it has in common with another."""
    first = Checkpoints(tmp_path, "0000")
    for step in (0, 7, 14):
        first.save({"taken": step})
    second = Checkpoints(tmp_path, "0000")
    second.load(lambda _: None, ProcessLayout())
    second.save({"taken": 14})
    assert steps_of(second) == [14, 7]
    second.save({"taken": 21})
    assert steps_of(second) == [21, 14]


def test_a_plain_optimizer_and_unsaved_buffers_resume_too(tmp_path):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(6, 2)
            self.register_buffer("count", torch.zeros(()), persistent=False)

        def forward(self, inputs):
            self.count += 1
            return self.linear(inputs) * (1 + 0.01 * self.count)

    def run(path, **options):
        torch.manual_seed(5)
        model = Counting()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        schedule = Cyclical(40, cycles=2, keep=Keep(every=1))
        loss, loader = torch.nn.functional.cross_entropy, DataLoader(Noisy(), batch_size=8)
        options = {"progress": False, "checkpoint_every": 5, **options}
        Chain(model, loss, loader, optimizer, schedule, DrawStore(path), **options).run(resume=True)

    run(tmp_path / "whole")
    with pytest.raises(Stopped):
        run(tmp_path / "cut", callbacks=stop_at(23))
    run(tmp_path / "cut")
    assert_same_runs(tmp_path / "whole", tmp_path / "cut")


def test_rare_draws_are_never_repeated(tmp_path):
    """A checkpoint follows each, so that a resumed run goes on after it."""
    first_steps = []

    def chain(**options):
        model = torch.nn.Linear(6, 2)
        sampler = SGLD(model.parameters(), lr=0.1, num_data=40)
        loader, loss = DataLoader(Noisy(), batch_size=8), torch.nn.functional.cross_entropy
        options = {"progress": False, "checkpoint_every": 400, **options}
        schedule = Constant(400, draws=4)
        return Chain(model, loss, loader, sampler, schedule, DrawStore(tmp_path), **options)

    with pytest.raises(Stopped):
        chain(callbacks=stop_at(250)).run()
    chain(callbacks=lambda moment: first_steps.append(moment.tick.step)).run(resume=True)
    assert first_steps[0] == 200
    assert [draw.step for draw in DrawStore(tmp_path)] == [99, 199, 299, 399]


def test_a_checkpoint_of_version_0_1_says_why_it_cannot_be_resumed(tmp_path):
    shutil.copytree(OLD_STORE, tmp_path / "store")
    model = torch.nn.Linear(2, 2)
    sampler = SGHMC(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3, num_data=6)
    schedule = Cyclical(steps=20, cycles=2, exploration=0.5, draws_per_cycle=2)
    batches = [(torch.zeros(3, 2), torch.zeros(3).long())]
    loss, store = torch.nn.functional.cross_entropy, DrawStore(tmp_path / "store")
    chain = Chain(model, loss, batches, sampler, schedule, store, progress=False)
    with pytest.raises(StoreError, match=r"was made by csgmcmc 0\.1, .* its draws can be read"):
        chain.run(resume=True)
    assert len(store) == 2


def test_a_run_resumes_though_its_sums_are_rounded_otherwise(tmp_path):
    """A draw was stored after the last checkpoint; with other threads it has other digits."""
    with pytest.raises(Stopped):
        make_chain(tmp_path, callbacks=stop_at(25), checkpoint_every=100).run()
    kept = len(DrawStore(tmp_path))
    assert kept > 0

    def rounded_otherwise(outputs, targets):
        return torch.nn.functional.cross_entropy(outputs, targets) * (1 + 1e-6)

    def resume() -> None:
        chain = make_chain(tmp_path, checkpoint_every=100)
        chain.loss = rounded_otherwise
        chain.run(resume=True)

    with pytest.warns(UserWarning, match="does not continue exactly"):
        resume()
    assert len(DrawStore(tmp_path)) == 12
