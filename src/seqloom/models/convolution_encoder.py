"""Convolutions over time: the encoder that sees a fixed distance to both sides."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator
from torch import nn

from seqloom.models.memory import Memory, MemoryShape
from seqloom.nn.convolution import Convolution
from seqloom.nn.dropout import Dropout
from seqloom.nn.masks import real_or_none
from seqloom.settings import ModelSettings


class ConvolutionEncoderSettings(ModelSettings):
    """Settings of the convolution encoder."""

    kind: Literal["convolution"] = "convolution"
    size: int = Field(64, ge=1, description="width of every layer")
    kernel_size: int = Field(5, ge=1, le=999, description="steps that a layer sees at once; odd")
    num_layers: int = Field(3, ge=1)
    dilation: Literal["one", "doubled"] = Field(
        "one", description="doubled: from layer to layer, the steps that are seen stand twice as far apart"
    )
    dropout: float = Field(0.1, ge=0.0, lt=1.0)

    @field_validator("kernel_size")
    @classmethod
    def _has_a_middle(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError(f"must be odd, so that it has a middle; got {value}")
        return value

    @property
    def embedding_size(self) -> int:
        return self.size

    @property
    def memory(self) -> MemoryShape:
        return MemoryShape(self.size)


class ConvolutionEncoder(nn.Module):
    """Convolution encoder: the memory holds a vector a step; it has no summary of its own."""

    def __init__(self, settings: ConvolutionEncoderSettings, reader: nn.Module) -> None:
        """`reader` turns a batch of sources into vectors of `size`."""
        super().__init__()
        s = settings
        self.reader, self.memory, self.dropout = reader, s.memory, Dropout(s.dropout)
        self.layers = nn.ModuleList(
            Convolution(
                size=s.size,
                kernel_size=s.kernel_size,
                dilation=2 ** min(number, 20) if s.dilation == "doubled" else 1,
                dropout=s.dropout,
            )
            for number in range(s.num_layers)
        )

    def encode(self, source: Any, trace: Any = None) -> Memory:
        """The source as a memory; there is nothing to trace."""
        values = self.dropout(self.reader(source))  # (batch, source, size)
        mask = real_or_none(source.lengths, values.shape[1])
        for layer in self.layers:
            values = layer(values, mask)
        return Memory(values, mask)
