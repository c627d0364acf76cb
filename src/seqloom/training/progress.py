"""How far the work is: a bar on a terminal, plain lines elsewhere. Always on standard error."""

from __future__ import annotations

import sys
import time
from typing import Any

SECONDS_BETWEEN_LINES = 15.0


def duration(seconds: float) -> str:
    """75 -> '1:15', 3700 -> '1:01:40'."""
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def say(text: str) -> None:
    """A line for the person."""
    print(text, file=sys.stderr, flush=True)


class Progress:
    """A share done between 0 and 1, a few figures beside it, and an estimate of the time left."""

    def __init__(self, title: str, start: float = 0.0) -> None:
        self.title, self.start_share, self.share = title, start, start
        self.began = self.last_line = time.monotonic()
        self.bar: Any = None
        if sys.stderr.isatty():
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
        """The time left at the pace so far, once there is enough of it to judge by."""
        done, spent = self.share - self.start_share, time.monotonic() - self.began
        if spent < 2.0 or done <= 0:
            return ""
        return f"{duration(spent * (1 - self.share) / done)} left"

    def update(self, share: float | None, figures: str) -> None:
        """Move on; `figures` is a short text such as 'step 300  loss 1.23'. None: how much there is is not known."""
        self.share = self.share if share is None else min(1.0, share)
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
            self.bar.console.print(text, markup=False, highlight=False)
        else:
            say(text)


class Silence(Progress):
    """Of a process that does not talk: another one does."""

    def __init__(self) -> None:
        self.bar = None

    def update(self, share: float | None, figures: str) -> None:
        pass

    def say(self, text: str) -> None:
        pass
