"""The kernels on a real GPU: what `test_triton.py` cannot show. `make gpu-check` runs this."""

from unittest.mock import patch

import pytest
import torch

from csgmcmc import SGHMC, SGLD
from csgmcmc.noise import Noise
from csgmcmc.noise.backends import load_kernels
from tests.support import make

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device"),
]

SIZES = (1, 63, 64, 65, 1000, 2048, 2049, 1_000_003)


def gpu() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def moved(sampler, device, steps=5, **options) -> tuple[list[torch.Tensor], torch.optim.Optimizer]:
    """Parameters after some steps with the same gradients on every device."""
    params = [torch.linspace(-1, 1, size).to(device) for size in SIZES]
    chain = make(sampler, params, weight_decay=0.1, **options)
    for step in range(steps):
        for param, size in zip(params, SIZES, strict=True):
            param.grad = torch.linspace(step, -1, size).to(device)
        chain.step()
    return [param.cpu() for param in params], chain


def test_the_kernels_serve_a_gpu():
    pytest.importorskip("triton", reason="triton is not installed")
    assert load_kernels(gpu()) is not None


@pytest.mark.parametrize("kernels", [True, False])
def test_noise_has_the_bits_of_the_cpu(kernels):
    noise = Noise(seed=2**64 - 1, chain_id=3)
    noise.step = 2**33
    params = [torch.empty(size) for size in SIZES]
    expected = noise.like(params)
    with patch("csgmcmc.noise.source.load_kernels", load_kernels if kernels else lambda _: None):
        found = noise.like([param.to(gpu()) for param in params])
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.cpu(), other)


@pytest.mark.parametrize("sampler", [SGLD, SGHMC])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_steps_have_the_bits_of_the_cpu(sampler, temperature):
    pytest.importorskip("triton", reason="triton is not installed")
    options = {"temperature": temperature, "fused": True}
    ours, theirs = (moved(sampler, device, **options)[0] for device in (gpu(), "cpu"))
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("fused", [None, False])
def test_a_step_does_not_wait_for_the_gpu(fused):
    """Also where gradients have new addresses."""
    _, chain = moved(SGHMC, gpu(), fused=fused)
    params = chain.param_groups[0]["params"]
    others = [[torch.ones_like(param) for param in params] for _ in range(3)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for gradients in others:
            for param, gradient in zip(params, gradients, strict=True):
                param.grad = gradient
            chain.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("fused", [None, False])
def test_a_step_on_another_stream(fused):
    expected, _ = moved(SGHMC, gpu(), fused=fused)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        found, _ = moved(SGHMC, gpu(), fused=fused)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_a_step_in_a_cuda_graph_is_refused():
    _, chain = moved(SGHMC, gpu())
    with pytest.raises(RuntimeError, match="CUDA graph"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.ones(1, device=gpu())  # torch warns of a graph without kernels
        chain.step()
