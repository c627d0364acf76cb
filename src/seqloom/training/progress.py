"""How far the work is: a bar on a terminal, plain lines elsewhere. Always on standard error.

How much is said is chosen once for all that happens inside of `speaking`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

SECONDS_BETWEEN_LINES = 15.0
MOST_PIECES, FEWEST_PIECES = 200, 3  # that an estimate rests on


class Speech(NamedTuple):
    """How much is said: `quiet` says nothing, `verbose` says details too; `log` hears every line, also if quiet."""

    quiet: bool = False
    verbose: bool = False
    log: Callable[[str], None] | None = None


_speech = Speech()


@contextmanager
def speaking(speech: Speech) -> Iterator[None]:
    """While this lasts, so much is said."""
    global _speech
    before, _speech = _speech, speech
    try:
        yield
    finally:
        _speech = before


def duration(seconds: float) -> str:
    """75 -> '1:15', 3700 -> '1:01:40'."""
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def say(text: str) -> None:
    """A line for the person."""
    if _speech.quiet:
        _log(text)
    else:
        alert(text)


def alert(text: str) -> None:
    """A line that nobody may miss, such as an error."""
    _log(text)
    print(text, file=sys.stderr, flush=True)


class Pace:
    """How long the rest will take, by how fast things went lately.

    What is done first is often slow, since it is loaded or compiled before it is done, and says nothing of the rest. So
    only the later half of the time counts, and the slowest piece of it is left out.
    """

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []  # (seconds, share) of those pieces that count
        self.first = 0.0

    def hear(self, seconds: float, share: float) -> None:
        """So much was done at that time; to be told after every piece."""
        points = self.points
        if not points:
            self.first = seconds
        elif share <= points[-1][1]:
            return
        if len(points) > 2 and seconds - points[-2][0] < (seconds - points[0][0]) / MOST_PIECES:
            points.pop()  # many pieces of a moment make one
        points.append((seconds, share))
        since = (self.first + seconds) / 2
        while len(points) > FEWEST_PIECES + 1 and points[1][0] <= since:
            points.pop(0)

    def left(self) -> float | None:
        """Seconds; None while too little is known."""
        pieces = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(self.points)]
        if len(pieces) < FEWEST_PIECES:
            return None
        pieces.remove(max(pieces, key=lambda piece: piece[0] / piece[1]))
        spent, done = (sum(column) for column in zip(*pieces, strict=True))
        return (1 - self.points[-1][1]) * spent / done


def detail(text: str) -> None:
    """A line for a person who asked for details."""
    if _speech.verbose:
        say(text)


def _log(text: str) -> None:
    if _speech.log is not None:
        _speech.log(text)


class Progress:
    """A share done between 0 and 1, a few figures beside it, and an estimate of the time left."""

    def __init__(self, title: str, start: float = 0.0) -> None:
        self.title, self.share, self.pace = title, start, Pace()
        self.began = self.last_line = time.monotonic()
        self.bar: Any = None
        if sys.stderr.isatty() and not _speech.quiet:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            self.bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=28),
                TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.fields[figures]}"),
                TextColumn("[dim]{task.fields[left]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self.task = self.bar.add_task(title, total=1.0, completed=start, figures="", left="")

    def __enter__(self) -> Progress:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def left(self) -> str:
        """The time left, once there is enough to judge by."""
        seconds = self.pace.left() if time.monotonic() - self.began >= 2.0 else None
        return "" if seconds is None else f"{duration(seconds)} left"

    def update(self, share: float | None, figures: str) -> None:
        """Move on; `figures` is a short text such as 'step 300  loss 1.23'. None: how much there is is not known."""
        if share is not None:
            self.share = min(1.0, share)
            self.pace.hear(time.monotonic(), self.share)
        if self.bar is not None:
            total = None if share is None else 1.0  # without a total the bar only shows that something happens
            self.bar.update(self.task, total=total, completed=self.share, figures=figures, left=self.left())
        elif time.monotonic() - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = time.monotonic()
            done = "" if share is None else f" {self.share:4.0%}"
            self.say(f"{self.title}{done}  {figures}  {self.left()}".rstrip())

    def say(self, text: str) -> None:
        """A line that stays."""
        if self.bar is not None:
            _log(text)
            self.bar.console.print(text, markup=False, highlight=False)
        else:
            say(text)

    def detail(self, text: str) -> None:
        """A line that stays, for a person who asked for details."""
        if _speech.verbose:
            self.say(text)


class Silence(Progress):
    """Of a process that does not talk: another one does."""

    def __init__(self) -> None:
        self.bar = None

    def update(self, share: float | None, figures: str) -> None:
        pass

    def say(self, text: str) -> None:
        pass
