"""The tests of tests/devices, on a device made of the CPU's memory, in a process of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import sim_device
from tests.processes import PYTHONPATH

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_library_on_a_second_device():
    if reason := sim_device.why_not():
        pytest.skip(reason)
    command = [sys.executable, "-m", "pytest", "tests/devices", "--device=sim", "-q", "-n0"]
    # Workers of pytest-xdist tell each other who they are by such variables.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**env, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr[-2000:]
    assert int(re.findall(r"(\d+) passed", ended.stdout)[0]) > 0
