"""What a stopped run says: that nothing is lost, and how to go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


def run_to_the_end(work: Callable[[], Result], folder: Path) -> Result:
    """Do the work; if the user stops it, say how to resume and exit the way an interrupted program does."""
    from seqloom.cli.output import leads, note
    from seqloom.errors import Stopped

    try:
        return work()
    except Stopped as stopped:
        if leads():
            note(f"\nStopped after {stopped.where}; a checkpoint is saved. Go on with:")
            note(f"  seqloom train {folder} --resume")
        raise SystemExit(128 + stopped.signal_number) from None
