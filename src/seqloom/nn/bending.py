"""Two products with a bend between them as one operation: nothing is kept, copied or zeroed that need not be."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqloom.nn.narrow import narrow, narrow_rows, rows_like, wide
from seqloom.nn.plain import can_be_compiled

LANES = 8  # numbers that a compiled loop takes at a time (`kernels/lanes.py`)


class _Bent(torch.autograd.Function):
    """W2 f(W1 x + b1) + b2, f being gelu or relu. What the way back needs of f stands where its input stood."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, kind: str) -> Tensor:
        given, w1, w2 = inputs.flatten(0, -2), narrow(w1), narrow(w2)
        rows = narrow_rows(given)
        inner = rows @ w1.T
        slopes = None
        if kind == "gelu":
            from seqloom.kernels.gelu import bend

            slopes, inner = wide(inner), torch.empty(inner.shape)
            flat = slopes.view(-1).numpy()
            bend(flat, b1.detach().numpy(), inner.view(-1).numpy(), flat)
            inner = narrow(inner)
        else:
            inner.add_(narrow(b1)).relu_()
        ctx.save_for_backward(rows, w1, w2, inner, slopes)
        found = torch.addmm(narrow(b2), inner, w2.T)[: len(given)]
        return wide(found).view(*inputs.shape[:-1], len(w2))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, w1, w2, inner, slopes = ctx.saved_tensors
        given = gradient.flatten(0, -2)
        of_rows = rows_like(given, rows)
        of_w2, of_b2, within = wide(of_rows.T @ inner), given.sum(0), of_rows @ w2
        if slopes is None:
            torch.ops.aten.threshold_backward.grad_input(within, inner, 0, grad_input=within)
        else:
            within *= slopes
        of_inputs = wide((within @ w1)[: len(given)]).view(*gradient.shape[:-1], w1.shape[1])
        return of_inputs, wide(within.T @ rows), wide(within.sum(0)), of_w2, of_b2, None


def bent_at_once(inputs: Tensor, inner: torch.nn.Linear, outer: torch.nn.Linear, kind: str) -> Tensor | None:
    """outer(f(inner(inputs))) for the kinds and places where there is a faster way; else None."""
    if kind not in ("gelu", "relu") or not can_be_compiled(inputs) or (kind == "gelu" and inner.out_features % LANES):
        return None
    return _Bent.apply(inputs, inner.weight, inner.bias, outer.weight, outer.bias, kind)
