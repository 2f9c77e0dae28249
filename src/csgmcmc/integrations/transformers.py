"""Hugging Face `Trainer`: a sampler in place of its optimizer, and draws kept during training.

    parts = trainer_parts(model, data, schedule, draws, lr=0.1, weight_decay=1e-4)
    args = TrainingArguments("runs/trainer", max_steps=schedule.steps, max_grad_norm=0)
    Trainer(model, args, train_dataset=data, **parts).train()

N is the number of targets in the mean loss: tokens, for language models.
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from csgmcmc.arguments import check_number
from csgmcmc.draws import Draws
from csgmcmc.integrations.counting import num_targets
from csgmcmc.integrations.missing import require
from csgmcmc.integrations.transformers_data import Pairs, logits, model_loss, next_token_logits
from csgmcmc.samplers import SGHMC, Sampler
from csgmcmc.schedules import Schedule

require("transformers", "transformers")
require("accelerate", "transformers")

from csgmcmc.integrations.trainer_callback import SamplingCallback
from csgmcmc.integrations.trainer_checks import count_and_tell

__all__ = [
    "Pairs",
    "SamplingCallback",
    "logits",
    "model_loss",
    "next_token_logits",
    "num_targets",
    "trainer_parts",
]


def trainer_parts(
    model: nn.Module,
    data: Any,
    schedule: Schedule,
    draws: Draws,
    *,
    lr: float,
    sampler: type[Sampler] = SGHMC,
    collate: Callable[[list[Any]], Any] | None = None,
    num_data: float | None = None,
    noise_variance: float | None = None,
    allow_clipping: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """The arguments `optimizers` and `callbacks` that make a `Trainer` sample.

    Call it before the `Trainer` is made: if `Trainer` would divide the model's loss by the wrong
    number, this sets `model.loss_type` or `model.accepts_loss_kwargs`.

    Args:
        model: the model for the `Trainer`; its trainable parameters are sampled.
        data: its `train_dataset`.
        schedule: scales lr and temperature at each step, and says which draws are kept.
        draws: where draws are kept.
        lr: step size, as for `torch.optim.SGD`.
        sampler: the class of the sampler.
        collate: its `data_collator`, if that makes the labels.
        num_data: N; by default the number of targets in the loss, as `num_targets` counts them.
        noise_variance: for regression, and required there unless `num_data` is given: the variance
            of the noise. The model's loss is the mean squared error, so N is the number of targets
            divided by 2 * noise_variance.
        allow_clipping: see `SamplingCallback`.
        options: further options of the sampler, e.g. `momentum=0.9`.
    """
    if not (isinstance(sampler, type) and issubclass(sampler, Sampler)):
        raise ValueError(
            f"sampler must be a csgmcmc sampler, such as SGHMC, got {sampler!r}: the class, not an "
            "object; for any other optimizer use SamplingCallback"
        )
    if noise_variance is not None:
        check_number("noise_variance", noise_variance, above=0)
        if num_data is not None:
            raise ValueError("give num_data or noise_variance, which determines it, not both")
    if num_data is None:
        num_data = count_and_tell(model, data, collate, noise_variance)
    trained = [param for param in model.parameters() if param.requires_grad]
    if not trained:
        raise ValueError("model has no trainable parameter: nothing to sample")
    try:
        made = sampler(trained, lr, num_data=num_data, **options)  # pyright: ignore[reportCallIssue]
    except TypeError as error:  # an option that this sampler does not have
        raise ValueError(f"options do not fit {sampler.__name__}: {error}") from error
    callback = SamplingCallback(model, made, schedule, draws, allow_clipping=allow_clipping)
    return {"optimizers": (made, callback.scheduler), "callbacks": [callback]}
