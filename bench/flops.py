"""How much arithmetic a training step needs: every matrix product of the model, over real tokens only.

A product of (m, k) and (k, n) costs 2mkn floating-point operations forward, and twice that backward: one product for
the gradient of either factor. Where attention must not look ahead, only the pairs it may look at are counted.
Everything that is not a matrix product (softmax, norms, dropout, the optimiser) counts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bench.spec import RNNSpec, TransformerSpec

FORWARD_AND_BACKWARD = 3


class Product(NamedTuple):
    """The shape of a product, `batch` of them at once, to be timed; and exactly what a step needs of its kind."""

    name: str
    rows: int
    inner: int
    columns: int
    flop: float
    batch: int = 1


def linear(name: str, rows: int, inner: int, columns: int, times: int = 1) -> Product:
    """A layer that all rows go through."""
    return Product(name, rows, inner, columns, 2.0 * rows * inner * columns * times * FORWARD_AND_BACKWARD)


def attention(
    name: str,
    queries: np.ndarray,
    keys: np.ndarray,
    size: int,
    heads: int = 1,
    times: int = 1,
    causal: bool = False,
) -> Product:
    """Scores and weighted means of all sentences; the shape to time is that of a typical sentence."""
    pairs = float((queries * (queries + 1) / 2 if causal else queries * keys).sum())
    rows, columns = max(1, round(float(queries.mean()))), max(1, round(float(keys.mean())))
    flop = 2 * 2.0 * pairs * size * times * FORWARD_AND_BACKWARD  # scores, and means of values
    return Product(name, rows, size // heads, columns, flop, batch=len(queries) * heads)


def transformer_products(spec: TransformerSpec, source: np.ndarray, target: np.ndarray) -> list[Product]:
    """Products of one step over sentences of these lengths, end symbols included."""
    s, t, d, f = int(source.sum()), int(target.sum()), spec.size, spec.feed_forward
    encoder, decoder = spec.encoder_layers, spec.decoder_layers
    return [
        linear("encoder queries, keys, values", s, d, 3 * d, encoder),
        attention("encoder attention", source, source, d, spec.heads, encoder),
        linear("encoder attention output", s, d, d, encoder),
        linear("encoder feed-forward in", s, d, f, encoder),
        linear("encoder feed-forward out", s, f, d, encoder),
        linear("decoder queries, keys, values", t, d, 3 * d, decoder),
        attention("decoder attention", target, target, d, spec.heads, decoder, causal=True),
        linear("decoder attention output", t, d, d, decoder),
        linear("cross queries", t, d, d, decoder),
        linear("cross keys, values", s, d, 2 * d, decoder),
        attention("cross attention", target, source, d, spec.heads, decoder),
        linear("cross attention output", t, d, d, decoder),
        linear("decoder feed-forward in", t, d, f, decoder),
        linear("decoder feed-forward out", t, f, d, decoder),
        linear("output layer", t, d, spec.symbols),
    ]


def rnn_products(spec: RNNSpec, source: np.ndarray, target: np.ndarray) -> list[Product]:
    """The recurrent products are timed as they must run: one step after the other, all sentences at once."""
    s, t, e, h = int(source.sum()), int(target.sum()), spec.embedding, spec.hidden
    half, rows = h // 2, len(source)
    return [
        linear("encoder inputs", s, e, 4 * half, 2),
        linear("encoder recurrence", rows, half, 4 * half)._replace(
            flop=2.0 * s * half * 4 * half * 2 * FORWARD_AND_BACKWARD
        ),
        linear("decoder inputs", t, e, 4 * h),
        linear("decoder recurrence", rows, h, 4 * h)._replace(flop=2.0 * t * h * 4 * h * FORWARD_AND_BACKWARD),
        linear("attention keys", s, h, h),
        attention("attention", target, source, h),
        linear("readout", t, 2 * h, h),
        linear("output layer", t, h, spec.symbols),
    ]


def products_of(spec: TransformerSpec | RNNSpec, source: np.ndarray, target: np.ndarray) -> list[Product]:
    if isinstance(spec, TransformerSpec):
        return transformer_products(spec, source, target)
    return rnn_products(spec, source, target)


def flop_of(products: Sequence[Product]) -> float:
    return sum(product.flop for product in products)
