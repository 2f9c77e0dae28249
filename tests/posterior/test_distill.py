"""One network from an average: what it minimises, and how near it comes."""

import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import SGHMC, Chain, Cyclical, MemoryDraws, Posterior
from csgmcmc.posterior import Categorical
from csgmcmc.posterior.distill import mixed


def linear_posterior(**options) -> Posterior:
    """Five linear classifiers of three classes that differ much."""
    model, draws = nn.Linear(2, 3, dtype=torch.float64), MemoryDraws()
    generator = torch.Generator().manual_seed(0)
    for step in range(5):
        weights = {
            name: 2 * torch.randn(value.shape, generator=generator, dtype=value.dtype)
            for name, value in model.state_dict().items()
        }
        draws.append(weights, step=step)
    return Posterior(model, draws, progress=False, **options)


def kl(probs: Tensor, log_probs: Tensor) -> Tensor:
    return (probs * (probs.log() - log_probs)).sum(1).mean()


def inputs_of(rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, 2, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_a_linear_student_has_the_least_divergence(temperature):
    """The problem is convex: Newton's method finds its minimum too.

    The scaled probabilities of the average are those of a student that is not scaled.
    """
    posterior = linear_posterior(likelihood=Categorical(temperature=temperature))
    inputs = inputs_of(60)
    probs = posterior.predict(inputs).probs
    best = nn.Linear(2, 3, dtype=torch.float64)
    newton = torch.optim.LBFGS(best.parameters(), max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> float:
        newton.zero_grad()
        loss = kl(probs, best(inputs).log_softmax(1))
        loss.backward()
        return loss.item()

    newton.step(closure)  # pyright: ignore[reportArgumentType]
    torch.manual_seed(2)
    student = nn.Linear(2, 3, dtype=torch.float64)
    optimizer = torch.optim.SGD(student.parameters(), lr=1.0, momentum=0.9)
    assert posterior.distill(student, [inputs], optimizer, epochs=400) is student
    assert not student.training
    with torch.no_grad():
        least = kl(probs, best(inputs).log_softmax(1)).item()
        assert least > 1e-3  # an average is no linear classifier
        reached = student(inputs).log_softmax(1)
        assert kl(probs, reached).item() == pytest.approx(least, rel=1e-4)
        assert torch.allclose(reached.exp(), best(inputs).softmax(1), atol=2e-3)


def test_binary_labels_and_classes_in_another_dimension():
    """A student of the same form, distilled from a single draw, becomes that draw."""
    draws = MemoryDraws()
    model = nn.Linear(2, 2, dtype=torch.float64)
    draws.append(model, step=0)
    for likelihood in ("bernoulli", Categorical(dim=-1)):
        posterior = Posterior(model, draws, likelihood=likelihood, progress=False)
        student = nn.Linear(2, 2, dtype=torch.float64)
        optimizer = torch.optim.SGD(student.parameters(), lr=2.0, momentum=0.9)
        inputs = inputs_of(40)[:, None] if likelihood != "bernoulli" else inputs_of(40)
        posterior.distill(student, [(inputs, None)], optimizer, epochs=500)
        again = Posterior(student, [*draws], likelihood=likelihood, progress=False)
        again = again.with_draws(_only(student))
        wanted = posterior.predict(inputs).probs
        assert torch.allclose(again.predict(inputs).probs, wanted, atol=1e-3)


def _only(model: nn.Module) -> MemoryDraws:
    draws = MemoryDraws()
    draws.append(model, step=0)
    return draws


def test_on_digits_it_comes_near_the_average():
    images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images[order].float() / 16, labels[order]
    data = TensorDataset(images[:300], labels[:300])
    loader = DataLoader(data, batch_size=50, shuffle=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, 10))
    sampler = SGHMC(model.parameters(), 0.1, momentum=0.9, num_data=300, temperature=0.1)
    schedule = Cyclical(480, 4, draws_per_cycle=2)
    draws = Chain(model, cross_entropy, loader, sampler, schedule, progress=False).run()
    posterior = Posterior(model, draws, progress=False)
    found = posterior.predict(images[300:])
    student = copy.deepcopy(model)
    for module in student:
        if isinstance(module, nn.Linear):
            module.reset_parameters()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    with torch.no_grad():
        before = kl(found.probs, student(images[300:]).log_softmax(1)).item()
    state = torch.get_rng_state()
    posterior.distill(student, loader, optimizer, epochs=100, mix=True)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        after = kl(found.probs, student(images[300:]).log_softmax(1)).item()
        nll = cross_entropy(student(images[300:]), labels[300:]).item()
    average = -found.log_probs.gather(1, labels[300:, None]).mean().item()
    assert before > 1
    assert after < 0.03
    assert nll < average + 0.03


def test_rows_are_mixed_with_others():
    torch.manual_seed(0)
    inputs = torch.eye(200)
    found = mixed(inputs)
    assert torch.allclose(found.sum(1), torch.ones(200))
    shares = found.diagonal()
    assert np.all((shares >= 0).numpy())
    assert 0.4 < shares.mean() < 0.6
    with pytest.raises(ValueError, match="mix=True needs inputs that are one tensor of floats"):
        mixed(torch.arange(3))


def test_what_cannot_be_distilled_is_said():
    posterior = linear_posterior(likelihood="gaussian")
    student = nn.Linear(2, 3)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="only probabilities of classes can be distilled"):
        posterior.distill(student, [inputs_of(3)], optimizer, epochs=1)
    with pytest.raises(ValueError, match="epochs must be above 0"):
        linear_posterior().distill(student, [inputs_of(3)], optimizer, epochs=0)
