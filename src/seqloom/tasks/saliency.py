"""What each symbol of a text does to the logit of a label, for any classifier: by its gradient, or by leaving it out.

The logit is taken less the mean of all labels where these exclude each other, since a softmax sees only differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.batches.collate import Batch
from seqloom.models.text_reader import TextReader
from seqloom.text.special import PAD_ID

ROWS = 64  # copies of a text that are computed with at once
FIRST_STEPS, MOST_STEPS = 32, 1024
CLOSE = 0.01  # integrated gradients: how far their sum may be from what it must be

Score = Callable[[Any], Tensor]  # a batch of sources -> (rows,) scores


class Saliency(NamedTuple):
    """`values` of every symbol; `score` of the text, and `base`, that of nothing: the same places, all empty."""

    values: Tensor
    score: float
    base: float


def saliency(model: Any, source: Any, text: str, label: int, method: str, *, apart: bool) -> Saliency:
    """What each symbol of a text adds to the score of a label.

    Args:
        model: A classifier in evaluation mode.
        source: Its way of reading.
        text: What is read.
        label: The number of the label.
        method: One of `METHODS`.
        apart: Whether labels do not exclude each other.
    """

    def score(batch: Any) -> Tensor:
        logits: Tensor = model(Batch(batch, None))
        return logits[:, label] if apart else logits[:, label] - logits.mean(1)

    reader = next(part for part in model.modules() if isinstance(part, TextReader))
    one = source.batch([text])
    with torch.no_grad():
        whole = float(score(one))
        with scaled(reader, torch.zeros(1)):
            nothing = float(score(one))
    values = METHODS[method](score, reader, source, text, whole - nothing)
    return Saliency(values, whole, nothing)


def gradient_times_input(score: Score, reader: nn.Module, source: Any, text: str, _: float) -> Tensor:
    """x · ∂score/∂x of the vector x of each symbol (Shrikumar et al. 2017): right where the score is linear."""
    return _gradients(score, reader, source, text, torch.ones(1))


def integrated_gradients(score: Score, reader: nn.Module, source: Any, text: str, difference: float) -> Tensor:
    """The mean of the gradients on the way from nothing to the text, times x (Sundararajan et al. 2017).

    The values add up to the score less that of nothing. Steps are doubled until they do, or are very many.
    """
    steps = FIRST_STEPS
    while True:
        shares = (torch.arange(steps) + 0.5) / steps
        parts = [_gradients(score, reader, source, text, some) * len(some) for some in shares.split(ROWS)]
        values = torch.stack(parts).sum(0) / steps
        if steps >= MOST_STEPS or abs(float(values.sum()) - difference) <= CLOSE * abs(difference):
            return values
        steps *= 2


def occlusion(score: Score, reader: nn.Module, source: Any, text: str, _: float) -> Tensor:
    """The score less that of the text without the symbol (Zeiler and Fergus 2014), which is read as padding."""
    one = source.batch([text])
    places = _real(one).nonzero().tolist()
    values = []
    with torch.no_grad():
        whole = score(one)
        for start in range(0, len(places), ROWS):
            some = places[start : start + ROWS]
            copies = source.batch([text] * len(some))
            ids = copies.ids.view(len(some), *one.ids.shape).clone()
            for number, (row, column) in enumerate(some):
                ids[number, row, column] = PAD_ID
            values.append(whole - score(replace(copies, ids=ids.view_as(copies.ids))))
    return torch.cat(values)


METHODS: dict[str, Callable[[Score, nn.Module, Any, str, float], Tensor]] = {
    "gradient": gradient_times_input,
    "integrated": integrated_gradients,
    "occlusion": occlusion,
}


def _real(one: Any) -> Tensor:
    """(rows, time): where a text or the sentences of a document have symbols."""
    return torch.arange(one.ids.shape[1]) < one.lengths[:, None]


def _gradients(score: Score, reader: nn.Module, source: Any, text: str, shares: Tensor) -> Tensor:
    """x times the mean gradient at these shares of x, of every symbol."""
    one = source.batch([text])
    with torch.enable_grad(), scaled(reader, shares) as kept:
        total = score(source.batch([text] * len(shares))).sum()
        [gradient] = torch.autograd.grad(total, kept)
    vectors = kept[0].detach().view(len(shares), *one.ids.shape, -1)
    products = vectors / shares[:, None, None, None] * gradient.view_as(vectors)
    return products.sum(-1).mean(0)[_real(one)]


@contextmanager
def scaled(reader: nn.Module, shares: Tensor) -> Iterator[list[Tensor]]:
    """Within this, copies of one text are read as these shares of their vectors, which are put into the list."""
    kept: list[Tensor] = []

    def scale(_: nn.Module, __: Any, vectors: Tensor) -> Tensor:
        each = shares.repeat_interleave(len(vectors) // len(shares))
        scaled = vectors.detach() * each[:, None, None]
        kept[:] = [scaled.requires_grad_(torch.is_grad_enabled())]
        return scaled

    handle = reader.register_forward_hook(scale)
    try:
        yield kept
    finally:
        handle.remove()
