"""Whether to believe a posterior: sampling, mixing, calibration, and the gain over one draw."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from csgmcmc.checks.evaluation import Evaluation, evaluate
from csgmcmc.checks.parameter_temperatures import ParameterReport
from csgmcmc.checks.predictions import check_predictions
from csgmcmc.checks.sampling import Run, as_run, check_sampling
from csgmcmc.checks.verdict import Advice, Numbers, Verdict
from csgmcmc.loaders import Loss
from csgmcmc.loop import Chain, Stepper
from csgmcmc.posterior import Posterior

VERDICTS = ("sampling", "mixing", "calibrated", "better")


@dataclass(frozen=True, repr=False)
class Check:
    """The verdicts of `check`.

    Attributes:
        sampling: is N right, does injected noise dominate, and do the draws have the requested
            temperature?
        mixing: do the predictions of chains, or cycles, or the halves of one, agree?
        calibrated: are the probabilities calibrated, as far as the number of points can show?
        better: does the average beat the best of its draws, if that is picked on other data?
        advice: what to change.
        numbers: everything measured, by name. The NLL of a data point is the sum over its targets
            (labels, pixels, tokens, outputs); NLLs are reported per target, the unit of the error:
            the sum over the data, divided by the number of all targets.
        parameters: noise and temperature of each parameter tensor, if the run is known.
    """

    sampling: Verdict
    mixing: Verdict
    calibrated: Verdict
    better: Verdict
    advice: Advice
    numbers: Numbers
    parameters: dict[str, ParameterReport] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{name:<12}{getattr(self, name)}" for name in VERDICTS]
        return "\n".join(lines + [f"{'change':<12}{advice}" for advice in self.advice])

    def __repr__(self) -> str:
        answers = [f"{name}={getattr(self, name).holds}" for name in VERDICTS]
        return f"Check({', '.join(answers)})"


def check(
    posterior: Posterior,
    loader: Iterable[Any],
    *,
    run: Chain | Stepper | None = None,
    loss: Loss | None = None,
    data: Iterable[Any] | None = None,
    show: bool = False,
) -> Check:
    """Check whether the draws were sampled, mix and are calibrated, in words and numbers.

    Every draw is evaluated once on the data of `loader`. The run is needed to judge the sampling:
    whether N times the loss is the likelihood's NLL of all data, the temperature of each parameter
    tensor, and injected noise against minibatch noise. Random states, also those of the loaders'
    generators, are restored.

    Args:
        posterior: the draws and their likelihood.
        loader: held-out pairs of inputs and targets, or batches that the posterior's `split`
            turns into them.
        run: the `Chain` that made the draws, or its `Stepper`; by default `posterior.run`.
        loss: loss of the run, as `Chain` takes it; by default that of the chain.
        data: training data, as `Chain` takes them; by default those of the chain.
        show: print the verdicts.
    """
    training = as_run(posterior, run, loss, data)
    found = judge(posterior, evaluate(posterior, loader), training)
    if show:
        Console().print(str(found), highlight=False, markup=False, soft_wrap=True)
    return found


def judge(posterior: Posterior, evaluation: Evaluation, run: Run | None) -> Check:
    """The check of a posterior whose predictions have been evaluated."""
    numbers: Numbers = {}
    advice: Advice = []
    mixing, calibrated, better = check_predictions(evaluation, numbers, advice)
    sampling, parameters = check_sampling(posterior, run, numbers, advice)
    return Check(sampling, mixing, calibrated, better, advice, numbers, parameters)
