"""Processes side by side, and Ctrl-C."""

import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children

import pytest

from csgmcmc.processes import side_by_side


@pytest.fixture(autouse=True)
def heed_interrupts():
    """A shell that starts tests in the background lets them ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_oneself() -> str:
    signal.raise_signal(signal.SIGINT)
    return "went on"


def test_a_process_leaves_ctrl_c_to_the_one_that_started_it():
    found = dict(side_by_side(interrupt_oneself, [("a", ()), ("b", ())], jobs=2))
    assert found == {"a": "went on", "b": "went on"}


def test_ctrl_c_while_a_process_is_started_is_not_lost(monkeypatch):
    submit = ProcessPoolExecutor.submit

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)
        return submit(*arguments)

    before = set(active_children())  # of earlier tests: joblib's, and loaders'
    monkeypatch.setattr(ProcessPoolExecutor, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(side_by_side(interrupt_oneself, [("a", ()), ("b", ())], jobs=2))
    assert set(active_children()) <= before
