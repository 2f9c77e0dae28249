"""`init_distributed` chooses the device of a process, whichever accelerator there is."""

import pytest
import torch

from csgmcmc import init_distributed
from tests.devices.support import assert_same_draws, make_chain, network


@pytest.fixture
def back_to_the_first(device):
    yield
    if device.type != "cpu":
        torch.get_device_module(device.type).set_device(0)


def test_a_process_has_the_device_of_its_number(device, monkeypatch, back_to_the_first):
    if device.type == "mps":
        pytest.skip("mps has no process groups, and the layout is that of the CPU")
    for rank in range(torch.accelerator.device_count()):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        layout = init_distributed()
        assert layout.device == torch.device(device.type, rank)
        assert torch.ones(1, device=device.type).device == layout.device


def test_a_chain_of_a_layout(device):
    layout = init_distributed()
    chain = make_chain(network().to(layout.device), layout=layout)
    assert_same_draws(chain.run(), make_chain(network()).run(), device)
