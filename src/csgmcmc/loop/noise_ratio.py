"""The ratio of injected to minibatch noise, and advice where it is small."""

import math

NEGLIGIBLE = 0.1  # ratio below which minibatch noise dominates
LARGE = 100  # ratio from which it is written without a fraction
COLD = 0.5  # temperature, minibatch noise included, below which a run is close to optimisation


def noise_ratio(injected: float, minibatch: float) -> float:
    """Injected over minibatch variance; infinite without minibatch noise."""
    return injected / minibatch if minibatch > 0 else math.inf


def describe_noise(ratio: float) -> str:
    """The ratio as a clause, with enough digits to tell it from the bound."""
    if math.isinf(ratio):
        return "the minibatches add no noise"
    digits = 2
    while (float(f"{ratio:.{digits}g}") < NEGLIGIBLE) != (ratio < NEGLIGIBLE):
        digits += 1
    times = f"{ratio:.{digits}g}" if ratio < LARGE else f"{float(f'{ratio:.2g}'):,.0f}"
    return f"injected noise is {times} times that of the minibatches"


def noise_advice(ratio: float, temperature: float) -> str:
    """What to change if the ratio is negligible."""
    heated = temperature * (1 + 1 / ratio) if ratio else math.inf
    if heated < COLD:
        return (
            "this is close to a snapshot ensemble, not a sample of the posterior; raise "
            "the temperature or the batch size, or lower lr"
        )
    return (
        f"minibatch noise heats the chain to a temperature of up to {heated:.2g}; raise "
        "the batch size, lower lr, or give SGHMC gradient_variance="
    )
