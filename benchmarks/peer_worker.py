"""One peer, in the environment of the peers: each line on standard input is a request to run.

    .venv-peers/bin/python benchmarks/peer_worker.py NAME

Answers with the seconds that a step took. What is compiled is compiled before the first answer.
"""

# ruff: noqa: PLC0415  (a worker imports only the peer that it runs)

import sys
import time
import warnings
from collections.abc import Callable

warnings.simplefilter("ignore")


def posteriors_sghmc() -> Callable[[], float]:
    """SGHMC of posteriors: MLP 784-400-400-10, batch 100, forward, backward and step."""
    import posteriors
    import torch
    from torch import nn

    model = nn.Sequential(
        nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10)
    )
    inputs, labels = torch.randn(100, 784), torch.randint(10, (100,))
    params = {name: param.detach() for name, param in model.named_parameters()}

    def log_posterior(params, batch):
        outputs = torch.func.functional_call(model, params, batch[0])
        return -nn.functional.cross_entropy(outputs, batch[1]), outputs

    transform = posteriors.sgmcmc.sghmc.build(log_posterior, lr=1e-4, temperature=1 / 60_000)
    states = [transform.init(params)]

    def run() -> float:
        began = time.perf_counter()
        for _ in range(20):
            states[0], _ = transform.update(states[0], (inputs, labels), inplace=True)
        return (time.perf_counter() - began) / 20

    return run


def blackjax_mixture(chains: int, steps: int) -> Callable[[], float]:
    """SGLD of blackjax in a scan on 25 Gaussians, keeping every position."""
    import blackjax
    import jax
    import jax.numpy as jnp

    grid = jnp.array([-4.0, -2.0, 0.0, 2.0, 4.0])
    means = jnp.stack(jnp.meshgrid(grid, grid), -1).reshape(-1, 2)

    def log_density(point, _):
        return jax.nn.logsumexp(-((point - means) ** 2).sum(-1) / 0.06)

    sgld = blackjax.sgld(jax.vmap(jax.grad(log_density), in_axes=(0, None)))

    @jax.jit
    def scan(key, points, step_sizes):
        def one(points, inputs):
            points = sgld.step(inputs[0], points, 0, inputs[1])
            return points, points

        keys = jax.random.split(key, len(step_sizes))
        return jax.lax.scan(one, points, (keys, step_sizes))

    key = jax.random.key(0)
    points = 10 * jax.random.normal(key, (chains, 2))
    step_sizes = 0.025 * (jnp.cos(jnp.pi * (jnp.arange(steps) % 1666) / 1666) + 1)

    def run() -> float:
        began = time.perf_counter()
        jax.block_until_ready(scan(key, points, step_sizes))
        return (time.perf_counter() - began) / steps

    return run


def blackjax_logistic(path: str, kind: str, steps: int) -> Callable[[], float]:
    """SGLD or SGHMC of blackjax in a scan: logistic regression, 64 chains, common batches of 32.

    Its SGHMC takes ten steps with one batch, and then forgets its velocity; a draw is kept after.
    Its step size is the square root of ours, and its friction times that is 1 - momentum.
    """
    import blackjax
    import jax
    import jax.numpy as jnp
    import numpy as np

    data = np.load(f"{path}/data.npz")
    features, labels = jnp.array(data["features"]), jnp.array(data["labels"])
    step_size = float(data["lr"]) / len(features)

    def log_density(theta, batch):
        x, y = batch
        logits = x @ theta
        likelihood = (y * logits - jax.nn.softplus(logits)).mean() * len(features)
        return likelihood - (theta**2).sum() / 2

    gradient = jax.vmap(jax.grad(log_density), in_axes=(0, None))
    if kind == "sghmc":
        inner, step_size = 10, step_size**0.5
        sampler = blackjax.sghmc(gradient, num_integration_steps=inner, alpha=0.1 / step_size)
    else:
        inner, sampler = 1, blackjax.sgld(gradient)

    @jax.jit
    def scan(key, points):
        def one(points, key):
            rows = jax.random.randint(key, (32,), 0, len(features))
            points = sampler.step(key, points, (features[rows], labels[rows]), step_size)
            return points, points

        return jax.lax.scan(one, points, jax.random.split(key, steps // inner))

    key = jax.random.key(0)
    points = jnp.zeros((64, features.shape[1]))

    def run() -> float:
        began = time.perf_counter()
        _, draws = jax.block_until_ready(scan(key, points))
        elapsed = time.perf_counter() - began
        np.save(f"{path}/draws.npy", np.asarray(draws))
        return elapsed / steps

    return run


PEERS: dict[str, Callable[..., Callable[[], float]]] = {
    "posteriors-sghmc": posteriors_sghmc,
    "blackjax-mixture-40": lambda: blackjax_mixture(40, 5000),
    "blackjax-mixture-4096": lambda: blackjax_mixture(4096, 300),
    "blackjax-logistic": lambda path, kind: blackjax_logistic(path, kind, 2000),
}


def main(name: str, *arguments: str) -> None:
    run = PEERS[name](*arguments)
    run()  # compiles
    for _ in sys.stdin:
        sys.stdout.write(f"{run()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
