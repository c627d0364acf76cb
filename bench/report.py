"""What every bench does with its figures: medians, ratios of medians, a table, and its place in docs/results.md."""

from __future__ import annotations

import shlex
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results.md"


def ratios(rounds: Mapping[str, Sequence[float]], ours: str) -> dict[str, float]:
    """How many times the median of `ours` is that of each other; who has no figure is left out."""
    own = statistics.median(rounds[ours])
    return {name: own / statistics.median(found) for name, found in rounds.items() if name != ours and found}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def number(value: float | None, digits: int = 0, unit: str = "") -> str:
    return "–" if value is None else f"{value:,.{digits}f}{unit}"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def section(title: str, machine: str, body: str, command: Sequence[str] | None = None) -> str:
    """A table as it stands in the results: what, when, where, with which command."""
    written = shlex.join(sys.orig_argv[1:] if command is None else command)
    return (
        f"### {title}\n\nMeasured on {time.strftime('%Y-%m-%d')}; {machine}.\n\n"
        f"```\npython {written}\n```\n\n{body.strip()}\n"
    )


def put_section(text: str, name: str, content: str) -> str:
    """The text with this content between the markers of that name, which are added at the end where missing."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    block = f"{begin}\n{content.strip()}\n{end}"
    if begin not in text:
        return f"{text.rstrip()}\n\n{block}\n" if text.strip() else f"{block}\n"
    before, _, rest = text.partition(begin)
    inside, found, after = rest.partition(end)
    if not found or begin in inside:
        raise ValueError(f"the marker {begin} has no {end} after it; put it back by hand")
    return before + block + after


def write_section(name: str, content: str, path: Path = RESULTS) -> None:
    """Put a section into the results; nothing outside its markers is touched."""
    from seqloom.files import write_atomically

    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    write_atomically(path, put_section(text, name, content))
