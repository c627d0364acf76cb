"""Attention: four ways to score a query against keys, and the one place where scores become a context.

A score is a pure formula; its module owns the weights. Keys are prepared once per source sentence by the caller
(`keys = score.prepare(memory)`) and passed back in at every step, so nothing is remembered between calls.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Attended(NamedTuple):
    """What attention gives back: `context` (batch, queries, value size), `weights` (batch, queries, keys)."""

    context: Tensor
    weights: Tensor


def attention_weights(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the keys that are real; a row with no real key gets zeros, not NaN.

    scores (batch, queries, keys), mask broadcastable to it -> weights (batch, queries, keys)
    """
    if mask is None:
        return scores.softmax(-1)
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(-1) * mask


def attend(scores: Tensor, values: Tensor, mask: Tensor | None) -> Attended:
    """Weighted mean of the values: (batch, queries, keys), (batch, keys, d) -> context (batch, queries, d)."""
    weights = attention_weights(scores, mask)
    return Attended(weights @ values, weights)


def dot_scores(query: Tensor, keys: Tensor) -> Tensor:
    """Luong et al. 2015, eq. 8, "dot".  (batch, queries, d), (batch, keys, d) -> (batch, queries, keys)."""
    return query @ keys.transpose(-1, -2)


def scaled_dot_scores(query: Tensor, keys: Tensor) -> Tensor:
    """Vaswani et al. 2017, eq. 1: the dot product over the square root of its size, so its variance stays 1."""
    return dot_scores(query, keys) / math.sqrt(query.shape[-1])


def additive_scores(query: Tensor, keys: Tensor, direction: Tensor) -> Tensor:
    """Bahdanau et al. 2015, A.1.2: v · tanh(W q + U k), given W q and U k.

    (batch, queries, d), (batch, keys, d), (d,) -> (batch, queries, keys)
    """
    return (query[:, :, None, :] + keys[:, None, :, :]).tanh() @ direction


class Dot(nn.Module):
    """The query itself is the detector: no weights, so query and memory must have one size."""

    def __init__(self, *, query_size: int, memory_size: int) -> None:
        super().__init__()
        assert query_size == memory_size, "checked where the model's settings are read"

    def prepare(self, memory: Tensor) -> Tensor:
        return memory

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return dot_scores(query, keys)


class ScaledDot(Dot):
    """The dot product over the square root of its size: no weights, and no scores that grow with the size."""

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return scaled_dot_scores(query, keys)


class Multiplicative(nn.Module):
    """Luong et al. 2015, eq. 8, "general": q · W k, a learned map from memory space to query space."""

    def __init__(self, *, query_size: int, memory_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(query_size, memory_size))
        nn.init.xavier_uniform_(self.weight)

    def prepare(self, memory: Tensor) -> Tensor:
        return memory @ self.weight.T  # (batch, keys, query size)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return dot_scores(query, keys)


class Additive(nn.Module):
    """A small network with one hidden layer, as wide as the query, that judges each (query, key) pair."""

    def __init__(self, *, query_size: int, memory_size: int) -> None:
        super().__init__()
        self.weight_query = nn.Parameter(torch.empty(query_size, query_size))
        self.weight_key = nn.Parameter(torch.empty(query_size, memory_size))
        self.direction = nn.Parameter(torch.empty(query_size))
        nn.init.xavier_uniform_(self.weight_query)
        nn.init.xavier_uniform_(self.weight_key)
        nn.init.uniform_(self.direction, -1 / math.sqrt(query_size), 1 / math.sqrt(query_size))

    def prepare(self, memory: Tensor) -> Tensor:
        return memory @ self.weight_key.T  # (batch, keys, query size)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return additive_scores(query @ self.weight_query.T, keys, self.direction)


SCORES: dict[str, type[Dot] | type[Multiplicative] | type[Additive]] = {
    "additive": Additive,
    "dot": Dot,
    "multiplicative": Multiplicative,
    "scaled_dot": ScaledDot,
}
