"""An exponential moving average of the weights: what is validated and kept, while the weights themselves run on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

PREFIX = "moving_average/"


class MovingAverage:
    """average = decay * average + (1 - decay) * weights, after every update.

    The decay grows towards its value over the first updates, as min(decay, (1 + step) / (10 + step)): the random
    weights of the start should not linger.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.learning = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
        self.averages = [weight.detach().clone() for _, weight in self.learning]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after update number `step`, counted from 1."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.averages, [weight for _, weight in self.learning], 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within this, the model has the averaged weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for (_, weight), average in zip(self.learning, self.averages, strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds of it."""
        return {PREFIX + name: average.clone() for (name, _), average in zip(self.learning, self.averages, strict=True)}

    def take(self, tensors: dict[str, Tensor]) -> None:
        """Move what `tensors` gave out of a checkpoint's tensors back in."""
        for (name, _), average in zip(self.learning, self.averages, strict=True):
            average.copy_(tensors.pop(PREFIX + name))
