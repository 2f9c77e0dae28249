"""What the loop around a stepper calls things."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LoopWords:
    """What the loop around a stepper calls things, for its messages and for advice.

    Attributes:
        resume: how a run is resumed.
        exact_resume: what would make a resumed run repeat its draws exactly. None where resuming
            is always exact, so that a different draw is an error.
        clip: how gradients are clipped.
        mixed_precision: how mixed precision is switched on.
        lr: the step size.
        temperature: the temperature.
        steps: the length of the run.
        cycles: the number of cycles.
        exploration: the share of a cycle that explores.
        batch_size: the size of a batch.
        burn_in: what keeps no draws of the first cycle; None if nothing does.
        stacking: what weighs cycles by held-out data; None if that has been done.
    """

    resume: str = "stepper.load_state_dict(...)"
    exact_resume: str | None = "stepper.batches(loader)"
    clip: str = "torch.nn.utils.clip_grad_norm_"
    mixed_precision: str = "torch.autocast"
    lr: str = "lr"
    temperature: str = "temperature"
    steps: str = "steps"
    cycles: str = "cycles"
    exploration: str = "exploration"
    batch_size: str = "the batch size"
    burn_in: str | None = "burn_in"
    stacking: str | None = 'weigh("stacking", held_out)'
