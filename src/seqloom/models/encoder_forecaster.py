"""Any encoder reads the window, step by step or in patches, and a linear map says what follows."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batches.steps import Steps
from seqloom.models.encoders import EncoderSettings
from seqloom.models.forecaster import ForecasterSettings
from seqloom.models.memory import Memory
from seqloom.models.pooling import last_needs_states, pool
from seqloom.models.source_encoder import source_encoder
from seqloom.nn.decomposition import levelled, restored
from seqloom.nn.dropout import Dropout


class EncoderForecasterSettings(ForecasterSettings):
    """Settings of the encoder that forecasts."""

    kind: Literal["encoder_forecaster"] = "encoder_forecaster"
    encoder: EncoderSettings
    normalisation: Literal["none", "last", "reversible"] = Field(
        "reversible",
        description="of every window, undone in its forecast: less its last value, or its mean and by its deviation",
    )
    channels: Literal["together", "apart"] = Field(
        "together", description="apart: each channel is a series of its own, read by the same weights"
    )
    patch: int = Field(1, ge=1, le=10_000, description="steps that are read as one")
    patch_stride: int | None = Field(None, ge=1, le=10_000, description="steps from one to the next (default: patch)")
    pooling: Literal["all", "last", "max", "mean"] = Field(
        "mean", description="what the forecast is made of: one vector, or all of them, one after the other"
    )
    steps: Literal["direct", "recursive"] = Field(
        "direct", description="all steps of the horizon at once, or the next one, again and again"
    )
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="on what the forecast is made of")

    @model_validator(mode="after")
    def _has_a_last(self) -> EncoderForecasterSettings:
        if self.pooling == "last":
            last_needs_states("last", self.encoder.kind, self.encoder.memory)
        return self


class EncoderForecaster(nn.Module):
    """Encoder, one vector or all, and a product."""

    def __init__(
        self, settings: EncoderForecasterSettings, *, history: int, horizon: int, num_channels: int, num_outputs: int
    ) -> None:
        super().__init__()
        s = self.settings = settings
        self.horizon, self.block = horizon, horizon if s.steps == "direct" else 1
        self.width, self.outputs = num_channels if s.channels == "together" else 1, num_outputs
        self.stride = s.patch_stride or s.patch
        self.patches = max(1, (history - s.patch) // self.stride + 1)
        self.encoder: Any = source_encoder(s.encoder, num_channels=self.width * s.patch)
        size = s.encoder.memory.size * (self.patches if s.pooling == "all" else 1)
        self.dropout = Dropout(s.dropout)
        self.output = nn.Linear(size, self.block * self.width * num_outputs)

    def forward(self, values: Tensor) -> Tensor:
        s, (batch, _, channels) = self.settings, values.shape
        values, level = levelled(values, s.normalisation)
        if s.channels == "apart":
            values = values.transpose(1, 2).flatten(0, 1)[..., None]  # (batch * channels, history, 1)
        used = (self.patches - 1) * self.stride + s.patch
        read = values[:, -used:].unfold(1, s.patch, self.stride).flatten(2)  # the last step is always read
        lengths = torch.full((len(read),), read.shape[1], dtype=torch.long)
        made = self.output(self.dropout(self._pooled(self.encoder.encode(Steps(read, lengths)))))
        made = made.view(batch, -1, self.block, self.width, self.outputs)
        made = made.permute(0, 2, 1, 3, 4).reshape(batch, self.block, channels, self.outputs)
        return restored(made, level)

    def _pooled(self, memory: Memory) -> Tensor:
        how = self.settings.pooling
        return memory.values.flatten(1) if how == "all" else pool(memory, how)
