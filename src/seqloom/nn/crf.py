"""Conditional random fields over chains (Lafferty et al. 2001): a tag for every step, each judged beside its neighbour.

A sequence of tags y for scores x of every tag at every step ("emissions", from any encoder) scores

    s(x, y) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_t, y_t+1] + end[y_n]

and its probability is exp(s(x, y)) / Z(x), where Z sums over all sequences of that length. Sums over exponentials are
taken in float32 at least, whatever the products before them were multiplied in. A mask is True where a step is real;
real steps come first, and every row has one at least.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Chain(NamedTuple):
    """What neighbours add: `transitions` (from, to), `start` (tags,), `end` (tags,)."""

    transitions: Tensor
    start: Tensor
    end: Tensor


class Best(NamedTuple):
    """`tags` (batch, time), 0 at padding, and the score of each row."""

    tags: Tensor
    scores: Tensor


def sequence_scores(emissions: Tensor, tags: Tensor, mask: Tensor, chain: Chain) -> Tensor:
    """s(x, y) of known tags.  (batch, time, tags), (batch, time), (batch, time) -> (batch,)"""
    emissions, chain = _wide(emissions, chain)
    last = tags.gather(1, mask.sum(1, keepdim=True) - 1)[:, 0]
    own = emissions.gather(2, tags[..., None])[..., 0]  # (batch, time)
    moves = chain.transitions[tags[:, :-1], tags[:, 1:]]  # (batch, time - 1)
    return chain.start[tags[:, 0]] + (own * mask).sum(1) + (moves * mask[:, 1:]).sum(1) + chain.end[last]


def log_partition(emissions: Tensor, mask: Tensor, chain: Chain) -> Tensor:
    """log Z(x), by the forward algorithm.  (batch, time, tags), (batch, time) -> (batch,)"""
    emissions, chain = _wide(emissions, chain)
    return torch.logsumexp(_forward(emissions, mask, chain)[-1] + chain.end, -1)


def _forward(emissions: Tensor, mask: Tensor, chain: Chain) -> list[Tensor]:
    """For each step the log-sum over all beginnings that end in a tag, (batch, tags); padding repeats the last one."""
    alpha = chain.start + emissions[:, 0]
    alphas = [alpha]
    for time in range(1, emissions.shape[1]):
        new = torch.logsumexp(alpha[:, :, None] + chain.transitions, 1) + emissions[:, time]
        alpha = torch.where(mask[:, time, None], new, alpha)
        alphas.append(alpha)
    return alphas


def marginals(emissions: Tensor, mask: Tensor, chain: Chain) -> Tensor:
    """The probability of every tag at every step, by the forward and the backward algorithm; 0 at padding.

    (batch, time, tags), (batch, time) -> (batch, time, tags)
    """
    emissions, chain = _wide(emissions, chain)
    alphas = _forward(emissions, mask, chain)
    beta = chain.end.expand_as(alphas[0])
    betas = [beta]  # for each step, from the last on, the log-sum over all ends that follow a tag
    for time in range(emissions.shape[1] - 1, 0, -1):
        new = torch.logsumexp(chain.transitions + (emissions[:, time] + beta)[:, None], 2)
        beta = torch.where(mask[:, time, None], new, beta)
        betas.append(beta)
    both = torch.stack(alphas, 1) + torch.stack(betas[::-1], 1)
    return torch.softmax(both, -1) * mask[..., None]


def viterbi(emissions: Tensor, mask: Tensor, chain: Chain) -> Best:
    """The tags with the highest s(x, y).  (batch, time, tags), (batch, time) -> tags (batch, time), scores (batch,)"""
    emissions, chain = _wide(emissions, chain)
    best = chain.start + emissions[:, 0]  # (batch, tags): of all beginnings that end in a tag
    stay = torch.arange(best.shape[1], device=best.device).expand_as(best)
    before = []  # for each step but the first: which tag comes before a tag, (batch, tags)
    for time in range(1, emissions.shape[1]):
        scores, tags = (best[:, :, None] + chain.transitions).max(1)
        real = mask[:, time, None]
        best = torch.where(real, scores + emissions[:, time], best)
        before.append(torch.where(real, tags, stay))
    scores, tag = (best + chain.end).max(-1)
    path = [tag]
    for tags in reversed(before):
        path.append(tags.gather(1, path[-1][:, None])[:, 0])
    return Best(torch.stack(path[::-1], 1) * mask, scores)


def _wide(emissions: Tensor, chain: Chain) -> tuple[Tensor, Chain]:
    """At least float32: sums of exponentials need the precision."""
    kind = torch.promote_types(emissions.dtype, torch.float32)
    return emissions.to(kind), Chain(*(part.to(kind) for part in chain))


class LinearChain(nn.Module):
    """Owns what neighbours add to the score of a sequence of tags."""

    def __init__(self, num_tags: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(nn.init.uniform_(torch.empty(num_tags, num_tags), -0.1, 0.1))
        self.start = nn.Parameter(torch.zeros(num_tags))
        self.end = nn.Parameter(torch.zeros(num_tags))

    def chain(self) -> Chain:
        return Chain(self.transitions, self.start, self.end)
