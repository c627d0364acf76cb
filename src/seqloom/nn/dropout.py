"""Dropout from cheap bits: one 64-bit number decides eight units.

torch's own dropout draws a float a unit, which on a CPU costs as much as a matrix product of a small model. Eight bits
a unit are enough: the rate is rounded to a multiple of 1/256 and the kept units are scaled by exactly what that rate
asks for, so the mean stays exact. A generator (torch's, whose state every checkpoint holds) gives one seed a call; the
bits follow from it (`kernels/dropping.py`), on the way back once more, so that no mask is kept.

Three kinds drop in larger pieces, so their masks are small and kept: a unit for a whole sequence, a symbol for a whole
batch, a word where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.kernels.compiling import can_compile
from seqloom.kernels.dropping import LEVELS, drop, kept_units
from seqloom.nn.drawing import drop_units, own_generator


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


class _Dropping(nn.Module):
    """What all kinds share: a rate, and whether units are drawn by torch's own dropout."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate, self.plain = rate, False

    def drops(self) -> bool:
        """Whether anything is dropped now."""
        return self.training and self.rate > 0

    def _is_torchs(self, values: Tensor) -> bool:
        return self.plain or values.device.type != "cpu" or values.dtype != torch.float32

    def _draw(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """A mask, in type and place like `like`."""
        if self._is_torchs(like):
            return drop_units(like.new_ones(shape), self.rate)
        return dropout_mask(torch.Size(shape), self.rate, _draw_seed())

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


def _draw_seed() -> int:
    return int(torch.randint(2**62, (), generator=own_generator()))


class Dropout(_Dropping):
    """Drop units at random while training (Srivastava et al. 2014); the identity otherwise."""

    def forward(self, values: Tensor) -> Tensor:
        if not self.drops():
            return values
        if self._is_torchs(values):
            return drop_units(values, self.rate)
        return _Masked.apply(values, self.rate, _draw_seed())


class SharedDropout(_Dropping):
    """Variational dropout (Gal & Ghahramani 2016): each row has one mask, the same at all its steps."""

    def forward(self, values: Tensor) -> Tensor:
        """(rows, …, size) -> same."""
        if not self.drops():
            return values
        between = [1] * (values.ndim - 2)
        return values * self._draw((values.shape[0], *between, values.shape[-1]), values)


class SymbolDropout(_Dropping):
    """Whole symbols (Gal & Ghahramani 2016; Merity et al. 2018): one that is dropped is zero wherever it stands."""

    def forward(self, embedded: Tensor, symbols: Tensor, num_symbols: int) -> Tensor:
        """(…, size) vectors of the (…) symbols, of which there are `num_symbols` -> same."""
        if not self.drops():
            return embedded
        return embedded * F.embedding(symbols, self._draw((num_symbols, 1), embedded))


class WordDropout(_Dropping):
    """Words where they stand (Sennrich et al. 2016): a model that misses some must read and say the rest without them.

    A word that is missed is read as padding, whose vector is zero; the others are as they will be when it answers, so
    nothing is scaled up.
    """

    def forward(self, symbols: Tensor, padding_id: int = 0) -> Tensor:
        """(…) symbols -> same."""
        if not self.drops():
            return symbols
        return symbols.where(self._draw(symbols.shape, symbols.new_empty(0, dtype=torch.float32)) > 0, padding_id)


DROPOUTS: dict[str, type[Dropout] | type[SharedDropout]] = {"independent": Dropout, "variational": SharedDropout}
