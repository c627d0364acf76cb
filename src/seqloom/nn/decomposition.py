"""A series as a trend and what is left of it, and a window brought to one level and back."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

EPSILON = 1e-5


def moving_average(values: Tensor, width: int) -> Tensor:
    """The mean of `width` neighbours, the first and the last value repeated beyond both ends.

    Wu et al. 2021, equation 1. (batch, time, channels) -> same.
    """
    before = (width - 1) // 2
    rows = F.pad(values.transpose(1, 2), (before, width - 1 - before), mode="replicate")
    return F.avg_pool1d(rows, width, stride=1).transpose(1, 2)


class Level(NamedTuple):
    """What was taken out of a window: (batch, 1, channels) each."""

    centre: Tensor
    scale: Tensor | None = None


def levelled(values: Tensor, how: str) -> tuple[Tensor, Level | None]:
    """A window without its level: less its last value (Zeng et al. 2023, NLinear), or its mean and by its deviation
    (Kim et al. 2022, reversible instance normalisation, equation 2 without the learned part).
    """
    if how == "none":
        return values, None
    if how == "last":
        level = Level(values[:, -1:].detach())
        return values - level.centre, level
    mean = values.mean(1, keepdim=True).detach()
    deviation = (values.var(1, keepdim=True, unbiased=False) + EPSILON).sqrt().detach()
    return (values - mean) / deviation, Level(mean, deviation)


def restored(made: Tensor, level: Level | None) -> Tensor:
    """What follows a window, (batch, horizon, channels, outputs), at the window's level (the same, equation 3)."""
    if level is None:
        return made
    if level.scale is not None:
        made = made * level.scale[..., None]
    return made + level.centre[..., None]
