"""The tree of hierarchical softmax: a complete code, as short as any."""

from __future__ import annotations

import heapq
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.vectors.huffman import HuffmanTree, build_tree


def code_of(tree: HuffmanTree, word: int) -> str:
    return "".join(str(turn) for turn in tree.codes[tree.starts[word] : tree.starts[word + 1]])


def shortest_total(counts: list[int]) -> int:
    """Questions asked over the whole text with the best code: every join costs what it joins."""
    heap, cost = list(counts), 0
    heapq.heapify(heap)
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        cost += joined
        heapq.heappush(heap, joined)
    return cost


def test_by_hand() -> None:
    """2 + 1 -> 3; 3 + 3 -> 6 (the leaf first); 9 + 6 -> 15: lengths 1, 2, 3, 3."""
    tree = build_tree(np.array([9, 3, 2, 1]))
    assert tree.lengths.tolist() == [1, 2, 3, 3]
    root = tree.nodes[0]
    assert all(tree.nodes[start] == root for start in tree.starts[:-1])
    assert len(tree.nodes) == 9


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=60))
def test_it_is_a_complete_code_and_no_other_is_shorter(counts: list[int]) -> None:
    tree = build_tree(np.array(counts))
    lengths = tree.lengths.tolist()
    assert sum(Fraction(1, 2**length) for length in lengths) == 1  # Kraft: nothing left over
    codes = sorted(code_of(tree, word) for word in range(len(counts)))
    assert not any(after.startswith(before) for before, after in pairwise(codes))
    assert sum(count * length for count, length in zip(counts, lengths, strict=True)) == shortest_total(counts)


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=60))
def test_a_node_is_the_turns_that_lead_to_it(counts: list[int]) -> None:
    """Two words share a node exactly when their codes agree so far."""
    tree = build_tree(np.array(counts))
    node_of: dict[str, int] = {}
    for word in range(len(counts)):
        code = code_of(tree, word)
        for depth in range(len(code)):
            node = int(tree.nodes[tree.starts[word] + depth])
            assert node_of.setdefault(code[:depth], node) == node
    assert sorted(node_of.values()) == list(range(len(counts) - 1))


@pytest.mark.parametrize("counts", [[], [7]])
def test_nothing_to_ask(counts: list[int]) -> None:
    tree = build_tree(np.array(counts, np.int64))
    assert tree.lengths.tolist() == [0] * len(counts)
    assert len(tree.nodes) == len(tree.codes) == 0
