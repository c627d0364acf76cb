"""What happened in a run: one JSON object a line, appended at once, cut back to a checkpoint when the run resumes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO


class Journal:
    """`journal.jsonl`. Events: `start`, `resume`, `train`, `validation`, `stop`, `average`."""

    def __init__(self, path: Path | None, keep_bytes: int = 0) -> None:
        """Open for appending; whatever a stopped run wrote after `keep_bytes` is done again, so it is cut off.

        Without a path nothing is written: of several processes that train together one keeps the journal.
        """
        self.file: BinaryIO | None = None
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("ab")
        if self.file.tell() > keep_bytes:
            self.file.truncate(keep_bytes)
            self.file.seek(0, os.SEEK_END)

    def write(self, event: str, **values: Any) -> None:
        if self.file is None:
            return
        line = json.dumps({"event": event, "time": round(time.time(), 3), **values}, ensure_ascii=False)
        self.file.write(line.encode() + b"\n")
        self.file.flush()

    def size(self) -> int:
        return 0 if self.file is None else self.file.tell()

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def read_journal(path: str | Path) -> Iterator[dict[str, Any]]:
    """The events of a run; a last line cut short by a crash is left out."""
    with Path(path).open("rb") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:
                return
