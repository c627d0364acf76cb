"""What every forecaster shares: its settings, its contract, and how it goes on from what it said itself."""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor

from seqloom.settings import ModelSettings


class ForecasterSettings(ModelSettings):
    """What all forecasters have in common."""

    normalisation: Literal["none", "last", "reversible"] = Field(
        "none",
        description="of every window, undone in its forecast: less its last value, or its mean and by its deviation",
    )


class Forecaster(Protocol):
    """A window of scaled values -> those that follow."""

    horizon: int
    block: int
    """Steps that are forecast at once; `horizon`, or 1 where the model goes on from its own forecast."""

    def __call__(self, values: Tensor) -> Tensor:
        """(batch, history, channels) -> (batch, block, channels, outputs): the value, or its quantiles."""
        ...


def forecast(model: Forecaster, values: Tensor) -> Tensor:
    """(batch, history, channels) -> (batch, horizon, channels, outputs)."""
    history, made = values.shape[1], list[Tensor]()
    for _ in range(-(-model.horizon // model.block)):
        made.append(model(values))
        if model.block < model.horizon:
            values = torch.cat([values, made[-1][..., 0]], 1)[:, -history:]
    return torch.cat(made, 1)[:, : model.horizon]
