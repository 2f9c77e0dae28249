"""How a trial splits a budget into networks and cycles: one network, two, or one for each cycle.

Short cycles make networks that are not trained, for which it is always better to continue. So the
trial keeps the steps of a cycle and takes fewer data, in batches that are smaller by the same
factor, and so as many epochs. It trains two networks for two cycles each. The average over both
cycles of a network is compared with that over the first cycles of both networks, on validation data
and after temperature scaling.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from csgmcmc.arguments import check_kind
from csgmcmc.loaders import Loss, size_of
from csgmcmc.loop import Chain
from csgmcmc.posterior import Posterior
from csgmcmc.randomness import seeded
from csgmcmc.schedules import Cyclical

BUDGET = 0.1  # of the trial, in examples
TRIAL_CYCLES = 4
LEARNED = 0.1  # by which a trial that counts beats the frequencies of the classes, in their NLL
CLEAR = 2.0  # standard errors by which restarts must be ahead for a network in each cycle


@dataclass(frozen=True, eq=False)
class SuggestedSplit:
    """The result of a trial.

    Attributes:
        schedule: the schedule that was given, with the restarts that are suggested.
        continued: NLL, after temperature scaling, of the average over two cycles of a network; the
            mean of two networks.
        restarted: that of the average over one cycle of each of them.
        error: standard error of their difference, over the validation data.
    """

    schedule: Cyclical
    continued: float
    restarted: float
    error: float

    def __str__(self) -> str:
        cycles, every = self.schedule.cycles, self.schedule.restart_every
        every = every if self.schedule.restarts else cycles
        return (
            f"two cycles of a network: NLL {self.continued:.4f}; a cycle of each of two: "
            f"{self.restarted:.4f} (difference {self.restarted - self.continued:+.4f}, standard "
            f"error {self.error:.4f}): networks x cycles {-(-cycles // every)} x {every}"
        )


def choose_split(
    make_model: Callable[[], nn.Module],
    loss: Loss,
    make_loader: Callable[[float], Iterable[Any]],
    validation: Iterable[Any],
    make_sampler: Callable[[list[nn.Parameter], int], torch.optim.Optimizer],
    schedule: Cyclical,
    *,
    seed: int = 0,
    posterior_options: dict[str, Any] | None = None,
    **chain_options: Any,
) -> SuggestedSplit:
    """Choose between cycles x one network, cycles / 2 x two, and one cycle of each network.

    The trial takes a tenth of the examples of `schedule`, in as many steps as four of its cycles.
    Restarts are suggested if they are ahead: two networks, if that is by less than two standard
    errors. A trial that learns next to nothing, or diverges, suggests none.

    Args:
        make_model: makes the network, newly initialised.
        loss: mean negative log-likelihood, as `Chain` takes it.
        make_loader: makes a loader of a share of the training data, e.g. 0.13, in batches that are
            smaller by the same factor.
        validation: loader of held-out data.
        make_sampler: makes the sampler of parameters and N, the size of the share.
        schedule: the one to be run, without restarts; at least two cycles.
        seed: of the trial: initial weights and order of the data.
        posterior_options: arguments of `Posterior`, e.g. `{"likelihood": "gaussian"}`. Predicted
            numbers are compared without scaling.
        chain_options: further arguments of `Chain`, e.g. `initialise=...`.
    """
    check_kind("schedule", schedule, Cyclical, "a Cyclical")
    if schedule.cycles < 2 or schedule.restart != "continue":
        raise ValueError(f"schedule must have two cycles or more, and no restart, got {schedule}")
    share = min(1.0, BUDGET * schedule.cycles / TRIAL_CYCLES)
    plain = {"burn_in": 0, "weight_decay_scales": None, "temperature_scales": None}
    steps = {"steps": TRIAL_CYCLES * schedule.cycle_length, "cycles": TRIAL_CYCLES}
    trial = replace(schedule, **steps, **plain, restart="fresh", restart_every=2)
    with seeded(seed):
        model, loader = make_model(), make_loader(share)
        params = [param for param in model.parameters() if param.requires_grad]
        options = {"progress": False, "watch": False, **chain_options}
        sampler = make_sampler(params, size_of(loader))
        draws = Chain(model, loss, loader, sampler, trial, **options).run()
    posterior = Posterior(model, draws, progress=False, **(posterior_options or {}))
    scores, have_learned = [], True
    for cycles in ((0, 1), (2, 3), (0, 2)):
        chosen = posterior.with_draws([draw for draw in draws if draw.cycle in cycles])
        found, is_learned = _scores(chosen, validation)
        scores.append(found)
        have_learned = have_learned and is_learned
    continued, restarted = (scores[0] + scores[1]) / 2, scores[2]
    gain = restarted - continued
    error = float(gain.std(ddof=1)) / math.sqrt(len(gain))
    if gain.mean() > 0 and have_learned:
        every = 1 if gain.mean() > CLEAR * error else -(-schedule.cycles // 2)
        schedule = replace(schedule, restart="fresh", restart_every=every)
    return SuggestedSplit(schedule, -float(continued.mean()), -float(restarted.mean()), error)


def _scores(posterior: Posterior, validation: Iterable[Any]) -> tuple[NDArray[np.float64], bool]:
    """Log-likelihood of each data point, of classes after scaling; and whether that is learned."""
    from csgmcmc.checks.baselines import simple_scores  # noqa: PLC0415  (slow to import)
    from csgmcmc.checks.calibration import fit_temperature, scaled_scores  # noqa: PLC0415
    from csgmcmc.checks.evaluation import evaluate  # noqa: PLC0415

    found = evaluate(posterior, validation)
    scores, simple = found.average_scores(), simple_scores(found)
    if found.probs is not None:
        logs, points = np.log(np.maximum(found.probs, 1e-300)), found.point_of_target
        scaling = fit_temperature(logs, found.targets, points)
        each = scaled_scores(logs, found.targets, scaling.value)
        scores = np.bincount(points, each).astype(np.float64)
    least = LEARNED * (1.0 if found.probs is None else abs(simple.mean()))
    return scores, bool(scores.mean() - simple.mean() > least)
