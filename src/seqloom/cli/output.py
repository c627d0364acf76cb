"""How the command line talks: answers on standard output, everything else on standard error; how much, and to whom."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

from seqloom.errors import UserError
from seqloom.training.progress import Speech, say, speaking

Format = Literal["text", "json"]


# -- how much is said: the same for every verb ------------------------------------------------------------------------

TALK = {
    "-q|--quiet": "Say nothing but answers, reports and errors.",
    "-v|--verbose": "Say more: every line of the journal while training, how long it took.",
    "--log FILE": "Also append every line, with its time, to this file.",
}
"""What every verb takes besides its own options."""


def talk_help() -> str:
    """What the help of a verb says about them."""
    return f"Every verb also takes {', '.join(TALK)}."


class Talk(NamedTuple):
    """How much the user wants to hear, and a file that hears it too."""

    quiet: bool = False
    verbose: bool = False
    log: Path | None = None


def talk_of(arguments: Sequence[str]) -> tuple[list[str], Talk]:
    """The arguments without `--quiet`, `--verbose` and `--log FILE`, wherever they stand, and what these say."""
    rest, talk = list[str](), Talk()
    numbered = iter(enumerate(arguments))
    for place, word in numbered:
        if word == "--":
            rest += arguments[place:]
            break
        if word in ("-q", "--quiet"):
            talk = talk._replace(quiet=True)
        elif word in ("-v", "--verbose"):
            talk = talk._replace(verbose=True)
        elif word == "--log" or word.startswith("--log="):
            file = word.removeprefix("--log=") if "=" in word else next(numbered, (0, ""))[1]
            if not file or file.startswith("-"):
                raise UserError("--log takes a file to write to, such as --log train.log")
            talk = talk._replace(log=Path(file).expanduser())
        else:
            rest.append(word)
    if talk.quiet and talk.verbose:
        raise UserError("--quiet says less and --verbose says more; choose one")
    return rest, talk


@contextmanager
def talking(talk: Talk) -> Iterator[None]:
    """While this lasts, so much is said, and every line of both outputs is in the log, too."""
    if talk.log is None:
        with speaking(Speech(talk.quiet, talk.verbose)):
            yield
        return
    try:
        file = talk.log.open("a", encoding="utf-8")
    except OSError as error:
        raise UserError(f"--log {talk.log}: cannot be written: {error.strerror}") from None
    with file:

        def heard(text: str) -> None:
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            file.write("".join(f"{now}  {line}".rstrip() + "\n" for line in text.split("\n")))
            file.flush()

        before, sys.stdout = sys.stdout, _Heard(sys.stdout, heard)
        try:
            with speaking(Speech(talk.quiet, talk.verbose, heard)):
                yield
        finally:
            sys.stdout.close()
            sys.stdout = before


class _Heard:
    """A stream whose complete lines are heard by somebody else, too."""

    def __init__(self, stream: TextIO, heard: Callable[[str], None]) -> None:
        self._stream, self._hear, self._line = stream, heard, ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._hear(line)
        return self._stream.write(text)

    def close(self) -> None:
        """The last line may have no end; the stream itself stays open."""
        if self._line:
            self._hear(self._line)


def note(text: str = "") -> None:
    """A line for the person, never part of the answer."""
    say(text)


def emit(value: Any) -> None:
    """One JSON object on one line of standard output."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def leads() -> bool:
    """Whether this process talks: the only one, or the first of those that a launcher such as torchrun started."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


def use_colour() -> bool:
    """Colour only where a person looks at a terminal and has not asked for none (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width() -> int | None:
    """How many characters a line may have: what COLUMNS says, else the terminal's; None where no terminal is."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def strong(text: str) -> str:
    return f"\033[1m{text}\033[0m" if use_colour() else text


def read_texts(texts: Iterable[str], input_file: Path | None) -> list[str]:
    """The texts to work on: the arguments, a file's lines, or standard input (`-`, or nothing and a pipe)."""
    given = list(texts)
    if input_file is not None:
        if given:
            raise UserError("give texts as arguments or --input FILE, not both")
        if str(input_file) == "-":
            return list(_stdin_lines())
        from seqloom.corpus.lines import open_lines

        return [line for _, line in open_lines(str(input_file))]
    if not given and not sys.stdin.isatty():
        return list(_stdin_lines())
    if not given:
        raise UserError("nothing to read: give a text in quotes, --input FILE, or pipe lines in")
    return given


def _stdin_lines() -> Iterator[str]:
    from seqloom.errors import DataError

    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(f"not UTF-8: byte 0x{line[error.start]:02x}", "standard input", number) from None


@contextmanager
def output_to(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears only when it is complete."""
    if path is None:
        yield sys.stdout
        return
    import io

    from seqloom.files import write_atomically

    buffer = io.StringIO()
    yield buffer
    write_atomically(path, buffer.getvalue())
