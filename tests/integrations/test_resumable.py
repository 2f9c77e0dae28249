"""`ResumableLoader` continues from any batch with the same order and transforms."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from csgmcmc.errors import SettingsMismatchError
from csgmcmc.integrations.lightning import ResumableLoader

BATCHES = 6


class Noisy(Dataset):
    """Numbers, augmented from torch's global generator."""

    def __len__(self) -> int:
        return 4 * BATCHES

    def __getitem__(self, index):
        return index + 0.1 * torch.randn(())


def make(seed: int, own: bool) -> ResumableLoader:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(8) if own else None
    return ResumableLoader(DataLoader(Noisy(), batch_size=4, shuffle=True, generator=generator))


def take(loader: ResumableLoader, count: int) -> list[torch.Tensor]:
    """Some batches, as a Trainer takes them: epoch after epoch."""
    batches: list[torch.Tensor] = []
    while len(batches) < count:
        for batch in loader:
            batches.append(batch)
            if len(batches) == count:
                break
    return batches


@pytest.mark.parametrize("own", [False, True], ids=["global generator", "own generator"])
@pytest.mark.parametrize("stop", [0, 1, 5, 6, 7, 11, 12, 17])
def test_resume_from_any_batch(stop, own):
    wanted = take(make(4, own), 3 * BATCHES)
    first = make(4, own)
    take(first, stop)
    state = first.state_dict()
    second = make(5, own)
    second.load_state_dict(state)
    iter(second)  # as Lightning does now and then
    assert second.state_dict() is state  # nothing has happened before a batch is asked for
    for ours, theirs in zip(take(second, 3 * BATCHES - stop), wanted[stop:], strict=True):
        assert torch.equal(ours, theirs)


def test_iterating_again_continues_from_current_position():
    loader = ResumableLoader([1, 2, 3])
    assert next(iter(loader)) == 1
    assert list(loader) == [2, 3, 1]
    assert len(loader) == 3


def test_resume_with_different_data_raises():
    state = make(4, own=False).state_dict()
    other = ResumableLoader(DataLoader(Noisy(), batch_size=8, shuffle=True))
    with pytest.raises(SettingsMismatchError, match=r"data\.batches"):
        other.load_state_dict(state)


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        ([], "data is empty"),
        (DataLoader(Noisy(), num_workers=1, persistent_workers=True), "persistent_workers=False"),
    ],
    ids=["empty", "workers"],
)
def test_loader_that_cannot_be_resumed_raises(loader, words):
    with pytest.raises(ValueError, match=words):
        ResumableLoader(loader)
