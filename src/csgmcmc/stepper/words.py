"""What the loop around a stepper calls things, and where it is."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from csgmcmc.stepper.stepper import Stepper


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
        exploration: the share of a cycle that explores; None if there is none.
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
    exploration: str | None = "exploration"
    batch_size: str = "the batch size"
    burn_in: str | None = "burn_in"
    stacking: str | None = 'weigh("stacking", held_out)'


def describe_position(stepper: "Stepper") -> str:
    """Steps taken and draws kept, of how many."""
    kept, schedule = len(stepper.draws.of_chain(stepper.chain_id)), stepper.schedule
    return f"step {stepper.taken} of {schedule.steps} with {kept} of {schedule.total_draws} draws"


def describe_end(stepper: "Stepper") -> str:
    """What a loop says that has ended before its schedule."""
    return (
        f"the run has ended at {describe_position(stepper)}, before the end of its schedule; "
        f"{stepper.words.resume} goes on from a checkpoint"
    )


def plan_of(stepper: "Stepper") -> dict[str, int | None]:
    """Seed and length of a whole run, for who looks at one that was stopped."""
    return {
        "seed": getattr(getattr(stepper.sampler, "noise", None), "seed", None),
        "total_steps": stepper.schedule.steps,
        "total_draws": stepper.schedule.total_draws,
    }
