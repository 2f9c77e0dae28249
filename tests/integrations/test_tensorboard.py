"""TensorBoard's own reader, on what a chain has written."""

import sys

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc
from csgmcmc.loop import read_scalars

STEPS = 40


def make_chain(folder, **options) -> csgmcmc.Chain:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, 3, generator=generator)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=10)
    model = nn.Linear(3, 1)
    sampler = csgmcmc.SGHMC(model.parameters(), lr=0.05, num_data=40, temperature=0.5, seed=0)
    schedule = csgmcmc.Cyclical(STEPS, cycles=2, exploration=0.5, draws_per_cycle=3)
    store = csgmcmc.DrawStore(folder)
    return csgmcmc.Chain(
        model,
        nn.functional.mse_loss,
        loader,
        sampler,
        schedule,
        store,
        progress=False,
        **options,
    )


def events_of(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_events_are_the_scalars_of_the_log(tmp_path):
    make_chain(tmp_path).run()
    events = events_of(tmp_path / "logs" / "0000")
    log = read_scalars(tmp_path / "logs" / "0000.jsonl")
    assert set(events) == {"loss", "lr", "temperature", "draws"}
    for tag, found in events.items():
        assert [step for step, _ in found] == list(range(STEPS))
        assert [value for _, value in found] == pytest.approx(log[tag].tolist(), rel=1e-6)
    assert events["draws"][-1][1] == 6
    assert {value for _, value in events["temperature"]} == {0.0, 0.5}


def test_a_run_that_goes_on_has_each_step_once(tmp_path, monkeypatch):
    # Files of one second are read in the order of their numbers as text: 10 before 9.
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))

    def stop(moment):
        if moment.tick.step == 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_chain(tmp_path, callbacks=stop, checkpoint_every=10).run()
    make_chain(tmp_path, checkpoint_every=10).run(resume=True)
    events = events_of(tmp_path / "logs" / "0000")
    assert [step for step, _ in events["loss"]] == list(range(STEPS))


def test_without_tensorboard_the_log_is_there_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    make_chain(tmp_path).run()
    assert len(read_scalars(tmp_path / "logs" / "0000.jsonl")["loss"]) == STEPS
    assert not (tmp_path / "logs" / "0000").exists()
