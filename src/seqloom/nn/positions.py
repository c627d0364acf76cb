"""Position encodings: attention by itself sees a bag of words, and each of these shows it the order in another way.

An encoding may act at three places, and each acts at exactly one:

    embed(inputs, offset)            what is added to the embeddings at the bottom of a stack
    rotate(vectors, offset)          what turns queries and keys, inside every self-attention
    bias(query, num_keys, offset)    what is added to the scores, inside every self-attention

`offset` is the position of the first row: a decoder that goes on after `offset` symbols passes it. A new one is a class
that overrides one of the three, and a line in `POSITIONS`; where it acts follows from which.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.nn.heads import turned_by
from seqloom.nn.plain import can_be_compiled


def sinusoids(num_positions: int, size: int, offset: int = 0) -> Tensor:
    """Vaswani et al. 2017, section 3.5: sines in the even columns, cosines in the odd; (positions, size)."""
    positions = torch.arange(offset, offset + num_positions, dtype=torch.float64)[:, None]
    rates = torch.exp(torch.arange(0, size, 2, dtype=torch.float64) * (-math.log(10_000.0) / size))
    table = torch.empty(num_positions, size, dtype=torch.float64)
    table[:, 0::2] = (positions * rates).sin()
    table[:, 1::2] = (positions * rates)[:, : size // 2].cos()
    return table.float()


def distances(num_queries: int, num_keys: int, offset: int = 0) -> Tensor:
    """(queries, keys): position of the key minus position of the query, which starts at `offset`."""
    return torch.arange(num_keys) - torch.arange(offset, offset + num_queries)[:, None]


def rotated(vectors: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Su et al. 2021, eq. 34, on halves: (…, positions, d) turned by angles of (positions, d / 2)."""
    first, second = vectors.chunk(2, -1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)


class _Turned(torch.autograd.Function):
    """`rotated`, in one pass; the way back turns the other way."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        ctx.save_for_backward(cosines, sines)
        return turned_by(vectors.detach(), cosines, sines, 1.0)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        gradient = gradient if gradient.stride(-1) == 1 else gradient.contiguous()
        cosines, sines = ctx.saved_tensors
        return turned_by(gradient, cosines, sines, -1.0), None, None


def turned(vectors: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """`rotated`, compiled where that is faster: (batch, heads, positions, d)."""
    if vectors.stride(-1) == 1 and can_be_compiled(vectors):
        return _Turned.apply(vectors, cosines, sines)
    return rotated(vectors, cosines, sines)


def alibi_slopes(num_heads: int) -> Tensor:
    """Press et al. 2022: a geometric sequence from 2^(-8/n); for n not a power of two, every other one of 2n's."""
    power = 2 ** math.floor(math.log2(num_heads))
    exponents = [-8 * torch.arange(1, power + 1, dtype=torch.float64) / power]
    exponents += [-4 * (2 * torch.arange(num_heads - power, dtype=torch.float64) + 1) / power]
    return torch.cat(exponents).exp2().float()


class NoPositions(nn.Module):
    """None: without a causal mask, every order of the input looks the same."""

    max_length: int | None = None

    def __init__(self, *, size: int, num_heads: int, max_length: int, distance: int) -> None:
        super().__init__()

    def embed(self, inputs: Tensor, offset: int = 0) -> Tensor:
        """(batch, time, size) -> same."""
        return inputs

    def rotate(self, vectors: Tensor, offset: int = 0) -> Tensor:
        """(batch, heads, time, head size) -> same; applied to queries and to keys."""
        return vectors

    def bias(self, query: Tensor, num_keys: int, offset: int = 0) -> Tensor | None:
        """(batch, heads, queries, head size) -> something to add to the scores (batch, heads, queries, keys)."""
        return None


def overrides(kind: type[NoPositions], hook: str) -> bool:
    """Whether an encoding acts at one of the three places."""
    return getattr(kind, hook) is not getattr(NoPositions, hook)


def acts_inside(kind: type[NoPositions]) -> bool:
    """Whether an encoding acts in every self-attention, with weights of its own there; else it does at the bottom."""
    inside = overrides(kind, "rotate") or overrides(kind, "bias")
    assert not (inside and overrides(kind, "embed")), f"{kind.__name__} overrides `embed` and another hook"
    return inside


class Sinusoidal(NoPositions):
    """Waves of many lengths are added to the embeddings (Vaswani et al. 2017)."""

    def __init__(self, *, size: int, num_heads: int, max_length: int, distance: int) -> None:
        super().__init__(size=size, num_heads=num_heads, max_length=max_length, distance=distance)
        self.register_buffer("table", sinusoids(max_length, size), persistent=False)

    def embed(self, inputs: Tensor, offset: int = 0) -> Tensor:
        num_positions = inputs.shape[1]
        if offset + num_positions > len(self.table):  # type: ignore[arg-type]
            return inputs + sinusoids(num_positions, inputs.shape[2], offset).to(inputs)
        return inputs + self.table[offset : offset + num_positions]  # type: ignore[index]


class Learned(NoPositions):
    """A vector a position is learned and added; beyond the table there is nothing (Gehring et al. 2017)."""

    def __init__(self, *, size: int, num_heads: int, max_length: int, distance: int) -> None:
        super().__init__(size=size, num_heads=num_heads, max_length=max_length, distance=distance)
        self.max_length = max_length
        self.table = nn.Parameter(nn.init.normal_(torch.empty(max_length, size), std=0.02))

    def embed(self, inputs: Tensor, offset: int = 0) -> Tensor:
        """Beyond the table the last row serves: it was never taught more, and the views should show what happens."""
        wanted = torch.arange(offset, offset + inputs.shape[1], device=inputs.device)
        return inputs + self.table[wanted.clamp(max=len(self.table) - 1)]


class Relative(NoPositions):
    """A learned vector a distance is compared with the query (Shaw et al. 2018, eq. 5), clipped at a distance.

    The vectors for keys only: the paper found those for values (eq. 3) to add nothing once these are there.
    """

    def __init__(self, *, size: int, num_heads: int, max_length: int, distance: int) -> None:
        super().__init__(size=size, num_heads=num_heads, max_length=max_length, distance=distance)
        self.distance = distance
        self.table = nn.Parameter(torch.empty(2 * distance + 1, size // num_heads))
        nn.init.xavier_uniform_(self.table)

    def bias(self, query: Tensor, num_keys: int, offset: int = 0) -> Tensor:
        wanted = distances(query.shape[2], num_keys, offset).clamp(-self.distance, self.distance) + self.distance
        scores = query @ self.table.T / math.sqrt(query.shape[-1])  # (batch, heads, queries, distances)
        return scores.gather(-1, wanted.to(query.device).expand(*scores.shape[:2], -1, -1))


class Rotary(NoPositions):
    """Queries and keys are turned by angles that grow with their position, so scores see distances (Su et al. 2021)."""

    def __init__(self, *, size: int, num_heads: int, max_length: int, distance: int) -> None:
        super().__init__(size=size, num_heads=num_heads, max_length=max_length, distance=distance)
        self.plain = False
        self.num_angles = size // num_heads // 2
        self.register_buffer("angles", self._angles(max_length, 0), persistent=False)

    def _angles(self, num_positions: int, offset: int) -> Tensor:
        rates = 10_000.0 ** (-torch.arange(self.num_angles, dtype=torch.float64) / self.num_angles)
        angles = torch.arange(offset, offset + num_positions, dtype=torch.float64)[:, None] * rates
        return torch.stack([angles.cos(), angles.sin()]).float()  # (2, positions, half)

    def turns(self, num_positions: int, offset: int = 0) -> tuple[Tensor, Tensor]:
        """Cosines and sines (positions, half a head) of the angles of `rotate`."""
        end = offset + num_positions
        if end > self.angles.shape[1]:  # type: ignore[index]
            cosines, sines = self._angles(num_positions, offset).to(self.angles)  # type: ignore[arg-type]
        else:
            cosines, sines = self.angles[:, offset:end]  # type: ignore[index]
        return cosines, sines

    def rotate(self, vectors: Tensor, offset: int = 0) -> Tensor:
        return (rotated if self.plain else turned)(vectors, *self.turns(vectors.shape[2], offset))


class Alibi(NoPositions):
    """Scores fall with the distance, in each head at its own rate; nothing is learned (Press et al. 2022)."""

    def __init__(self, *, size: int, num_heads: int, max_length: int, distance: int) -> None:
        super().__init__(size=size, num_heads=num_heads, max_length=max_length, distance=distance)
        self.register_buffer("slopes", alibi_slopes(num_heads), persistent=False)

    def bias(self, query: Tensor, num_keys: int, offset: int = 0) -> Tensor:
        away = distances(query.shape[2], num_keys, offset).abs().to(query)
        return -self.slopes[:, None, None] * away  # type: ignore[index]


POSITIONS: dict[str, type[NoPositions]] = {
    "alibi": Alibi,
    "learned": Learned,
    "none": NoPositions,
    "relative": Relative,
    "rotary": Rotary,
    "sinusoidal": Sinusoidal,
}
