"""Muon (Jordan et al. 2024): a matrix is changed equally much in all of its directions.

The step of a matrix is its momentum with all singular values made about 1, by a few products in place of a
decomposition. Directions that the gradient hardly mentions are learned as fast as those that it is full of. Tables of
symbols, biases and norms are no such maps: they learn by AdamW beside it. A step is as long as AdamW's (Liu et al.
2025), so that both use one learning rate and one weight decay.

What stands in one weight for speed (queries, keys and values; the gates of a cell) are several maps: a weight is taken
apart into square blocks where its sides allow it, and blocks of one size are computed with together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seqloom.nn.narrow import narrow, wide
from seqloom.training.uncompiled import uncompiled

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan et al. 2024: steep at zero, within about 0.7 to 1.2 after five turns
TURNS = 5
ADAM_LENGTH = 0.2  # root mean square of a component of AdamW's step (Liu et al. 2025, section 2.2)


def orthogonalized(matrices: Tensor) -> Tensor:
    """(count, rows, columns), rows <= columns -> matrices of the same singular vectors, singular values about 1.

    "About" is enough, as for its authors: the products are narrow where a training's are.
    """
    a, b, c = COEFFICIENTS
    x = narrow(matrices / (torch.linalg.matrix_norm(matrices, keepdim=True) + 1e-7))
    for _ in range(TURNS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return wide(x)


def blocks_of(weight: Tensor) -> Tensor:
    """(rows, columns) -> (count, smaller side, larger side), a view; squares where the sides allow it."""
    rows, columns = weight.shape
    if rows % columns == 0:
        return weight.view(-1, columns, columns)
    if columns % rows == 0:
        return weight.view(rows, -1, rows).transpose(0, 1)
    return (weight if rows < columns else weight.mT)[None]


class Muon(torch.optim.Optimizer):
    """Muon for `matrices`, AdamW for `others`."""

    def __init__(
        self,
        matrices: Sequence[Tensor],
        others: Sequence[Tensor],
        rate: float,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        fused: bool = True,
    ) -> None:
        adam = uncompiled(torch.optim.AdamW)
        super().__init__(matrices, {"lr": rate, "weight_decay": weight_decay, "momentum": momentum})
        self.others = adam(others, rate, betas=betas, eps=epsilon, weight_decay=weight_decay, fused=fused)
        self.others.state = self.state
        self.param_groups += self.others.param_groups  # the same groups: a rate set here is set there

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert closure is None
        group = self.param_groups[0]
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for weight in group["params"]:
            if weight.grad is None:
                continue
            state = self.state[weight]
            if not state:
                state["momentum"] = torch.zeros_like(weight)
            momentum = state["momentum"].lerp_(weight.grad, 1 - group["momentum"])
            ahead = torch.lerp(weight.grad, momentum, group["momentum"])  # Nesterov's
            into, blocks = blocks_of(weight), blocks_of(ahead)
            by_shape[blocks.shape[1:]].append((into, blocks))
        for shape, found in by_shape.items():
            steps = orthogonalized(torch.cat([blocks for _, blocks in found]))
            length = ADAM_LENGTH * math.sqrt(max(shape))
            for (into, _), step in zip(found, steps.split([len(blocks) for _, blocks in found]), strict=True):
                into.mul_(1 - group["lr"] * group["weight_decay"]).sub_(step, alpha=group["lr"] * length)
        self.others.step()
