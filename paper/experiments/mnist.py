"""Networks that fit their training data within a cycle: a perceptron on 5,000 images of MNIST.

The paper claims something of such networks; its own are too large for a small machine. A run takes
about a minute, so that there are ten seeds, and there is no batch normalisation, so that lines
between draws are the literal ones. The paper has none of these tables on MNIST.
"""

from paper.experiments.deep_base import DeepConfig
from paper.experiments.deep_diversity import Diversity, DiversityConfig
from paper.experiments.deep_parallel import Parallel, Sensitivity, SensitivityConfig
from paper.experiments.deep_rivals import Rivals, RivalsConfig
from paper.experiments.deep_settings import MNIST, SMALL_STEPS, SMALL_STEPS_OF_ALL, SMOKE_MNIST
from paper.experiments.deep_stages import Stages, StagesConfig
from paper.experiments.deep_table import Table, TableConfig
from paper.experiments.deep_tempering import Tempering, TemperingConfig
from paper.experiments.deep_uncertainty import DeepUncertainty, UncertaintyConfig


class MnistTable(Table):
    """Table 1."""

    name = "mnist"
    summary = "error, NLL and calibration of eight methods on MNIST, cycles that converge"
    presets = {
        "laptop": TableConfig(seeds=10, settings=(MNIST,), iteration_seeds=3),
        "smoke": TableConfig(seeds=2, settings=(SMOKE_MNIST,), literal_seeds=1, iteration_seeds=1),
    }


class MnistUncertainty(DeepUncertainty):
    """Figure 4."""

    name = "mnist-uncertainty"
    summary = "entropy on notMNIST of the networks of mnist, by method and temperature"
    presets = {
        "laptop": UncertaintyConfig(seeds=5, settings=(MNIST,), temperature_seeds=2),
        "smoke": UncertaintyConfig(seeds=2, settings=(SMOKE_MNIST,), temperature_seeds=1),
    }


class MnistDiversity(Diversity):
    """Figure 3."""

    name = "mnist-diversity"
    summary = "distances, lines and single errors of the draws of mnist"
    presets = {
        "laptop": DiversityConfig(seeds=5, settings=(MNIST,)),
        "smoke": DiversityConfig(settings=(SMOKE_MNIST,), scaled=4, points=3, test=40),
    }


class MnistTempering(Tempering):
    """Figures 6 and 7."""

    name = "mnist-tempering"
    summary = "NLL and error of cSGLD on MNIST by temperature"
    presets = {
        "laptop": TemperingConfig(
            seeds=3,
            settings=(MNIST, SMALL_STEPS),
            temperatures=(1.0, 0.1, 0.01, 0.001, 0.0001, 0.0),
            explorations=(0.5, 0.8),
            draws_per_cycle=12,
        ),
        "smoke": TemperingConfig(
            settings=(SMOKE_MNIST,), temperatures=(1.0, 0.01, 0.0), explorations=(0.5, 0.6)
        ),
    }


class MnistParallel(Parallel):
    """Table 2."""

    name = "mnist-parallel"
    summary = "one cyclical chain beside four chains, on MNIST"
    presets = {
        "laptop": DeepConfig(seeds=3, settings=(MNIST,)),
        "smoke": DeepConfig(settings=(SMOKE_MNIST,)),
    }


class MnistSensitivity(Sensitivity):
    """Table 6."""

    name = "mnist-sensitivity"
    summary = "cSGLD beside parallel SGLD for other M and beta, on MNIST"
    presets = {
        "laptop": SensitivityConfig(seeds=3, settings=(MNIST,)),
        "smoke": SensitivityConfig(settings=(SMOKE_MNIST,), pairs=((2, 0.5),)),
    }


class MnistStages(Stages):
    """Sentences that no table of the paper tests."""

    name = "mnist-stages"
    summary = "noise from the first step, a rising temperature and super-convergence, on MNIST"
    presets = {
        "laptop": StagesConfig(seeds=3, settings=(MNIST, SMALL_STEPS_OF_ALL)),
        "smoke": StagesConfig(settings=(SMOKE_MNIST,), temperatures=("1",)),
    }


class MnistRivals(Rivals):
    """What people would use instead."""

    name = "mnist-rivals"
    summary = "cSGHMC beside ensembles, dropout, SWAG and Laplace, on MNIST"
    presets = {
        "laptop": RivalsConfig(seeds=3, settings=(MNIST,)),
        "smoke": RivalsConfig(settings=(SMOKE_MNIST,), draws=3),
    }
