"""Every `seqloom …` line of README.md and docs/, run for real in a temporary folder; trainings are cut short.

    python -m bench.documented [--quick]

Runs that a page talks about are made first from the recipes of the same name, in 20 steps. What needs data that is not
below SEQLOOM_DATA, or word vectors that take long to learn, is parsed only, and listed. --quick parses everything and
runs nothing. Ends with 1 if a line fails.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CUT = ["training.steps=20", "training.validate_every=20", "training.epochs=null", "training.minutes=null"]


class Line(NamedTuple):
    """A documented command line: where it stands, its words after `seqloom`, and whether an error is shown for it."""

    page: str
    number: int
    words: tuple[str, ...]
    fails: bool
    piped: bool


def documented() -> Iterator[Line]:
    """Every command of every block of code without a language."""
    for page in PAGES:
        lines, inside = page.read_text(encoding="utf-8").replace("\\\n", "  ").splitlines(), False
        for number, line in enumerate(lines, 1):
            if line.startswith("```"):
                inside = not inside and line == "```"
                continue
            if inside and not line.startswith("seqloom:"):
                shows_error = number < len(lines) and lines[number].startswith("seqloom: ")
                for piped, words in commands(line):
                    yield Line(str(page.relative_to(ROOT)), number, words, shows_error, piped)


def commands(line: str) -> Iterator[tuple[bool, tuple[str, ...]]]:
    """The calls of seqloom in a line; synopses, with alternatives or parts in brackets, are none."""
    line = re.sub(r"^\$ ", "", line.strip())
    if re.match(r"seqloom [a-z]+ [a-z]+ [a-z]+ ", line):  # a sentence that begins with the name
        return
    begins = r"(?:^|&& |; do |(\| ))(?:\w+=\S+ )*(?:\.venv/bin/)?seqloom"
    for part in re.finditer(begins + r"( (?:[^\"&]|\"[^\"]*\")*)", line):
        rest = re.split(r"\s+#\s|\s{2,}(?=[^-\s\"])|\s\|\s|;\s|\s>\s", part[2].strip())[0]
        plain = re.sub(r"\"[^\"]*\"", '""', rest)
        if rest and not re.search(r"[\[\]…$]|\w\|\w|\b[A-Z]{2,}\b", plain):
            yield bool(part[1]), tuple(shlex.split(rest))


def parse(words: tuple[str, ...]) -> None:
    """Parse all of a command with the real parser, and do nothing."""
    from seqloom.cli.look import command, parsed
    from seqloom.cli.main import build_app, reading_standard_input
    from seqloom.cli.output import talk_of
    from seqloom.inspection.views import find_view, options_of

    rest = reading_standard_input(talk_of(words)[0])
    if rest[0] in ("--help", "--version", "-V"):
        return
    if rest[0] == "look" and "--help" not in rest and len(rest) > 2:
        view = find_view(rest[2])
        places, _ = parsed(rest[1:])
        asked = [word for place, word in enumerate(rest[1:]) if place not in places[:2] and word != "-"]
        command(view, lambda inputs, shared, values: options_of(view, values))(
            asked, exit_on_error=False, print_error=False, result_action="return_none"
        )
        return
    build_app(rest[0]).parse_args(rest, exit_on_error=False, print_error=False)


def main() -> int:
    """Parse all, run what can be run."""
    lines = [line for line in documented() if not line.fails]
    failed, parsed_only, ran = list[str](), list[str](), 0
    for line in lines:
        try:
            parse(line.words)
        except Exception as error:
            failed.append(f"{line.page}:{line.number}: {error}")
    if "--quick" not in sys.argv:
        with tempfile.TemporaryDirectory() as place:
            for line in lines:
                found = _run(line, Path(place))
                ran += found == "ran"
                if found not in ("ran", "parsed"):
                    failed.append(f"{line.page}:{line.number}: seqloom {shlex.join(line.words)}\n{found}")
                elif found == "parsed":
                    parsed_only.append(f"{line.page}:{line.number}: seqloom {shlex.join(line.words)}")
    for title, listed in (("only parsed", parsed_only), ("failed", failed)):
        print("\n".join([f"{title}:", *listed]) + "\n" if listed else "", end="", file=sys.stderr)
    print(json.dumps({"lines": len(lines), "ran": ran, "parsed": len(parsed_only), "failed": len(failed)}))
    return int(bool(failed))


def _run(line: Line, place: Path) -> str:
    """'ran', 'parsed' where something is missing for it, or what went wrong."""
    words = list(line.words)
    for name in sorted({found[1] for word in words if (found := re.fullmatch(r"runs/([\w/-]+?)(/\w+\.\w+)?", word))}):
        made = (place / "runs" / name / "model").is_dir()
        if words[0] != "train" and not made and not _trained(name, place):
            return "parsed"
    files = [w for w in words if re.search(r"\.(yaml|tsv|txt|gz|de|en|arpa|bin|vec)$", w)]
    if any(not (place / file).exists() for file in files) or words[0] == "demo":
        return "parsed"
    if words[0] == "train" or words[:2] == ["embed", "train"]:
        return "ran" if _trained(words[-1] if len(words) < 4 else words[1], place, words) else "parsed"
    done = _seqloom(words, place)
    return "ran" if done.returncode == 0 else done.stderr[-500:]


def _trained(name: str, place: Path, words: list[str] | None = None) -> bool:
    """A run of a shipped recipe in a few steps; False where its data is not here, or it is not fitted in steps."""
    from seqloom.recipe import load_recipe, shipped_recipes

    if name not in shipped_recipes() or not hasattr(getattr(load_recipe(name), "training", None), "steps"):
        return False
    given = words or ["train", name, "--run", f"runs/{name}"]
    cut = [part for setting in CUT for part in ("--set", setting)]
    return _seqloom([*given, *cut, "--restart"], place).returncode == 0


def _seqloom(words: list[str], place: Path) -> subprocess.CompletedProcess[str]:
    source = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    data = str((ROOT / os.environ.get("SEQLOOM_DATA", "../shared/data")).resolve())
    return subprocess.run(
        [sys.executable, "-m", "seqloom", *words],
        cwd=place,
        env={**os.environ, "PYTHONPATH": source, "SEQLOOM_DATA": data},
        input="the old witch slept\n",
        capture_output=True,
        text=True,
    )


if __name__ == "__main__":
    sys.exit(main())
