"""Bends between two products, where torch's own costs more than it must."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.nn.plain import can_be_compiled


class _Gelu(torch.autograd.Function):
    """The slope is computed with the value, and is all that the way back needs."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        from seqloom.kernels.gelu import bend

        values = values.detach().contiguous()
        out, slopes = torch.empty_like(values), torch.empty_like(values)
        bend(values.view(-1).numpy(), out.view(-1).numpy(), slopes.view(-1).numpy())
        ctx.save_for_backward(slopes)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (slopes,) = ctx.saved_tensors
        return gradient * slopes


def gelu(values: Tensor) -> Tensor:
    """x Φ(x) (Hendrycks & Gimpel 2016): `F.gelu`, compiled where that is faster."""
    if can_be_compiled(values) and values.shape[-1] % 8 == 0:  # whole lanes
        return _Gelu.apply(values)
    return F.gelu(values)
