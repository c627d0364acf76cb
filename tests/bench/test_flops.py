from __future__ import annotations

import numpy as np
import torch
from bench.flops import flop_of, products_of
from bench.spec import RNNSpec, TransformerSpec
from torch.utils.flop_counter import FlopCounterMode


def test_transformer_by_hand() -> None:
    spec = TransformerSpec(symbols=11, encoder_layers=2, decoder_layers=1, size=4, heads=2, feed_forward=6)
    source, target = np.array([3, 5]), np.array([2, 4])
    # 8 source and 6 target symbols. A layer's four projections of attention: 4·4² = 64; feed-forward: 2·4·6 = 48.
    encoder = 2 * (8 * (64 + 48) + 2 * (9 + 25) * 4)  # two layers; scores and means look at 3² + 5² pairs
    decoder = 6 * (64 + 48) + 2 * (3 + 10) * 4  # looks at 1 + 2 and 1 + 2 + 3 + 4 pairs
    cross = 6 * 2 * 16 + 8 * 2 * 16 + 2 * (2 * 3 + 4 * 5) * 4  # queries and output, keys and values, pairs
    output = 6 * 4 * 11
    assert flop_of(products_of(spec, source, target)) == 3 * 2 * (encoder + decoder + cross + output)


def test_rnn_by_hand() -> None:
    spec = RNNSpec(symbols=11, embedding=3, hidden=4)
    source, target = np.array([3, 5]), np.array([2, 4])
    encoder = 8 * 2 * 4 * 2 * (3 + 2)  # two directions of size 2, four gates, reading the input and themselves
    decoder = 6 * 4 * 4 * (3 + 4)
    attention = 8 * 4 * 4 + 2 * (2 * 3 + 4 * 5) * 4
    readout, output = 6 * 8 * 4, 6 * 4 * 11
    assert flop_of(products_of(spec, source, target)) == 3 * 2 * (encoder + decoder + attention + readout + output)


def test_transformer_agrees_with_what_torch_counts() -> None:
    """Without padding, an independent counter finds the same but for the pairs that causal attention skips."""
    from bench.data import Batch
    from bench.peers.common import tensors
    from bench.peers.torch import TorchTransformer

    spec = TransformerSpec(symbols=50, encoder_layers=2, decoder_layers=2, size=16, heads=2, feed_forward=24)
    rows = np.full((3, 7), 5)
    batch = tensors(Batch(rows, np.full(3, 7), rows, rows, np.full(3, 7)))
    model = TorchTransformer(spec)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(batch).sum().backward()
    skipped = 3 * 2 * 2 * 2 * 3 * (7 * 7 - 7 * 8 / 2) * 16  # backward, 2mkn, scores and means, layers, sentences
    assert counter.get_total_flops() == flop_of(products_of(spec, np.full(3, 7), np.full(3, 7))) + skipped
