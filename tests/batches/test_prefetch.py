"""What is made ahead is what would have been made: same items, same order, same errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from seqloom.batches.prefetch import AHEAD, Prefetch


def test_the_same_items_in_the_same_order() -> None:
    assert list(Prefetch(iter(range(100)))) == list(range(100))


def test_an_error_comes_where_its_item_would_have() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the third")

    made = Prefetch(items())
    assert (next(made), next(made)) == (1, 2)
    for _ in range(2):
        with pytest.raises(ValueError, match="the third"):
            next(made)


def test_only_a_few_are_made_ahead_and_none_after_closing() -> None:
    count = 0

    def items() -> Iterator[int]:
        nonlocal count
        while True:
            count += 1
            yield count

    made = Prefetch(items())
    assert next(made) == 1
    time.sleep(0.1)
    assert count <= AHEAD + 2  # taken, waiting, and one in the maker's hand
    made.close()
    before = count
    time.sleep(0.05)
    assert count == before
    assert all(thread.name != "batches" for thread in threading.enumerate())


def test_made_in_another_thread() -> None:
    names = Prefetch(threading.current_thread().name for _ in range(1))
    assert next(names) == "batches"
