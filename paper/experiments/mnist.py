"""Networks that fit their training data within a cycle: a perceptron on 5,000 images of MNIST.

The paper claims something of such networks; its own are too large for a small machine. A run takes
about a minute, so that there are ten seeds, and there is no batch normalisation, so that lines
between draws are the literal ones. The paper has none of these tables on MNIST.
"""

from paper.experiments.deep_base import DeepConfig
from paper.experiments.deep_diversity import Diversity, DiversityConfig
from paper.experiments.deep_parallel import Parallel, Sensitivity, SensitivityConfig
from paper.experiments.deep_rivals import Rivals, RivalsConfig
from paper.experiments.deep_settings import MNIST, SMOKE_MNIST
from paper.experiments.deep_stages import Stages, StagesConfig
from paper.experiments.deep_table import Table, TableConfig
from paper.experiments.deep_tempering import Tempering, TemperingConfig
from paper.experiments.deep_uncertainty import DeepUncertainty, UncertaintyConfig


class MnistTable(Table):
    """Table 1."""

    name = "mnist"
    summary = "error, NLL and calibration of eight methods on MNIST, cycles that converge"
    presets = {  # noqa: RUF012  (the base declares it)
        "laptop": TableConfig(seeds=10, settings=(MNIST,), iteration_seeds=3),
        "smoke": TableConfig(seeds=2, settings=(SMOKE_MNIST,), literal_seeds=1, iteration_seeds=1),
    }


class MnistUncertainty(DeepUncertainty):
    """Figure 4."""

    name = "mnist-uncertainty"
    summary = "entropy on notMNIST of the networks of mnist, by method and temperature"
    presets = {  # noqa: RUF012  (the base declares it)
        "laptop": UncertaintyConfig(seeds=10, settings=(MNIST,)),
        "smoke": UncertaintyConfig(seeds=2, settings=(SMOKE_MNIST,), temperature_seeds=1),
    }


class MnistDiversity(Diversity):
    """Figure 3."""

    name = "mnist-diversity"
    summary = "distances, lines and single errors of the draws of mnist"
    presets = {  # noqa: RUF012  (the base declares it)
        "laptop": DiversityConfig(seeds=10, settings=(MNIST,)),
        "smoke": DiversityConfig(settings=(SMOKE_MNIST,), scaled=4, points=3, test=40),
    }


class MnistTempering(Tempering):
    """Figures 6 and 7."""

    name = "mnist-tempering"
    summary = "NLL and error of cSGLD on MNIST by temperature"
    presets = {  # noqa: RUF012  (the base declares it)
        "laptop": TemperingConfig(
            seeds=3,
            settings=(MNIST,),
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
    presets = {  # noqa: RUF012  (the base declares it)
        # Two seeds have the chains of table 1.
        "laptop": DeepConfig(seeds=2, settings=(MNIST,)),
        "smoke": DeepConfig(settings=(SMOKE_MNIST,)),
    }


class MnistSensitivity(Sensitivity):
    """Table 6."""

    name = "mnist-sensitivity"
    summary = "cSGLD beside parallel SGLD for other M and beta, on MNIST"
    presets = {  # noqa: RUF012  (the base declares it)
        "laptop": SensitivityConfig(seeds=2, settings=(MNIST,)),
        "smoke": SensitivityConfig(settings=(SMOKE_MNIST,), pairs=((2, 0.5),)),
    }


class MnistStages(Stages):
    """Sentences that no table of the paper tests."""

    name = "mnist-stages"
    summary = "noise from the first step, a rising temperature and super-convergence, on MNIST"
    presets = {  # noqa: RUF012  (the base declares it)
        "laptop": StagesConfig(seeds=3, settings=(MNIST,)),
        "smoke": StagesConfig(settings=(SMOKE_MNIST,), temperatures=("1",)),
    }


class MnistRivals(Rivals):
    """What people would use instead."""

    name = "mnist-rivals"
    summary = "cSGHMC beside ensembles, dropout, SWAG and Laplace, on MNIST"
    presets = {  # noqa: RUF012  (the base declares it)
        "laptop": RivalsConfig(seeds=3, settings=(MNIST,)),
        "smoke": RivalsConfig(settings=(SMOKE_MNIST,), draws=3),
    }
