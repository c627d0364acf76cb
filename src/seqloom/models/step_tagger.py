"""Any encoder, and a softmax at every step."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import Tensor, nn

from seqloom.batches.collate import Batch
from seqloom.models.encoders import EncoderSettings
from seqloom.models.source_encoder import source_encoder
from seqloom.nn.dropout import Dropout
from seqloom.settings import ModelSettings


class StepTaggerSettings(ModelSettings):
    """Settings of the tagger of steps."""

    kind: Literal["step_tagger"] = "step_tagger"
    encoder: EncoderSettings
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="on the vector of each step")
    noise: float = Field(0.0, ge=0.0, le=10.0, description="the deviation of noise on scaled values in training")


class StepTagger(nn.Module):
    """Encoder and one product a step."""

    def __init__(self, settings: StepTaggerSettings, *, num_channels: int, num_labels: int) -> None:
        super().__init__()
        s = self.settings = settings
        self.encoder: Any = source_encoder(s.encoder, num_channels=num_channels, noise=s.noise)
        self.dropout = Dropout(s.dropout)
        self.output = nn.Linear(s.encoder.memory.size, num_labels)
        nn.init.zeros_(self.output.bias)

    def forward(self, batch: Batch, trace: Any = None) -> Tensor:
        """-> (rows, time, labels) logits; what the first row showed is put into a trace."""
        logits: Tensor = self.output(self.dropout(self.encoder.encode(batch.source, trace).values))
        if trace is not None:
            trace.add("probabilities", logits[0].detach().softmax(-1).T, rows="label", columns="source")
        return logits
