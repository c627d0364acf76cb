"""Matrix products of narrow numbers (bfloat16), where a training asks for them.

A bfloat16 number is a float32 number without the lower half of its bits: the same range, eight bits of precision. A
processor that multiplies such numbers does it twice as fast, and sums them up in float32. Weights, states, norms and
everything that is added up over time stay float32: numbers are made narrow before a product and wide after it.

It is a matter of training only, and of the thread that asks: `with narrow_products():` around a loss. The gradients
follow: what was kept for the way back is narrow.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.nn.eight_bits import product
from seqloom.nn.switches import Switch

NARROW = torch.bfloat16
ROWS, FEW_ROWS = 128, 16

_asked = Switch()


def has_narrow_products() -> bool:
    """Whether the processor has instructions for them; without, they would be slower than the others."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def narrow_products(wanted: bool = True) -> AbstractContextManager[None]:
    """Within this, this thread's products are narrow."""
    return _asked.turned(wanted)


def narrows(values: Tensor) -> bool:
    """Whether these are to be made narrow before a product."""
    return _asked.on and values.dtype == torch.float32 and values.device.type == "cpu"


def narrow(values: Tensor) -> Tensor:
    """What goes into a product: narrow where that is asked for, else as it is."""
    return values.to(NARROW) if narrows(values) else values


def wide(values: Tensor) -> Tensor:
    """What came out of a product: never narrow; what was, is in one block."""
    return values.to(torch.float32, memory_format=torch.contiguous_format) if values.dtype == NARROW else values


# Code is made, and kept, for every shape of a narrow product. The number of rows is another one in every batch, so rows
# of zeros are put below them, which changes nothing that is looked at, and shapes come again.


def narrow_rows(rows: Tensor) -> Tensor:
    """(rows, d) as they go into a product: a multiple of `ROWS`, narrow; or as they are, where nobody asks for that."""
    return _filled(rows, ROWS) if narrows(rows) else rows


def rows_like(rows: Tensor, others: Tensor) -> Tensor:
    """Rows to meet `others` on the way back: as narrow and as many as these."""
    return rows if rows.dtype == others.dtype else _filled(rows, len(others))


def _filled(rows: Tensor, multiple: int) -> Tensor:
    count = len(rows)
    filled = torch.empty(-(-count // multiple) * multiple, rows.shape[1], dtype=NARROW)
    filled[:count] = rows
    filled[count:] = 0.0
    return filled


def times(rows: Tensor, right: Tensor) -> Tensor:
    """rows @ right, as wide as it comes."""
    if rows.dtype == NARROW and len(rows) % FEW_ROWS:
        return (_filled(rows, FEW_ROWS) @ right)[: len(rows)]
    return rows @ right


def put_product(into: Tensor, rows: Tensor, right: Tensor) -> None:
    """into = rows @ right, which may be narrow; rows that were put below are left out."""
    if rows.dtype == into.dtype:
        torch.mm(rows, right, out=into)
    else:
        into.copy_(times(rows, right)[: len(into)])


def add_product(into: Tensor, rows: Tensor, right: Tensor) -> None:
    """into += rows @ right, which may be narrow: the sum is not."""
    if rows.dtype == into.dtype:
        into.addmm_(rows, right)
    else:
        into += times(rows, right)[: len(into)]


class _Linear(torch.autograd.Function):
    """W x + b; what is kept for the way back is narrow."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        given, weight = inputs.flatten(0, -2), narrow(weight)
        rows = narrow_rows(given)
        ctx.save_for_backward(rows, weight)
        found = rows @ weight.T if bias is None else torch.addmm(narrow(bias), rows, weight.T)
        return wide(found[: len(given)]).view(*inputs.shape[:-1], len(weight))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        given = gradient.flatten(0, -2)
        of_rows = rows_like(given, rows)
        of_inputs = wide((of_rows @ weight)[: len(given)]).view(*gradient.shape[:-1], weight.shape[1])
        return of_inputs, wide(of_rows.T @ rows), given.sum(0) if ctx.needs_input_grad[2] else None


def mapped(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """W x + b of each vector (…, d), by a narrow product where that is asked for."""
    return (_Linear.apply if narrows(inputs) else product)(inputs, weight, bias)


def linear(inputs: Tensor, layer: nn.Linear) -> Tensor:
    """layer(inputs), by a narrow product where that is asked for."""
    return mapped(inputs, layer.weight, layer.bias)
