"""What both estimators do: a table becomes tensors, a chain runs, and its draws predict."""

import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from csgmcmc.arguments import check_count, check_number
from csgmcmc.chain import Chain, StepInfo
from csgmcmc.draws import MemoryDraws
from csgmcmc.errors import DivergedError
from csgmcmc.estimators.batches import Batches
from csgmcmc.estimators.network import Module, own_module, perceptron
from csgmcmc.estimators.prior import prior_groups
from csgmcmc.posterior import Posterior
from csgmcmc.recipe import Recipe
from csgmcmc.samplers import Sampler
from csgmcmc.samplers import discover as samplers
from csgmcmc.schedules import Cyclical, Tick
from csgmcmc.task import seeded

LEAST_STEPS = 3000  # of a fit, by default: a small table is seen many times,
LEAST_EPOCHS = 20  # and a large one this often
ROWS_AT_ONCE = 4096  # of a prediction

BeforeStep = Callable[[], object]
"""What is called before each step."""


class BayesianMLP(BaseEstimator):
    """The common part of the two estimators, which say what the outputs of the network mean."""

    _likelihood = ""
    """What the outputs mean, as `Posterior` takes it."""

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (50,),
        activation: str = "relu",
        *,
        module: Module | None = None,
        sampler: str = "SGHMC",
        lr: float = 0.1,
        temperature: float = 1.0,
        prior_scale: float = 2.0,
        epochs: float | None = None,
        cycles: int = 4,
        exploration: float = 0.5,
        draws_per_cycle: int = 10,
        batch_size: int = 32,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.module = module
        self.sampler = sampler
        self.lr = lr
        self.temperature = temperature
        self.prior_scale = prior_scale
        self.epochs = epochs
        self.cycles = cycles
        self.exploration = exploration
        self.draws_per_cycle = draws_per_cycle
        self.batch_size = batch_size
        self.random_state = random_state
        self.verbose = verbose

    # What an estimator says of its outputs

    def _complete(self, network: nn.Module) -> nn.Module:
        """The model that is sampled, around the network."""
        return network

    def _loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood of a minibatch."""
        raise NotImplementedError

    def _arrange(self, schedule: Cyclical) -> Cyclical:
        """The schedule, as the outputs want it."""
        return schedule

    def _before_step(self, model: nn.Module, sampler: Sampler) -> BeforeStep:
        """What to do before each step."""
        del model, sampler
        return lambda: None

    # Fitting

    def _fit(self, X: NDArray[np.float64], targets: Tensor, outputs: int) -> Self:  # noqa: N803
        """Sample the weights of a network with so many outputs."""
        check_number("prior_scale", self.prior_scale, above=0)
        batch_size = check_count("batch_size", self.batch_size, at_least=1)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        generator = torch.Generator().manual_seed(seed)
        self.scaler_ = StandardScaler().fit(X)
        features = torch.from_numpy(self.scaler_.transform(X)).float()
        self._is_perceptron = self.module is None
        # A user's module draws from the global generators, for its start and for dropout.
        with nullcontext() if self.module is None else seeded(seed):
            if self.module is None:
                width, hidden = X.shape[1], self.hidden_layer_sizes
                network = perceptron(width, hidden, outputs, self.activation, generator)
            else:
                network = own_module(self.module, features, outputs)
            model = self._complete(network)
            batches = Batches(features, targets, batch_size, generator)
            self._run(model, batches, seed)
        return self

    def _run(self, model: nn.Module, batches: Batches, seed: int) -> None:
        least = max(LEAST_EPOCHS, LEAST_STEPS / len(batches))
        recipe = Recipe(
            sampler=self.sampler,
            lr=self.lr,
            temperature=self.temperature,
            weight_decay=0.0,  # each group of parameters has its own
            epochs=least if self.epochs is None else self.epochs,
            cycles=self.cycles,
            exploration=self.exploration,
            draws_per_cycle=self.draws_per_cycle,
            seed=seed,
        )
        num_data = len(batches.dataset)
        sampler = recipe.make_sampler(self._groups(model, num_data), num_data=num_data)
        schedule = self._arrange(recipe.make_schedule(len(batches)))
        before_step = self._before_step(model, sampler)
        losses: list[float] = []

        def on_step(moment: StepInfo) -> None:
            losses.append(moment.loss)
            before_step()

        before_step()
        chain = Chain(
            model,
            self._loss,
            batches,
            sampler,
            schedule,
            MemoryDraws(),
            device=next(model.parameters()).device,
            on_step=on_step,
            watch=False,  # its words are for those who made the chain themselves
            progress=bool(self.verbose),
        )
        try:
            chain.run()
        except DivergedError as error:
            raise self._too_large() from error
        epochs = range(0, len(losses), len(batches))
        self.loss_curve_ = [float(np.mean(losses[at : at + len(batches)])) for at in epochs]
        self.module_ = model.eval()
        self.draws_ = chain.draws
        self.posterior_ = self._make_posterior()

    def _too_large(self) -> ValueError:
        return ValueError(f"lr={self.lr} is too large for these data: lower it")

    def _groups(self, model: nn.Module, num_data: int) -> list[dict[str, Any]]:
        """All parameters that are sampled, with their priors and steps."""
        return self._prior_groups(model.parameters(), num_data)

    def _prior_groups(self, weights: Iterable[nn.Parameter], num_data: int) -> list[dict[str, Any]]:
        return prior_groups(
            weights, self.prior_scale, num_data, None if self._preconditions() else self.lr
        )

    def _preconditions(self) -> bool:
        """Whether the sampler has a preconditioner, and so finds the size of steps by itself."""
        return samplers()[self.sampler].preconditioned

    # Predicting

    def _make_posterior(self) -> Posterior:
        """A perceptron predicts in double precision, and all draws at once.

        So a row's prediction does not depend on the rows beside it. Of a user's own module we do
        not know whether it can do either.
        """
        plain = self._is_perceptron
        return Posterior(
            copy.deepcopy(self.module_).double() if plain else self.module_,
            self.draws_,
            likelihood=self._likelihood,
            vectorize=plain,
            progress=False,
        )

    def _checked(self, X: ArrayLike, **options: Any) -> Any:  # noqa: N803
        """A table, and targets where they are given, as scikit-learn checks them."""
        check: Any = validate_data  # its docstring has other types than pyright finds
        return check(self, X, dtype=np.float64, **options)

    def _predictive(self, X: ArrayLike, *, members: bool = False) -> Any:  # noqa: N803
        """The averaged prediction for rows, as the library gives it."""
        check_is_fitted(self, "posterior_")
        rows = self._checked(X, reset=False)
        features = torch.from_numpy(self.scaler_.transform(rows))
        features = features if self._is_perceptron else features.float()
        return self.posterior_.predict_loader(features.split(ROWS_AT_ONCE), members=members)

    # Draws in memory hold functions, and a posterior what it works with: neither can be pickled.

    def __getstate__(self) -> dict[str, Any]:
        found: Any = super().__getstate__()
        state = dict(found)
        if "draws_" in state:
            del state["posterior_"]
            state["draws_"] = [
                (draw.tensors(), draw.chain_id, draw.step, draw.cycle, draw.stage)
                for draw in self.draws_
            ]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "draws_" in state:
            self.draws_ = MemoryDraws()
            for tensors, chain, step, cycle, stage in state["draws_"]:
                tick = Tick(step, cycle, stage, lr_scale=1.0, temperature_scale=1.0, collect=True)
                self.draws_.append(tensors, tick, chain_id=chain)
            self.posterior_ = self._make_posterior()
