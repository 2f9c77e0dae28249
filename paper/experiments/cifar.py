"""The experiments on CIFAR, at the paper's size and at one for a laptop.

At the preset laptop a cycle has three epochs, too few to come near a mode: it shows the method
where it is not meant to be used. The cycles of `mnist` fit their training data.
"""

from paper.experiments.deep_base import DeepConfig
from paper.experiments.deep_diversity import Diversity, DiversityConfig
from paper.experiments.deep_parallel import Parallel, Sensitivity, SensitivityConfig
from paper.experiments.deep_settings import LAPTOPS, PAPER, SMOKE
from paper.experiments.deep_table import Table, TableConfig
from paper.experiments.deep_tempering import Tempering, TemperingConfig

BOTH = tuple(PAPER.values())


class CifarTable(Table):
    """Table 1."""

    name = "cifar"
    summary = "error, NLL and calibration of eight methods on CIFAR-10 and CIFAR-100"
    presets = {
        "paper": TableConfig(seeds=3, settings=BOTH),
        "laptop": TableConfig(seeds=3, settings=tuple(LAPTOPS.values()), literal_seeds=1),
        "smoke": TableConfig(seeds=2, settings=tuple(SMOKE.values()), literal_seeds=1),
    }


class CifarDiversity(Diversity):
    """Figure 3."""

    name = "cifar-diversity"
    summary = "distances, lines and single errors of the draws of table 1"
    presets = {
        "paper": DiversityConfig(settings=BOTH),
        "laptop": DiversityConfig(
            seeds=3, settings=tuple(LAPTOPS.values()), refreshed=2000, test=2000
        ),
        "smoke": DiversityConfig(
            settings=(SMOKE["cifar10"],), scaled=4, points=3, refreshed=40, test=40
        ),
    }


class CifarParallel(Parallel):
    """Table 2."""

    name = "cifar-parallel"
    summary = "one cyclical chain beside four chains, on CIFAR"
    presets = {
        "paper": DeepConfig(settings=BOTH),
        "laptop": DeepConfig(settings=(LAPTOPS["cifar10"],)),
        "smoke": DeepConfig(settings=(SMOKE["cifar10"],)),
    }


class CifarSensitivity(Sensitivity):
    """Table 6."""

    name = "cifar-sensitivity"
    summary = "cSGLD beside parallel SGLD for other M and beta, on CIFAR-10"
    presets = {
        "paper": SensitivityConfig(settings=(PAPER["cifar10"],)),
        "laptop": SensitivityConfig(settings=(LAPTOPS["cifar10"],)),
        "smoke": SensitivityConfig(settings=(SMOKE["cifar10"],), pairs=((2, 0.8), (5, 0.6))),
    }


class CifarTempering(Tempering):
    """Figures 6 and 7."""

    name = "cifar-tempering"
    summary = "NLL and error of cSGLD on CIFAR by temperature"
    presets = {
        "paper": TemperingConfig(settings=BOTH),
        "laptop": TemperingConfig(settings=(LAPTOPS["cifar10"],)),
        "smoke": TemperingConfig(settings=(SMOKE["cifar10"],), temperatures=(1.0, 0.01, 0.0)),
    }
