"""Transformer layers (Vaswani et al. 2017): attention and feed-forward sublayers, each with a norm and a way around it.

One stack serves three models: an encoder (`causal=False`), a language model (`causal=True`), and a decoder that also
looks at an encoded source (`cross=True`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.bending import bent_at_once
from seqloom.nn.connections import CONNECTIONS
from seqloom.nn.dropout import Dropout
from seqloom.nn.multihead import CrossAttention, KeysValues, SelfAttention, WatchHeads
from seqloom.nn.narrow import linear
from seqloom.nn.positions import POSITIONS, NoPositions, acts_inside

WatchLayers = Callable[[str, Tensor], None]  # is given "0.self" or "0.cross" and weights (batch, heads, queries, keys)

TABLE_SIZE = 512  # positions of a table that nobody gave a size; those that need no weights go on beyond it
CLIPPED_AT = 16  # distance beyond which relative positions are one, unless a recipe changes it

NORMS: dict[str, Callable[..., Any]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}  # made from a size and `eps`


class FeedForward(nn.Module):
    """Two products with a bend between them, at every position by itself: W2 f(W1 x + b1) + b2."""

    def __init__(self, *, size: int, hidden_size: int, kind: str, dropout: float = 0.0) -> None:
        super().__init__()
        self.activation, self.gated = FEED_FORWARDS[kind]
        self.kind, self.plain = kind, False
        self.inner = nn.Linear(size, hidden_size * (2 if self.gated else 1))
        self.outer = nn.Linear(hidden_size, size)
        self.dropout = Dropout(dropout)
        for weight in (self.outer.weight, *self.inner.weight.data.split(hidden_size)):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.inner.bias)
        nn.init.zeros_(self.outer.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.plain and not self.dropout.drops():
            found = bent_at_once(inputs, self.inner, self.outer, self.kind)
            if found is not None:
                return found
        inner = linear(inputs, self.inner)
        if self.gated:  # Shazeer 2020: f(W x) * (V x)
            gate, value = inner.chunk(2, -1)
            inner = self.activation(gate) * value
        else:
            inner = self.activation(inner)
        return linear(self.dropout(inner), self.outer)


FEED_FORWARDS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "geglu": (F.gelu, True),
    "gelu": (F.gelu, False),
    "relu": (F.relu, False),
    "swiglu": (F.silu, True),
}


class Around(nn.Module):
    """What surrounds a sublayer: its norm, before or after; dropout; and the connection past it."""

    def __init__(
        self, *, size: int, norm: str, norm_first: bool, connection: str, num_seen: int, dropout: float
    ) -> None:
        super().__init__()
        self.norm = NORMS[norm](size, eps=1e-5)
        self.norm_first = norm_first
        self.connection = CONNECTIONS[connection](size=size, num_seen=num_seen)
        self.dropout = Dropout(dropout)

    def forward(self, seen: Sequence[Tensor], sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        inputs = seen[-1]
        output = self.connection(seen, self.dropout(sublayer(self.norm(inputs) if self.norm_first else inputs)))
        return output if self.norm_first else self.norm(output)


class TransformerLayer(nn.Module):
    """Self-attention, attention to the source where there is one, feed-forward."""

    def __init__(
        self,
        *,
        size: int,
        num_heads: int,
        feed_forward_size: int,
        feed_forward: str,
        norm: str,
        norm_first: bool,
        connection: str,
        num_seen: int,
        positions: NoPositions,
        causal: bool,
        cross: bool,
        dropout: float,
        attention_dropout: float,
        activation_dropout: float,
    ) -> None:
        super().__init__()
        self.attention = SelfAttention(
            size=size, num_heads=num_heads, positions=positions, causal=causal, dropout=attention_dropout
        )
        self.cross = CrossAttention(size=size, num_heads=num_heads, dropout=attention_dropout) if cross else None
        self.feed_forward = FeedForward(
            size=size, hidden_size=feed_forward_size, kind=feed_forward, dropout=activation_dropout
        )
        self.around = nn.ModuleList(
            Around(
                size=size,
                norm=norm,
                norm_first=norm_first,
                connection=connection,
                num_seen=num_seen + index,
                dropout=dropout,
            )
            for index in range(3 if cross else 2)
        )

    def forward(
        self,
        seen: list[Tensor],
        mask: Tensor | None,
        past: KeysValues | None,
        memory: KeysValues | None,
        memory_mask: Tensor | None,
        watch: WatchLayers | None,
    ) -> KeysValues:
        """Appends to `seen` what each sublayer leads to; gives back the keys and values so far."""
        kept: list[KeysValues] = []

        def look_around(inputs: Tensor) -> Tensor:
            output, now = self.attention(inputs, mask, past, watch=_named(watch, "self"))
            kept.append(now)
            return output

        sublayers: list[Callable[[Tensor], Tensor]] = [look_around]
        if self.cross is not None:
            cross = self.cross
            assert memory is not None
            sublayers.append(lambda inputs: cross(inputs, memory, memory_mask, watch=_named(watch, "cross")))
        sublayers.append(self.feed_forward)
        for around, sublayer in zip(self.around, sublayers, strict=True):
            seen.append(around(seen, sublayer))
        return kept[0]


def _named(watch: WatchLayers | None, name: str) -> WatchHeads | None:
    return None if watch is None else lambda weights: watch(name, weights)


class TransformerStack(nn.Module):
    """Layers on top of each other, positions at the bottom or inside them, a last norm where norms come first."""

    def __init__(
        self,
        *,
        size: int,
        num_layers: int,
        num_heads: int,
        feed_forward_size: int,
        feed_forward: str = "relu",
        norm: str = "layer",
        norm_first: bool = True,
        connections: str = "residual",
        positions: str = "sinusoidal",
        max_positions: int | None = None,
        max_distance: int | None = None,
        causal: bool = False,
        cross: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        kind = POSITIONS[positions]
        inside = acts_inside(kind)

        def positions_of(chosen: type[NoPositions]) -> NoPositions:
            return chosen(
                size=size,
                num_heads=num_heads,
                max_length=max_positions or TABLE_SIZE,
                distance=max_distance or CLIPPED_AT,
            )

        self.positions = positions_of(NoPositions if inside else kind)
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            TransformerLayer(
                size=size,
                num_heads=num_heads,
                feed_forward_size=feed_forward_size,
                feed_forward=feed_forward,
                norm=norm,
                norm_first=norm_first,
                connection=connections,
                num_seen=1 + index * (3 if cross else 2),
                positions=positions_of(kind if inside else NoPositions),
                causal=causal,
                cross=cross,
                dropout=dropout,
                attention_dropout=attention_dropout,
                activation_dropout=activation_dropout,
            )
            for index in range(num_layers)
        )
        self.norm = NORMS[norm](size, eps=1e-5) if norm_first else None

    def forward(
        self,
        embedded: Tensor,
        mask: Tensor | None = None,
        *,
        past: Sequence[KeysValues] | None = None,
        memory: Sequence[KeysValues] | None = None,
        memory_mask: Tensor | None = None,
        watch: WatchLayers | None = None,
        collect: list[Tensor] | None = None,
    ) -> tuple[Tensor, tuple[KeysValues, ...]]:
        """(batch, time, size) -> (batch, time, size), and each layer's keys and values, to go on from.

        Args:
            embedded: vectors of symbols; with `past`, of those that follow it.
            mask: True where a key is real; broadcastable to (batch, heads, queries, keys). A causal stack over rows
                padded at their end needs none: no real position looks at what follows it.
            past: what the last call gave back.
            memory: the source as each layer's cross-attention prepared it.
            memory_mask: True where the source is real.
            watch: called with the weights of every attention.
            collect: is given what each layer passes on, each (batch, time, size), without the last norm.
        """
        offset = past[0].keys.shape[2] if past else 0
        seen = [self.dropout(self.positions.embed(embedded, offset))]
        kept = []
        for index, layer in enumerate(self.layers):
            within = None if watch is None else lambda name, weights, i=index: watch(f"{i}.{name}", weights)
            before, source = (past[index] if past else None), (memory[index] if memory else None)
            kept.append(layer(seen, mask, before, source, memory_mask, within))
            if collect is not None:
                collect.append(seen[-1])
        output = seen[-1] if self.norm is None else self.norm(seen[-1])
        return output, tuple(kept)

    def prepare(self, memory: Tensor) -> tuple[KeysValues, ...]:
        """(batch, source, size) -> what each layer's cross-attention looks at."""
        return tuple(layer.cross.prepare(memory) for layer in self.layers)  # type: ignore[union-attr,operator]
