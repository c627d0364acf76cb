"""An optimiser put away and taken out again goes on to the same bits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqloom.training.optimizers import build_optimizer, clip, gradient_norm, optimizer_tensors, restore_optimizer
from seqloom.training.settings import TrainingSettings

KINDS = {
    "adam": dict(optimizer="adam"),
    "adam plain": dict(optimizer="adam", plain=True),
    "adamw": dict(optimizer="adamw", weight_decay=0.01, betas=(0.8, 0.98)),
    "muon": dict(optimizer="muon", weight_decay=0.01),
    "muon plain": dict(optimizer="muon", plain=True),
    "sgd": dict(optimizer="sgd"),
    "sgd momentum": dict(optimizer="sgd", momentum=0.9, weight_decay=0.01),
}
every_kind = pytest.mark.parametrize("kind", sorted(KINDS))


class Tied(nn.Module):
    """A small network with a tied weight and a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 5)
        self.inner = nn.Linear(5, 5)
        self.frozen = nn.Parameter(torch.ones(5), requires_grad=False)
        self.output = nn.Linear(5, 7)
        self.output.weight = self.table.weight

    def forward(self, symbols: Tensor) -> Tensor:
        return self.output(self.inner(self.table(symbols)).tanh() * self.frozen)


def build(**given: Any) -> tuple[Tied, torch.optim.Optimizer]:
    torch.manual_seed(59)
    model = Tied()
    return model, build_optimizer(model, TrainingSettings(steps=1, learning_rate=0.1, **given))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        symbols = torch.arange(11).mul(step + 1) % 7
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(symbols), symbols.roll(1)).backward()
        optimizer.step()


@every_kind
def test_a_restored_optimiser_goes_on_to_the_same_bits(kind: str) -> None:
    whole, optimizer = build(**KINDS[kind])
    train(whole, optimizer, range(7))

    first, optimizer = build(**KINDS[kind])
    train(first, optimizer, range(3))
    kept = optimizer_tensors(first, optimizer)
    weights = {name: weight.detach().clone() for name, weight in first.named_parameters()}
    train(first, optimizer, range(3, 5))  # whatever happens later must not reach what was kept

    second, optimizer = build(**KINDS[kind])
    with torch.no_grad():
        for name, weight in second.named_parameters():
            weight.copy_(weights[name])
    restore_optimizer(second, optimizer, kept)
    train(second, optimizer, range(3, 7))
    for name, weight in whole.named_parameters():
        assert torch.equal(weight, dict(second.named_parameters())[name]), name


@every_kind
def test_what_is_kept_is_restored_and_not_shared(kind: str) -> None:
    model, optimizer = build(**KINDS[kind])
    assert optimizer_tensors(model, optimizer) == {}
    train(model, optimizer, range(2))
    kept = optimizer_tensors(model, optimizer)
    other, fresh = build(**KINDS[kind])
    restore_optimizer(other, fresh, kept)
    again = optimizer_tensors(other, fresh)
    assert again.keys() == kept.keys()
    assert all(torch.equal(again[name], kept[name]) for name in kept)
    train(other, fresh, range(1))
    assert all(torch.equal(again[name], kept[name]) for name in kept)


def test_names_of_what_is_kept() -> None:
    model, optimizer = build(optimizer="adam")
    train(model, optimizer, range(1))
    learning = ["table.weight", "inner.weight", "inner.bias", "output.bias"]  # a tied weight once, a frozen one never
    names = {f"{key}/{name}" for key in ("step", "exp_avg", "exp_avg_sq") for name in learning}
    assert set(optimizer_tensors(model, optimizer)) == names
    model, optimizer = build(optimizer="sgd", momentum=0.5)
    train(model, optimizer, range(1))
    assert set(optimizer_tensors(model, optimizer)) == {f"momentum_buffer/{name}" for name in learning}


def test_the_settings_reach_the_optimiser() -> None:
    _, adam = build(optimizer="adamw", betas=(0.7, 0.77), epsilon=1e-5, weight_decay=0.3)
    assert isinstance(adam, torch.optim.AdamW)
    group = adam.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (0.1, (0.7, 0.77), 1e-5, 0.3)
    assert group["fused"] is True
    assert build(optimizer="adam", plain=True)[1].param_groups[0]["fused"] is False
    _, sgd = build(optimizer="sgd", momentum=0.7, weight_decay=0.2)
    assert isinstance(sgd, torch.optim.SGD)
    assert (sgd.param_groups[0]["momentum"], sgd.param_groups[0]["weight_decay"]) == (0.7, 0.2)


def test_gradient_norm_by_hand() -> None:
    gradients = [torch.tensor([3.0, -4.0]), torch.tensor([12.0])]
    assert float(gradient_norm(gradients)) == pytest.approx(13)
    assert math.isinf(float(gradient_norm([*gradients, torch.full((5,), float("inf"))])))


@pytest.mark.parametrize(("most", "expected"), [(6.5, [1.5, -2.0, 6.0]), (13.5, [3.0, -4.0, 12.0])])
def test_gradients_are_clipped_only_where_they_are_too_large(most: float, expected: list[float]) -> None:
    gradients = [torch.tensor([3.0, -4.0]), torch.tensor([12.0])]
    clip(gradients, gradient_norm(gradients), most)
    assert torch.cat(gradients).tolist() == pytest.approx(expected, rel=1e-6)
