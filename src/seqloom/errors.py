"""What a user reads when something is wrong: the place, the value, and what to do about it.

`UserError` is the user's input (exit code 2), `RunError` is a run that could not go on (exit code 1). Anything else
that escapes is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


class SeqloomError(Exception):
    """Base of every error whose message is meant for the user."""

    exit_code = 1


class UserError(SeqloomError):
    """The user's input was wrong; the message says where, what, and how to mend it."""

    exit_code = 2


class RunError(SeqloomError):
    """The input was fine, but the work could not be finished (numbers exploded, the disk is full …)."""


class Stopped(Exception):
    """The user asked a run to stop; a checkpoint is saved and it can be resumed."""

    def __init__(self, where: str, signal_number: int) -> None:
        self.where, self.signal_number = where, signal_number
        super().__init__(f"stopped after {where}")


class DataError(UserError):
    """A problem in a data file, shown as `path:line: message`."""

    def __init__(self, message: str, path: str | Path, line: int | None = None) -> None:
        self.path, self.line, self.message = str(path), line, message
        super().__init__(f"{self.path}:{line}: {message}" if line is not None else f"{self.path}: {message}")


class RecipeError(UserError):
    """Everything that is wrong with a recipe, reported together."""

    def __init__(self, problems: Sequence[str], origin: str = "recipe") -> None:
        self.problems = list(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__(f"{origin}: {count}\n" + "\n".join(f"  - {problem}" for problem in self.problems))


def did_you_mean(word: object, choices: Iterable[str]) -> str:
    """A short hint such as " (did you mean 'additive'?)", or nothing when no choice is close."""
    given = str(word)
    close = [(edits, len(choice), choice) for choice in choices if (edits := _edits(given, choice)) is not None]
    return f" (did you mean {min(close)[2]!r}?)" if close else ""


def _edits(given: str, choice: str) -> int | None:
    """How many slips of the keyboard lie between two words; None where it is too many to be meant.

    A slip is a letter too many, missing, another, or two exchanged. The beginning of a choice may stand for all of it.
    """
    a, b = given.lower(), choice.lower()
    if len(a) > 100 or len(b) > 100:
        return None
    before, row = list[int](), list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        older, before, row = before, row, [i]
        for j, other in enumerate(b, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other)))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                row[j] = min(row[j], older[j - 2] + 1)
    most = max(len(a), len(b)) * 2 // 5 or 1
    if row[-1] <= most:
        return row[-1]
    begins = len(a) >= 3 and b.startswith(a)
    return most + 1 if begins else None


def one_of(name: str, value: object, choices: Iterable[str]) -> str:
    """The sentence for a value outside its table of choices."""
    listed = sorted(choices)
    choice = f"one of {', '.join(listed)}" if len(listed) > 1 else "".join(listed)
    return f"{name} must be {choice}; got {value!r}{did_you_mean(value, listed)}"
