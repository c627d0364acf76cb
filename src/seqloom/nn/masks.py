"""Masks. One convention everywhere: True where a token is real, False where it is padding or hidden."""

from __future__ import annotations

import torch
from torch import Tensor


def length_mask(lengths: Tensor, size: int) -> Tensor:
    """(batch,) lengths -> (batch, size), True at the first `length` positions of each row."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def real_or_none(lengths: Tensor, size: int) -> Tensor | None:
    """`length_mask`, or None where no row is padded: what needs no mask is faster without."""
    mask = length_mask(lengths, size)
    return None if bool(mask.all()) else mask


def causal_mask(size: int, device: torch.device | None = None) -> Tensor:
    """(size, size), True where a position (row) may look at another (column): at itself and at what came before."""
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()
