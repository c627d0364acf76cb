"""Attention: four ways to score a query against keys, and the one place where scores become a context.

A score is a pure formula; its module owns the weights. Keys are prepared once per source sentence by the caller
(`keys = score.prepare(memory)`) and passed back in at every step, so nothing is remembered between calls. A new one is
a class that offers what `Score` says and a line in `SCORES`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from seqloom.nn.narrow import mapped


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


# -- additive scores without a tanh ----------------------------------------------------------------------------------
#
# tanh(q + k) = 1 - 2 r with r = 1 / (1 + exp(2 q) exp(2 k)): once the powers of queries and keys are known, a pair
# costs a product and a reciprocal, which are many times cheaper than a tanh, and nothing of a pair's size is kept for
# the backward pass. Keys within `LARGEST_KEY` and queries cut at twice that can neither overflow nor cancel wrongly:
# where a query is cut, the sum is so large that tanh is one in any case.

LARGEST_KEY = 20.0


def powers_are_safe(keys: Tensor) -> bool:
    """Whether no key is so large that its power could spoil a sum."""
    return keys.numel() > 0 and bool(keys.detach().abs().amax() <= LARGEST_KEY)


def query_powers(query: Tensor) -> Tensor:
    return query.clamp(-2 * LARGEST_KEY, 2 * LARGEST_KEY).mul_(2).exp_()


def key_powers(keys: Tensor) -> Tensor:
    return (2 * keys).exp_()


def remoteness(query_power: Tensor, key_power: Tensor, out: Tensor) -> Tensor:
    """r of one query a sentence and all its keys: (batch, d), (batch, keys, d) -> (batch, keys, d)."""
    return torch.mul(query_power[:, None], key_power, out=out).add_(1).reciprocal_()


def pair_gradients(of_scores: Tensor, remote: Tensor, out: Tensor) -> Tensor:
    """The gradient of q + k of every pair, but for 4 v: (batch, keys), (batch, keys, d) -> (batch, keys, d)."""
    return torch.ops.aten.sigmoid_backward.grad_input(  # d tanh = 4 r (1 - r)
        of_scores[:, :, None].expand_as(remote), remote, grad_input=out
    )


class _AdditiveScores(torch.autograd.Function):
    """`additive_scores`, one query at a time."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, direction: Tensor) -> Tensor:
        query_power, key_power = query_powers(query), key_powers(keys)
        pairs = torch.empty_like(keys)
        scores = query.new_empty(query.shape[1], *keys.shape[:2])  # (queries, batch, keys)
        for index, score in enumerate(scores):
            torch.matmul(remoteness(query_power[:, index], key_power, pairs), direction, out=score)
        ctx.save_for_backward(query_power, key_power, direction)
        return torch.add(direction.sum(), scores, alpha=-2).transpose(0, 1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_scores: Tensor) -> tuple[Tensor, ...]:
        query_power, key_power, direction = ctx.saved_tensors
        of_query, of_keys = torch.empty_like(query_power), torch.zeros_like(key_power)
        of_direction = of_scores.sum().expand_as(direction).clone()
        pairs, of_pairs = torch.empty_like(key_power), torch.empty_like(key_power)
        for index in range(query_power.shape[1]):
            of_score = of_scores[:, index].contiguous()
            remote = remoteness(query_power[:, index], key_power, pairs)
            of_direction.addmv_(remote.flatten(0, 1).T, of_score.flatten(), alpha=-2)
            of_keys += pair_gradients(of_score, remote, of_pairs)
            torch.sum(of_pairs, 1, out=of_query[:, index])
        direction = 4 * direction
        return of_query.mul_(direction), of_keys.mul_(direction), of_direction


def fast_additive_scores(query: Tensor, keys: Tensor, direction: Tensor) -> Tensor:
    """`additive_scores` by powers: equal value, equal gradients, no (batch, queries, keys, d) in memory."""
    if not powers_are_safe(keys):
        return additive_scores(query, keys, direction)
    return _AdditiveScores.apply(query, keys, direction)


class Score(Protocol):
    """What a score must offer."""

    def __init__(self, *, query_size: int, memory_size: int) -> None: ...

    def prepare(self, memory: Tensor) -> Tensor:
        """(batch, keys, memory size) -> (batch, keys, anything): what does not depend on the query."""

    def __call__(self, query: Tensor, keys: Tensor) -> Tensor:
        """(batch, queries, query size), prepared keys -> scores (batch, queries, keys)."""


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
        return mapped(memory, self.weight)  # (batch, keys, query size)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return dot_scores(query, keys)


class Additive(nn.Module):
    """A small network with one hidden layer, as wide as the query, that judges each (query, key) pair."""

    def __init__(self, *, query_size: int, memory_size: int) -> None:
        super().__init__()
        self.plain = False
        self.weight_query = nn.Parameter(torch.empty(query_size, query_size))
        self.weight_key = nn.Parameter(torch.empty(query_size, memory_size))
        self.direction = nn.Parameter(torch.empty(query_size))
        nn.init.xavier_uniform_(self.weight_query)
        nn.init.xavier_uniform_(self.weight_key)
        nn.init.uniform_(self.direction, -1 / math.sqrt(query_size), 1 / math.sqrt(query_size))

    def prepare(self, memory: Tensor) -> Tensor:
        return mapped(memory, self.weight_key)  # (batch, keys, query size)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        scores = additive_scores if self.plain or keys.device.type != "cpu" else fast_additive_scores
        return scores(mapped(query, self.weight_query), keys, self.direction)


SCORES: dict[str, type[Score]] = {
    "additive": Additive,
    "dot": Dot,
    "multiplicative": Multiplicative,
    "scaled_dot": ScaledDot,
}
