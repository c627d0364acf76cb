"""Multi-head attention (Vaswani et al. 2017, section 3.2): the same attention several times, in smaller spaces.

`attend_heads` is `attention.attend` for all heads at once. While nobody watches it runs torch's fused kernel, or ours
where a training reads short texts; with `watch` it is computed in the open and the weights are given out. Tests prove
all equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.attention import attend, scaled_dot_scores
from seqloom.nn.drawing import drop_units
from seqloom.nn.heads import heads_fit, look_around_at_once, look_at_once
from seqloom.nn.masks import causal_mask
from seqloom.nn.narrow import linear
from seqloom.nn.positions import NoPositions, Rotary, acts_inside

# Queries, keys and values start smaller than Xavier says: by what he says of one product for all three, as in torch.
START = 0.5**0.5

WatchHeads = Callable[[Tensor], None]  # is given the weights (batch, heads, queries, keys)


class KeysValues(NamedTuple):
    """What is attended to: `keys` and `values`, both (batch, heads, time, head size)."""

    keys: Tensor
    values: Tensor

    def append(self, keys: Tensor, values: Tensor) -> KeysValues:
        """These and what follows them, in tensors of their own."""
        return KeysValues(torch.cat([self.keys, keys], 2), torch.cat([self.values, values], 2))


class Past:
    """Keys and values of all layers of what a decoder has read so far, in one block: (room, rows, layers * 2 * size).

    Time comes first, so the next position is written into room that is there already, and one copy of what is filled
    reorders the rows of every layer. Room doubles when it runs out. It is a value all the same: whoever goes on from
    one past for the second time gets a block of their own.
    """

    FIRST_ROOM = 16

    def __init__(self, block: Tensor, *, num_layers: int, num_heads: int, length: int = 0) -> None:
        self.block, self.num_layers, self.num_heads, self.length = block, num_layers, num_heads, length
        self.continued = False

    @classmethod
    def empty(cls, like: Tensor, num_rows: int, *, size: int, num_layers: int, num_heads: int) -> Past:
        block = like.new_empty(cls.FIRST_ROOM, num_rows, num_layers * 2 * size)
        return cls(block, num_layers=num_layers, num_heads=num_heads)

    def _moved(self, block: Tensor) -> Past:
        return Past(block, num_layers=self.num_layers, num_heads=self.num_heads, length=self.length)

    def follow(self, rows: Tensor) -> Past:
        """Row i goes on from row `rows[i]`."""
        block = self.block.new_empty(self.block.shape[0], len(rows), self.block.shape[2])
        torch.index_select(self.block[: self.length], 1, rows, out=block[: self.length])
        return self._moved(block)

    def with_room(self) -> Past:
        """The same, to be continued by one position."""
        room = self.block.shape[0]
        if self.length < room and not self.continued:
            self.continued = True
            return self._moved(self.block)
        block = self.block.new_empty(max(room, 2 * self.length), *self.block.shape[1:])
        block[: self.length] = self.block[: self.length]
        return self._moved(block)

    def layers(self) -> list[PastLayer]:
        return [PastLayer(self, index) for index in range(self.num_layers)]


class PastLayer:
    """What one layer sees of a past, in the place of its `KeysValues`."""

    def __init__(self, past: Past, index: int) -> None:
        width = past.block.shape[2] // past.num_layers
        block = past.block[:, :, index * width : (index + 1) * width].unflatten(2, (2, past.num_heads, -1))
        self.block, self.length = block, past.length  # (room, rows, 2, heads, head size)

    @property
    def keys(self) -> Tensor:
        return self._seen(self.length).keys

    def _seen(self, length: int) -> KeysValues:
        return KeysValues(*self.block[:length].permute(2, 1, 3, 0, 4))  # each (rows, heads, time, head size), no copy

    def append(self, keys: Tensor, values: Tensor) -> KeysValues:
        """Written into the block's room; what came before is not copied."""
        end = self.length + keys.shape[2]
        self.block[self.length : end, :, 0] = keys.permute(2, 0, 1, 3)
        self.block[self.length : end, :, 1] = values.permute(2, 0, 1, 3)
        return self._seen(end)


def attend_heads(
    query: Tensor,
    memory: KeysValues,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    watch: WatchHeads | None = None,
) -> Tensor:
    """(batch, heads, queries, head size) -> context of the same shape.

    Args:
        query: what looks.
        memory: what is looked at.
        mask: True where a key is real; broadcastable to (batch, heads, queries, keys).
        bias: added to the scores before the softmax.
        causal: a query sees the keys up to its own place, both counted from the start.
        dropout: share of weights left out, while training.
        watch: called with the weights; the fused kernel has none to show.
    """
    if watch is None and not dropout:
        if bias is None and heads_fit(query, memory.keys, memory.values, mask):
            return look_at_once(query, memory.keys, memory.values, mask, causal)
        return _fused(query, memory, mask, bias, causal)
    scores = scaled_dot_scores(query, memory.keys)
    if bias is not None:
        scores = scores + bias
    context, weights = attend(scores, memory.values, _joint_mask(mask, causal, query.shape[2], query.device))
    if watch is not None:
        watch(weights)
    return drop_units(weights, dropout) @ memory.values if dropout else context


def _joint_mask(mask: Tensor | None, causal: bool, size: int, device: torch.device) -> Tensor | None:
    if not causal:
        return mask
    earlier = causal_mask(size, device)
    return earlier if mask is None else mask & earlier


def _fused(query: Tensor, memory: KeysValues, mask: Tensor | None, bias: Tensor | None, causal: bool) -> Tensor:
    if bias is not None or (causal and mask is not None):
        mask, causal = _joint_mask(mask, causal, query.shape[2], query.device), False
    seeing = None if mask is None else mask.any(-1, keepdim=True)
    blind = seeing is not None and not bool(seeing.all())
    added = mask if bias is None else bias
    if mask is not None and (bias is not None or blind):  # finite, so that a row without a key has no NaN in it
        added = query.new_zeros(()) if bias is None else bias
        added = added.masked_fill(~mask, torch.finfo(query.dtype).min)
    context = F.scaled_dot_product_attention(query, memory.keys, memory.values, attn_mask=added, is_causal=causal)
    return context if not blind or seeing is None else torch.where(seeing, context, 0.0)  # zeros, as in `attend`


def _unseen(weights: Tensor) -> None:
    """Asks for the path in the open, for nobody's eyes."""


def split_heads(vectors: Tensor, num_heads: int) -> Tensor:
    """(batch, time, size) -> (batch, heads, time, head size), without a copy."""
    return vectors.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def join_heads(vectors: Tensor) -> Tensor:
    """(batch, heads, time, head size) -> (batch, time, size)."""
    return vectors.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Every position looks at every other, or (causal) at those before it; one product gives queries, keys, values."""

    def __init__(
        self, *, size: int, num_heads: int, positions: NoPositions, causal: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        assert size % num_heads == 0, "checked where the model's settings are read"
        self.num_heads, self.causal, self.dropout, self.plain = num_heads, causal, dropout, False
        self.positions = positions
        self.project = nn.Linear(size, 3 * size)
        self.output = nn.Linear(size, size)
        for block in self.project.weight.data.chunk(3):
            nn.init.xavier_uniform_(block, START)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.project.bias)
        nn.init.zeros_(self.output.bias)

    def forward(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        past: KeysValues | PastLayer | None = None,
        *,
        watch: WatchHeads | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """(batch, time, size) -> (batch, time, size), and all keys and values so far, to go on from.

        Args:
            inputs: the positions that look; with `past`, those that follow it.
            mask: True where a key is real; broadcastable to (batch, heads, queries, keys).
            past: keys and values of the positions before.
            watch: called with the weights.
        """
        positions = self.positions
        known = type(positions) is Rotary or not acts_inside(type(positions))  # a new encoding may turn otherwise
        open_to_all = watch is None and past is None and not self.plain
        if open_to_all and known and not (self.dropout and self.training):
            turns = positions.turns(inputs.shape[1]) if type(positions) is Rotary else None
            found = look_around_at_once(inputs, self.project, self.output, self.num_heads, turns, mask, self.causal)
            if found is not None:
                return found[0], KeysValues(*found[1:])
        query, keys, values = (split_heads(part, self.num_heads) for part in linear(inputs, self.project).chunk(3, -1))
        offset = 0 if past is None else past.keys.shape[2]
        query, keys = positions.rotate(query, offset), positions.rotate(keys, offset)
        memory = KeysValues(keys, values)
        if past is not None:
            memory = past.append(keys, values)
            keys = memory.keys
            if self.causal and query.shape[2] > 1:
                allowed = causal_mask(keys.shape[2], keys.device)[offset:]
                mask = allowed if mask is None else mask & allowed
        context = attend_heads(
            query,
            memory,
            mask,
            bias=positions.bias(query, keys.shape[2], offset),
            causal=self.causal and past is None,
            dropout=self.dropout if self.training else 0.0,
            watch=_unseen if watch is None and self.plain else watch,
        )
        return linear(join_heads(context), self.output), memory


class CrossAttention(nn.Module):
    """The decoder looks at the encoded source; `prepare` is done once a sentence."""

    def __init__(self, *, size: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads, self.dropout, self.plain = num_heads, dropout, False
        self.query, self.memory = nn.Linear(size, size), nn.Linear(size, 2 * size)
        self.output = nn.Linear(size, size)
        for weight in (self.query.weight, *self.memory.weight.data.chunk(2)):
            nn.init.xavier_uniform_(weight, START)
        nn.init.xavier_uniform_(self.output.weight)
        for bias in (self.query.bias, self.memory.bias, self.output.bias):
            nn.init.zeros_(bias)

    def prepare(self, memory: Tensor) -> KeysValues:
        """(batch, source, size) -> keys and values of all heads."""
        return KeysValues(*(split_heads(part, self.num_heads) for part in linear(memory, self.memory).chunk(2, -1)))

    def forward(
        self, inputs: Tensor, memory: KeysValues, mask: Tensor | None, *, watch: WatchHeads | None = None
    ) -> Tensor:
        """(batch, target, size), prepared memory -> (batch, target, size).

        With one target position and more rows than the memory has sentences, the rows of a sentence stand together and
        are the queries of one block: (sentences * width, 1, size) looks as (sentences, width, size).
        """
        sentences = memory.keys.shape[0]
        grouped = inputs if len(inputs) == sentences else inputs.view(sentences, -1, inputs.shape[2])
        query = split_heads(linear(grouped, self.query), self.num_heads)
        dropout = self.dropout if self.training else 0.0
        watch = _unseen if watch is None and self.plain else watch
        context = join_heads(attend_heads(query, memory, mask, dropout=dropout, watch=watch))
        return linear(context.view(inputs.shape), self.output)
