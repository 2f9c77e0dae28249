"""Predictions averaged over draws."""

from collections.abc import Iterable, Sequence
from copy import copy
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from csgmcmc.arguments import check_choice, check_items, check_kind, counted, shown
from csgmcmc.devices import check_autocast
from csgmcmc.draws import Draw, DrawStore
from csgmcmc.posterior.averages import Average
from csgmcmc.posterior.likelihoods import Likelihood, as_likelihood
from csgmcmc.posterior.members import Forward, Members, in_parts, plain_forward
from csgmcmc.posterior.passes import Scores, Split, over_draws, plain_split
from csgmcmc.posterior.predictive import Predictive

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from csgmcmc.checks import Check
    from csgmcmc.loop import Chain
    from csgmcmc.report import Report

# A draw of a smaller weight, relative to the largest, does not count: its share of any sum is lost
# in rounding, and an average of such draws alone would be 0 / 0 in the precision of a model.
MIN_RELATIVE_WEIGHT = 1e-30


class Posterior:
    """The average of a model's predictions over draws of its weights.

    Args:
        model: the network; only its architecture is used, and it is not changed.
        draws: a `DrawStore`, `MemoryDraws`, or a list of some of their draws.
        weights: "uniform", or a number for each draw; `weigh` finds others.
        likelihood: of the targets given the outputs: "categorical" (logits of classes),
            "bernoulli" (a logit for each label: binary and multi-label), "gaussian" (tuples of mean
            and variance), the name of another one, or an object such as `Gaussian(variance=0.1)`.
        device: where to predict; by default where the model is.
        autocast: dtype of automatic mixed precision in the forward pass.
        forward: maps a model and inputs to outputs; by default `model(inputs)`.
        split: maps a batch of a loader to inputs and targets, if it is not a pair of them: for
            batches that are dictionaries, `lambda batch: (batch["image"], batch["label"])`.
        vectorize: True stacks draws and evaluates them at once, False one after another; by
            default small multi-layer perceptrons on batches of at most 256 rows are stacked.
        progress: show a bar on a terminal for work that takes more than a second.
        run: the `Chain` that made the draws, which `check` and `report` use.
    """

    def __init__(
        self,
        model: nn.Module,
        draws: Sequence[Draw],
        weights: Literal["uniform"] | ArrayLike = "uniform",
        *,
        likelihood: str | Likelihood = "categorical",
        device: torch.device | str | None = None,
        autocast: torch.dtype | None = None,
        forward: Forward = plain_forward,
        split: Split = plain_split,
        vectorize: bool | None = None,
        progress: bool = True,
        run: "Chain | None" = None,
    ) -> None:
        check_kind("model", model, nn.Module, "a torch.nn.Module")
        chosen = check_items("draws", draws, "a DrawStore, MemoryDraws or a list of draws")
        for draw in chosen:
            check_kind("each of draws", draw, Draw, "a draw")
        if not chosen:
            raise ValueError(f"draws is empty, and must hold at least one draw: {shown(draws)}")
        self.model, self.progress = model, progress
        self.forward, self.split = forward, split
        self.likelihood = as_likelihood(likelihood)
        self._source = draws
        self._options: dict[str, Any] = {
            "device": None if device is None else torch.device(device),
            "autocast": check_autocast(autocast),
            "forward": forward,
            "vectorize": vectorize,
        }
        self.members = Members(model, chosen, **self._options)
        """The model under each draw: for other modules of this library."""
        self.weights = self._weights_of(weights)
        self.run = run

    def __repr__(self) -> str:
        chains = len({draw.chain_id for draw in self.draws})
        counts = [(len(self.draws), "draw"), (len(set(self.cycles)), "cycle"), (chains, "chain")]
        size = sum(param.numel() for param in self.model.parameters())
        lowest, highest = float(self.weights.min()), float(self.weights.max())
        equal = highest - lowest < 1e-12
        return (
            f"Posterior of {type(self.model).__name__} with {counted(size, 'weight')}: "
            f"{', '.join(counted(number, noun) for number, noun in counts)}\n"
            f"  likelihood {self.likelihood}, on {self.members.device}\n"
            f"  weights {'equal' if equal else f'from {lowest:.3g} to {highest:.3g}'}"
        )

    @property
    def draws(self) -> list[Draw]:
        """The draws, in the order of `weights` and of a prediction's members."""
        return self.members.draws

    @property
    def store(self) -> DrawStore | None:
        """The store that holds the draws, or those of the run; None if they are in memory."""
        sources = self._source, None if self.run is None else self.run.draws
        return next((each for each in sources if isinstance(each, DrawStore)), None)

    @property
    def cycles(self) -> NDArray[np.int64]:
        """Number of each draw's cycle; cycles of different chains have different numbers.

        A trained network that a chain began with counts as a cycle of its own.
        """
        keys = [(draw.chain_id, draw.cycle, draw.stage) for draw in self.draws]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return np.array([numbers[key] for key in keys])

    def predict(
        self, inputs: Any, *, members: bool = False, batch_size: int | None = None
    ) -> Predictive:
        """The averaged prediction for a batch of inputs.

        Args:
            inputs: as the model takes them.
            members: also keep the prediction of each draw.
            batch_size: number of data points to evaluate at a time, to bound the memory; the first
                dimension of every tensor is then the batch. By default all at once.
        """
        parts = [inputs] if batch_size is None else in_parts(inputs, batch_size)
        title = "" if batch_size is None else "predicting"
        return self._predict([(part, None) for part in parts], members, title, plain_split)

    def predict_loader(self, loader: Iterable[Any], *, members: bool = False) -> Predictive:
        """The averaged prediction for all of a loader, in its order.

        Args:
            loader: batches are inputs, or pairs of inputs and targets, or anything that `split`
                turns into such pairs; the prediction holds the targets.
            members: also keep the prediction of each draw.
        """
        return self._predict(loader, members, "predicting")

    def _predict(
        self, loader: Iterable[Any], members: bool, title: str, split: Split | None = None
    ) -> Predictive:
        # Draws of weight 0 are needed only as members.
        among = None if members else np.flatnonzero(self.weights).tolist()

        def average(targets: Tensor | None) -> Average:
            return self.likelihood.average(self.weights, targets, keep_members=members)

        found = over_draws(self, loader, title, average, among=among, split=split)
        parts = [average.result() for average in found]
        return parts[0] if len(parts) == 1 else type(parts[0]).joined(parts)

    def log_scores(self, loader: Iterable[Any]) -> Tensor:
        """Log-likelihood of each data point under each draw, of shape (draws, points).

        For each data point it is summed over its targets: labels, pixels, tokens or outputs.
        """
        batches = over_draws(self, loader, "scoring", partial(Scores, self.likelihood))
        return torch.cat([batch.result() for batch in batches], dim=1)

    def weigh(
        self,
        method: Literal["harmonic", "stacking"],
        loader: Iterable[Any],
        *,
        temperature: float | None = None,
    ) -> "Posterior":
        """The same draws with other weights; the draws of a cycle share its weight equally.

        Args:
            method: "harmonic": cycles by the harmonic mean of their draws' likelihoods of the
                training data. "stacking": the weights with the best log score on held-out data.
            loader: for "harmonic" the training data, one epoch, without augmentation; for
                "stacking" held-out data.
            temperature: at which the draws were sampled; required for "harmonic".
        """
        from csgmcmc.posterior.weights import harmonic_weights, stacking_weights  # noqa: PLC0415

        check_choice("method", method, ("harmonic", "stacking"))
        if method == "stacking":
            weights = stacking_weights(self.log_scores(loader).cpu().numpy(), self.cycles)
        elif temperature is None:
            raise ValueError("temperature of the draws is required for method='harmonic'")
        else:
            likelihoods = self.log_scores(loader).sum(1).cpu().numpy()
            weights = harmonic_weights(likelihoods, self.cycles, temperature=temperature)
        other = copy(self)  # stacked draws are shared
        other.weights = self._weights_of(weights)
        return other

    def with_draws(self, draws: Sequence[Draw]) -> "Posterior":
        """The same model and options with other draws, of equal weight."""
        options = {"likelihood": self.likelihood, "split": self.split, "progress": self.progress}
        return Posterior(self.model, draws, **options, **self._options, run=self.run)

    def _weights_of(self, weights: Any) -> NDArray[np.float64]:
        if isinstance(weights, str) and weights == "uniform":
            weights = np.ones(len(self.draws))
        try:
            values = np.asarray(weights, dtype=float)
        except (TypeError, ValueError):
            values = np.array(np.nan)
        wrong = values.shape != (len(self.draws),) or not np.isfinite(values).all()
        if wrong or (values < 0).any() or not values.any():
            raise ValueError(
                f"weights must be 'uniform' or one number for each of {len(self.draws)} draws, at "
                f"least 0, finite and not all 0, got {shown(weights)}; Posterior.weigh finds others"
            )
        values = values / values.max()  # so that the sum does not overflow
        values[values < MIN_RELATIVE_WEIGHT] = 0
        return values / values.sum()

    def check(self, loader: Iterable[Any], **options: Any) -> "Check":
        """Check whether the draws were sampled, mix and are calibrated, on held-out data.

        The options are those of `csgmcmc.checks.check`: `run`, `loss`, `data` and `show`.
        """
        from csgmcmc.checks import check  # noqa: PLC0415  (slow to import)

        return check(self, loader, **options)

    def report(self, loader: Iterable[Any] | None = None, **options: Any) -> "Report":
        """Make a page of the run, one HTML file.

        The options are those of `csgmcmc.report.report`: `other`, `run`, `loss`, `data`, `title`
        and `path`.
        """
        from csgmcmc.report import report  # noqa: PLC0415  (slow to import)

        return report(self, loader, **options)

    def distill(
        self,
        student: nn.Module,
        loader: Iterable[Any],
        optimizer: torch.optim.Optimizer,
        *,
        epochs: float,
        **options: Any,
    ) -> nn.Module:
        """Train one network to predict as the average does; for likelihoods of classes.

        Args:
            student: a network with outputs like the model's, trained in place and returned in
                evaluation mode.
            loader: inputs like those that it will serve, such as the training data with their
                augmentation, or unlabelled ones; it has a length, and targets are ignored.
            optimizer: of the student's parameters; its lr falls to 0 along a cosine.
            epochs: passes over the loader.
            options: `mix=True` averages each input with another one of its batch, by random
                weights. With `mutual_information=True` the student returns a pair, its outputs and
                the logarithm of the mutual information, of shape (batch,). Also `seed`, by default
                0, and further arguments of `Chain`.
        """
        from csgmcmc.posterior.distill import distill  # noqa: PLC0415  (slow to import)

        return distill(self, student, loader, optimizer, epochs=epochs, **options)

    def export(
        self,
        path: str | PathLike[str],
        inputs: Any,
        *,
        quantiles: Sequence[float] = (),
        dynamic_shapes: Any = None,
    ) -> "ExportedProgram":
        """Write the averaged prediction as one program that runs without this library.

        `torch.export.load(path).module()` takes inputs as `predict` does, of any batch size, and
        returns a dictionary: "probs" and "log_probs", or "mean", "variance" and "noise_variance";
        "entropy", "expected_entropy", "mutual_information" and "spread". All draws are in the file.
        The program is compared with `predict` before it is saved.

        Args:
            path: the file, which ends in .pt2.
            inputs: a batch to trace with, as for `predict`; its values are not kept.
            quantiles: levels between 0 and 1; of a Gaussian likelihood the dictionary then has
                "quantiles" of these, of shape (levels, batch, ...).
            dynamic_shapes: which dimensions may change, as `torch.export.export` takes it for
                `inputs`; by default the first dimension of every tensor, the batch.
        """
        from csgmcmc.posterior.export import export  # noqa: PLC0415  (slow to import)

        return export(self, path, inputs, quantiles=quantiles, dynamic_shapes=dynamic_shapes)
