"""Words put together of their own rows and their pieces' (Bojanowski et al. 2017, section 3.2), many at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqloom.kernels.compiling import can_compile
from seqloom.kernels.pieces import add_pieces
from seqloom.vectors.settings import SubwordSettings
from seqloom.vectors.subwords import buckets_of

END = b"</s>"  # fastText's mark for the end of a line has no pieces


def finished_vectors(words: Sequence[bytes], own: np.ndarray, buckets: np.ndarray, s: SubwordSettings) -> np.ndarray:
    """(words, size): the mean of each word's own row and the rows of its pieces."""
    if not can_compile():
        return plain_finished_vectors(words, own, buckets, s)
    marked = [b"" if word == END else b"<%b>" % word for word in words]
    text = np.frombuffer(b"".join(marked), np.uint8)
    ends = np.cumsum(np.array([len(word) for word in marked], np.int64))
    finished = np.array(own, np.float32)
    add_pieces(text, ends, s.shortest, s.longest, buckets, finished)
    return finished


def plain_finished_vectors(
    words: Sequence[bytes], own: np.ndarray, buckets: np.ndarray, s: SubwordSettings
) -> np.ndarray:
    """The same, word by word."""
    finished = np.empty(own.shape, np.float32)
    for row, word in enumerate(words):
        pieces = buckets[[] if word == END else buckets_of(word.decode("utf-8", "replace"), s)]
        finished[row] = (own[row] + pieces.sum(0, dtype=np.float32)) / (1 + len(pieces))
    return finished
