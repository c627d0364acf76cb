"""Optimising tables by their rows: what a step uses moves as torch's own lazy Adam moves it, nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqloom.nn.hashing import HashedTable
from seqloom.training.optimizers import (
    build_optimizer,
    clip,
    gradient_norm,
    maps_of,
    optimizer_tensors,
    restore_optimizer,
)
from seqloom.training.rows import summed_rows
from seqloom.training.settings import TrainingSettings
from seqloom.training.workers import Workers

STEPS = [torch.tensor(rows) for rows in ([1, 3, 3], [2, 0, 1], [3, 3, 3], [5, 1, 0])]


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = HashedTable(6, 4)
        self.output = nn.Linear(4, 3)
        self.table.weight.data[1:].normal_()

    def forward(self, rows: Tensor) -> Tensor:
        return (self.output(self.table(rows)).square().sum(-1) * torch.arange(1.0, len(rows) + 1)).sum()


def settings(**values: Any) -> TrainingSettings:
    return TrainingSettings(steps=1, learning_rate=0.1, **values)


def step(model: Small, optimizer: torch.optim.Optimizer, rows: Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    model(rows).backward()
    for weight in model.parameters():
        weight.grad = summed_rows(weight.grad)
    optimizer.step()


def test_rows_move_as_in_sparse_adam_of_torch() -> None:
    ours, theirs = Small(), Small()
    optimizer = build_optimizer(ours, settings())
    rows_of_theirs = torch.optim.SparseAdam([theirs.table.weight], lr=0.1)
    rest_of_theirs = torch.optim.Adam(theirs.output.parameters(), lr=0.1)
    for rows in STEPS:
        step(ours, optimizer, rows)
        rows_of_theirs.zero_grad()
        rest_of_theirs.zero_grad()
        theirs(rows).backward()
        rows_of_theirs.step()
        rest_of_theirs.step()
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine, other)
    assert torch.equal(ours.table.weight[4], Small().table.weight[4]), "never used"
    assert not ours.table.weight[0].any()


def test_sgd_and_muon_change_rows_too() -> None:
    for name in ("sgd", "muon", "adamw"):
        model, before = Small(), Small()
        optimizer = build_optimizer(model, settings(optimizer=name, weight_decay=0.01))
        step(model, optimizer, STEPS[0])
        changed = (model.table.weight != before.table.weight).any(1)
        assert changed.tolist() == [False, True, False, True, False, False, False], name
        assert not torch.equal(model.output.weight, before.output.weight), name
        assert not any(weight is model.table.weight for weight in maps_of(model))
        if name == "sgd":
            gradient = model.table.weight.grad
            assert gradient is not None
            torch.testing.assert_close(model.table.weight, before.table.weight - 0.1 * gradient.to_dense())


def test_the_rate_is_set_for_all_weights() -> None:
    model = Small()
    optimizer = build_optimizer(model, settings())
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    step(model, optimizer, STEPS[0])
    for mine, before in zip(model.parameters(), Small().parameters(), strict=True):
        assert torch.equal(mine, before)


def test_the_state_is_put_away_and_taken_out_to_the_same_bits(tmp_path: Path) -> None:
    through, stopped = Small(), Small()
    optimizer = build_optimizer(through, settings())
    for rows in STEPS:
        step(through, optimizer, rows)
    first = build_optimizer(stopped, settings())
    for rows in STEPS[:2]:
        step(stopped, first, rows)
    second = build_optimizer(stopped, settings())
    restore_optimizer(stopped, second, optimizer_tensors(stopped, first))
    for rows in STEPS[2:]:
        step(stopped, second, rows)
    for mine, other in zip(through.parameters(), stopped.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_norm_and_clipping_are_those_of_the_dense_gradient() -> None:
    model = Small()
    model(STEPS[0]).backward()
    gradients = [summed_rows(weight.grad) for weight in model.parameters() if weight.grad is not None]
    dense = [gradient.to_dense().clone() for gradient in gradients]
    norm = gradient_norm(gradients)
    torch.testing.assert_close(norm, torch.cat([gradient.flatten() for gradient in dense]).norm())
    clip(gradients, norm, 0.5)
    for clipped, gradient in zip(gradients, dense, strict=True):
        torch.testing.assert_close(clipped.to_dense(), gradient * (0.5 / (norm + 1e-6)))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_shards_add_their_rows_up(size: int) -> None:
    model, alone = Small(), Small()
    workers = Workers(model, size)
    found = workers.run(lambda worker, shard: worker.model(STEPS[shard]).backward(), [(0, 4)])[0, 4]
    workers.close()
    sum(alone(rows) for rows in STEPS).backward()
    for mine, other in zip(found, alone.parameters(), strict=True):
        assert mine is not None
        assert other.grad is not None
        torch.testing.assert_close(mine.to_dense(), other.grad.to_dense())


def test_a_dense_gradient_makes_the_same_step() -> None:
    """As processes exchange it; a row that was used without effect counts as not used."""
    sparse, dense = Small(), Small()
    first, second = (build_optimizer(model, settings()) for model in (sparse, dense))
    for rows in STEPS:
        for model, optimizer in ((sparse, first), (dense, second)):
            optimizer.zero_grad(set_to_none=True)
            (model(rows) + 0.0 * model(torch.tensor([4, 4]))).backward()
            assert model.table.weight.grad is not None
            if model is dense:
                model.table.weight.grad = model.table.weight.grad.to_dense()
            optimizer.step()
    for mine, other in zip(sparse.parameters(), dense.parameters(), strict=True):
        assert torch.equal(mine, other)
