"""The common part of both estimators: prepare the table, run the chains, predict with the draws."""

import copy
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state, validation
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from csgmcmc.arguments import check_choice, check_count, check_number
from csgmcmc.checks import Check
from csgmcmc.draws import Draw, MemoryDraws
from csgmcmc.errors import DivergedError
from csgmcmc.estimators.chains import (
    Batches,
    Run,
    Rung,
    make_folds,
    make_ladder,
    run_in_parallel,
    stack_cycles,
)
from csgmcmc.estimators.network import Perceptrons, own_module, perceptron
from csgmcmc.loop import Chain, StepInfo, Stepper
from csgmcmc.lr_range import suggest_lr
from csgmcmc.posterior import Posterior
from csgmcmc.randomness import seeded
from csgmcmc.samplers import Sampler
from csgmcmc.samplers import discover as samplers
from csgmcmc.schedules import Cyclical

# pyright infers wrong types from their docstrings
_validate: Any = validation.validate_data
_row_weights: Any = validation._check_sample_weight

RUN_SEED_OFFSET = 20_000  # from the seeds of initial weights and of the order of rows
MIN_ROWS_TO_STACK = 20  # with fewer rows nothing is held out, and all cycles have equal weights
PREDICTION_BATCH_SIZE = 4096
MAX_ROWS_TO_CHECK = 2000  # training rows that are kept, for `check` to evaluate gradients on


class BayesianMLP(BaseEstimator):
    """The arguments and attributes that the classifier and the regressor have in common.

    Args:
        hidden_layer_sizes: widths of the hidden layers, or a single width; () is a linear model.
        activation: between the layers: "relu", "silu" or "tanh".
        module: a network to sample instead of the perceptron: a `torch.nn.Module`, which is copied,
            or a function (or class) that makes one from the numbers of features and of outputs. It
            returns one logit per class, or one mean per target. `hidden_layer_sizes` and
            `activation` are then ignored, and the chains run one after another.
        sampler: name of the sampler, e.g. "SGHMC" or "SGLD".
        lr: step size at the start of each cycle, as for `torch.optim.SGD`. By default it is found
            by a range test, and lowered if the fit diverges.
        temperature: 1 samples the posterior; below 1 is a cold posterior, 0 optimises. With a pair
            (T, T_last), the final cycle samples the widest prior at T_last.
        prior_scale: standard deviation of the prior of every weight. With a pair (narrowest,
            widest), the prior widens from cycle to cycle, and the cycles are weighted by how well
            they predict rows that their chain has not seen. With a single number, all cycles learn
            from all rows and have equal weights.
        epochs: passes over the rows; by default 20, or as many as 4000 steps of the classifier or
            2300 of the regressor need.
        chains: number of chains, each with its own initial weights. With a pair of prior scales or
            of temperatures, each holds out its own share of the rows, at most a fifth.
        cycles: cycles of the step size; each begins with large steps, to reach another mode.
        exploration: share of a cycle that explores before draws are kept.
        draws_per_cycle: draws kept in each cycle of a chain.
        batch_size: maximum number of rows in a minibatch.
        random_state: seed of initial weights, folds, data order and noise, or a
            `numpy.random.RandomState`. The same integer gives the same fit.
        verbose: show the progress of a fit; with several processes, of the first.
        n_jobs: number of joblib processes that run the chains; `joblib.parallel_config` works too.
            None is 1 outside of such a context, -1 is one for each core. The fit is the same for
            any number, up to rounding.

    Attributes:
        n_features_in_: number of columns of `X`.
        feature_names_in_: their names, if `X` has them.
        scaler_: the `StandardScaler` of the columns.
        lr_: the step size that was used.
        ladder_: prior scale and temperature of each cycle.
        cycle_weights_: weight of each cycle, over all chains; they sum to 1.
        draws_: the `chains * cycles * draws_per_cycle` draws.
        posterior_: the `csgmcmc.Posterior` of the draws; its inputs are rows transformed by
            `scaler_`.
        module_: the network with the weights of the last draw.
        loss_curve_: mean training loss of each epoch.
    """

    # Subclasses have `_likelihood`, as `Posterior` takes it, `_targets(y)`, as the likelihood takes
    # them, and `_loss(outputs, columns)`: the mean weighted negative log-likelihood of a minibatch.
    _exploration_temperature = 0.0
    _min_steps = 4000  # of a fit, by default
    _chains_together = True  # with one step size, as one stack, if the network is a perceptron
    # Of a range test's suggestion: wide priors allow larger curvatures than those of its weights.
    _lr_share, _max_lr = 0.3, 1.0

    def __init_subclass__(cls, **options: Any) -> None:
        """Append the common arguments and attributes to the docstring, for `help`."""
        super().__init_subclass__(**options)
        if cls.__doc__ and BayesianMLP.__doc__:
            cls.__doc__ = "\n\n".join(map(inspect.cleandoc, (cls.__doc__, BayesianMLP.__doc__)))

    def _store(self, arguments: dict[str, Any]) -> None:
        """Store the `locals()` of `__init__`: each argument under its own name."""
        for name in arguments.keys() - {"self", "__class__"}:
            setattr(self, name, arguments[name])

    if TYPE_CHECKING:  # a type checker does not see what is stored

        def __getattr__(self, name: str) -> Any: ...

    # For subclasses

    def _network(self, features: Tensor, outputs: int, seed: int) -> nn.Module:
        if self.module is not None:
            return own_module(self.module, features, outputs)
        generator = torch.Generator().manual_seed(seed)
        sizes = (features.shape[1], self.hidden_layer_sizes, outputs)
        return perceptron(*sizes, self.activation, generator)

    def _range_test_loss(self, outputs: Any, columns: Any) -> Tensor:
        """The loss whose curvature limits the step size."""
        return self._loss(outputs, columns)

    def _before_step(self, model: nn.Module, sampler: Sampler) -> Callable[[float], object]:
        """A function to call before each step, with the schedule's share of the step size."""
        return lambda _: None

    def _groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Parameter groups of the sampler; a group without a prior of its own has the ladder's."""
        return [{"params": [param for param in model.parameters() if param.requires_grad]}]

    def _plausible(self) -> bool:
        """Whether the draws can come from a stable run."""
        return True

    # Fitting

    def _weighted_rows(self, X: Any, y: Any, sample_weight: Any, **options: Any) -> list[Any]:
        """Rows, targets and weights, validated by scikit-learn, without rows of weight 0."""
        rows, targets = _validate(self, X, y=y, dtype=np.float64, **options)
        weights = _row_weights(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        return [part[weights > 0] for part in (rows, targets, weights)]

    def _fit(
        self,
        X: NDArray[np.float64],
        targets: Tensor,
        labels: NDArray[np.int64],
        outputs: int,
        sample_weight: NDArray[np.float64],
    ) -> Self:
        """Sample networks with `outputs` outputs; folds have equal shares of each label."""
        check_count("batch_size", self.batch_size, at_least=1)
        chains = check_count("chains", self.chains, at_least=1, below=10_000)
        check_choice("sampler", self.sampler, tuple(samplers()))
        if self.lr is not None:
            self.lr_ = check_number("lr", self.lr, above=0)
        if self.epochs is not None:
            check_number("epochs", self.epochs, above=0)
        ladder = make_ladder(self.prior_scale, self.temperature, self.cycles)
        random = check_random_state(self.random_state)
        seed = int(random.randint(np.iinfo(np.int32).max))
        self.scaler_ = StandardScaler().fit(X, sample_weight=sample_weight)
        features = torch.from_numpy(self.scaler_.transform(X)).float()
        weights = torch.from_numpy(sample_weight / sample_weight.mean()).float()
        stacks = len(set(ladder)) > 1 and len(X) >= MIN_ROWS_TO_STACK
        # A single chain holds out a fifth, too.
        held_out = make_folds(labels, max(chains, 5), random)[:chains] if stacks else []
        every_row = np.arange(len(X))
        rows = [np.setdiff1d(every_row, fold) for fold in held_out] or [every_row] * chains
        self._is_perceptron = self.module is None
        table = (features, targets, weights)
        batches = Batches(table, list(map(torch.from_numpy, rows)), self.batch_size, seed)
        self._num_data = float(sample_weight.sum()) * batches.rows_per_epoch / len(X)
        for attempt in range(4 if self.lr is None else 1):
            with seeded(seed):  # a user's module draws initial weights from the global generators
                models = [self._network(features, outputs, seed + i) for i in range(chains)]
                stable = self._run(models, batches, ladder, lr_factor=0.3**attempt)
            if stable:
                break
        else:
            raise ValueError(f"lr={self.lr_:.3g} is too large for these data: lower it")
        self.ladder_, self.cycle_weights_ = ladder, np.full(len(ladder), 1 / len(ladder))
        if stacks:
            inputs = features.double() if self._is_perceptron else features
            known = (held_out, inputs, targets, weights)
            self.cycle_weights_ = stack_cycles(self._posterior(self.draws_), *known)
        some = torch.from_numpy(random.permutation(len(X))[:MAX_ROWS_TO_CHECK])
        self._rows_to_check = [column[some] for column in table]
        self.posterior_ = self._posterior(self.draws_, self.cycle_weights_)
        return self

    def _run(
        self, models: list[nn.Module], batches: Batches, ladder: tuple[Rung, ...], lr_factor: float
    ) -> bool:
        """Run all chains, as stacks if possible; returns whether they were stable."""
        stacked = self._is_perceptron and self._chains_together and len(models) > 1
        if self.lr is None:  # the same for all chains, however they are divided
            model = Perceptrons(models) if stacked else models[0]
            some = batches.of_chains(range(len(models) if stacked else 1), stacked=stacked)
            suggested = self._suggest_lr(model, some)
            self.lr_ = lr_factor * min(self._lr_share * suggested, self._max_lr)
        per_epoch = len(batches)
        run_chains = partial(self._run_chains, self._schedule(per_epoch, ladder))
        try:
            run = run_in_parallel(run_chains, models, batches, n_jobs=self.n_jobs, stacked=stacked)
        except DivergedError:
            return False
        self._last_run, self.draws_ = run.parts, run.draws
        epochs = range(0, len(run.losses), per_epoch)
        self.loss_curve_ = [float(np.mean(run.losses[at : at + per_epoch])) for at in epochs]
        self.module_ = models[-1].eval()
        self.draws_[-1].load_into(self.module_)
        return self._plausible()

    def _schedule(self, epoch: int, ladder: tuple[Rung, ...]) -> Cyclical:
        """Cycles of equal length; `epoch` is the number of steps in one."""
        epochs = float(self.epochs or max(20, self._min_steps / epoch))
        cycles = len(ladder)
        length = max(1, round(epochs * epoch / cycles))
        return Cyclical(
            cycles * length,
            cycles,
            exploration=self.exploration,
            draws_per_cycle=self.draws_per_cycle,
            exploration_temperature=self._exploration_temperature,
            weight_decay_scales=[1 / rung.prior_scale**2 for rung in ladder],
            temperature_scales=[rung.temperature for rung in ladder],
        )

    def _make_sampler(self, params: Any, lr: float, batches: Batches) -> Sampler:
        """A sampler at temperature 1 with a prior of scale 1, both of which the schedule scales."""
        kind: Any = samplers()[self.sampler]
        return kind(
            params,
            lr,
            num_data=self._num_data,
            temperature=1.0,
            weight_decay=1 / self._num_data,
            seed=batches.seed,
            chain_id=batches.chain_ids[0],
        )

    def _suggest_lr(self, model: nn.Module, batches: Batches) -> float:
        try:
            return suggest_lr(
                model,
                self._range_test_loss,
                batches,
                sampler=lambda params, lr: self._make_sampler(params, lr, batches),
                lowest=1e-3,
                highest=100.0,
                steps=100,
            ).lr
        except ValueError:  # the loss falls at no lr: there is nothing to learn from the rows
            return 0.3

    def _run_chains(
        self, schedule: Cyclical, models: list[nn.Module], batches: Batches, shows: bool
    ) -> Run:
        """Run one chain, or several as one stack; `shows` progress if the user wants it."""
        model = Perceptrons(models) if batches.stacked else models[0]
        sampler = self._make_sampler(self._groups(model), self.lr_, batches)
        before_step = self._before_step(model, sampler)
        before_step(1.0)
        losses: list[float] = []
        draws = MemoryDraws()

        def on_step(info: StepInfo) -> None:
            losses.append(info.loss)
            before_step(info.tick.lr_scale)

        chain = Chain(
            model,
            self._loss,
            batches,
            sampler,
            schedule,
            draws,
            callbacks=on_step,
            watch=False,  # its warnings are for users who made the chain themselves
            progress=bool(self.verbose) and shows,
        )
        # The random numbers of a user's module, as for dropout, do not depend on the other chains.
        with seeded(batches.seed + RUN_SEED_OFFSET + batches.chain_ids[0]):
            chain.run()
        sampler.zero_grad()
        return Run((model, sampler, schedule), draws, np.array(losses))

    # Predicting

    def _posterior(
        self, draws: Sequence[Draw], cycle_weights: NDArray[np.float64] | None = None
    ) -> Posterior:
        # A perceptron predicts in double precision, with all draws at once, so that the prediction
        # of a row does not depend on the other rows. A user's own module may support neither.
        plain = self._is_perceptron
        cycles = [draw.cycle for draw in draws]
        return Posterior(
            copy.deepcopy(self.module_).double() if plain else self.module_,
            draws,
            likelihood=self._likelihood,
            weights="uniform" if cycle_weights is None else cycle_weights[cycles],
            vectorize=plain,
            progress=False,
        )

    def _features(self, X: ArrayLike) -> Tensor:
        """Rows as the networks take them."""
        check_is_fitted(self, "posterior_")
        rows = _validate(self, X, dtype=np.float64, reset=False)
        features = torch.from_numpy(self.scaler_.transform(rows))
        return features if self._is_perceptron else features.float()

    def _predictive(self, X: ArrayLike, *, members: bool = False) -> Any:
        """The posterior predictive for rows, in standardised units."""
        batches = self._features(X).split(PREDICTION_BATCH_SIZE)
        return self.posterior_.predict_loader(batches, members=members)

    def check(self, X: ArrayLike, y: ArrayLike, *, show: bool = False) -> Check:
        """Check whether the draws are samples, mix and are calibrated; see `Posterior.check`.

        Uses the draws of the cycles that have at least 5% of the weight.

        Args:
            X: held-out rows, which were not fitted.
            y: their targets.
            show: print the verdicts.
        """
        features, targets = self._features(X), self._targets(y)
        if len(features) != len(targets):
            raise ValueError(f"X has {len(features)} rows, and y has {len(targets)}")
        rows, fitted, weights = self._rows_to_check
        table = (rows.to(features.dtype), fitted.to(targets.dtype), weights.to(features.dtype))
        counts = self.cycle_weights_ >= min(0.05, self.cycle_weights_.max())
        draws = [draw for draw in self.draws_ if counts[draw.cycle]]
        parts = (each.split(PREDICTION_BATCH_SIZE) for each in (features, targets))
        return self._posterior(draws, self.cycle_weights_).check(
            list(zip(*parts, strict=True)),
            run=Stepper(*self._last_run),
            loss=self._loss,
            data=Batches(table, [torch.arange(len(rows), device="cpu")], self.batch_size, seed=0),
            show=show,
        )
