"""Any encoder, pooled into one vector, and linear regression over it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batches.collate import Batch
from seqloom.models.encoders import EncoderSettings
from seqloom.models.pooling import Pool, Pooling, last_needs_states
from seqloom.models.source_encoder import source_encoder
from seqloom.nn.dropout import Dropout
from seqloom.settings import ModelSettings


class RegressorSettings(ModelSettings):
    """Settings of the regressor."""

    kind: Literal["regressor"] = "regressor"
    encoder: EncoderSettings
    pooling: Pool = Field("mean", description="how a vector for each step becomes one")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="on the pooled vector")
    noise: float = Field(
        0.0, ge=0.0, le=10.0, description="of series: the deviation of noise on scaled values in training"
    )

    @model_validator(mode="after")
    def _has_a_last(self) -> RegressorSettings:
        last_needs_states(self.pooling, self.encoder.kind, self.encoder.memory)
        return self


class Regressor(nn.Module):
    """Encoder, pooling, and one product."""

    def __init__(
        self,
        settings: RegressorSettings,
        *,
        num_numbers: int,
        num_symbols: int | None = None,
        num_channels: int | None = None,
    ) -> None:
        super().__init__()
        s = self.settings = settings
        self.encoder: Any = source_encoder(s.encoder, num_symbols=num_symbols, num_channels=num_channels, noise=s.noise)
        self.pooling, self.dropout = Pooling(s.pooling, s.encoder.memory.size), Dropout(s.dropout)
        self.output = nn.Linear(s.encoder.memory.size, num_numbers)
        nn.init.zeros_(self.output.bias)

    def forward(self, batch: Batch, trace: Any = None) -> Tensor:
        """-> (rows, numbers), scaled as in training; what the first row showed is put into a trace."""
        made: Tensor = self.output(self.dropout(self.pooling(self.encoder.encode(batch.source, trace))))
        if trace is not None:
            trace.add("numbers", made[0].detach(), rows="number")
        return made
