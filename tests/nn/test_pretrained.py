"""Embeddings that start from vectors, and rows that never change."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.pretrained import fill_embedding, freeze_rows, keep_frozen_rows
from seqloom.training.optimizers import build_optimizer
from seqloom.training.settings import TrainingSettings
from seqloom.vectors.settings import SubwordSettings
from seqloom.vectors.table import WordVectors

VECTORS = WordVectors(["the", "witch", "Paris", "paris"], np.arange(1, 13, dtype=np.float32).reshape(4, 3))


def test_rows_are_set_by_hand() -> None:
    pieces = ["", "the", "▁witch", "▁The", "Paris", "PARIS", "dragon", "▁"]
    weight = torch.zeros(8, 3)
    weight[:, 0] = 5.0  # every row has the length 5
    filled = fill_embedding(weight, pieces, VECTORS)
    assert (filled.found, filled.total, filled.rows.tolist()) == (5, 6, [1, 2, 3, 4, 5])
    expected = VECTORS.matrix[[0, 1, 0, 2, 3]]
    factor = 5 / np.sqrt((expected**2).sum(1).mean())
    np.testing.assert_allclose(weight[1:6].numpy(), expected * factor, rtol=1e-6)
    assert weight[[0, 6, 7]].tolist() == [[5.0, 0.0, 0.0]] * 3


def test_unknown_symbols_are_made_of_pieces() -> None:
    s = SubwordSettings(shortest=3, longest=3, buckets=7)
    buckets = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    pieced = WordVectors(["the"], np.ones((1, 3), np.float32), subwords=s, buckets=buckets)
    weight = torch.randn(3, 3)
    filled = fill_embedding(weight, ["", "the", "▁somewhere"], pieced)
    assert filled.found == 2
    made = torch.from_numpy(pieced.vector("somewhere"))
    assert torch.cosine_similarity(weight[2], made, 0) == pytest.approx(1.0, abs=1e-5)


@given(st.lists(st.sampled_from(["", "the", "▁witch", "dragon", "Paris"]), min_size=1, max_size=9), st.integers(0, 99))
def test_rows_without_a_vector_keep_every_bit(pieces: list[str], seed: int) -> None:
    weight = torch.randn(len(pieces), 3, generator=torch.Generator().manual_seed(seed))
    before = weight.clone()
    known = [row for row, piece in enumerate(pieces) if piece in ("the", "▁witch", "Paris")]
    if not known:
        with pytest.raises(UserError, match="has a vector: are the vectors of this language"):
            fill_embedding(weight, pieces, VECTORS)
        return
    assert fill_embedding(weight, pieces, VECTORS).rows.tolist() == known
    others = [row for row in range(len(pieces)) if row not in known]
    assert torch.equal(weight[others], before[others])
    spreads = [float(table[known].square().sum(1).mean()) for table in (before, weight)]
    assert spreads[1] == pytest.approx(spreads[0], rel=1e-4)


def test_other_sizes_are_refused() -> None:
    with pytest.raises(UserError, match="the vectors have 3 numbers, the embedding 4: give the model the size 3"):
        fill_embedding(torch.zeros(1, 4), ["the"], VECTORS)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_frozen_rows_are_bit_equal_whatever_the_optimizer_does(optimizer: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Module()
    model.embedding = SymbolEmbedding(6, 4)
    rows = torch.tensor([1, 4])
    freeze_rows(model.embedding, rows)
    settings = TrainingSettings(optimizer=optimizer, learning_rate=0.1, weight_decay=0.3, steps=1)  # type: ignore[arg-type]
    steps = build_optimizer(model, settings)
    before = model.embedding.weight.detach().clone()
    for _ in range(3):
        steps.zero_grad()
        for _ in range(2):  # gradients of two batches are added up
            model.embedding(torch.arange(6)).square().sum().backward()
        assert model.embedding.weight.grad is not None
        assert not model.embedding.weight.grad[rows].any()
        steps.step()
    after = model.embedding.weight.detach()
    assert torch.equal(after[rows], before[rows])
    others = torch.tensor([2, 3, 5])
    assert (after[others] != before[others]).all()


def test_an_optimizer_without_frozen_rows_has_no_hooks() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    keep_frozen_rows(model, optimizer)
    assert not optimizer._optimizer_step_pre_hooks
