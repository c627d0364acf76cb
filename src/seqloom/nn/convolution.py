"""Convolution over time: every step sees its neighbours, and with each layer neighbours further away.

Bai et al. 2018 (dilated, residual), Wang et al. 2017 (as a baseline for series); here without a direction: a step sees
as much after it as before it.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.dropout import Dropout


def convolve(values: Tensor, weight: Tensor, bias: Tensor, dilation: int = 1) -> Tensor:
    """out[t] = bias + sum over k of weight[k] values[t + (k - middle) dilation], zeros beyond both ends.

    Args:
        values: (batch, time, size in).
        weight: (size out, size in, kernel), of an odd kernel.
        bias: (size out,).
        dilation: steps from one place of the kernel to the next.

    Returns:
        (batch, time, size out).
    """
    around = (weight.shape[2] - 1) // 2 * dilation
    return F.conv1d(values.transpose(1, 2), weight, bias, padding=around, dilation=dilation).transpose(1, 2)


class Convolution(nn.Module):
    """One layer: convolution, norm, ReLU, dropout; what came in is added."""

    def __init__(self, *, size: int, kernel_size: int, dilation: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.dilation = dilation
        self.weight = nn.Parameter(torch.empty(size, size, kernel_size))
        self.bias = nn.Parameter(torch.zeros(size))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        self.norm = nn.LayerNorm(size)
        self.dropout = Dropout(dropout)

    def forward(self, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """(batch, time, size) -> same; `mask` (batch, time), None where no row is padded."""
        if mask is not None:  # what is padded must not be seen from the last real step
            values = values * mask[..., None]
        made = convolve(values, self.weight, self.bias, self.dilation)
        return values + self.dropout(torch.relu(self.norm(made)))
