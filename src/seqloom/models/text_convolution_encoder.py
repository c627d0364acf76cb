"""Convolution over the words of a text, several widths side by side (Kim 2014); `pooling: max` is his max over time."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor, nn

from seqloom.models.memory import Memory, MemoryShape
from seqloom.nn.dropout import Dropout
from seqloom.nn.masks import length_mask, real_or_none
from seqloom.nn.narrow import linear
from seqloom.settings import ModelSettings


class TextConvolutionEncoderSettings(ModelSettings):
    """Settings of the convolution over words."""

    kind: Literal["text_convolution"] = "text_convolution"
    embedding_size: int = Field(128, ge=1)
    widths: tuple[int, ...] = Field((3, 4, 5), min_length=1, max_length=16, description="words that a filter looks at")
    filters: int = Field(100, ge=1, description="of each width")
    dropout: float = Field(0.5, ge=0.0, lt=1.0, description="on the answers of the filters")
    embedding_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="on the embeddings")

    @field_validator("widths")
    @classmethod
    def _fits(cls, widths: tuple[int, ...]) -> tuple[int, ...]:
        if any(not 1 <= width <= 100 for width in widths) or len(set(widths)) < len(widths):
            raise ValueError(f"must be different numbers from 1 to 100; got {list(widths)}")
        return widths

    @property
    def memory(self) -> MemoryShape:
        return MemoryShape(self.filters * len(self.widths))


class TextConvolutionEncoder(nn.Module):
    """Each filter answers once for every word, from a window around it; beyond the ends of the text there are zeros."""

    def __init__(self, settings: TextConvolutionEncoderSettings, reader: nn.Module) -> None:
        """`reader` turns a batch of sources into vectors of `embedding_size`."""
        super().__init__()
        s = settings
        self.reader, self.memory = reader, s.memory
        self.embedding_dropout, self.dropout = Dropout(s.embedding_dropout), Dropout(s.dropout)
        self.filters = nn.ModuleList(nn.Linear(width * s.embedding_size, s.filters) for width in s.widths)
        self.widths = s.widths

    def encode(self, source: Any, trace: Any = None) -> Memory:
        """(rows, time, filters of all widths)."""
        embedded = self.embedding_dropout(self.reader(source))
        time = embedded.shape[1]
        embedded = (
            embedded * length_mask(source.lengths, time)[..., None]
        )  # zeros beyond the end, whatever stands there
        answers = [
            linear(windows(embedded, width), cast(nn.Linear, filters))
            for width, filters in zip(self.widths, self.filters, strict=True)
        ]
        values = self.dropout(F.relu(torch.cat(answers, -1)))
        return Memory(values, real_or_none(source.lengths, time))


def windows(values: Tensor, width: int) -> Tensor:
    """(rows, time, size) -> (rows, time, width * size): each place with its neighbours.

    (width - 1) // 2 of them come before it, the others after.
    """
    before = (width - 1) // 2
    padded = F.pad(values, (0, 0, before, width - 1 - before))
    return padded.unfold(1, width, 1).transpose(2, 3).flatten(2)
