"""The pieces of many words, hashed and added up: what `vectors/subwords.py` says of one word."""

from __future__ import annotations

import numpy as np

from seqloom.kernels.compiling import kernel

FIRST, FACTOR = 2166136261, 16777619  # FNV-1a, 32 bits


@kernel
def add_pieces(
    text: np.ndarray, ends: np.ndarray, shortest: int, longest: int, buckets: np.ndarray, rows: np.ndarray
) -> None:
    """Turn each word's own row into the mean of it and the rows of its pieces.

    Args:
        text: (bytes,) all words in UTF-8, each between < and >, without anything between them.
        ends: (words,) the byte after each word.
        shortest: Characters of the shortest piece.
        longest: Characters of the longest.
        buckets: (buckets, size) rows of pieces.
        rows: (words, size) the words' own rows, changed in place.
    """
    num_buckets, size = np.uint32(buckets.shape[0]), rows.shape[1]
    begin = 0
    for word in range(rows.shape[0]):
        end, parts = ends[word], 1
        for start in range(begin, end):
            if text[start] & 0xC0 == 0x80:  # within a character
                continue
            value, length, place = np.uint32(FIRST), 0, start
            while place < end and length < longest:
                while True:  # the bytes of one character, each taken as a signed number
                    byte = np.uint32(text[place])
                    if byte >= 128:
                        byte |= np.uint32(0xFFFFFF00)
                    value = np.uint32((value ^ byte) * np.uint32(FACTOR))
                    place += 1
                    if place >= end or text[place] & 0xC0 != 0x80:
                        break
                length += 1
                if length < shortest or (length == 1 and (start == begin or place == end)):
                    continue
                row = np.int64(value % num_buckets)
                for column in range(size):
                    rows[word, column] += buckets[row, column]
                parts += 1
        for column in range(size):
            rows[word, column] /= np.float32(parts)
        begin = end
