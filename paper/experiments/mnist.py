"""Networks that fit their training data within a cycle: a perceptron on 5,000 images of MNIST.

The paper claims something of such networks; its own are too large for a small machine. A run takes
about a minute, so that there are ten seeds, and there is no batch normalisation, so that lines
between draws are the literal ones. The paper has none of these tables on MNIST.
"""

from paper.experiments.deep_settings import MNIST, SMOKE_MNIST
from paper.experiments.deep_table import Table, TableConfig


class MnistTable(Table):
    """Table 1."""

    name = "mnist"
    summary = "error, NLL and calibration of eight methods on MNIST, cycles that converge"
    presets = {  # noqa: RUF012  (the base declares it)
        "laptop": TableConfig(seeds=10, settings=(MNIST,), iteration_seeds=3),
        "smoke": TableConfig(seeds=2, settings=(SMOKE_MNIST,), literal_seeds=1, iteration_seeds=1),
    }
