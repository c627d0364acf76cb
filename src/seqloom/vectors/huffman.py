"""The tree of hierarchical softmax: frequent words sit near its root, so predicting a word asks few questions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class HuffmanTree(NamedTuple):
    """The paths of all words, one after another. Word w's are entries starts[w] to starts[w + 1], from the root down.

    `nodes` (int32) are the inner nodes on the way, numbers below words - 1; `codes` (uint8) the turn taken there.
    """

    starts: np.ndarray
    nodes: np.ndarray
    codes: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """int64 (words,): how many questions each word takes."""
        return np.diff(self.starts)


def build_tree(counts: np.ndarray) -> HuffmanTree:
    """Huffman's code (1952): the two rarest nodes are joined until one is left. Counts in any order, none negative.

    Joined nodes come into being in ascending order, so two queues do: the leaves, sorted, and the joined ones.
    Of equally rare nodes a leaf is taken first, which keeps the longest path short.
    """
    words = len(counts)
    if words < 2:  # nothing to ask
        return HuffmanTree(np.zeros(words + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint8))
    rarest_first = np.argsort(counts, kind="stable")
    weights = [int(count) for count in counts[rarest_first]]  # of the leaves in that order, then of the joined nodes
    parents, turns = [0] * (2 * words - 1), [0] * (2 * words - 1)
    leaf, joined = 0, words
    for _ in range(words - 1):
        pair = []
        for _ in range(2):
            if leaf < words and (joined >= len(weights) or weights[leaf] <= weights[joined]):
                pair.append(leaf)
                leaf += 1
            else:
                pair.append(joined)
                joined += 1
        parents[pair[0]] = parents[pair[1]] = len(weights)
        turns[pair[0]] = 1
        weights.append(weights[pair[0]] + weights[pair[1]])
    depths = np.zeros(2 * words - 1, np.int64)
    for node in range(2 * words - 3, -1, -1):  # a parent has a higher number than its children
        depths[node] = depths[parents[node]] + 1
    place_of = np.empty(words, np.int64)
    place_of[rarest_first] = np.arange(words)
    starts = np.concatenate([[0], np.cumsum(depths[place_of])])
    nodes, codes = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.uint8)
    above, turn_at = np.array(parents), np.array(turns)
    current, last = place_of, starts[1:] - 1  # all words climb to the root together
    while len(current):
        nodes[last] = above[current] - words
        codes[last] = turn_at[current]
        current, last = above[current], last - 1
        climbing = current != 2 * words - 2
        current, last = current[climbing], last[climbing]
    return HuffmanTree(starts, nodes, codes)
