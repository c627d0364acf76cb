"""Matrix products of narrow numbers (bfloat16), where a training asks for them.

A bfloat16 number is a float32 number without the lower half of its bits: the same range, eight bits of precision. A
processor that multiplies such numbers does it twice as fast, and sums them up in float32. Weights, states, norms and
everything that is added up over time stay float32: numbers are made narrow before a product and wide after it.

It is a matter of training only, and of the thread that asks: `with narrow_products():` around a loss. The gradients
follow: what was kept for the way back is narrow.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NARROW = torch.bfloat16

_asked = threading.local()


def has_narrow_products() -> bool:
    """Whether the processor has instructions for them; without, they would be slower than the others."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@contextmanager
def narrow_products(wanted: bool = True) -> Iterator[None]:
    """Within this, this thread's products are narrow."""
    before = getattr(_asked, "wanted", False)
    _asked.wanted = wanted
    try:
        yield
    finally:
        _asked.wanted = before


def narrows(values: Tensor) -> bool:
    """Whether these are to be made narrow before a product."""
    return getattr(_asked, "wanted", False) and values.dtype == torch.float32 and values.device.type == "cpu"


def narrow(values: Tensor) -> Tensor:
    """What goes into a product: narrow where that is asked for, else as it is."""
    return values.to(NARROW) if narrows(values) else values


def wide(values: Tensor) -> Tensor:
    """What came out of a product: never narrow."""
    return values.float() if values.dtype == NARROW else values


def put_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    """into = left @ right, which may be narrow."""
    if left.dtype == into.dtype:
        torch.mm(left, right, out=into)
    else:
        into.copy_(left @ right)


def add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    """into += left @ right, which may be narrow: the sum is not."""
    if left.dtype == into.dtype:
        into.addmm_(left, right)
    else:
        into += left @ right


class _Linear(torch.autograd.Function):
    """W x + b; what is kept for the way back is narrow."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        rows, weight = narrow(inputs.flatten(0, -2)), narrow(weight)
        ctx.save_for_backward(rows, weight)
        return wide(torch.addmm(narrow(bias), rows, weight.T)).view(*inputs.shape[:-1], len(weight))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        rows, weight = ctx.saved_tensors
        pull = gradient.flatten(0, -2)
        of_bias, pull = pull.sum(0), pull.to(rows.dtype)
        of_inputs = wide(pull @ weight).view(*gradient.shape[:-1], weight.shape[1])
        return of_inputs, wide(pull.T @ rows), of_bias


def linear(inputs: Tensor, layer: nn.Linear) -> Tensor:
    """layer(inputs), by a narrow product where that is asked for."""
    if narrows(inputs) and layer.bias is not None:
        return _Linear.apply(inputs, layer.weight, layer.bias)
    return F.linear(inputs, layer.weight, layer.bias)
