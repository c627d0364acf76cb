"""An encoded source as one vector: its mean, sum or maximum, the last state, or learned attention."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from seqloom.models.memory import Memory, MemoryShape, mean_of_real
from seqloom.nn.pooling import AttentionPooling

Pool = Literal["attention", "last", "max", "mean", "sum"]


class Pooling(nn.Module):
    """One way to pool; only attention has weights."""

    def __init__(self, how: Pool, size: int) -> None:
        super().__init__()
        self.how = how
        self.attention = AttentionPooling(size) if how == "attention" else None

    def forward(self, memory: Memory) -> Tensor:
        """-> (batch, size)"""
        if self.attention is None:
            return pool(memory, self.how)
        return (self.attention(memory.values, memory.mask)[..., None] * memory.values).sum(1)

    def shares(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """Vectors (batch, time, size) and what they are weighed by, so that their products sum up to the pooled one.

        Of max, each unit counts where it is largest; of last, the last vector has all.
        """
        values = memory.values
        mask = values.new_ones(values.shape[:2], dtype=torch.bool) if memory.mask is None else memory.mask
        if self.attention is not None:
            return values, self.attention(values, memory.mask)[..., None].expand_as(values)
        if self.how == "last":
            last = mask.sum(1) - 1
            shares = torch.zeros_like(values).scatter(1, last[:, None, None].expand(-1, 1, values.shape[2]), 1.0)
            return pool(memory, "last")[:, None].expand_as(values), shares
        if self.how == "max":
            hidden = values.masked_fill(~mask[..., None], float("-inf"))
            return values, torch.zeros_like(values).scatter(1, hidden.argmax(1, keepdim=True), 1.0)
        shares = mask[..., None].to(values.dtype).expand_as(values)
        if self.how == "mean":
            shares = shares / mask.sum(1).clamp(min=1)[:, None, None]
        return values, shares


def pool(memory: Memory, how: Pool) -> Tensor:
    """(batch, time, size) -> (batch, size), padding left out."""
    values, mask = memory.values, memory.mask
    if how == "last":
        return memory.summarise()
    if how == "mean":
        return mean_of_real(values, mask)
    if how == "max":
        return (values if mask is None else values.masked_fill(~mask[..., None], float("-inf"))).amax(1)
    return (values if mask is None else values * mask[..., None]).sum(1)


def last_needs_states(pooling: Pool, kind: str, memory: MemoryShape) -> None:
    """ValueError where an encoder has no last state."""
    if pooling == "last" and memory.cell is None:
        raise ValueError(f"pooling: last is of recurrent encoders; got encoder.kind: {kind}")
