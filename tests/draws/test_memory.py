"""What only draws in memory do."""

import pickle

import torch

from csgmcmc import MemoryDraws


def test_what_does_not_change_is_kept_once():
    frozen, moving = torch.arange(3.0), torch.zeros(2)
    draws = MemoryDraws()
    for step in range(3):
        draws.append({"frozen": frozen, "moving": moving + step}, step=step)
    frozen += 1  # a copy was kept
    draws.append({"frozen": frozen, "moving": moving}, step=3)
    for kept in (draws, pickle.loads(pickle.dumps(draws))):
        tensors = [draw.tensors() for draw in kept]
        places = [each["frozen"].data_ptr() for each in tensors]
        assert len(set(places[:3])) == 1
        assert places[3] != places[0]
        assert len({each["moving"].data_ptr() for each in tensors}) == 4
        assert [each["frozen"][0].item() for each in tensors] == [0, 0, 0, 1]
        assert [each["moving"][0].item() for each in tensors] == [0, 1, 2, 0]
