"""The common part of both estimators: prepare the table, run the cycles, predict with the draws."""

import copy
import inspect
import math
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state, validation
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from csgmcmc.arguments import check_choice, check_count, check_number, counted
from csgmcmc.draws import Draw
from csgmcmc.errors import DivergedError
from csgmcmc.estimators.chains import Batches, Networks
from csgmcmc.estimators.ladder import Floats, Numbers, make_folds, make_ladder
from csgmcmc.estimators.network import ACTIVATIONS, Perceptron, WithNoise
from csgmcmc.estimators.size import Size, seconds_of_step
from csgmcmc.loop import Stepper
from csgmcmc.posterior import Posterior
from csgmcmc.randomness import seeded

if TYPE_CHECKING:
    from csgmcmc.checks import Check

# pyright infers wrong types from their docstrings
_validate: Any = validation.validate_data
_row_weights: Any = validation._check_sample_weight

MIN_ROWS_TO_STACK = 20  # with fewer rows nothing is held out, and there is one rung
MIN_GAIN = 0.005  # nats a held-out row, below which a further cycle is not worth its time
PREDICTION_BATCH_SIZE = 4096
TAIL = 4.0  # standard deviations from a column's mean, beyond which numbers are shortened
LARGE_BLOCK = 31 * 2**20  # bytes; the largest that glibc learns from is 32 MiB
MAX_ROWS_TO_CHECK = 2000  # training rows that are kept, for `check` to evaluate gradients on


class BayesianMLP(BaseEstimator):
    """Columns are standardised; a perceptron beside a linear model predicts.

    Numbers more than 4 standard deviations from the mean of their column are shortened: beyond that
    they grow as the logarithm, so that one extreme row does not determine a prediction.

    The weights are sampled by cyclical SG-MCMC. No width of the prior suits all tables, so each of
    five chains has networks with priors from narrow to wide, the wide ones at lower temperatures,
    all side by side in one stack. Stacking weights them by how they predict the rows that each
    chain holds out. Exploration is Adam at temperature 0; then the preconditioner is frozen, and
    the networks sample with SGHMC.

    Args:
        hidden_layer_sizes: widths of the hidden layers, or a single width; () is a linear model.
            By default two or three layers, which are wider for more rows.
        activation: between the layers: "relu", "silu" or "tanh".
        lr: step size at the start of each cycle, as for `torch.optim.Adam`; by default 0.01,
            or 0.02 of the regressor, which is lowered if the fit diverges.
        temperature: 1 samples the posterior; below 1 is a cold posterior, 0 optimises. A number, or
            one for each of `prior_scale`.
        prior_scale: width of the prior: a weight has the standard deviation prior_scale /
            sqrt(inputs of its layer). With a list, each chain has a network for each of them, and
            these are weighted by how well they predict rows that their chain has not seen. With a
            single number, all networks learn from all rows and have equal weights.
        epochs: passes over the rows of all cycles together; by default as many as the table needs.
        chains: number of chains, each with its own initial weights and, with several widths of the
            prior, its own held-out rows: a fifth, or a tenth of 1000 and more, at most about 4000.
        cycles: number of cycles, each twice as long as the one before. By default there are
            further cycles as long as they improve the predictions of held-out rows.
        exploration: share of a cycle that explores before draws are kept.
        draws_per_cycle: draws kept in each cycle of a network.
        batch_size: maximum number of rows in a minibatch; by default 128, or 256 of more than 5000
            rows.
        max_seconds: no cycle begins that would end later; a fit that is cut short warns. More than
            120 only matters on a slow machine.
        random_state: seed of initial weights, folds, data order and noise, or a
            `numpy.random.RandomState`. The same integer gives the same fit.
        verbose: show the progress of a fit.
        n_jobs: number of threads of a fit; None is 1, the quickest for small tables and in a search
            that runs several fits at once, and -1 is one for each core. The fit is the same for any
            number, up to rounding.

    Attributes:
        n_features_in_: number of columns of `X`.
        feature_names_in_: their names, if `X` has them.
        scaler_: the `StandardScaler` of the columns.
        lr_: the step size that was used.
        ladder_: the rungs: prior scale, temperature and kind of noise of the networks of a chain.
        weights_: weight of each member, of shape (cycles, rungs); they sum to 1.
        draws_: the draws of the members that have a weight; chain i has the networks of rung j
            under the chain id i * len(ladder_) + j.
        posterior_: the `csgmcmc.Posterior` of the draws; its inputs are rows transformed by
            `scaler_` and shortened.
        module_: the network with the weights of the last draw.
        loss_curve_: mean training loss of each epoch.
    """

    # Subclasses have `_likelihood`, as `Posterior` takes it, `_targets(y)`, as the likelihood takes
    # them, and `_loss(outputs, columns)`: the mean weighted negative log-likelihood of a minibatch;
    # `_evidence(posterior, rows, targets, count)`: what each of `count` members, which have equal
    # numbers of draws, says of held-out rows, of shape (count, rows, ...); and `_weigh`, which
    # finds their weights and score by it.
    _lr, _sampling_lr = 0.01, 1.0  # the default, and the share of it while sampling

    def __init_subclass__(cls, **options: Any) -> None:
        """Append the common arguments and attributes to the docstring, for `help`."""
        super().__init_subclass__(**options)
        if cls.__doc__ and BayesianMLP.__doc__:
            cls.__doc__ = "\n\n".join(map(inspect.cleandoc, (cls.__doc__, BayesianMLP.__doc__)))

    def _store(self, arguments: dict[str, Any]) -> None:
        """Store the `locals()` of `__init__`: each argument under its own name."""
        for name in arguments.keys() - {"self", "__class__"}:
            setattr(self, name, arguments[name])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    if TYPE_CHECKING:  # a type checker does not see what is stored

        def __getattr__(self, name: str) -> Any: ...

    # Fitting

    def _weighted_rows(self, X: Any, y: Any, sample_weight: Any, **options: Any) -> list[Any]:
        """Rows, targets and weights, validated by scikit-learn, without rows of weight 0."""
        rows, targets = _validate(self, X, y=y, dtype=np.float64, accept_sparse="csr", **options)
        weights = _row_weights(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        return [part[weights > 0] for part in (_dense(rows), targets, weights)]

    def _fit(
        self,
        X: NDArray[np.float64],
        targets: Tensor,
        labels: NDArray[np.int64],
        outputs: int,
        sample_weight: NDArray[np.float64],
        noises: Sequence[bool] = (False,),
    ) -> Self:
        """Sample networks with `outputs` outputs; folds have equal shares of each label."""
        chains = check_count("chains", self.chains, at_least=1, below=10_000)
        check_choice("activation", self.activation, tuple(ACTIVATIONS))
        check_count("draws_per_cycle", self.draws_per_cycle, at_least=1)
        check_number("exploration", self.exploration, at_least=0, below=1)
        check_number("max_seconds", self.max_seconds, above=0)
        ladder = make_ladder(self.prior_scale, self.temperature, noises)
        random = check_random_state(self.random_state)
        seed = int(random.randint(np.iinfo(np.int32).max))
        self.scaler_ = StandardScaler().fit(X, sample_weight=sample_weight)
        features = self._scaled(X).float()
        weights = torch.from_numpy(sample_weight / sample_weight.mean()).float()
        if len(X) < MIN_ROWS_TO_STACK and len(ladder) > 1:
            ladder = (min(ladder, key=lambda rung: abs(math.log(rung.prior_scale))),)
        every_row, held_out = np.arange(len(X)), []
        self._size = Size.of(self, len(X))
        if len(ladder) > 1:
            held_out = make_folds(labels, max(chains, self._size.folds), random)[:chains]
        rows = [np.setdiff1d(every_row, fold) for fold in held_out] or [every_row] * chains
        table = (features, targets, weights)
        batches = Batches(table, list(map(torch.from_numpy, rows)), self._size.batch_size, seed)
        self.ladder_, self.lr_ = ladder, self._lr
        if self.lr is not None:
            self.lr_ = check_number("lr", self.lr, above=0)
        num_data = float(sample_weight.sum()) * batches.rows_per_epoch / len(X)
        sizes = [features.shape[1], *self._size.widths, outputs]
        for _ in range(4 if self.lr is None else 1):
            with seeded(seed):  # initial weights are drawn from the global generators
                each = [self._network(sizes, rung.per_row) for rung in ladder * chains]
            self.module_ = copy.deepcopy(each[-1]).eval()
            networks = Networks(
                *(each, ladder, batches, self._loss),
                *(self.exploration, self._sampling_lr, self.draws_per_cycle),
                *({"lr": self.lr_, "num_data": num_data}, seed, bool(self.verbose)),
            )
            with suppress(DivergedError), ExitStack() as held:
                held.callback(torch.set_num_threads, torch.get_num_threads())
                torch.set_num_threads(1 if self.n_jobs is None else effective_n_jobs(self.n_jobs))
                # A step allocates and frees megabytes. glibc returns them to the system each time,
                # which takes a quarter of the step, unless a larger block was freed before.
                torch.empty(LARGE_BLOCK, dtype=torch.uint8, device="cpu")
                self._run(networks, held_out)
                break
            self.lr_ *= 0.3
        else:
            lr = self.lr_ / 0.3
            raise ValueError(f"lr={lr:.3g} is too large for these data: lower it")
        self.weights_ = networks.weights()
        self.draws_ = networks.kept(self.weights_)
        self._run_to_check = networks.run_of(int(self.weights_.sum(0).argmax()))
        per_epoch, losses = len(batches), networks.losses
        epochs = range(0, len(losses), per_epoch)
        self.loss_curve_ = [float(np.mean(losses[at : at + per_epoch])) for at in epochs]
        self.draws_[-1].load_into(self.module_)
        self.posterior_ = self._posterior(self.draws_, self._draw_weights(self.draws_))
        some = torch.from_numpy(random.permutation(len(X))[:MAX_ROWS_TO_CHECK])
        self._rows_to_check = (features[some].double(), targets[some], weights[some])
        return self

    def _network(self, sizes: Sequence[int], per_row: bool) -> Perceptron | WithNoise:
        """An initial network, whose noise, if it has any, may be per row."""
        del per_row
        return Perceptron(sizes, self.activation)

    def _run(self, networks: Networks, held_out: list[Numbers]) -> None:
        """Run cycles as long as they help."""
        started, spent, last, size = time.monotonic(), 0.0, 0.0, self._size
        alive, evidence, scores = list(range(len(self.ladder_))), [], [-np.inf]
        begun, rows = started, networks.batches.batch_size * len(networks.batches.rows)
        budget = min(size.seconds, self.max_seconds)
        for cycle, planned in enumerate(size.cycle_lengths(len(networks.batches))):
            step, steps = seconds_of_step(networks.networks[0], len(alive) * rows), planned
            if size.may_stop:
                steps = max(1, min(planned, int((budget - spent) / step)))
            now, late = time.monotonic(), False
            if cycle:  # on a slow machine a planned second takes longer
                left = self.max_seconds - (now - started)
                in_time = int(left * last / (now - begun) / step)
                late = in_time < (planned / 2 if size.may_stop else planned)
                steps = min(steps, in_time)
            if cycle and (late or steps < planned / 2):
                if late or budget < size.seconds:
                    warnings.warn(
                        f"the fit stopped after {counted(cycle, 'cycle')}: another one would end "
                        f"after max_seconds={self.max_seconds:g}",
                        ConvergenceWarning,
                        stacklevel=4,
                    )
                return
            begun, last = now, steps * step
            spent += last
            networks.run_cycle(steps, alive)
            if held_out:
                scores.append(self._weigh_members(networks, held_out, evidence))
                alive = networks.worth_going_on(alive)
                if not alive or (size.may_stop and scores[-1] - scores[-2] < MIN_GAIN):
                    return

    def _weigh_members(
        self, networks: Networks, held_out: list[Numbers], evidence: list[Floats]
    ) -> float:
        """Weigh all members by how they predict held-out rows; returns their mean log score.

        Added to `evidence` is what those of the last cycle say of the rows of their chain.
        """
        table, parts = networks.batches.dataset.tensors, []
        for chain, rows in enumerate(held_out):
            members = networks.last_of(chain)
            posterior = self._posterior([draw for draws in members for draw in draws])
            known = (table[0][rows].double(), table[1][rows])
            parts.append(self._evidence(posterior, *known, len(members)))
        evidence.append(np.concatenate(parts, axis=1))
        order = torch.from_numpy(np.concatenate(held_out))
        targets, weights = (column[order] for column in table[1:])
        everything = (np.concatenate(evidence), targets, weights.double().numpy())
        networks.shares, score = self._weigh(*everything)
        return score

    def _draw_weights(self, draws: Sequence[Draw]) -> Floats:
        """The weight of each draw: those of a member share its weight."""
        members = [(draw.cycle, draw.chain_id % len(self.ladder_)) for draw in draws]
        return np.array([self.weights_[member] / members.count(member) for member in members])

    # Predicting

    def _posterior(self, draws: Sequence[Draw], weights: Any = "uniform") -> Posterior:
        # Double precision, so that the prediction of a row does not depend on the other rows.
        network = copy.deepcopy(self.module_).double()
        options: Any = {"likelihood": self._likelihood, "vectorize": True, "progress": False}
        return Posterior(network, draws, weights=weights, **options)

    def _scaled(self, rows: NDArray[np.float64]) -> Tensor:
        """Standardised rows, whose numbers beyond `TAIL` are shortened."""
        numbers: Any = self.scaler_.transform(rows)
        within = numbers.clip(-TAIL, TAIL)
        beyond = numbers - within
        return torch.from_numpy(within + np.sign(beyond) * np.log1p(np.abs(beyond)))

    def _features(self, X: ArrayLike) -> Tensor:
        """Rows as `posterior_` takes them."""
        check_is_fitted(self, "posterior_")
        rows = _validate(self, X, dtype=np.float64, accept_sparse="csr", reset=False)
        return self._scaled(_dense(rows))

    def _predictive(self, X: ArrayLike, *, members: bool = False) -> Any:
        """The posterior predictive for rows, in standardised units."""
        batches = self._features(X).split(PREDICTION_BATCH_SIZE)
        return self.posterior_.predict_loader(batches, members=members)

    def check(self, X: ArrayLike, y: ArrayLike, *, show: bool = False) -> "Check":
        """Check whether the draws are samples, mix and are calibrated; see `Posterior.check`.

        The sampling is judged by the draws of the rung with the largest weight.

        Args:
            X: held-out rows, which were not fitted.
            y: their targets.
            show: print the verdicts.
        """
        features, targets = self._features(X), self._targets(y)
        if len(features) != len(targets):
            raise ValueError(f"X has {len(features)} rows, and y has {len(targets)}")
        parts = (each.split(PREDICTION_BATCH_SIZE) for each in (features, targets))
        rows = list(zip(*parts, strict=True))
        found = self.posterior_.check(rows)
        rung = int(self.weights_.sum(0).argmax())
        draws = [one for one in self.draws_ if one.chain_id % len(self.ladder_) == rung]
        every_row = torch.arange(len(self._rows_to_check[0]), device="cpu")
        sampled = self._posterior(draws, self._draw_weights(draws)).check(
            [(features[:1], targets[:1])],
            run=Stepper(*self._run_to_check),
            loss=self._loss,
            data=Batches(self._rows_to_check, [every_row], self._size.batch_size, seed=0),
        )
        measured = {"sampling": sampled.sampling, "parameters": sampled.parameters}
        found = replace(found, **measured, numbers={**sampled.numbers, **found.numbers})
        if show:
            Console().print(str(found), highlight=False, markup=False, soft_wrap=True)
        return found


def _dense(rows: Any) -> Any:
    return rows.toarray() if hasattr(rows, "toarray") else rows
