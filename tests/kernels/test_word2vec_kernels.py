"""The compiled training of word vectors against its plain twin: the same draws, the same numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.vectors import reference
from seqloom.vectors.huffman import build_tree
from seqloom.vectors.reference import OBJECTIVES, Plan, Random

pytest.importorskip("numba")
from seqloom.kernels import word2vec as compiled

SIZES = [1, 7, 8, 13, 16, 41]


def plan_of(
    counts: np.ndarray, kind: str, objective: str, window: int, dynamic: bool, negatives: int, subwords: bool, seed: int
) -> tuple[Plan, int]:
    """A plan, and how many input rows it needs. Pieces are random rows, some of them shared and some there twice."""
    random, words = np.random.default_rng(seed), len(counts)
    tree, extra = build_tree(counts), 5 if subwords else 0
    pieces = [[word, *(words + random.integers(0, 5, random.integers(0, 4)))] for word in range(words)]
    shares, others = reference.alias_table(counts**0.75)
    plan = Plan(
        cbow=kind == "cbow",
        objective=OBJECTIVES[objective],
        window=window,
        dynamic=dynamic,
        negatives=negatives,
        subwords=subwords,
        keep=reference.keep_limits(counts, 0.05),
        shares=shares,
        others=others,
        path_starts=tree.starts,
        path_nodes=tree.nodes,
        path_signs=(1.0 - 2.0 * tree.codes).astype(np.float32),
        piece_starts=np.concatenate([[0], np.cumsum([len(rows) for rows in pieces])]).astype(np.int64),
        piece_rows=np.array([row for rows in pieces for row in rows], np.int32),
    )
    return plan, words + extra


def padded(array: np.ndarray) -> np.ndarray:
    """Columns of zeros up to a multiple of eight."""
    return np.pad(array, ((0, 0), (0, -array.shape[1] % 8)))


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["skipgram", "cbow"]),
    objective=st.sampled_from(sorted(OBJECTIVES)),
    subwords=st.booleans(),
    window=st.integers(1, 4),
    dynamic=st.booleans(),
    negatives=st.integers(1, 7),
    size=st.sampled_from(SIZES),
    words=st.integers(1, 12),
    sentences=st.lists(st.lists(st.integers(0, 11), max_size=9), max_size=4),
    ended=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
)
def test_the_kernel_does_what_the_reference_does(
    kind: str,
    objective: str,
    subwords: bool,
    window: int,
    dynamic: bool,
    negatives: int,
    size: int,
    words: int,
    sentences: list[list[int]],
    ended: bool,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    counts = np.sort(random.integers(1, 50, words))[::-1]
    plan, rows = plan_of(counts, kind, objective, window, dynamic, negatives, subwords, seed)
    tokens = np.array([token for line in sentences for token in [*(word % words for word in line), -1]], np.int32)
    if not ended:
        tokens = tokens[:-1]
    inputs = random.normal(0, 0.6, (rows, size)).astype(np.float32)
    outputs = random.normal(0, 0.6, (words, size)).astype(np.float32)
    fast_inputs, fast_outputs = padded(inputs), padded(outputs)
    # Rates at which no vector runs away: there, what single precision rounds away would grow with every step.
    loss, predictions = reference.train_part(plan, tokens, seed, 0.03, 0.01, inputs, outputs)
    fast = compiled.train_part(plan, tokens, np.uint64(seed), 0.03, 0.01, fast_inputs, fast_outputs)
    assert fast[1] == predictions
    assert fast[0] == pytest.approx(loss, rel=1e-4, abs=1e-5)
    np.testing.assert_allclose(fast_inputs, padded(inputs), rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(fast_outputs, padded(outputs), rtol=2e-4, atol=2e-5)


@settings(max_examples=30, deadline=None)
@given(
    words=st.lists(st.integers(0, 6), max_size=30),
    window=st.integers(1, 9),
    negatives=st.integers(1, 6),
    kind=st.sampled_from(["cbow", "skipgram"]),
    seed=st.integers(0, 2**64 - 1),
)
def test_the_draws_are_the_same_number_by_number(
    words: list[int], window: int, negatives: int, kind: str, seed: int
) -> None:
    plan, _ = plan_of(np.array([90, 40, 9, 5, 4, 4, 1]), kind, "negative_sampling", window, True, negatives, False, 0)
    drawn = negatives if kind == "cbow" else 2 * negatives  # skip-gram: noise for each side of a word
    random = Random(seed)
    kept, spans, noise = reference.draw_sentence(plan, words, random)
    got_kept, got_spans = np.zeros(30, np.int64), np.zeros(30, np.int64)
    got_noise = np.zeros(30 * drawn, np.int64)
    tokens = np.array(words, np.int32)
    length, state = compiled.draw_sentence(
        plan, tokens, 0, len(tokens), np.uint64(seed), got_kept, got_spans, got_noise
    )
    assert (got_kept[:length].tolist(), int(state)) == (kept, random.state)
    assert got_spans[:length].tolist() == spans
    assert got_noise[: length * drawn].reshape(length, drawn).tolist() == noise


@pytest.mark.parametrize(("score", "count"), [(-95.0, 40), (0.0, 3), (95.0, 40)])
def test_the_loss_of_extreme_scores_is_exact(score: float, count: int) -> None:
    """Forty wrong answers at exp(-87) each (the smallest chance a float32 holds) would make a product 0."""
    outputs = np.zeros((count, 8), np.float32)
    outputs[:, 0] = 1.0
    source = np.zeros((1, 8), np.float32)
    source[0, 0] = score
    targets, signs = np.arange(count + 2) % count, np.ones(count + 2, np.float32)
    loss, product = compiled.update_outputs(
        source,
        np.zeros(2, np.int64),
        1,
        outputs,
        targets,
        signs,
        count,
        np.float32(0.0),
        np.zeros(200, np.float32),
        np.zeros((2, 8), np.float32),
        0.0,
        1.0,
    )
    right = math.log1p(math.exp(-max(score, -126 * math.log(2.0))))
    assert loss - math.log(product) == pytest.approx(count * right, rel=1e-5, abs=1e-4)
