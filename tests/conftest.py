import pytest
import torch
from hypothesis import settings

# The same examples every time: a red test stays red until it is mended.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _one_thread():
    """Small tensors run faster on one thread, and the test workers share the cores."""
    torch.set_num_threads(1)
