"""A linear map of the window: plain, or one of its trend and one of the rest (DLinear, Zeng et al. 2023)."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from seqloom.models.forecaster import ForecasterSettings
from seqloom.nn.decomposition import levelled, moving_average, restored


class LinearForecasterSettings(ForecasterSettings):
    """Settings of the linear forecaster."""

    kind: Literal["linear_forecaster"] = "linear_forecaster"
    each_channel: bool = Field(False, description="a map of its own for every channel; false: one for all")


class DLinearSettings(LinearForecasterSettings):
    """Settings of DLinear."""

    kind: Literal["dlinear"] = "dlinear"  # type: ignore[assignment]
    moving_average: int = Field(25, ge=1, le=9999, description="steps of the average that is the trend; odd")

    @field_validator("moving_average")
    @classmethod
    def _has_a_middle(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError(f"must be odd, so that it has a middle; got {value}")
        return value


class LinearMap(nn.Module):
    """(batch, history, channels) -> (batch, horizon, channels, outputs): over time, never across channels."""

    def __init__(self, history: int, horizon: int, *, channels: int, outputs: int) -> None:
        """`channels`: how many maps there are; 1 is one for all."""
        super().__init__()
        self.shape = (horizon, outputs)
        bound = history**-0.5
        self.weight = nn.Parameter(torch.empty(channels, history, horizon * outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(channels, horizon * outputs))

    def forward(self, values: Tensor) -> Tensor:
        rows = values.transpose(1, 2)  # (batch, channels, history)
        if len(self.weight) == 1:
            made = rows @ self.weight[0] + self.bias[0]
        else:
            made = torch.einsum("bch,cho->bco", rows, self.weight) + self.bias
        return made.unflatten(2, self.shape).transpose(1, 2)


class LinearForecaster(nn.Module):
    """One map of the window."""

    def __init__(
        self, settings: LinearForecasterSettings, *, history: int, horizon: int, num_channels: int, num_outputs: int
    ) -> None:
        super().__init__()
        self.settings, self.horizon, self.block = settings, horizon, horizon
        maps = num_channels if settings.each_channel else 1
        self.map = LinearMap(history, horizon, channels=maps, outputs=num_outputs)

    def forward(self, values: Tensor) -> Tensor:
        values, level = levelled(values, self.settings.normalisation)
        return restored(self.map(values), level)


class DLinear(nn.Module):
    """A map of the trend and one of what is left, added up."""

    def __init__(
        self, settings: DLinearSettings, *, history: int, horizon: int, num_channels: int, num_outputs: int
    ) -> None:
        super().__init__()
        self.settings, self.horizon, self.block = settings, horizon, horizon
        maps = num_channels if settings.each_channel else 1
        self.trend = LinearMap(history, horizon, channels=maps, outputs=num_outputs)
        self.rest = LinearMap(history, horizon, channels=maps, outputs=num_outputs)

    def forward(self, values: Tensor) -> Tensor:
        values, level = levelled(values, self.settings.normalisation)
        trend = moving_average(values, self.settings.moving_average)
        return restored(self.trend(trend) + self.rest(values - trend), level)
