"""Connections between layers: how what a layer gave out meets what it was given.

A deep stack learns only if gradients reach its bottom; each connection but `plain` leaves them a path around the layer.
All are one formula of `seen`, the inputs of the layers so far (the last is this layer's own), and the layer's `output`;
all tensors are (…, size), so a connection serves whole sequences and single steps, recurrent layers and Transformers.
A new one is a module made from `size` and `num_seen`, with such a `forward`, and a line in `CONNECTIONS`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

GATE_BIAS = -1.0


def highway(given: Tensor, output: Tensor, gate: Tensor) -> Tensor:
    """Srivastava et al. 2015, eq. 3: gate * output + (1 - gate) * given."""
    return given + gate * (output - given)


class Plain(nn.Module):
    """No way around: the next layer sees only the output."""

    def __init__(self, *, size: int, num_seen: int) -> None:
        super().__init__()

    def forward(self, seen: Sequence[Tensor], output: Tensor) -> Tensor:
        return output


class Residual(Plain):
    """The layer computes a change: input + output (He et al. 2016). No weights."""

    def forward(self, seen: Sequence[Tensor], output: Tensor) -> Tensor:
        return seen[-1] + output


class Highway(nn.Module):
    """A learned gate chooses, unit by unit, between input and output; it starts by carrying the input (2015)."""

    def __init__(self, *, size: int, num_seen: int) -> None:
        super().__init__()
        self.gate = nn.Linear(size, size)
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.constant_(self.gate.bias, GATE_BIAS)

    def forward(self, seen: Sequence[Tensor], output: Tensor) -> Tensor:
        return highway(seen[-1], output, self.gate(seen[-1]).sigmoid())


class Dense(nn.Module):
    """The next layer sees everything before it, side by side, mapped back to one size (after Huang et al. 2017).

    It starts as a residual connection: the map is the sum of the last input and the output.
    """

    def __init__(self, *, size: int, num_seen: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size, (num_seen + 1) * size))
        with torch.no_grad():
            for block in self.weight.split(size, 1)[-2:]:
                block.fill_diagonal_(1.0)

    def forward(self, seen: Sequence[Tensor], output: Tensor) -> Tensor:
        return F.linear(torch.cat([*seen, output], -1), self.weight)


CONNECTIONS: dict[str, type[nn.Module]] = {
    "dense": Dense,
    "highway": Highway,
    "plain": Plain,
    "residual": Residual,
}
