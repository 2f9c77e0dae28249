"""A posterior has more draws than a process may have files open."""

import json
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from csgmcmc import DrawStore
from csgmcmc.draws.tensors import MAX_READ

PREDICT = """
import json, os, resource, sys
import torch
from torch import nn
from csgmcmc import DrawStore, Posterior

path, width = sys.argv[1], int(sys.argv[2])
model = nn.Linear(width, 3).double()
x = torch.linspace(-1, 1, 2 * width, dtype=torch.float64).reshape(2, width)
with torch.inference_mode():
    Posterior(model, DrawStore(path)[:1]).predict(x)  # what torch opens at first
in_use = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 20, in_use + 20))
probs = {}
for vectorize in (True, False):
    posterior = Posterior(model, DrawStore(path), vectorize=vectorize)
    for call in ("first", "second"):
        probs[f"{vectorize}, {call}"] = posterior.predict(x).probs.tolist()
    posterior.check([(x, torch.tensor([0, 1]))])
print(json.dumps({"probs": probs, "more_open": len(os.listdir("/proc/self/fd")) - in_use}))
"""


@pytest.mark.parametrize(("width", "draws"), [(2, 300), (MAX_READ // 20, 60)])
def test_more_draws_than_open_files(tmp_path, monkeypatch, width, draws):
    """Small draws, which are read, and large ones, which are mapped."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # this is not about the disk
    x = torch.linspace(-1, 1, 2 * width, dtype=torch.float64).reshape(2, width)
    store, generator = DrawStore(tmp_path), torch.Generator().manual_seed(0)
    total = torch.zeros(2, 3, dtype=torch.float64)
    for step in range(draws):
        model = nn.Linear(width, 3).double()
        for param in model.parameters():
            param.data.normal_(generator=generator)
        store.append(model, step=step)
        total += model(x).detach().softmax(1)
    store.close()
    command = [sys.executable, "-c", PREDICT, str(tmp_path), str(width)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert found["more_open"] == 0
    for probs in found["probs"].values():
        torch.testing.assert_close(torch.tensor(probs, dtype=torch.float64), total / draws)
