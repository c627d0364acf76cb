"""One kind of input a file. A new one is a line here and in `KINDS` (corpus/kinds.py)."""

from __future__ import annotations

from typing import Any

from seqloom.sources.series import SeriesSource
from seqloom.sources.text import TextSource

SOURCES: dict[str, Any] = {"series": SeriesSource, "text": TextSource}
"""By the name of the kind of corpus that they read."""
