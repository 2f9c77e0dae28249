"""The common part of both estimators: prepare the table, run the chains, predict with the draws."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

from csgmcmc.arguments import check_count, check_flag, check_number, shown
from csgmcmc.chain import Chain, StepInfo
from csgmcmc.checks import Check
from csgmcmc.draws import Draw, MemoryDraws
from csgmcmc.errors import DivergedError
from csgmcmc.estimators.batches import Batches
from csgmcmc.estimators.folds import folds, rows_without, weights_of_cycles
from csgmcmc.estimators.ladder import Ladder
from csgmcmc.estimators.network import Module, Perceptrons, own_module, perceptron
from csgmcmc.estimators.record import RunRecord
from csgmcmc.estimators.runs import (
    Plan,
    Run,
    check_n_jobs,
    divided,
    draws_of,
    effective_jobs,
    in_parallel,
    losses_of,
)
from csgmcmc.posterior import Posterior
from csgmcmc.randomness import seeded
from csgmcmc.recipe import Recipe
from csgmcmc.samplers import Sampler
from csgmcmc.tuning import suggest_lr

MOST_CHAINS = 10_000
RUN_SEED_OFFSET = 20_000  # from the seeds of initial weights and of the order of rows
MIN_EPOCHS = 20  # of a fit, by default
MIN_ROWS_TO_WEIGH = 20  # with fewer rows nothing is held out, and all cycles have equal weights
RETRY_SHARE = 0.3  # of the step size, after an attempt that diverged
ATTEMPTS = 4
WEIGHT_THAT_COUNTS = 0.05  # of a cycle, for `check`
FALLBACK_LR = 0.3
PREDICTION_BATCH_SIZE = 4096
MOST_ROWS_TO_CHECK = 2000  # training rows that are kept, for `check` to evaluate gradients on


class BayesianMLP(BaseEstimator):
    """Base class; the two estimators define what the outputs of the network mean."""

    _likelihood = ""
    """The likelihood, as `Posterior` takes it."""
    _exploration_temperature = 0.0
    _min_steps = 4000
    """By default a fit takes at least this many steps."""
    _chains_together = True
    """Whether the chains of a perceptron may share one step size, and so run as one stack."""
    # The share of a range test's suggestion that is used, and the most that is: wide priors allow
    # larger weights, and so larger curvatures, than those that the test begins with.
    _lr_share, _most_lr = 0.3, 1.0

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int],
        activation: str,
        *,
        module: Module | None,
        sampler: str,
        lr: float | None,
        temperature: float | tuple[float, float],
        prior_scale: float | tuple[float, float],
        epochs: float | None,
        chains: int,
        cycles: int,
        exploration: float,
        draws_per_cycle: int,
        batch_size: int,
        random_state: int | np.random.RandomState | None,
        verbose: bool,
        n_jobs: int | None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.module = module
        self.sampler = sampler
        self.lr = lr
        self.temperature = temperature
        self.prior_scale = prior_scale
        self.epochs = epochs
        self.chains = chains
        self.cycles = cycles
        self.exploration = exploration
        self.draws_per_cycle = draws_per_cycle
        self.batch_size = batch_size
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    # For subclasses

    def _complete(self, network: nn.Module, outputs: int) -> nn.Module:
        """The model that is sampled, around the network."""
        return network

    def _targets(self, y: ArrayLike) -> Tensor:
        """Targets as the likelihood takes them."""
        raise NotImplementedError

    def _loss(self, outputs: Any, columns: Any) -> Tensor:
        """Mean weighted negative log-likelihood of a minibatch, one number for each chain."""
        raise NotImplementedError

    def _range_test_loss(self, outputs: Any, columns: Any) -> Tensor:
        """The loss whose curvature limits the step size."""
        return self._loss(outputs, columns)

    def _before_step(self, model: nn.Module, sampler: Sampler) -> Callable[[float], object]:
        """A function to call before each step, with the schedule's share of the step size."""
        return lambda _: None

    def _groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Groups of the sampled parameters; those with a ladder of priors have no own one."""
        return [{"params": [param for param in model.parameters() if param.requires_grad]}]

    def _plausible(self) -> bool:
        """Whether the draws can be those of a stable run."""
        return True

    # Fitting

    def _fit(
        self,
        X: NDArray[np.float64],
        targets: Tensor,
        labels: NDArray[np.int64],
        outputs: int,
        sample_weight: NDArray[np.float64],
    ) -> Self:
        """Sample the weights of networks with `outputs` outputs; folds have equal `labels`."""
        check_count("batch_size", self.batch_size, at_least=1)
        chains = check_count("chains", self.chains, at_least=1, below=MOST_CHAINS)
        if self.lr is not None:
            self.lr_ = check_number("lr", self.lr, above=0)
        ladder = Ladder.of(self.prior_scale, self.temperature, self.cycles)
        check_flag("verbose", self.verbose)
        check_n_jobs(self.n_jobs)
        random = _random(self.random_state)
        seed = int(random.randint(np.iinfo(np.int32).max))
        self.scaler_ = StandardScaler().fit(X, sample_weight=sample_weight)
        features = torch.from_numpy(self.scaler_.transform(X)).float()
        weights = torch.from_numpy(sample_weight / sample_weight.mean()).float()
        every_row = torch.arange(len(X))
        weigh = len(set(ladder.rungs)) > 1 and len(X) >= MIN_ROWS_TO_WEIGH
        # A single chain leaves out a fifth, too.
        held_out = folds(labels, max(chains, 5), random)[:chains] if weigh else []
        rows = rows_without(held_out, len(X)) if weigh else [every_row] * chains
        self._is_perceptron = self.module is None
        total = float(sample_weight.sum())
        plan = Plan(features, (targets, weights), rows, total, ladder, seed, self.batch_size)
        for attempt in range(ATTEMPTS if self.lr is None else 1):
            # A user's module draws initial weights from the global generators.
            with seeded(seed):
                networks = [self._network(features, outputs, seed + i) for i in range(chains)]
                models = [self._complete(network, outputs) for network in networks]
                stable = self._run(models, plan, RETRY_SHARE**attempt)
            if stable:
                break
        else:
            raise ValueError(f"lr={self.lr_:.3g} is too large for these data: lower it")
        if weigh:
            inputs = features.double() if self._is_perceptron else features
            scored = weights_of_cycles(self._posterior(), held_out, inputs, targets, weights)
        else:
            scored = np.full(self.cycles, 1 / self.cycles)
        some = torch.from_numpy(random.permutation(len(X))[:MOST_ROWS_TO_CHECK])
        self._rows_to_check = [part[some] for part in (features, targets, weights)]
        self.ladder_, self.cycle_weights_ = ladder.rungs, scored
        self.posterior_ = self._posterior(scored)
        return self

    def _network(self, features: Tensor, outputs: int, seed: int) -> nn.Module:
        if self.module is not None:
            return own_module(self.module, features, outputs)
        generator = torch.Generator().manual_seed(seed)
        sizes = (features.shape[1], self.hidden_layer_sizes, outputs)
        return perceptron(*sizes, self.activation, generator)

    def _run(self, models: list[nn.Module], plan: Plan, lr_share: float) -> bool:
        """Run all chains: as stacks, where they can be stacked, otherwise each by itself.

        Returns whether they were stable. `lr_share` is that of the lr that a range test finds.
        """
        # A stack of one chain would only cost time.
        stacked = self._is_perceptron and self._chains_together and len(models) > 1
        first = range(len(models)) if stacked else range(1)
        batches = plan.batches(first, stacked=stacked)
        per_epoch = len(batches)
        recipe = self._recipe(per_epoch, plan)
        if self.lr is None:  # the same for all chains, however they are divided
            model = Perceptrons(models) if stacked else models[0]
            suggested = self._suggest_lr(model, batches, recipe, plan.num_data)
            self.lr_ = lr_share * min(self._lr_share * suggested, self._most_lr)
        recipe = recipe.replace(lr=self.lr_)
        jobs = effective_jobs(self.n_jobs)
        calls = [
            ([models[chain] for chain in chain_ids], plan, recipe, chain_ids, stacked, jobs == 1)
            for chain_ids in divided(len(models), jobs, stacked=stacked)
        ]
        try:
            runs = in_parallel(self._run_chains, calls, jobs)
        except DivergedError:
            return False
        self.draws_, means = draws_of(runs), losses_of(runs)
        epochs = range(0, len(means), per_epoch)
        self.loss_curve_ = [float(np.mean(means[at : at + per_epoch])) for at in epochs]
        self._run_record = runs[-1].record
        self.module_ = models[-1].eval()
        self.draws_[-1].load_into(self.module_)
        return self._plausible()

    def _suggest_lr(
        self, model: nn.Module, batches: Batches, recipe: Recipe, num_data: float
    ) -> float:
        options: Any = {"lowest": 1e-3, "highest": 100.0, "steps": 100}
        device = next(model.parameters()).device
        options["device"] = None if device.type == "cpu" else device
        try:
            found = suggest_lr(
                model, self._range_test_loss, batches, recipe=recipe, num_data=num_data, **options
            )
        except ValueError:  # the loss falls at no lr: there is nothing to learn from the rows
            return FALLBACK_LR
        return found.lr

    def _recipe(self, epoch: int, plan: Plan) -> Recipe:
        """All but the step size; `epoch` is the number of steps in one."""
        least = max(MIN_EPOCHS, self._min_steps / epoch)
        return Recipe(
            sampler=self.sampler,
            temperature=1.0,  # which the schedule scales, as the prior of scale 1
            weight_decay=1 / plan.num_data,
            temperature_scales=[rung.temperature for rung in plan.ladder.rungs],
            weight_decay_scales=[1 / rung.prior_scale**2 for rung in plan.ladder.rungs],
            epochs=least if self.epochs is None else self.epochs,
            cycles=self.cycles,
            exploration=self.exploration,
            draws_per_cycle=self.draws_per_cycle,
            seed=plan.seed,
        )

    def _run_chains(
        self,
        models: list[nn.Module],
        plan: Plan,
        recipe: Recipe,
        chain_ids: range,
        stacked: bool,
        alone: bool,
    ) -> Run:
        """Run one chain, or some as one stack; in a process of its own unless `alone`."""
        batches = plan.batches(chain_ids, stacked=stacked)
        model = Perceptrons(models) if stacked else models[0]
        options: Any = {"num_data": plan.num_data, "chain_id": chain_ids[0]}
        sampler = recipe.make_sampler(self._groups(model), **options)
        schedule = recipe.make_schedule(len(batches))
        before_step = self._before_step(model, sampler)
        losses: list[float] = []

        def on_step(info: StepInfo) -> None:
            losses.append(info.loss)
            before_step(info.tick.lr_scale)

        before_step(1.0)
        device = next(model.parameters()).device
        draws = MemoryDraws()
        chain = Chain(
            model,
            self._loss,
            batches,
            sampler,
            replace(schedule, exploration_temperature=self._exploration_temperature),
            draws,
            device=None if device.type == "cpu" else device,  # where the batches are already
            callbacks=on_step,
            watch=False,  # its warnings are for those who made the chain themselves
            progress=bool(self.verbose) and (alone or chain_ids[0] == 0),
        )
        # What a user's module draws, as for dropout, does not depend on the other chains.
        with seeded(plan.seed + RUN_SEED_OFFSET + chain_ids[0]):
            chain.run()
        sampler.zero_grad()
        record = RunRecord(model, sampler, chain.schedule, chain_id=chain_ids[0])
        return Run(len(chain_ids), draws, losses, record)

    def _posterior(
        self,
        weights_of_cycles: NDArray[np.float64] | None = None,
        draws: Sequence[Draw] | None = None,
    ) -> Posterior:
        draws = self.draws_ if draws is None else draws
        # A perceptron predicts in double precision, with all draws at once, so that the prediction
        # of a row does not depend on the other rows. A user's own module may support neither.
        plain = self._is_perceptron
        weights: Any = "uniform"
        if weights_of_cycles is not None:
            weights = weights_of_cycles[[draw.cycle for draw in draws]]
        return Posterior(
            copy.deepcopy(self.module_).double() if plain else self.module_,
            draws,
            likelihood=self._likelihood,
            weights=weights,
            vectorize=plain,
            progress=False,
        )

    def _row_weights(self, rows: Any, sample_weight: ArrayLike | None) -> NDArray[np.float64]:
        """One weight for each row, at least 0."""
        check: Any = _check_sample_weight
        return check(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)

    def check(self, X: ArrayLike, y: ArrayLike, *, show: bool = False) -> Check:
        """Whether the draws were sampled, mix and are calibrated, in words and numbers.

        Judges the draws of the cycles that have at least 5% of the weight, which make up the
        prediction; see `csgmcmc.Posterior.check`.

        Args:
            X: held-out rows, which were not fitted.
            y: their targets.
            show: print the verdicts.
        """
        features, targets = self._features(X), self._targets(y)
        if len(features) != len(targets):
            raise ValueError(f"X has {len(features)} rows, and y has {len(targets)}")
        rows, *columns = self._rows_to_check
        batches = Batches(
            rows.to(features.dtype),
            [columns[0].to(targets.dtype), columns[1].to(features.dtype)],
            [torch.arange(len(rows))],
            self.batch_size,
            seeds=[0],
            stacked=False,
        )
        counts = self.cycle_weights_ >= min(WEIGHT_THAT_COUNTS, self.cycle_weights_.max())
        draws = [draw for draw in self.draws_ if counts[draw.cycle]]
        posterior = self._posterior(self.cycle_weights_, draws)
        size = PREDICTION_BATCH_SIZE
        held_out = list(zip(features.split(size), targets.split(size), strict=True))
        run: Any = {"stepper": self._run_record, "loss": self._loss, "data": batches}
        return posterior.check(held_out, **run, show=show)

    # Predicting

    def _checked(self, X: ArrayLike, **options: Any) -> Any:
        """The table, and the targets if given, validated by scikit-learn."""
        check: Any = validate_data  # pyright infers wrong types from its docstring
        return check(self, X, dtype=np.float64, **options)

    def _features(self, X: ArrayLike) -> Tensor:
        """Rows as the networks take them."""
        check_is_fitted(self, "posterior_")
        rows = self._checked(X, reset=False)
        features = torch.from_numpy(self.scaler_.transform(rows))
        return features if self._is_perceptron else features.float()

    def _predictive(self, X: ArrayLike, *, members: bool = False) -> Any:
        """The posterior predictive for rows, in standardised units."""
        batches = self._features(X).split(PREDICTION_BATCH_SIZE)
        return self.posterior_.predict_loader(batches, members=members)


def _random(random_state: Any) -> np.random.RandomState:
    try:
        return check_random_state(random_state)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(
            "random_state must be None, a whole number from 0 to 2**32 - 1 or a "
            f"numpy.random.RandomState, got {shown(random_state)}"
        ) from error
