"""A (bi)directional stack of recurrent layers over the vectors of a source."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.models.memory import Memory, MemoryShape
from seqloom.models.settings import CellName, ConnectionName
from seqloom.nn.dropout import Dropout
from seqloom.nn.masks import real_or_none
from seqloom.nn.recurrent import RecurrentStack, Watch
from seqloom.settings import ModelSettings


class RecurrentEncoderSettings(ModelSettings):
    """Settings of the recurrent encoder."""

    kind: Literal["recurrent"] = "recurrent"
    cell: CellName = "lstm"
    embedding_size: int = Field(256, ge=1)
    hidden_size: int = Field(512, ge=2, description="of both directions together")
    num_layers: int = Field(1, ge=1)
    bidirectional: bool = True
    connections: ConnectionName = Field("plain", description="what leads around each layer but the first")
    dropout: float = Field(0.2, ge=0.0, lt=1.0)

    @model_validator(mode="after")
    def _halves(self) -> RecurrentEncoderSettings:
        if self.bidirectional and self.hidden_size % 2:
            raise ValueError(f"hidden_size must be even when bidirectional; got {self.hidden_size}")
        return self

    @property
    def memory(self) -> MemoryShape:
        return MemoryShape(self.hidden_size, self.cell, self.hidden_size)


class RecurrentEncoder(nn.Module):
    """Recurrent encoder: the memory holds a vector a step; its summary is the top layer's last state."""

    def __init__(self, settings: RecurrentEncoderSettings, reader: nn.Module) -> None:
        """`reader` turns a batch of sources into vectors of `embedding_size`."""
        super().__init__()
        s = settings
        self.reader, self.memory = reader, s.memory
        self.stack = RecurrentStack(
            cell=s.cell,
            input_size=s.embedding_size,
            hidden_size=s.hidden_size,
            num_layers=s.num_layers,
            bidirectional=s.bidirectional,
            connections=s.connections,
            dropout=s.dropout,
        )
        self.dropout = Dropout(s.dropout)

    def encode(self, source: Any, trace: Any = None) -> Memory:
        """The source as a memory. With a trace, the first row's gates are put into it."""
        watch = None if trace is None else gate_watcher(trace, "encoder", "source")
        embedded = self.dropout(self.reader(source))  # (batch, source, embedding)
        values, finals = self.stack(embedded, lengths=source.lengths, watch=watch)
        mask = real_or_none(source.lengths, values.shape[1])
        return Memory(self.dropout(values), mask, finals[-1].hidden, finals)


def gate_watcher(trace: Any, side: str, axis: str, *, stepwise: bool = False) -> Watch:
    """Puts a layer's gates into the trace, for the first row of the batch."""

    def watch(layer: str, gates: dict[str, Tensor]) -> None:
        keep = trace.append if stepwise else trace.add
        for gate, values in gates.items():
            keep(f"{side}.{layer}.{gate}", values[0], rows=axis, columns="unit")

    return watch
