"""TensorBoard's own reader, on what the callback of docs/howto/tensorboard.md has written."""

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

import csgmcmc
from csgmcmc.loop import StepInfo, read_scalars

STEPS = 40


def test_a_callback_logs_the_scalars_of_the_log(tmp_path):
    inputs = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=10)
    model, loss = nn.Linear(3, 1), nn.functional.mse_loss
    sampler = csgmcmc.SGHMC(model.parameters(), lr=0.05, num_data=40, temperature=0.5, seed=0)
    schedule = csgmcmc.Cyclical(STEPS, cycles=2, exploration=0.5, draws_per_cycle=3)
    store, board = csgmcmc.DrawStore(tmp_path), SummaryWriter(str(tmp_path / "events"))
    names = ("loss", "lr", "temperature")

    def log(info: StepInfo) -> None:
        for name in names:
            board.add_scalar(name, getattr(info, name), info.tick.step)

    options = {"progress": False, "callbacks": log}
    csgmcmc.Chain(model, loss, loader, sampler, schedule, store, **options).run()
    board.close()
    found = EventAccumulator(str(tmp_path / "events"))
    found.Reload()
    scalars = read_scalars(tmp_path / "logs" / "0000.jsonl")
    for name in names:
        events = found.Scalars(name)
        assert [event.step for event in events] == list(range(STEPS))
        assert [event.value for event in events] == pytest.approx(scalars[name].tolist(), rel=1e-6)
