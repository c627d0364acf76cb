"""Dropout from cheap bits: one 64-bit draw decides eight units.

torch's own dropout draws a float a unit, which on a CPU costs as much as a matrix product of a small model. Eight bits
a unit are enough: the rate is rounded to a multiple of 1/256 and the kept units are scaled by exactly what that rate
asks for, so the mean stays exact. The bits come from torch's generator, whose state every checkpoint holds.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 256
LOWEST = -(2**63)


def dropped_levels(rate: float) -> int:
    """How many of 256 byte values drop a unit: the rate rounded, but never to nothing or to everything."""
    return min(LEVELS - 1, max(1, round(rate * LEVELS))) if rate else 0


def dropout_mask(shape: torch.Size, rate: float) -> Tensor:
    """0 where a unit is dropped, 1 / (keep rate) where it is kept."""
    levels, count = dropped_levels(rate), shape.numel()
    bits = torch.empty((count + 7) // 8, dtype=torch.int64).random_(LOWEST, None)
    kept = bits.view(torch.uint8)[:count].view(shape) >= levels
    return kept.float().mul_(LEVELS / (LEVELS - levels))


class _Masked(torch.autograd.Function):
    """The product with a mask that needs no gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, rate: float) -> Tensor:
        mask = dropout_mask(values.shape, rate)
        ctx.save_for_backward(mask)
        return values * mask

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.saved_tensors[0], None


class Dropout(nn.Module):
    """Drop units at random while training (Srivastava et al. 2014); the identity otherwise."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate, self.plain = rate, False

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return values
        if self.plain or values.device.type != "cpu" or values.dtype != torch.float32:
            return F.dropout(values, self.rate)
        return _Masked.apply(values, self.rate)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"
