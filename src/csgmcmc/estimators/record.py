"""What an estimator keeps of its run, for a check."""

from dataclasses import dataclass

from torch import nn

from csgmcmc.samplers import Sampler
from csgmcmc.schedules import Schedule
from csgmcmc.stepper import LoopWords

WORDS = LoopWords(steps="epochs", batch_size="batch_size", burn_in=None, stacking=None)


@dataclass(frozen=True)
class RunRecord:
    """What a check needs of a run, as `csgmcmc.checks.StepperLike`."""

    model: nn.Module
    sampler: Sampler
    schedule: Schedule
    chain_id: int
    batches_per_step: float = 1.0
    words: LoopWords = WORDS
