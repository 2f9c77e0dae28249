"""Whether to believe a posterior: that it predicts, was sampled, and is calibrated."""

import html
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from rich.console import Console

from csgmcmc.checks import baselines, calibration, predictions, sampling
from csgmcmc.checks.evaluation import Array, Evaluation, evaluate, unscaled
from csgmcmc.checks.parameter_temperatures import ParameterReport
from csgmcmc.checks.sampling import Run, as_run
from csgmcmc.checks.verdict import Numbers, Verdict
from csgmcmc.loaders import Loss
from csgmcmc.loop import Chain, Stepper
from csgmcmc.posterior import Posterior

Metrics = Mapping[str, Callable[[Array, Any], float]]
"""Numbers by name from predictions, probabilities (points, classes) or means, and targets."""

VERDICTS = ("learned", "sampling", "mixing", "diverse", "calibrated", "better")
WIDTH = 100  # of a line
NOT_LEARNED = "the network has not learned"
RETURNS_PROBS = "the model returns probabilities, where likelihood and cross_entropy take logits"
REMOVE_SOFTMAX = "return logits: remove the softmax at the end of the model"


@dataclass(frozen=True, repr=False)
class Check:
    """The verdicts of `check`: yes, no, unknown, or not asked for.

    An answer is yes if a 99% confidence interval lies inside the tolerance, no if it lies outside,
    and unknown in between. A wrong N makes all other answers unknown, and so does a network that
    has not learned. A run at a temperature of at most 1 / N claims no sample of the posterior, and
    is asked whether its draws are diverse instead.

    Attributes:
        learned: is the average better than class frequencies, and than half of a linear model?
        sampling: is N right, does injected noise dominate, and is the temperature as requested?
        mixing: do the predictions of chains, or cycles, or the halves of one, agree?
        diverse: do the draws differ, so that averaging them lowers the NLL?
        calibrated: are the probabilities right, or is the coverage of intervals?
        better: is the average better than the best of its draws, picked and scaled by a
            temperature on other data, and than the network that it started from?
        numbers: everything measured, by name. The NLL of a data point is the sum over its targets
            (labels, pixels, tokens, outputs); NLLs are reported per target, as the error is.
        parameters: noise and temperature of each parameter tensor, if the run is known.
    """

    learned: Verdict
    sampling: Verdict
    mixing: Verdict
    diverse: Verdict
    calibrated: Verdict
    better: Verdict
    numbers: Numbers
    parameters: dict[str, ParameterReport] = field(default_factory=dict)

    @property
    def advice(self) -> list[str]:
        """What to change, the likeliest cause first."""
        return [words for name in VERDICTS for words in getattr(self, name).advice]

    def rows(self) -> list[tuple[str, str]]:
        """The verdicts that say something, equal ones joined, and the advice, for a reader."""
        said = [(name, getattr(self, name)) for name in VERDICTS if getattr(self, name).words]
        joined = groupby(said, key=lambda each: each[1])
        rows = [(", ".join(name for name, _ in names), str(each)) for each, names in joined]
        return rows + [("change", words) for words in self.advice]

    def __str__(self) -> str:
        wrapped = partial(textwrap.fill, width=WIDTH, subsequent_indent=" " * 12)
        return "\n".join(wrapped(f"{f'{name} ':<12}{words}") for name, words in self.rows())

    def __repr__(self) -> str:
        answers = [f"{name}={getattr(self, name).answer}" for name in VERDICTS]
        return f"Check({', '.join(answers)})"

    def _repr_html_(self) -> str:
        """The verdicts in lines that wrap, for a notebook."""
        row = '<tr style="text-align:left;vertical-align:top"><th>{}</th><td>{}</td></tr>'
        rows = (row.format(name, html.escape(words)) for name, words in self.rows())
        return f'<table style="white-space:normal">{"".join(rows)}</table>'


def check(
    posterior: Posterior,
    loader: Iterable[Any],
    *,
    run: Chain | Stepper | None = None,
    loss: Loss | None = None,
    data: Iterable[Any] | None = None,
    metrics: Metrics | None = None,
    show: bool = False,
) -> Check:
    """Check whether a posterior predicts, was sampled, mixes and is calibrated.

    Every draw is evaluated once on the data of `loader`. The run is needed to judge the sampling.
    Random states, also those of the loaders' generators, are restored.

    Args:
        posterior: the draws and their likelihood.
        loader: held-out pairs of inputs and targets, or batches that the posterior's `split`
            turns into them.
        run: the `Chain` that made the draws, or its `Stepper`; by default `posterior.run`.
        loss: loss of the run, as `Chain` takes it; by default that of the chain.
        data: training data, as `Chain` takes them; by default those of the chain.
        metrics: functions of your own by name, from predictions (probabilities (points, classes),
            or means) and targets to a number; `numbers` has those of the average.
        show: print the verdicts.
    """
    training = as_run(posterior, run, loss, data)
    found = judge(posterior, evaluate(posterior, loader), training, metrics)
    if show:
        Console().print(str(found), highlight=False, markup=False, soft_wrap=True)
    return found


@np.errstate(invalid="ignore")  # of impossible targets
def judge(
    posterior: Posterior, evaluation: Evaluation, run: Run | None, metrics: Metrics | None = None
) -> Check:
    """The check of a posterior whose predictions have been evaluated."""
    numbers: Numbers = {}
    predictions.describe_draws(evaluation, numbers)
    for name, metric in (metrics or {}).items():
        if name in numbers:
            raise ValueError(f"metrics has {name!r}, which check measures itself: rename it")
        numbers[name] = float(metric(evaluation.averaged, evaluation.targets))
    drawn = [draw for draw in posterior.draws if draw.stage == "sample"] or posterior.draws
    of_run = unscaled(posterior, drawn)
    likelihood, fault = sampling.compare_likelihood(of_run, run), None
    if evaluation.returns_probs:
        fault = Verdict(False, RETURNS_PROBS, (REMOVE_SOFTMAX,))
    elif run is not None and likelihood is not None:
        fault = sampling.find_wrong_num_data(run, likelihood, numbers)
    if fault is not None:  # the one cause: the rest is worth asking once it is mended
        return Check(Verdict(None, ""), fault, *[Verdict(None, "")] * 4, numbers=numbers)
    learned = baselines.check_learned(evaluation, numbers)
    if learned.holds is False:
        loss = None if likelihood is None else likelihood.nll
        found = baselines.causes(evaluation, [] if run is None else run.stepper.problems, loss)
        unknown = [Verdict(None, NOT_LEARNED)] * 5
        return Check(replace(learned, advice=found), *unknown, numbers=numbers)
    sampled, parameters = sampling.check_sampling(of_run, run, likelihood, numbers)
    cold = "" if run is None else run.not_a_sample
    mixing = Verdict(None, cold, asked=False)
    if not cold:
        mixing = predictions.check_mixing(evaluation.of_run(), numbers)
    diverse = predictions.check_diversity(evaluation, numbers)
    if run is not None and not cold:
        diverse = Verdict(None, "", asked=False)
    calibrated = calibration.check_calibration(evaluation, numbers)
    better = predictions.check_average(evaluation, numbers)
    return Check(learned, sampled, mixing, diverse, calibrated, better, numbers, parameters)
