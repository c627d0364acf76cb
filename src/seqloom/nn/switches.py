"""Something that is on or off for each thread by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Switch(threading.local):
    """Off, until a thread turns it on for a while; other threads do not notice."""

    on = False

    @contextmanager
    def turned(self, on: bool) -> Iterator[None]:
        """On, or off, within this."""
        before, self.on = self.on, on
        try:
            yield
        finally:
            self.on = before
