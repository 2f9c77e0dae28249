import os

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# The same examples every time: a red test stays red until it is mended.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
# Otherwise they also depend on constants of the modules that earlier tests have imported.
providers._get_local_constants = providers.Constants  # pyright: ignore[reportPrivateUsage]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    """Tests kill processes, never the machine: flushing would only make them wait.

    That files are flushed, and in which order, is tested in tests/draws/test_store.py.
    """
    monkeypatch.setattr(os, "fsync", lambda _: None)
