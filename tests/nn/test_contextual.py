"""Mixing layers, gathering vectors by words, words from letters."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from seqloom.nn.characters import CharacterEncoder
from seqloom.nn.contextual import ContextualVectors, ScalarMix, mean_of_ranges, scalar_mix


def test_scalar_mix_by_hand() -> None:
    layers = [torch.tensor([[1.0, 2.0]]), torch.tensor([[10.0, 0.0]]), torch.tensor([[0.0, -4.0]])]
    weights = torch.tensor([0.0, math.log(2), math.log(5)])  # shares 1/8, 2/8, 5/8
    found = scalar_mix(layers, weights, torch.tensor(2.0))
    torch.testing.assert_close(found, 2 * torch.tensor([[1 / 8 + 20 / 8, 2 / 8 - 20 / 8]]))


def test_a_new_mix_is_the_mean_and_all_of_it_learns() -> None:
    mix, layers = ScalarMix(3), list(torch.randn(3, 2, 4, 5))
    torch.testing.assert_close(mix(layers), torch.stack(layers).mean(0))
    mix(layers).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in mix.parameters())


@given(st.integers(1, 3), st.integers(1, 6), st.data())
def test_means_of_ranges_are_means(rows: int, time: int, data: st.DataObject) -> None:
    vectors = torch.arange(rows * time * 2, dtype=torch.float64).view(rows, time, 2).square()
    ranges = data.draw(
        st.lists(
            st.lists(st.tuples(st.integers(0, time), st.integers(0, time)).map(sorted), min_size=4, max_size=4),
            min_size=rows,
            max_size=rows,
        )
    )
    places = torch.tensor(ranges)
    found = mean_of_ranges(vectors, places[..., 0], places[..., 1])
    for row, pairs in enumerate(ranges):
        for place, (first, last) in enumerate(pairs):
            expected = vectors[row, first:last].mean(0) if last > first else torch.zeros(2, dtype=torch.float64)
            torch.testing.assert_close(found[row, place], expected)


class TwoLayers(nn.Module):
    """A reader whose second layer is the running sum of the first."""

    num_vectors, vector_size = 2, 3

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(7, 3))
        self.noise = nn.Dropout(0.5)

    def vectors(self, symbols: Tensor, lengths: Tensor) -> list[Tensor]:
        embedded = self.noise(self.table[symbols])
        return [embedded, embedded.cumsum(1)]


@pytest.mark.parametrize("freeze", [True, False])
def test_frozen_means_no_gradient_and_no_dropout(freeze: bool) -> None:
    part = ContextualVectors(TwoLayers(), size=5, freeze=freeze).train()
    symbols, lengths = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([3, 3])
    places = torch.tensor([[0, 1], [1, 1]]), torch.tensor([[1, 3], [3, 1]])
    found = [part(symbols, lengths, *places) for _ in range(3)]
    assert torch.equal(found[0], found[1]) == freeze
    assert not found[0][1, 1].any(), "an empty range is zero"
    found[0].square().sum().backward()
    reader = part.language
    assert isinstance(reader, TwoLayers)
    assert (reader.table.grad is None) == freeze
    assert reader.table.requires_grad != freeze
    assert part.mix.weights.grad is not None
    assert part.projection.weight.grad is not None
    part.eval()
    assert not reader.noise.training
    table = reader.table.detach()
    mean = (table[symbols] + table[symbols].cumsum(1)) / 2
    expected = torch.stack([mean[0, 0], mean[0, 1:3].mean(0)]) @ part.projection.weight.T
    torch.testing.assert_close(part(symbols, lengths, *places)[0], expected)


def test_words_from_letters_by_hand() -> None:
    """Against numpy: every filter at every letter, the largest, a highway layer, the map."""
    torch.manual_seed(5)
    encoder = CharacterEncoder(num_letters=9, letter_size=3, filters=[(1, 2), (3, 4)], num_highways=1, size=5)
    word = [1, 6, 7, 2]
    letters = encoder.embedding(torch.tensor(word)).detach().numpy()
    padded = np.concatenate([letters, np.zeros((2, 3))])
    answers = []
    for convolution in encoder.filters:
        weight, bias = (t.detach().numpy() for t in (convolution.weight, convolution.bias))
        width = weight.shape[2]
        at = [[(padded[p : p + width].T * f).sum() + b for f, b in zip(weight, bias, strict=True)] for p in range(4)]
        answers += list(np.max(at, 0))
    hidden = np.maximum(np.array(answers), 0)
    (change,), (highway,) = encoder.changes, encoder.highways
    linear = [(p.weight.detach().numpy(), p.bias.detach().numpy()) for p in (change, highway.gate, encoder.projection)]
    gate = 1 / (1 + np.exp(-(linear[1][0] @ hidden + linear[1][1])))
    hidden = gate * np.maximum(linear[0][0] @ hidden + linear[0][1], 0) + (1 - gate) * hidden
    expected = linear[2][0] @ hidden + linear[2][1]
    for more in (0, 1, 7):  # padding changes nothing
        found = encoder(torch.tensor([word + [0] * more]))[0].detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
