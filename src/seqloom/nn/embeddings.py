"""Tables of vectors, one row a symbol."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.adding import add_rows, adds_to, gradient_of


class SymbolEmbedding(nn.Module):
    """(…) symbols -> (…, size) vectors.

    Rows are kept at unit expected length, so that an output layer tied to them starts with logits of about unit size;
    what is given out is scaled up by the square root of the size, so that each component has about unit variance
    (Vaswani et al. 2017, section 3.4). Padding is zero.
    """

    def __init__(self, num_symbols: int, size: int, padding_id: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(num_symbols, size), std=size**-0.5))
        self.padding_id, self.scale = padding_id, math.sqrt(size)
        self.weight.data[padding_id].zero_()

    def forward(self, symbols: Tensor) -> Tensor:
        if adds_to(self.weight):
            return _Looked.apply(self.weight, symbols, self.padding_id, self.scale)
        return F.embedding(symbols, self.weight, self.padding_id) * self.scale


class _Looked(torch.autograd.Function):
    """The vectors of symbols; the gradient is added to the rows that were looked at, where it is kept."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, symbols: Tensor, padding_id: int, scale: float) -> Tensor:
        ctx.weight, ctx.padding_id, ctx.scale = weight, padding_id, scale
        ctx.save_for_backward(symbols)
        return F.embedding(symbols, weight) * scale

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        (symbols,), into = ctx.saved_tensors, gradient_of(ctx.weight)
        kept = into[ctx.padding_id].clone()
        add_rows(into, symbols.flatten(), gradient.flatten(0, -2), ctx.scale)
        into[ctx.padding_id] = kept
        return None, None, None, None


@torch.no_grad()
def start_within(bound: float, embedding: SymbolEmbedding, weights: Iterable[Tensor]) -> None:
    """Uniform weights within ± bound, as Zaremba et al. 2014 start; what is not named stays as it is.

    An embedding that is scaled up also learns faster, by its scale, than the other weights at the same rate: a plan
    that others made for the plain one does not reckon with that, so here it is not scaled.
    """
    for weight in (embedding.weight, *weights):
        nn.init.uniform_(weight, -bound, bound)
    embedding.weight[embedding.padding_id] = 0.0
    embedding.scale = 1.0
