"""The next batches, made in a thread while the last one is computed with."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Queue
from threading import Event, Thread
from typing import Generic, TypeVar

Item = TypeVar("Item")

AHEAD = 2


class Prefetch(Generic[Item]):
    """The same items in the same order, the next few of them made beforehand.

    What the items are is unchanged, so whoever keeps the position of the last one it took resumes exactly. An error
    while making an item is raised where that item would have been taken.
    """

    def __init__(self, items: Iterator[Item]) -> None:
        self._made: Queue[tuple[Item | None, BaseException | None]] = Queue(AHEAD)
        self._stop = Event()
        self._thread = Thread(target=self._make, args=(items,), daemon=True, name="batches")
        self._thread.start()

    def _make(self, items: Iterator[Item]) -> None:
        try:
            for item in items:
                self._made.put((item, None))
                if self._stop.is_set():
                    return
            self._made.put((None, StopIteration()))
        except BaseException as error:
            self._made.put((None, error))

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        item, error = self._made.get()
        if error is not None:
            self._made.put((None, error))  # whoever asks again gets it again
            raise error
        return item  # type: ignore[return-value]

    def close(self) -> None:
        """No more is made; what was made is forgotten."""
        self._stop.set()
        while self._thread.is_alive():
            while not self._made.empty():
                self._made.get()
            self._thread.join(0.01)
