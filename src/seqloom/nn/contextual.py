"""Vectors of words in their context, from a language model's layers (Peters et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn


class Reader(Protocol):
    """A language model that reads whole texts and shows what each of its layers makes of every symbol."""

    num_vectors: int  # layers, the one without context among them
    vector_size: int

    def vectors(self, symbols: Tensor, lengths: Tensor) -> list[Tensor]:
        """(rows, time) symbols -> a (rows, time, size) tensor a layer; the first knows the symbol alone."""
        ...


def scalar_mix(layers: Sequence[Tensor], weights: Tensor, scale: Tensor) -> Tensor:
    """Peters et al. 2018, eq. 1: scale * sum of softmax(weights)_j * layer_j; layers are (…, size) each."""
    shares = weights.softmax(0)
    mixed = layers[0] * shares[0]
    for share, layer in zip(shares[1:], layers[1:], strict=True):
        mixed = mixed + share * layer
    return scale * mixed


def mean_of_ranges(vectors: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """The mean of the vectors from `first` to `last` (exclusive); zero where that range is empty.

    (rows, time, size), (rows, places), (rows, places) -> (rows, places, size)
    """
    time = torch.arange(vectors.shape[1], device=vectors.device)
    within = (time >= first[..., None]) & (time < last[..., None])  # (rows, places, time)
    shares = within.to(vectors.dtype) / (last - first).clamp(min=1)[..., None]
    return shares @ vectors


class ScalarMix(nn.Module):
    """Learns how much of each layer goes into one vector; it starts with the same share of each."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(num_layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        return scalar_mix(layers, self.weights, self.scale)


class ContextualVectors(nn.Module):
    """What a language model makes of a text, for each piece of another model: mixed, gathered by words, mapped.

    A frozen language model has no gradients and no dropout; the mix and the map learn in any case.
    """

    def __init__(self, language: nn.Module, *, size: int, freeze: bool) -> None:
        """`language` is a `Reader`; `size` is what the other model's vectors have."""
        super().__init__()
        self.language, self.frozen = language, freeze
        self.mix = ScalarMix(language.num_vectors)  # type: ignore[arg-type]
        self.projection = nn.Linear(language.vector_size, size, bias=False)  # type: ignore[arg-type]
        nn.init.xavier_uniform_(self.projection.weight)
        if freeze:
            language.requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> ContextualVectors:
        super().train(mode)
        if self.frozen:
            self.language.eval()
        return self

    def forward(self, symbols: Tensor, lengths: Tensor, first: Tensor, last: Tensor) -> Tensor:
        """(rows, time) symbols of the language model -> (rows, places, size) vectors of the other model's pieces."""
        with torch.no_grad() if self.frozen else nullcontext():
            layers = self.language.vectors(symbols, lengths)  # type: ignore[operator]
        return self.projection(mean_of_ranges(self.mix(layers), first, last))
