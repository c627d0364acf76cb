"""Independent work shared out among threads and ranks, so that nobody can tell from the result who computed what.

A product is computed by one thread: sums that threads divide among themselves round differently with their number.
What is independent (batches of a search, of a validation) goes to several threads instead, and is put together in
order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import torch

Item = TypeVar("Item")
Found = TypeVar("Found")


class Sharing(Protocol):
    """Processes that take part in the same work; `training/distributed.py` has them."""

    rank: int
    size: int

    def gather(self, values: list[Any]) -> list[list[Any]]:
        """What each has (values as JSON knows them), by rank."""
        ...


class _Shared(threading.local):
    workers: int | None = None
    ranks: Sharing | None = None


_shared = _Shared()


@contextmanager
def one_thread_each(workers: int, ranks: Sharing | None = None) -> Iterator[None]:
    """Within this, one thread computes a product, and independent work goes to so many threads of each rank."""
    before, threads = (_shared.workers, _shared.ranks), torch.get_num_threads()
    _shared.workers, _shared.ranks = workers, ranks
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _shared.workers, _shared.ranks = before
        torch.set_num_threads(threads)


@contextmanager
def dividing(threads: int) -> Iterator[None]:
    """Within this, what may be divided without another result (sums of single numbers) has so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def side_by_side(compute: Callable[[Item], Found], items: Sequence[Item]) -> Iterator[Found]:
    """compute(item) of all items, as they are done: by as many threads as torch has for one product, one item each.

    The products of a search are too short to be divided. `compute` must not depend on what other items do.
    """
    threads = torch.get_num_threads()
    workers = min(_shared.workers or threads, len(items))
    if workers < 2:
        yield from map(compute, items)
        return
    pool = ThreadPoolExecutor(workers, "search", initializer=lambda: torch.set_num_threads(1))
    try:
        for future in as_completed([pool.submit(compute, item) for item in items]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # a thread that is started later asks what was set last


def spread(compute: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    """compute(item) of all items in their order, by the threads of all ranks; results are values as JSON knows them."""
    ranks = _shared.ranks
    mine = range(len(items)) if ranks is None else range(ranks.rank, len(items), ranks.size)
    found = dict(side_by_side(lambda number: (number, compute(items[number])), mine))
    own = [found[number] for number in mine]
    if ranks is None or ranks.size == 1:
        return own
    everybody = [iter(values) for values in ranks.gather(own)]
    return [next(everybody[number % ranks.size]) for number in range(len(items))]
