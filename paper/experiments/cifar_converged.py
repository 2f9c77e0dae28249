"""CIFAR with cycles that fit their training data: 2,500 images and a small ResNet.

The images are not augmented, so that 20 epochs are enough; a further setting has augmentation, with
which they are not.
"""

from paper.experiments.deep_base import DeepConfig
from paper.experiments.deep_diversity import Diversity, DiversityConfig
from paper.experiments.deep_parallel import Parallel
from paper.experiments.deep_rivals import Rivals, RivalsConfig
from paper.experiments.deep_settings import AUGMENTED, CONVERGED, SMOKE_CONVERGED
from paper.experiments.deep_table import Table, TableConfig
from paper.experiments.deep_tempering import Tempering, TemperingConfig

BOTH = tuple(CONVERGED.values())


class ConvergedTable(Table):
    """Table 1."""

    name = "cifar-converged"
    summary = "error, NLL and calibration of eight methods on CIFAR, cycles that converge"
    presets = {
        "laptop": TableConfig(seeds=3, settings=(*BOTH, AUGMENTED), literal_seeds=0),
        "smoke": TableConfig(settings=(SMOKE_CONVERGED,), literal_seeds=0, ensemble_seeds=1),
    }


class ConvergedDiversity(Diversity):
    """Figure 3; lines between draws with statistics estimated anew, and interpolated."""

    name = "cifar-converged-diversity"
    summary = "distances, lines and single errors of the draws of cifar-converged"
    presets = {
        "laptop": DiversityConfig(
            seeds=3, settings=(CONVERGED["cifar100"],), refreshed=2000, test=2000
        ),
        "smoke": DiversityConfig(
            settings=(SMOKE_CONVERGED,), scaled=4, points=3, refreshed=40, test=40
        ),
    }


class ConvergedParallel(Parallel):
    """Table 2."""

    name = "cifar-converged-parallel"
    summary = "one cyclical chain beside four chains, on CIFAR-100, cycles that converge"
    presets = {
        "laptop": DeepConfig(seeds=1, settings=(CONVERGED["cifar100"],)),
        "smoke": DeepConfig(settings=(SMOKE_CONVERGED,)),
    }


class ConvergedTempering(Tempering):
    """Figures 6 and 7."""

    name = "cifar-converged-tempering"
    summary = "NLL and error of cSGLD on CIFAR-100 by temperature, cycles that converge"
    presets = {
        "laptop": TemperingConfig(
            settings=(CONVERGED["cifar100"],),
            temperatures=(1.0, 0.1, 0.01, 0.001, 0.0),
            draws_per_cycle=6,
        ),
        "smoke": TemperingConfig(settings=(SMOKE_CONVERGED,), temperatures=(1.0, 0.1, 0.0)),
    }


class ConvergedRivals(Rivals):
    """What people would use instead."""

    name = "cifar-converged-rivals"
    summary = "cSGHMC beside ensembles, dropout, SWAG and Laplace, on CIFAR-10"
    presets = {
        "laptop": RivalsConfig(
            seeds=3, settings=(CONVERGED["cifar10"],), lr_factors=(0.5, 1.0, 2.0, 4.0)
        ),
        "smoke": RivalsConfig(settings=(SMOKE_CONVERGED,), draws=3),
    }
