"""A trained ResNet-20 on CIFAR-10: what a few more epochs gain over the network, scaled.

    python benchmarks/trained_resnet.py run --data DATA [--epochs 2 8 32] [--seeds 0 1 2]
    python benchmarks/trained_resnet.py show

DATA holds cifar-10-python.tar.gz, cifar-100-python.tar.gz, weights/cifar10-resnet20-12fca82f.th (a
public checkpoint, trained on all 50,000 images) and human/cifar10h-probs.npy (CIFAR-10H). With
fewer training images in the archive every method has only those.

Half of the test images (those of even number) are held out: temperatures, weights of draws and the
widths of Laplace's prior are fitted there. The other half judges, and nothing is chosen on it. Step
sizes were set beforehand. Every method starts from the checkpoint and has the same epochs:

- Snapshot, ours: cosine cycles of SGHMC, one of 2 epochs, two of 4 or four of 8; the last fifth of
  a cycle samples at temperature 0 (Snapshot keeps the end of the cycle), 1/N, 0.01 or 1. Ours also
  counts the checkpoint as a draw, and has weights and temperature from the held-out half.
- SWAG: SGD at a constant lr, weights collected four times an epoch.
- Laplace: of the last layer with the whole matrix, and of all weights with the diagonal.

`run` appends one line per method, budget and seed to benchmarks/results/trained_resnet.jsonl as it
is found, and leaves out those that are there; predictions stay in runs/bench/trained_resnet.
"""

import argparse
import copy
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.functional import cross_entropy, pad

import csgmcmc
from csgmcmc.diagnostics import accuracy, auroc, calibration_error, negative_log_likelihood
from csgmcmc.draws import Draws
from csgmcmc.posterior import Categorical
from csgmcmc.trained import Fit, HeldOut
from paper.data.augmentation import PlainBatches, Standard, TrainingBatches
from paper.data.cifar import Images, cifar
from paper.networks.resnet import ResNet, resnet20
from paper.rivals import SWAG, last_layer_laplace
from paper.rivals.laplace import diagonal_curvature

RESULTS = Path("benchmarks/results/trained_resnet.jsonl")
PREDICTIONS = Path("runs/bench/trained_resnet")
BATCH, MOMENTUM, WEIGHT_DECAY = 128, 0.9, 1e-4
CYCLES = {2: (1, 0.02), 8: (2, 0.05), 32: (4, 0.05)}  # and the step size that they begin with
SWAG_LR, SWAG_PER_EPOCH, DRAWS = 0.01, 4, 8
PRIORS = (1e-4, 1e-3, 1e-2)  # weight decays, for Laplace
OTHERS, CURVATURE_ROWS, STATISTICS_ROWS = 2000, 2000, 2000
MEAN, SD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of the checkpoint's inputs

Array = NDArray[np.float64]


class Pixels(Standard):
    """Pixels as the checkpoint takes them."""

    def __init__(self) -> None:
        self.mean, self.sd = (255 * torch.tensor(v).view(-1, 1, 1) for v in (MEAN, SD))


class PaddedShortcut(nn.Module):
    """Every second pixel, and zeros for the new channels: a shortcut without weights."""

    def forward(self, inputs: Tensor) -> Tensor:
        extra = inputs.shape[1] // 2
        return pad(inputs[:, :, ::2, ::2], (0, 0, 0, 0, extra, extra))


@dataclass(frozen=True)
class Task:
    """The checkpoint, and the images."""

    model: ResNet
    train: Images
    test: Images
    others: Images
    """Of CIFAR-100."""

    def batches(self, *parts: Images) -> Iterable[Tensor]:
        for part in parts:
            for inputs, _ in PlainBatches(part, Pixels()):
                yield inputs


def load(folder: Path) -> Task:
    """The checkpoint in our ResNet, whose weights have the same order."""
    model = resnet20()
    for stage in list(model.stages.children())[1:]:
        next(stage.children()).shortcut = PaddedShortcut()  # pyright: ignore[reportAttributeAccessIssue]
    file = folder / "weights" / "cifar10-resnet20-12fca82f.th"
    weights = torch.load(file, map_location="cpu", weights_only=True)["state_dict"]
    own, values = (
        [(name, value) for name, value in state.items() if "num_batches" not in name]
        for state in (model.state_dict(), weights)
    )
    found = {name: value for (name, _), (_, value) in zip(own, values, strict=True)}
    model.load_state_dict({**model.state_dict(), **found})
    model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    images, others = cifar("cifar10", folder), cifar("cifar100", folder)
    return Task(model, images.train, images.test, others.test.part(0, OTHERS))


@torch.inference_mode()
def log_probs(model: nn.Module, draws: Draws, inputs: Iterable[Tensor]) -> Array:
    """Of each draw, (draws, images, classes)."""
    posterior = csgmcmc.Posterior(model, draws, progress=False)
    found = posterior.predict_loader([(batch,) for batch in inputs], members=True)
    assert found.members is not None
    return found.members.clamp_min(1e-30).log().double().numpy()


def the_network(task: Task, *_: int) -> Array:
    """The checkpoint itself."""
    draws = csgmcmc.MemoryDraws()
    draws.append(task.model, step=0)
    return log_probs(task.model, draws, task.batches(task.test, task.others))


def sampled(
    task: Task, schedule: csgmcmc.Schedule, lr: float, heat: float, seed: int, name: str
) -> Draws:
    """The draws of a chain that begins at the checkpoint; an interrupted one is resumed."""
    model = copy.deepcopy(task.model)
    options = {"momentum": MOMENTUM, "weight_decay": WEIGHT_DECAY, "num_data": len(task.train)}
    sampler = csgmcmc.SGHMC(model.parameters(), lr, temperature=heat, seed=seed, **options)
    data = TrainingBatches(task.train, Pixels(), BATCH, seed)
    store = csgmcmc.DrawStore(PREDICTIONS / f"{name}, {seed}")
    chain = csgmcmc.Chain(
        *(model, cross_entropy, data, sampler, schedule, store),
        generators=data.generators,
        watch=False,
        progress=False,
    )
    return chain.run(resume=True)


def steps_of(task: Task, epochs: int) -> int:
    return epochs * (len(task.train) // BATCH)


def cycles(ratio: float | None) -> Callable[[Task, int, int], Array]:
    """Cosine cycles that sample at this temperature in their last fifth; None is 1/N."""

    def run(task: Task, epochs: int, seed: int) -> Array:
        count, lr = CYCLES[epochs]
        keep = 1 if ratio == 0 else 3
        schedule = csgmcmc.Cyclical(steps_of(task, epochs), count, draws_per_cycle=keep)
        heat = 1 / len(task.train) if ratio is None else ratio
        name = f"cycles {epochs} epochs T {heat:g}"
        draws = sampled(task, schedule, lr, heat, seed, name)
        return log_probs(task.model, draws, task.batches(task.test, task.others))

    return run


def swag(task: Task, epochs: int, seed: int) -> Array:
    """SWAG, as its authors fine-tune: a constant lr of 0.01."""
    every = len(task.train) // BATCH // SWAG_PER_EPOCH
    schedule = csgmcmc.Constant(steps_of(task, epochs), keep=csgmcmc.Keep(every=every))
    path = sampled(task, schedule, SWAG_LR, 0.0, seed, f"SWAG {epochs} epochs")
    model = copy.deepcopy(task.model)
    moments = SWAG(model)
    for draw in path:
        moments.collect(draw.tensors())
    images = task.train.part(0, STATISTICS_ROWS)
    draws = moments.draws(DRAWS, seed=seed, loader=PlainBatches(images, Pixels()))
    return log_probs(task.model, draws, task.batches(task.test, task.others))


def laplace_last(prior: float) -> Callable[[Task, int, int], Array]:
    """Laplace of the last layer; the features are computed once."""

    def run(task: Task, _: int, seed: int) -> Array:
        train, images = features(task)
        head = nn.Sequential(task.model.classifier)
        return log_probs(head, last_layer_laplace(head, train, prior, 30, seed=seed), images)

    return run


@cache
@torch.inference_mode()
def features(task: Task) -> tuple[list[tuple[Tensor, Tensor]], list[Tensor]]:
    """What the last layer is given for the training images, and for the others."""
    body = copy.deepcopy(task.model).eval()
    body.classifier = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
    train = [(body(inputs), labels) for inputs, labels in PlainBatches(task.train, Pixels())]
    return train, [body(inputs) for inputs in task.batches(task.test, task.others)]


@cache
def curvature_of(task: Task, seed: int) -> dict[str, Tensor]:
    """The diagonal per image, of 2,000 images with labels from the model."""
    images = PlainBatches(task.train.part(0, CURVATURE_ROWS), Pixels(), 100)
    total, rows = diagonal_curvature(copy.deepcopy(task.model).eval(), images, seed)
    return {name: values / rows for name, values in total.items()}


def laplace_diagonal(prior: float) -> Callable[[Task, int, int], Array]:
    """Laplace of all weights with the diagonal and linearised predictions."""

    def run(task: Task, _: int, seed: int) -> Array:
        model, generator = copy.deepcopy(task.model).eval(), torch.Generator().manual_seed(seed)
        means = {name: mean.detach() for name, mean in model.named_parameters()}
        moves = []
        for _ in range(DRAWS):
            move = {}
            for name, mean in means.items():
                precision = len(task.train) * (curvature_of(task, seed)[name] + prior)
                noise = torch.randn(mean.shape, generator=generator)
                move[name] = noise / precision.float().sqrt()
            moves.append(move)
        found = []
        with torch.no_grad():
            for batch in task.batches(task.test, task.others):
                outputs = partial(_outputs, model, batch)
                both = [jvp(outputs, (means,), (move,)) for move in moves]
                logits = [each[0] + each[1] for each in both]
                found.append(torch.stack(logits).softmax(-1).clamp_min(1e-30).log())
        return torch.cat(found, 1).double().numpy()

    return run


def _outputs(model: nn.Module, inputs: Tensor, weights: Any) -> Tensor:
    return functional_call(model, weights, (inputs,))


SHOWN = {
    "network": ["network"],
    "Laplace, last layer": [f"Laplace, last layer, prior {prior:g}" for prior in PRIORS],
    "Laplace, diagonal": [f"Laplace, diagonal, prior {prior:g}" for prior in PRIORS],
    "SWAG": ["SWAG"],
    "Snapshot": ["cycles, T = 0"],
    **{f"ours, T = {heat}": [f"cycles, T = {heat}"] for heat in ("0", "1/N", "0.01", "1")},
}
"""What the tables show, and the runs that each is chosen from, on the held-out images."""

METHODS: dict[str, Callable[[Task, int, int], Array]] = {
    "network": the_network,
    **{f"Laplace, last layer, prior {prior:g}": laplace_last(prior) for prior in PRIORS},
    "cycles, T = 0": cycles(0.0),
    "SWAG": swag,
    "cycles, T = 1": cycles(1.0),
    "cycles, T = 1/N": cycles(None),
    "cycles, T = 0.01": cycles(0.01),
    **{f"Laplace, diagonal, prior {prior:g}": laplace_diagonal(prior) for prior in PRIORS},
}


def run(options: argparse.Namespace) -> None:
    """Everything that is asked for and not there yet."""
    torch.set_num_threads(1)
    task = load(options.data)
    human = np.load(options.data / "human" / "cifar10h-probs.npy")[: len(task.test)]
    PREDICTIONS.mkdir(parents=True, exist_ok=True)
    wanted = [(epochs, seed) for epochs in options.epochs for seed in options.seeds]
    for (epochs, seed), name in product(wanted, options.methods or METHODS):
        trains = name.startswith(("cycles", "SWAG"))
        file = predictions(name, epochs if trains else 0, seed)
        if not file.exists() and (trains or epochs == options.epochs[0]):
            begin = time.process_time()
            found = METHODS[name](task, epochs, seed)
            seconds = time.process_time() - begin
            aside = file.with_suffix(".part.npz")
            np.savez(aside, log_probs=found.astype(np.float32), seconds=seconds)
            aside.replace(file)
            print(f"{name}, {epochs} epochs, seed {seed}: {seconds:.0f} s", flush=True)
            judge_all(task.test.labels, human)
    judge_all(task.test.labels, human)


def predictions(name: str, epochs: int, seed: int) -> Path:
    return PREDICTIONS / f"{name.replace('/', ' ')}, {epochs}, {seed}.npz"


# Scores


class Table(nn.Module):
    """Its weights are the logits of all images, its inputs their numbers."""

    def __init__(self, logits: Array) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.from_numpy(logits))

    def forward(self, rows: Tensor) -> Tensor:
        return self.logits[rows]


@dataclass(frozen=True)
class Judge:
    """Scores of averages: fitted on the even test images, judged on the odd ones."""

    labels: Tensor
    human: Array

    def __call__(self, logs: Array, groups: list[int]) -> tuple[dict[str, float], Fit, Array]:
        """Scores, the fit on held-out images, and the log-scores of the scaled average."""
        draws = csgmcmc.MemoryDraws()
        for step, own in enumerate(logs):
            draws.append(Table(own), step=step)
        posterior = csgmcmc.Posterior(Table(logs[0]), draws, progress=False)
        rows = torch.arange(len(self.labels))
        held_out, judged = rows[::2], rows[1::2]
        fit = HeldOut(posterior, [(held_out, self.labels[held_out])]).fit(np.array(groups))
        others = torch.arange(len(self.labels), logs.shape[1])
        labels, found = self.labels[judged].numpy(), {}
        scaled = Categorical(temperature=fit.temperature or 1.0)
        for suffix, likelihood in (("", Categorical()), ("_scaled", scaled)):
            options = {"likelihood": likelihood, "progress": False}
            average = csgmcmc.Posterior(posterior.model, draws, fit.weights, **options)
            p: Any = average.predict(judged)
            probs, outside = p.probs.numpy(), average.predict(others).entropy.numpy()
            found[f"nll{suffix}"] = negative_log_likelihood(probs, labels)
            found[f"ece{suffix}"] = calibration_error(probs, labels)
            human = self.human[judged.numpy()]
            found[f"human{suffix}"] = float(-(human * p.log_probs.numpy()).sum(1).mean())
            found[f"auroc{suffix}"] = float(auroc(p.entropy.numpy(), outside))
            found["error"] = 100 * (1 - accuracy(probs, labels))
            log_scores = p.log_probs.numpy()[np.arange(len(labels)), labels]
        return found, fit, log_scores


def judge_all(labels: Tensor, human: Array) -> None:
    """Append the scores of new predictions to the results."""
    known = {(each["method"], each["epochs"], each["seed"]) for each in results()}
    judge, network = Judge(labels, human), _read(predictions("network", 0, 0))[0]
    assert network is not None
    _, base, base_scores = judge(network, [0])
    for method, epochs, seed in product(SHOWN, (0, *CYCLES), range(3)):
        if (method, epochs, seed) in known:
            continue
        candidates = []
        for name in SHOWN[method]:
            logs, seconds = _read(predictions(name, epochs, seed))
            if logs is None:
                break
            groups = [0] * len(logs)
            if method.startswith("ours"):
                each = len(logs) // CYCLES[epochs][0]
                groups = [0, *(1 + np.arange(len(logs)) // each)]
                logs = np.concatenate([network, logs])
            found, fit, log_scores = judge(logs, groups)
            gains, held = log_scores - base_scores, fit.scores - base.scores
            found |= {
                "gain": float(gains.mean()),
                "gain_error": float(gains.std() / len(gains) ** 0.5),
                "held_out_nll": fit.nll,
                "held_out_gain": float(held.mean()),
                "held_out_gain_error": float(held.std() / len(held) ** 0.5),
                "temperature": fit.temperature,
                "network_weight": float(fit.weights[0]) if len(set(groups)) > 1 else None,
                "seconds": seconds,
            }
            candidates.append({"name": name, **found})
        if len(candidates) == len(SHOWN[method]):
            best = min(candidates, key=lambda each: each["held_out_nll"])
            entry = {"method": method, "epochs": epochs, "seed": seed, **best}
            with RESULTS.open("a") as file:
                file.write(json.dumps(entry) + "\n")


def _read(file: Path) -> tuple[Array | None, float]:
    if not file.exists():
        return None, 0.0
    with np.load(file) as arrays:
        return arrays["log_probs"].astype(float), float(arrays["seconds"])


def results() -> list[dict[str, Any]]:
    """All that is stored."""
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


COLUMNS = {
    "error %": ("error", 2),
    "NLL": ("nll", 4),
    "ECE": ("ece", 4),
    "NLL, scaled": ("nll_scaled", 4),
    "ECE, scaled": ("ece_scaled", 4),
    "human, scaled": ("human_scaled", 4),
    "AUROC": ("auroc_scaled", 3),
}


def rows_of(epochs: int) -> list[list[str]]:
    """The rows of the table of a budget: means over seeds."""
    found = []
    for method in SHOWN:
        own = [one for one in results() if one["method"] == method and one["epochs"] in (0, epochs)]
        if own:
            means = [f"{np.mean([o[key] for o in own]):.{p}f}" for key, p in COLUMNS.values()]
            gain, error = (np.mean([o[key] for o in own]) for key in ("gain", "gain_error"))
            minutes = np.mean([one["seconds"] for one in own]) / 60
            paired = "" if method == "network" else f"{gain:+.4f} ± {error:.4f}"
            found.append([method, str(len(own)), *means, paired, f"{minutes:.1f}"])
    return found


def show(_: argparse.Namespace) -> None:
    """The tables, in Markdown."""
    for epochs in CYCLES:
        if not any(one["epochs"] == epochs for one in results()):
            continue
        names = ["", "seeds", *COLUMNS, "gain", "minutes"]
        print(f"\n{epochs} epochs\n\n| {' | '.join(names)} |\n|{'---|' * len(names)}")
        for row in rows_of(epochs):
            print(f"| {' | '.join(row)} |")


def main() -> None:
    """Run, or show what is stored."""
    parser = argparse.ArgumentParser(description="A trained ResNet-20 and a few more epochs.")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.set_defaults(command=run)
    command.add_argument("--data", type=Path, required=True)
    command.add_argument("--epochs", type=int, nargs="+", default=[2, 8, 32], choices=CYCLES)
    command.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], choices=range(3))
    command.add_argument("--methods", nargs="+", choices=METHODS)
    commands.add_parser("show").set_defaults(command=show)
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
