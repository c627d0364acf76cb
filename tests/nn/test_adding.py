"""Gradients that are added where they are kept are those that torch would have made."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from seqloom.losses import consistent_cross_entropy, projected_cross_entropy
from seqloom.nn.adding import add_rows, adding_to_tables, adds_to
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.narrow import narrow_products


@pytest.fixture(params=[1, 2], autouse=True)
def num_threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """With one thread, loops are compiled."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    torch.manual_seed(11)
    yield
    torch.set_num_threads(before)


@settings(max_examples=25, deadline=None)
@given(places=st.lists(st.integers(0, 6), max_size=12), factor=st.sampled_from([1.0, -0.5, 3.0]))
def test_rows_are_added_one_by_one(places: list[int], factor: float) -> None:
    into, rows = torch.randn(7, 5), torch.randn(len(places), 5)
    expected = into.double()
    for place, row in zip(places, rows, strict=True):
        expected[place] += factor * row.double()
    add_rows(into, torch.tensor(places, dtype=torch.long), rows, factor)
    torch.testing.assert_close(into.double(), expected, rtol=1e-6, atol=1e-6)


class Tied(nn.Module):
    """Embedding, something that bends, and an output layer that is the same table."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = SymbolEmbedding(600, 24)
        self.inner = nn.Linear(24, 24)
        self.output = nn.Linear(24, 600)
        self.output.weight = self.embedding.weight

    def loss(self, symbols: Tensor, targets: Tensor, consistency: float) -> Tensor:
        features = self.inner(self.embedding(symbols)).tanh()
        weight, bias = self.output.weight, self.output.bias
        if consistency:
            half = targets[: len(targets) // 2]
            return consistent_cross_entropy(features, weight, bias, half, 0.1, consistency).loss
        return projected_cross_entropy(features, weight, bias, targets, 0.1).loss


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("consistency", [0.0, 2.0])
@pytest.mark.parametrize("rows", [1, 300, 1300])
def test_a_tied_table_gathers_all_gradients(narrow: bool, consistency: float, rows: int) -> None:
    rows += rows % 2 if consistency else 0
    model, symbols, targets = Tied(), torch.randint(600, (rows,)), torch.randint(600, (rows,))
    symbols[0] = 0  # padding, which learns nothing
    found = []
    for in_place in (False, True):
        for weight in model.parameters():
            weight.grad = None
        for _ in range(2):  # two pieces
            with narrow_products(narrow), adding_to_tables(in_place):
                loss = model.loss(symbols, targets, consistency)
                (loss / 7).backward()
        found.append([weight.grad.clone() for weight in model.parameters() if weight.grad is not None])
    for expected, other in zip(*found, strict=True):
        torch.testing.assert_close(other, expected, rtol=1e-4, atol=1e-5)


def test_an_embedding_alone() -> None:
    embedding, symbols = SymbolEmbedding(9, 4), torch.tensor([[3, 3, 0], [8, 1, 3]])
    pull = torch.randn(2, 3, 4)
    (embedding(symbols) * pull).sum().backward()
    assert embedding.weight.grad is not None
    expected, embedding.weight.grad = embedding.weight.grad, None
    with adding_to_tables():
        found = embedding(symbols)
        (found * pull).sum().backward()
    torch.testing.assert_close(embedding.weight.grad, expected)
    assert not expected[0].any()
    assert torch.equal(found, embedding(symbols))


def test_only_what_learns_and_only_where_it_is_asked_for() -> None:
    table, seen = nn.Parameter(torch.randn(3, 2)), []
    assert not adds_to(table)
    with adding_to_tables():
        assert adds_to(table)
        assert not adds_to(table * 2)
        assert not adds_to(table.detach())
        with torch.no_grad():
            assert not adds_to(table)
        thread = threading.Thread(target=lambda: seen.append(adds_to(table)))
        thread.start()
        thread.join()
    assert seen == [False]
    frozen = SymbolEmbedding(5, 2)
    frozen.weight.requires_grad_(False)
    with adding_to_tables():
        assert not frozen(torch.tensor([1])).requires_grad
