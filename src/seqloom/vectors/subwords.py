"""The pieces of a word that fastText gives vectors to, and the rows they are hashed to: its own hash, bit by bit."""

from __future__ import annotations

import numpy as np

from seqloom.vectors.settings import SubwordSettings


def pieces(word: str, s: SubwordSettings) -> list[str]:
    """`where` with 3 to 4 characters: <wh whe her ere re> <whe wher here ere>; a mark alone is no piece."""
    marked = f"<{word}>"
    found = []
    for start in range(len(marked)):
        for length in range(s.shortest, min(s.longest, len(marked) - start) + 1):
            if length == 1 and (start == 0 or start + 1 == len(marked)):
                continue
            found.append(marked[start : start + length])
    return found


def bucket(piece: str, buckets: int) -> int:
    """FNV-1a over the UTF-8 bytes, each taken as a signed number as fastText does."""
    value = 2166136261
    for byte in piece.encode():
        value = ((value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619) & 0xFFFFFFFF
    return value % buckets


def buckets_of(word: str, s: SubwordSettings) -> np.ndarray:
    """int64 rows among the buckets, one for each piece."""
    return np.array([bucket(piece, s.buckets) for piece in pieces(word, s)], np.int64)
