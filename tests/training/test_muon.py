"""Muon: singular values are made equal, blocks are views, a step is the formula, matrices and tables are told apart."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from seqloom.models.encoder_decoder import EncoderDecoder, TransformerTranslatorSettings
from seqloom.training.muon import ADAM_LENGTH, Muon, blocks_of, orthogonalized
from seqloom.training.optimizers import maps_of


@given(st.integers(1, 5), st.integers(2, 13), st.integers(0, 11), st.integers(0, 99))
def test_singular_values_become_about_one(count: int, rows: int, more: int, seed: int) -> None:
    matrices = torch.randn(count, rows, rows + more, generator=torch.Generator().manual_seed(seed))
    u, values, v = torch.linalg.svd(matrices, full_matrices=False)
    found = orthogonalized(matrices)
    inside = u.mT @ found @ v.mT  # diagonal: the singular vectors stay
    diagonal = torch.diagonal(inside, dim1=-2, dim2=-1)
    torch.testing.assert_close(inside, torch.diag_embed(diagonal), atol=2e-4, rtol=0)
    far = values > 0.05 * values.amax(-1, keepdim=True)  # five turns lift what is not nearly zero
    assert bool(((diagonal[far] > 0.3) & (diagonal[far] < 1.3)).all())


def test_orthogonalized_agrees_with_torch() -> None:
    """Torch computes in bfloat16: equal to its precision."""
    muon = pytest.importorskip("torch.optim._muon", reason="this torch has no Muon")
    matrix = torch.randn(7, 17, generator=torch.Generator().manual_seed(3))
    theirs = muon._zeropower_via_newtonschulz(matrix, (3.4445, -4.7750, 2.0315), 5, 1e-7).float()
    torch.testing.assert_close(orthogonalized(matrix[None])[0], theirs, atol=0.03, rtol=0.05)


@given(st.integers(1, 12), st.integers(1, 12))
def test_blocks_are_views_that_cover_the_weight_once(rows: int, columns: int) -> None:
    weight = torch.zeros(rows, columns)
    blocks = blocks_of(weight)
    assert blocks.shape[1] <= blocks.shape[2]
    blocks += 1
    assert bool((weight == 1).all())
    assert blocks.numel() == weight.numel()


def test_blocks_are_the_maps_that_stand_in_one_weight() -> None:
    query, keys, values = torch.randn(3, 5, 5)
    torch.testing.assert_close(blocks_of(torch.cat([query, keys, values])), torch.stack([query, keys, values]))
    torch.testing.assert_close(blocks_of(torch.cat([query, keys], 1)), torch.stack([query, keys]))


def test_a_step_is_the_formula() -> None:
    torch.manual_seed(5)
    weight, bias = nn.Parameter(torch.randn(3, 7)), nn.Parameter(torch.randn(7))
    start, bias_start = weight.detach().clone(), bias.detach().clone()
    optimizer = Muon([weight], [bias], 0.1, momentum=0.9, weight_decay=0.01)
    first, second = torch.randn(2, 3, 7)
    momentum = torch.zeros(3, 7)
    expected = start
    for gradient in (first, second):
        weight.grad, bias.grad = gradient.clone(), torch.ones(7)
        optimizer.step()
        momentum = 0.9 * momentum + 0.1 * gradient
        ahead = 0.9 * momentum + 0.1 * gradient
        expected = expected * (1 - 0.1 * 0.01) - 0.1 * ADAM_LENGTH * math.sqrt(7) * orthogonalized(ahead[None])[0]
    torch.testing.assert_close(weight.detach(), expected)
    other = nn.Parameter(bias_start)
    adam = torch.optim.AdamW([other], 0.1, weight_decay=0.01)
    for _ in range(2):
        other.grad = torch.ones(7)
        adam.step()
    torch.testing.assert_close(bias, other)


def test_a_rate_reaches_both_halves() -> None:
    weight, bias = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    optimizer = Muon([weight], [bias], 0.1)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    weight.grad, bias.grad = torch.ones(2, 2), torch.ones(2)
    optimizer.step()
    assert bool((weight == 1).all())
    assert bool((bias == 1).all())


@pytest.mark.parametrize("positions", ["learned", "relative", "rotary"])
@pytest.mark.parametrize("tie", [(), ("source", "target", "output")])
def test_tables_and_output_layers_are_no_maps(positions: str, tie: tuple[str, ...]) -> None:
    settings = TransformerTranslatorSettings(
        kind="transformer_translator", size=8, num_heads=2, feed_forward_size=16, positions=positions, tie=tie
    )
    model = EncoderDecoder(settings, source_symbols=11, target_symbols=11)
    names = {id(weight): name for name, weight in model.named_parameters()}
    found = {names[id(weight)] for weight in maps_of(model)}
    assert found
    assert all(".stack." in name and "positions" not in name for name in found), found
    assert {
        "encoder.stack.layers.0.attention.project.weight",
        "decoder.stack.layers.0.feed_forward.outer.weight",
    } <= found
