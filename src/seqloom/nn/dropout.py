"""Dropout from cheap bits: one 64-bit number decides eight units.

torch's own dropout draws a float a unit, which on a CPU costs as much as a matrix product of a small model. Eight bits
a unit are enough: the rate is rounded to a multiple of 1/256 and the kept units are scaled by exactly what that rate
asks for, so the mean stays exact. torch's generator, whose state every checkpoint holds, gives one seed a call; the
bits follow from it (`kernels/dropping.py`), on the way back once more, so that no mask is kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.kernels.compiling import can_compile
from seqloom.kernels.dropping import LEVELS, drop, kept_units


def dropped_levels(rate: float) -> int:
    """How many of 256 byte values drop a unit: the rate rounded, but never to nothing or to everything."""
    return min(LEVELS - 1, max(1, round(rate * LEVELS))) if rate else 0


def dropout_mask(shape: torch.Size, rate: float, seed: int) -> Tensor:
    """0 where a unit is dropped, 1 / (keep rate) where it is kept."""
    levels = dropped_levels(rate)
    kept = torch.from_numpy(kept_units(shape.numel(), seed, levels)).view(shape)
    return kept.float().mul_(LEVELS / (LEVELS - levels))


def masked(values: Tensor, rate: float, seed: int) -> Tensor:
    """values * dropout_mask(values.shape, rate, seed), in one pass where it can be compiled."""
    if not can_compile():
        return values * dropout_mask(values.shape, rate, seed)
    levels, values = dropped_levels(rate), values.contiguous()
    out = torch.empty_like(values)
    scale = LEVELS / (LEVELS - levels)
    drop(values.view(-1).numpy(), np.uint64(seed), levels, scale, out.view(-1).numpy())
    return out


class _Masked(torch.autograd.Function):
    """The product with a mask that a seed stands for."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, rate: float, seed: int) -> Tensor:
        ctx.rate, ctx.seed = rate, seed
        return masked(values.detach(), rate, seed)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return masked(gradient, ctx.rate, ctx.seed), None, None


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
        return _Masked.apply(values, self.rate, int(torch.randint(2**62, ())))

    def extra_repr(self) -> str:
        return f"rate={self.rate}"
