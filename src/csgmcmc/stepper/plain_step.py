"""A step of an optimizer, without torch's wrapper around it where that has nothing to do.

torch wraps `step` of every optimizer in a function that calls hooks and informs the profiler. Even
where there is neither, it takes about as long as the update of a small network.
"""

from typing import Any

from torch.autograd import profiler
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

WRAPPER = Optimizer.profile_hook_step(lambda: None).__code__  # all wrappers share this code


def take_step(sampler: Optimizer) -> None:
    """`sampler.step()`, with all hooks that there are."""
    step: Any = type(sampler).step
    has_hooks = (
        sampler._optimizer_step_pre_hooks
        or sampler._optimizer_step_post_hooks
        or _global_optimizer_pre_hooks
        or _global_optimizer_post_hooks
        or profiler._is_profiler_enabled
    )
    # Anything else around the update, in the class or in the object, is not torch's wrapper.
    is_wrapped = getattr(step, "__code__", None) is WRAPPER and "step" not in sampler.__dict__
    if is_wrapped and not has_hooks:
        step.__wrapped__(sampler)
    else:
        sampler.step()
