"""The moving average: its formula by hand, the swap, the checkpoint."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqloom.training.moving_average import MovingAverage


def test_formula_by_hand() -> None:
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(0.0)
    average = MovingAverage(model, 0.5)
    model.weight.data.fill_(11.0)
    average.update(1)  # decay min(0.5, 2/11)
    assert average.averages[0].item() == pytest.approx(11 * (1 - 2 / 11))
    model.weight.data.fill_(1.0)
    average.update(1000)
    assert average.averages[0].item() == pytest.approx(0.5 * 9 + 0.5 * 1)


def test_the_model_has_it_only_within() -> None:
    model = nn.Linear(3, 2)
    average = MovingAverage(model, 0.9)
    before = model.weight.detach().clone()
    model.weight.data.add_(1.0)
    with average.in_place():
        assert torch.equal(model.weight, before)
    assert torch.equal(model.weight, before + 1.0)
    assert torch.equal(average.averages[0], before)


def test_a_checkpoint_brings_it_back() -> None:
    model = nn.Linear(3, 2)
    average = MovingAverage(model, 0.9)
    model.weight.data.add_(1.0)
    average.update(5)
    kept = {**average.tensors(), "exp_avg/weight": torch.ones(1)}
    other = MovingAverage(nn.Linear(3, 2), 0.9)
    other.take(kept)
    assert all(torch.equal(a, b) for a, b in zip(average.averages, other.averages, strict=True))
    assert kept.keys() == {"exp_avg/weight"}, "what is left belongs to the optimiser"
