"""How real-valued series enter an encoder: a linear map of the channels in place of a table of vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqloom.batches.steps import Steps
from seqloom.nn.drawing import own_generator


class SeriesReader(nn.Module):
    """Channels -> vectors, step by step; in training with noise on what is read."""

    def __init__(self, num_channels: int, size: int, *, noise: float = 0.0) -> None:
        super().__init__()
        self.noise = noise
        self.projection = nn.Linear(num_channels, size)

    def forward(self, steps: Steps) -> Tensor:
        """-> (batch, time, size)"""
        values = steps.values
        if self.training and self.noise:
            values = values + self.noise * torch.randn(values.shape, generator=own_generator())
        projected: Tensor = self.projection(values)
        return projected
