"""The encoder of Vaswani et al. 2017: every vector of a source looks at all others."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import Tensor, nn

from seqloom.models.memory import Memory, MemoryShape
from seqloom.models.settings import TransformerSettings
from seqloom.nn.masks import real_or_none
from seqloom.nn.transformer import TransformerLayer


class TransformerEncoderSettings(TransformerSettings):
    """Settings of the Transformer encoder."""

    kind: Literal["transformer"] = "transformer"
    num_layers: int = Field(4, ge=1)

    @property
    def embedding_size(self) -> int:
        return self.size

    @property
    def memory(self) -> MemoryShape:
        return MemoryShape(self.size)


class TransformerEncoder(nn.Module):
    """Transformer encoder: the memory holds a vector a symbol; it has no summary of its own."""

    def __init__(self, settings: TransformerEncoderSettings, reader: nn.Module) -> None:
        """`reader` turns a batch of sources into vectors of `size`."""
        super().__init__()
        self.settings, self.reader, self.memory = settings, reader, settings.memory
        self.stack = settings.stack(settings.num_layers)

    def encode(self, source: Any, trace: Any = None) -> Memory:
        """The source as a memory. With a trace, the first row's attention is put into it, of every layer and head."""
        watch = None if trace is None else head_watcher(trace, "encoder", "source", "source")
        embedded = self.reader(source)  # (batch, source, size)
        mask = real_or_none(source.lengths, embedded.shape[1])
        values, _ = self.stack(embedded, None if mask is None else mask[:, None, None], watch=watch)
        return Memory(values, mask)

    def heads(self) -> list[tuple[str, int, int]]:
        s = self.settings
        return [("encoder", layer, head) for layer in range(s.num_layers) for head in range(s.num_heads)]

    def head_weight(self, site: str, layer: int) -> tuple[Tensor, int]:
        block = self.stack.layers[layer]
        assert isinstance(block, TransformerLayer)
        return block.attention.output.weight, self.settings.size // self.settings.num_heads


def head_watcher(trace: Any, side: str, rows: str, columns: str) -> Any:
    """Puts the attention of all heads into the trace, for the first row of the batch."""

    def watch(name: str, weights: Tensor) -> None:
        across = "source" if name.endswith("cross") else columns
        trace.add(f"{side}.{name}", weights[0], axes=("head", rows, across))

    return watch
