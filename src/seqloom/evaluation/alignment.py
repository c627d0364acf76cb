"""Word alignments: read off attention weights, and compared with links drawn by hand.

A link is a pair (source word, target word), both counted from 0. An alignment is a set of links.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy as np

from seqloom.errors import UserError, one_of

Link = tuple[int, int]

METHODS = ("argmax", "threshold")


def alignment_error_rate(
    predicted: Sequence[Collection[Link]],
    gold: Sequence[Collection[Link]],
    possible: Sequence[Collection[Link]] | None = None,
) -> float:
    """The alignment error rate of a corpus (Och & Ney 2003, "A Systematic Comparison of Various Statistical Alignment
    Models", section 5), with A the predicted, S the sure and P the possible links:

        AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

    The counts are summed over all sentences before dividing.

    Args:
        predicted: One alignment for each sentence.
        gold: The sure links of each sentence.
        possible: The links that are not wrong either. Sure links are always possible, listed or not; without this
            argument only they are.

    Returns:
        A fraction: 0 is a perfect alignment, 1 shares no link with the gold. 0 if there is no link at all.
    """
    assert len(predicted) == len(gold), f"{len(predicted)} predicted alignments, {len(gold)} gold alignments"
    assert possible is None or len(possible) == len(gold), "possible links must be given for every sentence"
    matched = total = 0
    for index, (found, certain) in enumerate(zip(predicted, gold, strict=True)):
        answer, sure = set(found), set(certain)
        allowed = sure if possible is None else sure | set(possible[index])
        matched += len(answer & sure) + len(answer & allowed)
        total += len(answer) + len(sure)
    return 1.0 - matched / total if total else 0.0


def links_from_attention(
    weights: Any, *, method: Literal["argmax", "threshold"] = "argmax", threshold: float | None = None
) -> set[Link]:
    """Turn soft attention, (target, source), into hard links.

    Args:
        weights: One row for each target word.
        method: "argmax" links every target word to the source word it looked at most (the first one, if several tie),
            so a target word has one link at most. "threshold" links all pairs whose weight is at least `threshold`, so
            it may have none or several.
        threshold: Required by "threshold". With "argmax", links weaker than this are dropped.

    Returns:
        Links (source, target). A row without any positive weight never gets a link.
    """
    if method not in METHODS:
        raise UserError(one_of("method", method, METHODS))
    matrix = _matrix(weights)
    if matrix.size == 0:
        return set()
    if method == "threshold":
        if threshold is None:
            raise UserError("method 'threshold' needs a threshold, for example threshold=0.2")
        chosen = (matrix >= threshold) & (matrix > 0)
    else:
        best = matrix.argmax(axis=1)
        strength = matrix[np.arange(len(matrix)), best]
        kept = (strength > 0) & (strength >= (0.0 if threshold is None else threshold))
        chosen = np.zeros(matrix.shape, dtype=bool)
        chosen[np.flatnonzero(kept), best[kept]] = True
    return {(int(source), int(target)) for target, source in zip(*np.nonzero(chosen), strict=True)}


def words_from_pieces(weights: Any, target_words: Sequence[int], source_words: Sequence[int]) -> np.ndarray:
    """Attention between pieces, (target pieces, source pieces), summed up to attention between words.

    A target word attends to a source word with the weight it gave to all its pieces together (a sum over source
    pieces); a target word of several pieces looked once for each of them, and counts with their mean.

    Rows are not renormalised: what a word spent on special symbols such as the end mark is missing from its row, which
    therefore sums to at most 1. The argmax of a row is not affected.

    Args:
        weights: (target pieces, source pieces).
        target_words: For each target piece, the number of the word it belongs to, from 0; -1 marks a special symbol,
            which is dropped.
        source_words: The same for the source pieces.

    Returns:
        (target words, source words). A word number that no piece carries gets a row, or column, of zeros.
    """
    matrix = _matrix(weights)
    assert matrix.shape == (len(target_words), len(source_words)), (
        f"weights are {matrix.shape}, but there are {len(target_words)} target and {len(source_words)} source pieces"
    )
    to_target, to_source = _membership(target_words), _membership(source_words)
    pieces_per_word = np.maximum(to_target.sum(axis=1, keepdims=True), 1.0)
    return (to_target / pieces_per_word) @ matrix @ to_source.T


def _membership(words: Sequence[int]) -> np.ndarray:
    """(words, pieces), 1 where a piece belongs to a word."""
    owners = np.asarray(words, dtype=np.int64).reshape(-1)
    num_words = int(owners.max(initial=-1)) + 1
    return (np.arange(num_words)[:, None] == owners[None, :]).astype(np.float64)


def _matrix(weights: Any) -> np.ndarray:
    if hasattr(weights, "detach"):
        weights = weights.detach().cpu().numpy()
    matrix = np.asarray(weights, dtype=np.float64)
    assert matrix.ndim == 2, f"attention weights must be (target, source), got {matrix.ndim} axes"
    return matrix
