"""What several architectures let a user choose: names of mechanisms, Transformer layers, vectors to start from.

A name is whatever its table in `nn/` holds, so that a mechanism is added by its class and its line there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import Field, model_validator

from seqloom.nn.attention import SCORES
from seqloom.nn.cells import CELLS
from seqloom.nn.connections import CONNECTIONS
from seqloom.nn.positions import POSITIONS
from seqloom.nn.transformer import FEED_FORWARDS, NORMS, TransformerStack
from seqloom.settings import ModelSettings, Settings

if TYPE_CHECKING:
    CellName: TypeAlias = str
    ScoreName: TypeAlias = str
    PositionName: TypeAlias = str
    ConnectionName: TypeAlias = str
    FeedForwardName: TypeAlias = str
    NormName: TypeAlias = str
else:
    CellName = Literal[tuple(sorted(CELLS))]
    ScoreName = Literal[tuple(sorted(SCORES))]
    PositionName = Literal[tuple(sorted(POSITIONS))]
    ConnectionName = Literal[tuple(sorted(CONNECTIONS))]
    FeedForwardName = Literal[tuple(sorted(FEED_FORWARDS))]
    NormName = Literal[tuple(sorted(NORMS))]


class TransformerSettings(ModelSettings):
    """What all Transformers have in common."""

    size: int = Field(256, ge=2, description="width of every layer")
    num_heads: int = Field(4, ge=1)
    feed_forward_size: int = Field(1024, ge=1)
    feed_forward: FeedForwardName = "relu"
    norm: NormName = "layer"
    norm_first: bool = Field(True, description="norms before each sublayer (pre-norm); false: after, as in 2017")
    connections: ConnectionName = "residual"
    positions: PositionName = "sinusoidal"
    max_positions: int | None = Field(None, ge=1, le=100_000, description="learned positions: how many (default 512)")
    max_distance: int | None = Field(None, ge=1, le=10_000, description="relative: clipped here (default 16)")
    dropout: float = Field(0.1, ge=0.0, lt=1.0, description="on embeddings and on what each sublayer adds")
    attention_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="on attention weights")
    activation_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="inside the feed-forward layer")

    @model_validator(mode="after")
    def _fits(self) -> TransformerSettings:
        if self.size % self.num_heads:
            raise ValueError(f"size must be a multiple of num_heads; got {self.size} and {self.num_heads}")
        if self.positions == "rotary" and self.size // self.num_heads % 2:
            raise ValueError(f"rotary positions need an even size of each head; got {self.size // self.num_heads}")
        if self.max_positions is not None and self.positions != "learned":
            raise ValueError(f"max_positions is for learned positions; got positions: {self.positions}")
        if self.max_distance is not None and self.positions != "relative":
            raise ValueError(f"max_distance is for relative positions; got positions: {self.positions}")
        return self

    def stack(self, num_layers: int, *, causal: bool = False, cross: bool = False) -> TransformerStack:
        """Layers with these settings."""
        return TransformerStack(
            size=self.size,
            num_layers=num_layers,
            num_heads=self.num_heads,
            feed_forward_size=self.feed_forward_size,
            feed_forward=self.feed_forward,
            norm=self.norm,
            norm_first=self.norm_first,
            connections=self.connections,
            positions=self.positions,
            max_positions=self.max_positions,
            max_distance=self.max_distance,
            causal=causal,
            cross=cross,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            activation_dropout=self.activation_dropout,
        )


class ContextualSettings(Settings):
    """Vectors of words in their context, added to the source embeddings. A finished model has all of it inside."""

    source: str = Field(
        min_length=1, description="run or model folder of a bidirectional_lm or masked_lm of the source language"
    )
    freeze: bool = Field(True, description="the language model stays as it is; false: it learns along")


class PretrainedSettings(Settings):
    """Vectors of words for the embeddings of a new model. A finished model has them inside and needs no file."""

    source: str | None = Field(None, description="file or folder of vectors for the source embedding")
    target: str | None = Field(None, description="file or folder of vectors for the target embedding")
    freeze: bool = Field(False, description="symbols that have a vector keep it; the others learn")

    @model_validator(mode="after")
    def _something(self) -> PretrainedSettings:
        if self.source is None and self.target is None:
            raise ValueError("name vectors for source, target or both")
        return self

    def paths(self) -> dict[str, str]:
        """Side -> path."""
        sides = {"source": self.source, "target": self.target}
        return {side: path for side, path in sides.items() if path is not None}


class TextVectorsSettings(Settings):
    """Vectors of words for the one embedding of a model."""

    text: str = Field(description="file or folder of vectors")
    freeze: bool = Field(False, description="symbols that have a vector keep it; the others learn")

    def paths(self) -> dict[str, str]:
        """Side -> path."""
        return {"text": self.text}
