"""The common part of both estimators: prepare the table, run a chain, predict with its draws."""

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
from csgmcmc.randomness import seeded
from csgmcmc.recipe import Recipe
from csgmcmc.samplers import Sampler
from csgmcmc.samplers import discover as samplers

# By default a fit takes at least this many steps and this many epochs.
MIN_STEPS = 3000
MIN_EPOCHS = 20
PREDICTION_BATCH_SIZE = 4096


class BayesianMLP(BaseEstimator):
    """Base class; the two estimators define what the outputs of the network mean."""

    _likelihood = ""
    """The likelihood, as `Posterior` takes it."""
    _exploration_temperature = 0.0

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

    # For subclasses

    def _complete(self, network: nn.Module) -> nn.Module:
        """The model that is sampled, around the network."""
        return network

    def _loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood of a minibatch."""
        raise NotImplementedError

    def _before_step(self, model: nn.Module, sampler: Sampler) -> Callable[[], object]:
        """A function to call before each step."""
        return lambda: None

    # Fitting

    def _fit(self, X: NDArray[np.float64], targets: Tensor, outputs: int) -> Self:  # noqa: N803
        """Sample the weights of a network with `outputs` outputs."""
        check_number("prior_scale", self.prior_scale, above=0)
        batch_size = check_count("batch_size", self.batch_size, at_least=1)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        generator = torch.Generator().manual_seed(seed)
        self.scaler_ = StandardScaler().fit(X)
        features = torch.from_numpy(self.scaler_.transform(X)).float()
        self._is_perceptron = self.module is None
        # A user's module draws initial weights and dropout from the global generators.
        with seeded(seed):
            if self.module is None:
                sizes = (X.shape[1], self.hidden_layer_sizes, outputs)
                network = perceptron(*sizes, self.activation, generator)
            else:
                network = own_module(self.module, features, outputs)
            batches = Batches(features, targets, batch_size, generator)
            self._run(self._complete(network), batches, seed)
        return self

    def _run(self, model: nn.Module, batches: Batches, seed: int) -> None:
        least = max(MIN_EPOCHS, MIN_STEPS / len(batches))
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
        schedule = recipe.make_schedule(len(batches))
        before_step = self._before_step(model, sampler)
        losses: list[float] = []

        def on_step(info: StepInfo) -> None:
            losses.append(info.loss)
            before_step()

        before_step()
        device = next(model.parameters()).device
        chain = Chain(
            model,
            self._loss,
            batches,
            sampler,
            replace(schedule, exploration_temperature=self._exploration_temperature),
            MemoryDraws(),
            device=None if device.type == "cpu" else device,  # where the batches are already
            callbacks=on_step,
            watch=False,  # its warnings are for those who made the chain themselves
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
        # A perceptron predicts in double precision, with all draws at once, so that the prediction
        # of a row does not depend on the other rows. A user's own module may support neither.
        plain = self._is_perceptron
        self.posterior_ = Posterior(
            copy.deepcopy(self.module_).double() if plain else self.module_,
            self.draws_,
            likelihood=self._likelihood,
            vectorize=plain,
            progress=False,
        )

    def _too_large(self) -> ValueError:
        return ValueError(f"lr={self.lr} is too large for these data: lower it")

    def _groups(self, model: nn.Module, num_data: int) -> list[dict[str, Any]]:
        """Groups of the sampled parameters, with their priors and step sizes."""
        lr = None if self._preconditioned else self.lr
        return prior_groups(model.parameters(), self.prior_scale, num_data, lr)

    @property
    def _preconditioned(self) -> bool:
        """Whether the sampler has a preconditioner, and so adapts its steps itself."""
        return samplers()[self.sampler].preconditioned

    # Predicting

    def _checked(self, X: ArrayLike, **options: Any) -> Any:  # noqa: N803
        """The table, and the targets if given, validated by scikit-learn."""
        check: Any = validate_data  # pyright infers wrong types from its docstring
        return check(self, X, dtype=np.float64, **options)

    def _predictive(self, X: ArrayLike, *, members: bool = False) -> Any:  # noqa: N803
        """The posterior predictive for rows, in standardised units."""
        check_is_fitted(self, "posterior_")
        rows = self._checked(X, reset=False)
        features = torch.from_numpy(self.scaler_.transform(rows))
        features = features if self._is_perceptron else features.float()
        batches = features.split(PREDICTION_BATCH_SIZE)
        return self.posterior_.predict_loader(batches, members=members)
