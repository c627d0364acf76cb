"""A vector a step becomes one: learned attention, where a mean would weigh every step alike."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def attention_shares(values: Tensor, weight: Tensor, bias: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Yang et al. 2016, equations 5 and 6: softmax over time of v · tanh(W h + b).

    (batch, time, size), mask (batch, time) -> (batch, time) shares that sum up to 1.
    """
    scores = torch.tanh(values @ weight.T + bias) @ v
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(1)


class AttentionPooling(nn.Module):
    """Owns the weights of `attention_shares`."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.inner = nn.Linear(size, size)
        self.v = nn.Parameter(torch.zeros(size))  # all steps alike to begin with

    def forward(self, values: Tensor, mask: Tensor | None) -> Tensor:
        """-> (batch, time) shares"""
        return attention_shares(values, self.inner.weight, self.inner.bias, self.v, mask)
