"""Help needs no optional package, and does not wait for slow imports."""

import subprocess
import sys

import pytest

OPTIONAL = ("matplotlib", "optuna", "lightning", "transformers", "accelerate", "tensorboard")
SLOW = ("sklearn", "scipy", "pandas", "arviz_stats")
PROGRAM = f"""
import sys
sys.modules.update(dict.fromkeys({OPTIONAL + SLOW}))  # importing them raises
from csgmcmc.cli import app
app(sys.argv[1:])
"""


@pytest.mark.parametrize("command", [(), ("inspect",), ("report",)])
def test_help_needs_neither_extras_nor_slow_packages(command):
    program = [sys.executable, "-c", PROGRAM, *command, "--help"]
    result = subprocess.run(program, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "Usage" in result.stdout
