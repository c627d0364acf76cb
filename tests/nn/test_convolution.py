"""Convolution, pooling, decomposition, levels: by hand, and what padding must not change."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqloom.nn.convolution import Convolution, convolve
from seqloom.nn.decomposition import levelled, moving_average, restored
from seqloom.nn.pooling import AttentionPooling


def test_a_convolution_by_hand() -> None:
    values = torch.tensor([[[1.0], [2.0], [3.0], [4.0]]])
    weight, bias = torch.tensor([[[1.0, 10.0, 100.0]]]), torch.tensor([0.5])
    assert convolve(values, weight, bias)[0, :, 0].tolist() == [210.5, 321.5, 432.5, 43.5]
    assert convolve(values, weight, bias, dilation=2)[0, :, 0].tolist() == [310.5, 420.5, 31.5, 42.5]


@pytest.mark.parametrize("dilation", [1, 2])
def test_a_step_sees_just_its_neighbours_and_no_padding(dilation: int) -> None:
    torch.manual_seed(1)
    layer = Convolution(size=3, kernel_size=5, dilation=dilation).eval()
    values = torch.randn(1, 23, 3)
    changed = values.clone()
    changed[0, 11] += 1
    differs = (layer(values) != layer(changed)).any(2)[0].nonzero()[:, 0].tolist()
    assert differs == [11 + dilation * step for step in (-2, -1, 0, 1, 2)]
    mask = torch.arange(23)[None] < 17
    changed = values.clone()
    changed[0, 17:] = 99.0
    torch.testing.assert_close(layer(changed, mask)[:, :17], layer(values[:, :17]))


def test_a_moving_average_by_hand() -> None:
    values = torch.tensor([[[0.0], [3.0], [6.0], [3.0]]])
    assert moving_average(values, 3)[0, :, 0].tolist() == [1.0, 3.0, 4.0, 4.0]
    assert moving_average(values, 1)[0, :, 0].tolist() == [0.0, 3.0, 6.0, 3.0]


@pytest.mark.parametrize("how", ["none", "last", "reversible"])
def test_a_level_is_taken_out_and_put_back(how: str) -> None:
    torch.manual_seed(2)
    values = 5 + 3 * torch.randn(2, 11, 3)
    found, level = levelled(values, how)
    torch.testing.assert_close(restored(found[..., None], level)[..., 0], values)
    if how == "reversible":
        np.testing.assert_allclose(found.mean(1), 0.0, atol=1e-5)
        np.testing.assert_allclose(found.var(1, unbiased=False), 1.0, atol=1e-4)
    if how == "last":
        assert not found[:, -1].any()
    if how != "none":  # a window on another level is the same window
        torch.testing.assert_close(levelled(values + 100, how)[0], found, atol=1e-3, rtol=1e-3)


def test_attention_pooling_begins_as_the_mean_and_sees_no_padding() -> None:
    torch.manual_seed(3)
    pooling, values = AttentionPooling(5), torch.randn(2, 7, 5)
    mask = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    np.testing.assert_allclose(pooling(values, mask).detach(), mask / mask.sum(1, keepdim=True), atol=1e-6)
    pooling.v.data.normal_()
    shares = pooling(values, mask)
    assert not shares[1, 4:].any()
    torch.testing.assert_close(shares[1:, :4], pooling(values[1:, :4], None))
    scores = torch.tanh(pooling.inner(values[0])) @ pooling.v
    torch.testing.assert_close(shares[0], scores.softmax(0))
