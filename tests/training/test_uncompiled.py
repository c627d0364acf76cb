"""torch's optimisers without its compiler: the same steps, the same hooks, and nothing of it loaded."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from seqloom.training.uncompiled import uncompiled

KINDS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adam": (torch.optim.Adam, {"weight_decay": 0.1}),
    "adam, fused": (torch.optim.Adam, {"fused": True}),
    "adamw, fused": (torch.optim.AdamW, {"fused": True, "weight_decay": 0.1}),
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_step_is_torchs(name: str) -> None:
    kind, options = KINDS[name]
    found = []
    for chosen in (kind, uncompiled(kind)):
        torch.manual_seed(3)
        layer, inputs, heard = nn.Linear(7, 5), torch.randn(4, 7), []
        optimizer = chosen(layer.parameters(), lr=0.1, **options)  # type: ignore[call-arg]
        optimizer.register_step_post_hook(lambda *_, heard=heard: heard.append(1))
        for _ in range(4):
            optimizer.zero_grad()
            layer(inputs).pow(2).sum().backward()
            optimizer.step()
        assert len(heard) == 4
        assert isinstance(optimizer, kind)
        found.append((layer.weight.detach(), layer.bias.detach(), list(optimizer.state.values())))
    for ours, theirs in zip(found[1][:2], found[0][:2], strict=True):
        assert torch.equal(ours, theirs)
    assert [set(state) for state in found[0][2]] == [set(state) for state in found[1][2]]


TRAINING = """
import sys
from pathlib import Path
from seqloom.experiment import train
train("demo", Path(sys.argv[1]) / "run", overrides=[
    "training.steps=2", "training.optimizer=" + sys.argv[2], "data.train.size=50", "training.validation_sentences=0",
    "training.validate_every=2", "training.metric=loss", "training.learning_rate=1e-3",
])
print("torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon", "sgd"])
def test_a_training_does_not_load_the_compiler(optimizer: str, tmp_path: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, str(tmp_path), optimizer], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["False"], done.stderr
