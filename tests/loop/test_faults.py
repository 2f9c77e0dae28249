"""Damaged checkpoints and logs, other seeds and processes: a sentence, or the run goes on."""

import errno
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from csgmcmc import SGHMC, Cyclical, DrawStore, MemoryDraws
from csgmcmc.distributed import ProcessLayout
from csgmcmc.errors import LockedError, SettingsMismatchError, StoreError, StoreWarning
from csgmcmc.files import is_locked
from csgmcmc.loop import Chain, read_scalars
from csgmcmc.loop.checkpoint import FORMAT, Checkpoints
from csgmcmc.loop.log import ScalarLog
from tests.loop.support import Noisy, make_chain
from tests.loop.test_resume import Stopped, assert_same_runs, steps_of, stop_at


def small_chain(
    path: Path, draws=None, sampler: Any = SGHMC, options=None, **chain_options
) -> Chain:
    torch.manual_seed(0)
    model = nn.Linear(6, 2)
    options = options or {}
    if sampler is SGHMC:
        options = {"lr": 0.05, "num_data": 40, "seed": 3, **options}
    chain_options = {"progress": False, "checkpoint_every": 5, "watch": False, **chain_options}
    return Chain(
        model,
        nn.functional.cross_entropy,
        DataLoader(Noisy(), batch_size=8, shuffle=True),
        sampler(model.parameters(), **options),  # pyright: ignore[reportCallIssue]
        Cyclical(20, cycles=2, draws_per_cycle=2),
        DrawStore(path) if draws is None else draws,
        **chain_options,
    )


# Plain values

NUMBERS: dict[str, dict[str, Any]] = {
    "clip": {"clip": np.float64(1.0)},
    "clip, an array": {"clip": np.array(1.0)},
    "clip, a tensor": {"clip": torch.tensor(1.0)},
    "accumulate": {"accumulate": np.int64(1)},
    "lr": {"options": {"lr": np.array(0.05)}},
    "momentum": {"options": {"momentum": np.array(0.9)}},
    "betas": {"sampler": torch.optim.Adam, "options": {"betas": tuple(np.array([0.9, 0.99]))}},
    "betas, an array": {"sampler": torch.optim.Adam, "options": {"betas": np.array([0.9, 0.99])}},
}


@pytest.mark.parametrize("in_memory", [True, False], ids=["memory", "store"])
@pytest.mark.parametrize("given", NUMBERS.values(), ids=NUMBERS)
def test_numbers_of_numpy_are_stored_as_plain_ones(tmp_path, given, in_memory):
    def chain(**options) -> Chain:
        draws = MemoryDraws() if in_memory else None
        folder = tmp_path if in_memory else None
        return small_chain(tmp_path, draws, checkpoint_dir=folder, **given, **options)

    with pytest.raises(Stopped):
        chain(callbacks=stop_at(7)).run()
    checkpoint = torch.load(tmp_path / "checkpoints" / "0000.pt", weights_only=True)
    assert checkpoint["taken"] == 5
    assert len(chain().run(resume=True)) == 4


def test_a_checkpoint_that_could_not_be_read_again_is_not_written(tmp_path):
    chain = small_chain(tmp_path, MemoryDraws(), checkpoint_dir=tmp_path)
    chain.sampler.param_groups[0]["extra"] = Path("x")
    with pytest.raises(StoreError, match=r"no checkpoint of this run could be read .*Path"):
        chain.run()
    assert not list((tmp_path / "checkpoints").glob("*.pt*"))


# Damaged checkpoints


def two_checkpoints(folder: Path) -> Checkpoints:
    checkpoints = Checkpoints(folder, "0000")
    for step in (7, 14):
        checkpoints.save({"taken": step, "weights": torch.full((5,), float(step))})
    return checkpoints


def loaded(folder: Path) -> list[dict[str, Any]]:
    """The checkpoint that a run would resume from."""
    found: list[dict[str, Any]] = []
    Checkpoints(folder, "0000").load(found.append, ProcessLayout())
    return found


def test_any_bit_of_the_directory_of_the_zip_file_may_be_flipped(tmp_path):
    two_checkpoints(tmp_path)
    newest = tmp_path / "0000.pt"
    content = newest.read_bytes()
    directory = range(content.index(b"PK\x01\x02"), len(content))
    fell_back = 0
    for place in directory:
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        newest.write_bytes(flipped)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            (state,) = loaded(tmp_path)
        assert state["weights"].tolist() == [state["taken"]] * 5
        if state["taken"] == 7:
            fell_back += 1
            assert "0000.pt is damaged: " in str(said[0].message)
            assert "\n" not in str(said[0].message)
        else:
            assert state["taken"] == 14
    assert fell_back > len(directory) / 10


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"format": FORMAT, "weights": torch.ones(2)}, "is damaged: it has no 'taken'"),
        ([1, 2], "is damaged"),
        ({"format": 99, "taken": 14}, "was made by csgmcmc"),
        ({"step": 14}, "was made by csgmcmc"),
        ({"format": FORMAT, "taken": 14, "lr": np.float64(1)}, r"is damaged: .*numpy"),
    ],
    ids=["no step", "a list", "newer", "older", "numpy"],
)
def test_a_checkpoint_that_cannot_be_used_is_named_and_the_one_before_is_used(
    tmp_path, content, reason
):
    two_checkpoints(tmp_path)
    torch.save(content, tmp_path / "0000.pt")
    with pytest.warns(StoreWarning, match=reason):
        assert loaded(tmp_path)[-1]["taken"] == 7
    (tmp_path / "0000.previous.pt").unlink()
    with pytest.raises(StoreError, match=reason):
        loaded(tmp_path)


def test_a_damaged_checkpoint_never_takes_the_place_of_a_good_one(tmp_path, monkeypatch):
    """Killed between the two renames there would be no good one left."""
    two_checkpoints(tmp_path)
    os.truncate(tmp_path / "0000.pt", 100)
    checkpoints = Checkpoints(tmp_path, "0000")
    with pytest.warns(StoreWarning):
        checkpoints.load(lambda _: None, ProcessLayout())
    renamed = []
    replace = Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda one, other: renamed.append(other.name) or replace(one, other)
    )
    checkpoints.save({"taken": 14})
    assert renamed == ["0000.pt"]
    checkpoints.save({"taken": 21})
    assert steps_of(checkpoints) == [21, 14]


def test_a_run_goes_on_from_the_checkpoint_before(tmp_path):
    whole = make_chain(tmp_path / "whole", steps=48)
    whole.run()
    with pytest.raises(Stopped):
        make_chain(tmp_path / "cut", steps=48, callbacks=stop_at(30)).run()
    newest = tmp_path / "cut" / "checkpoints" / "0000.pt"
    content = newest.read_bytes()
    newest.write_bytes(content.replace(b"PK\x01\x02", b"PK\x01\x03"))
    with pytest.warns(StoreWarning, match=r"0000\.pt is damaged: .*; the other one is used"):
        make_chain(tmp_path / "cut", steps=48).run(resume=True)
    assert_same_runs(tmp_path / "whole", tmp_path / "cut")


def without(*names: str) -> Callable[[Any], Any]:
    """Takes a value out of a checkpoint; `names` lead to it."""

    def change(state: Any) -> Any:
        inner = state
        for name in names[:-1]:
            inner = inner[name]
        del inner[names[-1]]
        return state

    return change


def with_value(value: Any, *names: str) -> Callable[[Any], Any]:
    """Puts another value into a checkpoint."""

    def change(state: Any) -> Any:
        inner = state
        for name in names[:-1]:
            inner = inner[name]
        inner[names[-1]] = value
        return state

    return change


WRONG_CONTENTS: dict[str, Callable[[Any], Any]] = {
    "a list": lambda state: [state],
    "a tensor": lambda _: torch.ones(3),
    "no step": without("taken"),
    "a negative step": with_value(-3, "taken"),
    "a step after the end": with_value(10**6, "taken"),
    "an older format": without("format"),
    "no settings": without("settings"),
    "settings of another kind": with_value("x", "settings"),
    "other settings": with_value("Other", "settings", "sampler"),
    "no model": without("model"),
    "a model of another kind": with_value([1], "model"),
    "no weight": without("model", "weight"),
    "a weight that would be broadcast": with_value(torch.ones(1), "model", "weight"),
    "a weight of text": with_value("x", "model", "weight"),
    "no sampler": without("sampler"),
    "a sampler of another kind": with_value(5, "sampler"),
    "no groups": without("sampler", "param_groups"),
    "too few groups": with_value([], "sampler", "param_groups"),
    "no noise": without("sampler", "noise"),
    "noise without a step": with_value({"seed": 3}, "sampler", "noise"),
    "no sources": without("sources"),
    "sources of another kind": with_value({}, "sources"),
    "no random state": with_value({}, "sources", "random"),
    "a random state of another size": with_value(
        torch.zeros(3, dtype=torch.uint8), "sources", "random", "torch"
    ),
    "another loader": with_value({"loader": "Other"}, "sources", "data"),
    "shards of version 0.2": with_value({"sizes": {}}, "shards"),
    "sharded tensors of another kind": with_value(5, "sharded"),
    "other processes of another kind": with_value(5, "others"),
}


@pytest.mark.parametrize("change", WRONG_CONTENTS.values(), ids=WRONG_CONTENTS)
def test_a_whole_checkpoint_with_wrong_content_is_named_and_the_one_before_is_used(
    tmp_path, change, uninterrupted
):
    with pytest.raises(Stopped):
        small_chain(tmp_path, callbacks=stop_at(12)).run()
    newest = tmp_path / "checkpoints" / "0000.pt"
    torch.save(change(torch.load(newest, weights_only=True)), newest)
    chain = small_chain(tmp_path)
    with pytest.warns(StoreWarning, match=r"0000\.pt.*; the other one is used") as said:
        draws = chain.run(resume=True)
    assert len(said) == 1
    assert "\n" not in str(said[0].message)
    for draw, expected in zip(draws, uninterrupted, strict=True):
        assert torch.equal(draw.tensors()["weight"], expected.tensors()["weight"])


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return small_chain(tmp_path_factory.mktemp("whole")).run()


def test_wrong_content_without_another_checkpoint_is_an_error_in_one_sentence(tmp_path):
    with pytest.raises(Stopped):
        small_chain(tmp_path, callbacks=stop_at(12)).run()
    newest = tmp_path / "checkpoints" / "0000.pt"
    newest.with_name("0000.previous.pt").unlink()
    torch.save(without("sources")(torch.load(newest, weights_only=True)), newest)
    words = r"0000\.pt is damaged: it has no 'sources'"
    with pytest.raises(StoreError, match=words):
        small_chain(tmp_path).run(resume=True)


def test_a_checkpoint_with_wrong_content_never_takes_the_place_of_a_good_one(tmp_path):
    with pytest.raises(Stopped):
        small_chain(tmp_path, callbacks=stop_at(12)).run()
    newest = tmp_path / "checkpoints" / "0000.pt"
    torch.save(without("sources")(torch.load(newest, weights_only=True)), newest)
    with pytest.warns(StoreWarning), pytest.raises(Stopped):
        small_chain(tmp_path, callbacks=stop_at(7)).run(resume=True)
    previous = torch.load(newest.with_name("0000.previous.pt"), weights_only=True)
    assert previous["taken"] == 5
    assert "sources" in previous


# Seeds


def test_another_seed_is_refused_and_none_goes_on_with_that_of_the_run(tmp_path):
    with pytest.raises(Stopped):
        small_chain(tmp_path, callbacks=stop_at(12)).run()
    with pytest.raises(
        SettingsMismatchError, match=r"seed was 3 when .* and is 4 now.*; without seed="
    ):
        small_chain(tmp_path, options={"seed": 4}).run(resume=True)
    assert not is_locked(tmp_path / "chains" / "0000.lock")
    assert not is_locked(tmp_path / "checkpoints" / "0000.lock")
    chain = small_chain(tmp_path, options={"seed": None})
    assert len(chain.run(resume=True)) == 4
    assert chain.sampler.noise.seed == 3  # pyright: ignore[reportAttributeAccessIssue]


def test_loops_that_load_the_sampler_themselves_refuse_another_seed_too():
    first, second = (small_chain(Path(), MemoryDraws(), options={"seed": seed}) for seed in (3, 4))
    second.sampler.load_state_dict(first.sampler.state_dict())
    second.stepper.load_position(first.stepper.position())
    with pytest.raises(SettingsMismatchError, match="seed was 3"):
        second.stepper.begin()


def test_a_seed_that_was_not_chosen_stays_so_in_another_chain():
    sampler: Any = small_chain(Path(), MemoryDraws(), options={"seed": None}).sampler
    sampler.reseed(chain_id=4)
    assert not sampler.noise.seed_is_given
    sampler.reseed(seed=4)
    assert sampler.noise.seed_is_given


@pytest.mark.parametrize("stop", ["before the first checkpoint", "before the first draw"])
def test_the_header_has_the_seed_that_made_the_draws(tmp_path, monkeypatch, stop):
    with monkeypatch.context() as patch:
        if stop == "before the first checkpoint":
            patch.setattr(Checkpoints, "save", lambda *_: (_ for _ in ()).throw(Stopped))
        with pytest.raises(Stopped):
            small_chain(tmp_path, options={"seed": None}, callbacks=stop_at(2)).run()
    chain: Any = small_chain(tmp_path, options={"seed": None})
    chain.run(resume=True)
    header = DrawStore(tmp_path).headers()[0]
    assert header["provenance"]["seed"] == chain.sampler.noise.seed


# Other processes


def test_a_folder_of_checkpoints_has_one_writer(tmp_path):
    refused = []

    def begin_another(moment) -> None:
        if moment.tick.step == 3:
            for resume in (True, False):
                with pytest.raises(LockedError, match=r"0000\.pt is being written by another"):
                    small_chain(tmp_path, MemoryDraws(), checkpoint_dir=tmp_path).run(resume)
                refused.append(resume)

    chain = small_chain(tmp_path, MemoryDraws(), checkpoint_dir=tmp_path, callbacks=begin_another)
    assert len(chain.run()) == 4
    assert refused == [True, False]
    assert not is_locked(tmp_path / "checkpoints" / "0000.lock")


# Logs

DAMAGES = [
    b'{"loss":1}\n',
    b"\xff\xfe\n",
    b"[]\n",
    b"5\n",
    b'{"step":"x"}\n',
    b"\x00",
    b"{" * 50_000,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=range(len(DAMAGES)))
def test_a_damaged_log_stops_no_resume(tmp_path, damage):
    with pytest.raises(Stopped):
        small_chain(tmp_path, callbacks=stop_at(12)).run()
    log = tmp_path / "logs" / "0000.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:2], damage, *lines[2:], damage]))
    read_scalars(log)
    assert len(small_chain(tmp_path).run(resume=True)) == 4
    steps = read_scalars(log)["step"].tolist()
    assert steps[:2] == [0, 1]
    assert steps[-10:] == list(range(10, 20))


def test_a_log_that_cannot_be_made_stops_no_run(tmp_path):
    (tmp_path / "logs").write_text("a file, not a folder")
    with pytest.warns(StoreWarning, match="continues without its log"):
        assert len(small_chain(tmp_path).run()) == 4


def test_a_full_disk_ends_the_log_and_not_the_run(tmp_path, monkeypatch):
    class Full:
        def __init__(self, *_, **__) -> None:
            pass

        def write(self, *_) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        flush = close = write

    def full(self, path, first_step) -> None:
        self._file = Full()

    monkeypatch.setattr(ScalarLog, "_open", full)
    with pytest.warns(StoreWarning, match=r"continues without its log: the disk is full") as said:
        assert len(small_chain(tmp_path).run()) == 4
    assert len(said) == 1
