"""Large tables of which a step uses a few rows: only these are changed, at a cost that does not grow with the table.

Their gradients are sparse tensors. A row's moments stand still while it is not used (lazy Adam, as torch's SparseAdam;
here the number of steps is a tensor too, so that a run resumes exactly).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def summed_rows(gradient: Tensor) -> Tensor:
    """A sparse gradient with every row once; any other as it is."""
    return gradient.coalesce() if gradient.is_sparse else gradient


def dense_values(gradient: Tensor) -> Tensor:
    """The numbers of a gradient that may not be zero."""
    return gradient._values() if gradient.is_sparse else gradient


class WithTables(torch.optim.Optimizer):
    """An optimiser for all other weights, and Adam (`sgd`: plain steps) for the rows of tables that a step used."""

    def __init__(
        self,
        rest: torch.optim.Optimizer,
        tables: Sequence[Tensor],
        rate: float,
        *,
        adaptive: bool,
        betas: tuple[float, float],
        epsilon: float,
    ) -> None:
        super().__init__(tables, {"lr": rate, "betas": betas, "eps": epsilon, "adaptive": adaptive})
        self.rest = rest
        self.rest.state = self.state
        self.param_groups += rest.param_groups  # the same groups: a rate set here is set there

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert closure is None
        group = self.param_groups[0]
        for table in group["params"]:
            if table.grad is None:
                continue
            gradient = table.grad if table.grad.is_sparse else table.grad.to_sparse(1)
            gradient = gradient.coalesce()
            used = gradient.values().any(1)  # a dense gradient does not tell rows that nobody used from these
            self._change(table, gradient.indices()[0][used], gradient.values()[used], group)
        self.rest.step()

    def _change(self, table: Tensor, rows: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """Kingma and Ba 2015, algorithm 1, of these rows."""
        if not group["adaptive"]:
            table.index_add_(0, rows, gradient, alpha=-group["lr"])
            return
        state = self.state[table]
        if not state:
            state |= {
                "step": torch.zeros(()),
                "exp_avg": torch.zeros_like(table),
                "exp_avg_sq": torch.zeros_like(table),
            }
        state["step"] += 1
        (first, second), steps = group["betas"], float(state["step"])
        mean = state["exp_avg"][rows].lerp_(gradient, 1 - first)
        square = state["exp_avg_sq"][rows].lerp_(gradient.square(), 1 - second)
        state["exp_avg"][rows], state["exp_avg_sq"][rows] = mean, square
        size = group["lr"] * math.sqrt(1 - second**steps) / (1 - first**steps)
        table.index_add_(0, rows, mean / (square.sqrt() + group["eps"] * math.sqrt(1 - second**steps)), alpha=-size)
