"""Predictions averaged over draws."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from torch import Tensor, nn

from csgmcmc.arguments import (
    check_choice,
    check_flag,
    check_function,
    check_items,
    check_kind,
    counted,
    shown,
)
from csgmcmc.batches import Loss
from csgmcmc.devices import check_autocast, check_device
from csgmcmc.draws import Draw, Draws, DrawStore
from csgmcmc.loaders import check_data
from csgmcmc.posterior.batches import Split, plain_split
from csgmcmc.posterior.likelihoods import Likelihood
from csgmcmc.posterior.members import Forward, Members, plain_forward
from csgmcmc.posterior.names import as_likelihood
from csgmcmc.posterior.passes import add_outputs, needed_draws, predictions, scores
from csgmcmc.posterior.predictive import Predictive

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from csgmcmc.checks import Check
    from csgmcmc.checks.run import StepperLike
    from csgmcmc.posterior.reporting import Run
    from csgmcmc.report import Report

Method = Literal["uniform", "harmonic", "stacking"]

# Relative weight below which a draw does not count: its share of any sum is lost in rounding, and
# averages of such draws alone would be 0 / 0 in the precision of a model.
NEGLIGIBLE = 1e-30


class Posterior:
    """The average of a model's predictions over draws of its weights.

    Args:
        model: the network; only its architecture is used, and it is not changed.
        draws: a `DrawStore`, `MemoryDraws`, or a list of some of their draws.
        weights: "uniform", or a number for each draw; `weigh` finds others.
        likelihood: of the targets given the outputs: "categorical" (logits of classes),
            "bernoulli" (a logit for each label: binary and multi-label), "gaussian" (tuples of mean
            and variance), "student-t", "poisson", "negative-binomial", "ordinal", or an object such
            as `Gaussian(variance=0.1)`.
        device: where to predict; by default where the model is.
        autocast: dtype of automatic mixed precision in the forward pass.
        forward: from a model and inputs to outputs, if that is not `model(inputs)`.
        split: from a batch of a loader to inputs and targets, if it is not a pair of them: for
            batches that are dictionaries, `lambda batch: (batch["image"], batch["label"])`.
        vectorize: True stacks draws and evaluates them at once, False one after another; by
            default small multi-layer perceptrons on batches of at most 256 rows are stacked.
        progress: show a bar on a terminal if it takes more than a second.
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
    ) -> None:
        check_kind("model", model, nn.Module, "a torch.nn.Module")
        if not isinstance(draws, Draws):
            draws = check_items("draws", draws, "a DrawStore, MemoryDraws or a list of draws")
            for draw in draws:
                check_kind("each of draws", draw, Draw, "a draw")
        if not len(draws):
            raise ValueError("draws is empty: a posterior needs at least one draw")
        check_function("forward", forward)
        check_function("split", split)
        if not any(vectorize is choice for choice in (None, True, False)):
            raise ValueError(f"vectorize must be None, True or False, got {shown(vectorize)}")
        device, autocast = check_device(device), check_autocast(autocast)
        self.model, self.forward, self.split = model, forward, split
        self.progress = check_flag("progress", progress)
        self.likelihood = as_likelihood(likelihood)
        self._source = draws
        options = {"device": device, "autocast": autocast, "forward": forward}
        self._options: dict[str, Any] = {**options, "vectorize": vectorize}
        self.members = Members(model, draws, **self._options)
        """The model under each draw: for other modules of this library."""
        self.weights = self._weights_of(weights)
        self.made_by: Run = (None, None, None)
        """Stepper, loss and data of the run: what `check` and `report` use if given none."""

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
    def cycles(self) -> NDArray[np.int64]:
        """Number of the cycle of each draw; cycles of different chains are different cycles."""
        keys = [(draw.chain_id, draw.cycle) for draw in self.draws]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return np.array([numbers[key] for key in keys])

    def predict(self, inputs: Any, *, members: bool = False) -> Predictive:
        """The averaged prediction for a batch of inputs.

        With `members` it also holds the prediction of each draw.
        """
        keep_members = check_flag("members", members)
        average = self.likelihood.average()
        add_outputs(self, [average], [inputs], needed_draws(self, keep_members), keep_members)
        return average.result()

    def predict_loader(
        self,
        loader: Iterable[Any],
        *,
        members: bool = False,
        share: Literal["draws", "data"] | None = None,
    ) -> Predictive:
        """The averaged prediction for all of a loader, in its order.

        With `share`, the processes of a program that `torchrun` has started, and that has called
        `init_distributed`, each do a part. All of them must call this, with the same draws and a
        loader of the same data in the same order; all get the same result, that of one process up
        to rounding.

        Args:
            loader: batches are inputs, or pairs of inputs and targets, which the prediction then
                holds; or what `split` makes such pairs of.
            members: keep the prediction of each draw, too.
            share: "draws": each process evaluates its part of the draws on every batch. "data":
                each evaluates all draws on every n-th batch. None, and without several processes:
                this process does everything.
        """
        parts = list(predictions(self, loader, check_flag("members", members), share))
        return type(parts[0]).joined(parts)

    def log_scores(
        self, loader: Iterable[Any], *, share: Literal["draws", "data"] | None = None
    ) -> Tensor:
        """Log-likelihood of each data point under each draw, of shape (draws, points).

        That of a data point is the sum over its targets: labels, pixels, tokens or outputs.
        `share` divides the work among processes, as in `predict_loader`.
        """
        return torch.cat(list(scores(self, loader, share)), dim=1)

    def log_likelihoods(
        self, loader: Iterable[Any] | None = None, *, again: bool = False
    ) -> NDArray[np.float64]:
        """Log-likelihood of a whole data set under each draw, stored with the draws.

        If all draws have theirs already, those are returned and the loader is not read, unless
        `again` is true. Give the training data, one epoch, without augmentation. For a list of
        draws they are stored in this posterior only.
        """
        known = [draw.log_likelihood for draw in self.draws]
        if not check_flag("again", again) and not any(value is None for value in known):
            return np.array(known, dtype=float)
        if loader is None:
            raise ValueError(
                "the draws' log-likelihoods are not known: give the training data, as in "
                "posterior.log_likelihoods(train_loader)"
            )
        totals = np.zeros(len(self.draws))
        source = self._source
        with ExitStack() as writing:
            if isinstance(source, DrawStore):  # an error now, rather than after the work
                writing.enter_context(source.locked({draw.chain_id for draw in self.draws}))
            for found in scores(self, loader):
                totals += found.sum(1).cpu().numpy()
            if isinstance(source, Draws):
                for draw, value in zip(self.draws, totals, strict=True):
                    source.set_log_likelihood(draw, value)
        self.members.draws = [
            replace(draw, log_likelihood=float(value))
            for draw, value in zip(self.draws, totals, strict=True)
        ]
        return totals

    def weigh(
        self,
        method: Method,
        loader: Iterable[Any] | None = None,
        *,
        by: Literal["cycle", "draw"] = "cycle",
        regions: ArrayLike | None = None,
        temperature: float | None = None,
        share: Literal["draws", "data"] | None = None,
    ) -> "Posterior":
        """The same draws with other weights.

        Args:
            method: "uniform": equal weights. "harmonic": cycles by the harmonic mean of their
                draws' likelihoods of the training data. "stacking": the weights with the best log
                score on held-out data.
            loader: for "harmonic" the training data, needed once; for "stacking" held-out data.
            by: what "stacking" weighs: cycles, or single draws.
            regions: number of the region of each draw, in place of its cycle; -1 leaves it out.
            temperature: that the draws were sampled at; required for "harmonic".
            share: for "stacking": divides the work among processes, as in `predict_loader`.
        """
        from csgmcmc.diagnostics.arrays import check_numbers  # noqa: PLC0415  (scipy is slow)
        from csgmcmc.posterior.weights import harmonic_weights, stacking_weights  # noqa: PLC0415

        check_choice("method", method, ("uniform", "harmonic", "stacking"))
        check_choice("by", by, ("cycle", "draw"))
        if share is not None and method != "stacking":
            raise ValueError("share is for stacking")
        if by == "draw" and (method != "stacking" or regions is not None):
            raise ValueError("by='draw' is for stacking without regions")
        labels = self.cycles
        if regions is not None:
            labels = check_numbers("regions", regions)
            if labels.shape != self.weights.shape:
                raise ValueError(
                    f"regions must be one number for each of {len(self.draws)} draws, got shape "
                    f"{labels.shape}"
                )
        weights: ArrayLike = (labels >= 0).astype(float)
        if method == "harmonic":
            if temperature is None:
                raise ValueError("harmonic needs the temperature that the draws were sampled at")
            likelihoods = self.log_likelihoods(loader)
            weights = harmonic_weights(likelihoods, labels, temperature=temperature)
        elif method == "stacking":
            if loader is None:
                raise ValueError("stacking needs held-out data: give weigh a loader of it")
            held_out = self.log_scores(loader, share=share).cpu().numpy()
            weights = stacking_weights(held_out, None if by == "draw" else labels)
        return self._with_weights(weights)

    def with_draws(self, draws: Sequence[Draw]) -> "Posterior":
        """The same model and options with other draws, of equal weight."""
        options = {"likelihood": self.likelihood, "split": self.split, "progress": self.progress}
        other = Posterior(self.model, draws, **options, **self._options)
        other.made_by = self.made_by
        return other

    def _with_weights(self, weights: ArrayLike) -> "Posterior":
        other = copy(self)  # stacked draws are shared
        other.weights = other._weights_of(weights)
        return other

    def _weights_of(self, weights: Any) -> NDArray[np.float64]:
        if isinstance(weights, str):
            if weights != "uniform":
                raise ValueError(
                    f"weights must be 'uniform' or numbers, got {shown(weights)}: for other "
                    "methods, see Posterior.weigh"
                )
            weights = np.ones(len(self.draws))
        try:
            values = np.asarray(weights, dtype=float)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"weights must be 'uniform' or a number for each draw, got {shown(weights)}"
            ) from error
        if values.shape != (len(self.draws),):
            raise ValueError(
                f"weights must be one number for each of {len(self.draws)} draws, got shape "
                f"{values.shape}"
            )
        if not (np.isfinite(values).all() and (values >= 0).all() and (values > 0).any()):
            raise ValueError(
                f"weights must be at least 0, finite, and not all 0, got {shown(values)}"
            )
        values = values / values.max()  # whose sum does not overflow
        values[values < NEGLIGIBLE] = 0
        return values / values.sum()

    def check(
        self,
        loader: Iterable[Any],
        *,
        stepper: "StepperLike | None" = None,
        loss: Loss | None = None,
        data: Iterable[Any] | None = None,
        show: bool = False,
    ) -> "Check":
        """Whether the draws were sampled, mix and are calibrated, in words and numbers.

        Evaluates every draw once on the data of `loader`. The last three arguments are needed to
        tell whether the run sampled: whether N times the loss is the likelihood's NLL of all data,
        the temperature of each layer, and injected noise against minibatch noise. Random states,
        also those of the loaders' generators, are restored.

        Args:
            loader: held-out pairs of inputs and targets, or what `split` makes them of.
            stepper: the `Stepper` of the run; of a `Chain`, `chain.stepper`.
            loss: of the run, as `Chain` takes it: a batch that is a pair is evaluated as
                `loss(model(inputs), targets)`, any other as `loss(model, batch)`.
            data: the training data, as `Chain` takes them.
            show: print the verdicts.
        """
        from csgmcmc.checks import check_draws  # noqa: PLC0415  (slow to import)
        from csgmcmc.posterior.evaluation import evaluate, training_run  # noqa: PLC0415

        show = check_flag("show", show)
        if loss is not None:
            check_function("loss", loss)
        if data is not None:
            check_data(data)
        run = training_run(self, *self._run(stepper, loss, data))
        found = check_draws(evaluate(self, loader), run)
        if show:
            Console().print(str(found), highlight=False, markup=False, soft_wrap=True)
        return found

    def _run(self, *given: Any) -> "Run":
        return self.made_by if all(part is None for part in given) else given

    def report(
        self,
        loader: Iterable[Any] | None = None,
        *,
        other: Iterable[Any] | None = None,
        stepper: "StepperLike | None" = None,
        loss: Loss | None = None,
        data: Iterable[Any] | None = None,
        title: str | None = None,
        path: str | PathLike[str] | None = None,
    ) -> "Report":
        """A page of the run: one HTML file that needs no network.

        It shows what there is something for, and says what to give for the rest: loss, lr and
        temperature along the cycles; the verdicts of `check`; NLL and error by number of draws and
        by cycle; calibration and entropy; temperatures; weights of cycles; how the draws were
        made. A notebook shows the result as it is. Needs matplotlib, the extra `plot`.

        Args:
            loader: held-out pairs of inputs and targets.
            other: inputs of another kind, whose entropy is compared; pairs may have any targets.
            stepper: as for `check`.
            loss: as for `check`.
            data: as for `check`.
            title: of the page; by default the folder of the draws.
            path: a file to write the page to; `save` of the result does the same.
        """
        from csgmcmc.posterior.reporting import report  # noqa: PLC0415  (slow to import)

        store = self._source if isinstance(self._source, DrawStore) else None
        run = self._run(stepper, loss, data)
        found = report(self, store, loader, other=other, run=run, title=title)
        if path is not None:
            found.save(path)
        return found

    def export(
        self, path: str | PathLike[str], inputs: Any, *, dynamic_shapes: Any = None
    ) -> "ExportedProgram":
        """Write the averaged prediction as one program that runs without this library.

        `torch.export.load(path).module()` takes inputs as `predict` does, of any batch size, and
        returns a dictionary: "probs" and "log_probs", or "mean", "variance" and "noise_variance";
        "entropy", "expected_entropy", "mutual_information" and "spread". All draws are in the file.
        The program is compared with `predict` before it is saved.

        Args:
            path: the file, which ends in .pt2.
            inputs: a batch to trace with, as for `predict`; its values are not kept.
            dynamic_shapes: which dimensions may change, as `torch.export.export` takes it for
                `inputs`; by default the first dimension of every tensor, the batch.
        """
        from csgmcmc.posterior.export import export  # noqa: PLC0415  (slow to import)

        return export(self, path, inputs, dynamic_shapes=dynamic_shapes)
