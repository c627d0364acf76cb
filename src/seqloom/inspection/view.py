"""What a view is: a question that a model can be asked, the options it takes, and the picture that answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from seqloom.errors import UserError
from seqloom.inspection.page import checked_path, html_of
from seqloom.inspection.theme import ThemeName, themed
from seqloom.settings import Settings

Progress = Callable[[float, str], None]
"""Takes the share that is done, from 0 to 1, and a few words about it."""


class Picture:
    """What a view shows: text for a terminal, a drawing for files and notebooks, values for programs.

    Args:
        title: What is seen.
        text: (characters in a line or None for the terminal's, whether colours are wanted) -> the text.
        draw: Draws into a file.
        values: What is seen as JSON-able values.
        notes: What else a reader should know, such as words that the model does not know.
    """

    def __init__(
        self,
        title: str,
        *,
        text: Callable[[int | None, bool], str],
        draw: Callable[[Path], Any],
        values: Mapping[str, Any],
        notes: Sequence[str] = (),
    ) -> None:
        self.title, self.notes = title, list(notes)
        self.theme: ThemeName = "light"
        self._text, self._draw, self._values = text, draw, dict(values)

    def __repr__(self) -> str:
        return f"Picture({self.title!r})"

    def to_text(self, width: int | None = None, colour: bool = True) -> str:
        """The picture made of characters; nothing but numpy is needed for it."""
        with themed(self.theme):
            return self._text(width, colour)

    def save(self, path: str | Path) -> Path:
        """Write a .svg, .png, .pdf or .html file; the last is a page that needs neither network nor scripts."""
        target = checked_path(path)
        with themed(self.theme):
            self._draw(target)
        return target

    def to_dict(self) -> dict[str, Any]:
        """What is seen as JSON-able values."""
        return {"title": self.title, **self._values}

    def _repr_html_(self) -> str:
        return html_of(self.save, lambda: self.to_text(colour=False), self.title)


class ViewOptions(Settings):
    """What can be chosen of every view."""

    theme: ThemeName = Field("light", description="colours for a light page or for a dark one")


class View:
    """One way to look at a model. A class of its own and a line in `VIEWS` make a new one.

    The fields of `Options` become options of the command line, and what a form asks for.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    """One line."""
    recipe: ClassVar[str] = ""
    """A shipped recipe whose model has this view."""
    inputs: ClassVar[str | None] = None
    """What the inputs are, such as "one text in quotes"; None where there are none."""
    least: ClassVar[int] = 0
    """How many inputs there must be at least."""
    most: ClassVar[int | None] = 0
    """How many there may be; None is any number."""
    example: ClassVar[str] = ""
    """Inputs, as they are written in a command."""

    class Options(ViewOptions):
        """What can be chosen."""

    def missing(self, model: Any) -> str | None:
        """Why a model has not got this view, as a sentence without its full stop; None if it has."""
        return None

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        """Look at a model that has this view.

        Raises:
            UserError: There is nothing to see for these inputs and options.
        """
        raise NotImplementedError


def has_part(model: Any, attribute: str) -> bool:
    """Whether some part of a model's network has an attribute, such as the `num_heads` of attention."""
    return hasattr(model.network, "modules") and any(hasattr(part, attribute) for part in model.network.modules())


def part_of(progress: Progress, number: int, count: int, title: str) -> Callable[..., None]:
    """What to give to one of several pieces of work as its own `progress`."""
    return lambda share, figures="": progress((number + share) / count, f"{title}  {figures}".rstrip())


def compared(model: Any, paths: Sequence[str], view: View) -> list[Any]:
    """A model and those to compare it with, loaded; each must have the view, and a name of its own."""
    found = [model, *(type(model).load(path) for path in paths)]
    for one in found[1:]:
        if (reason := view.missing(one)) is not None:
            raise UserError(f"{one.folder}: {reason}")
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise UserError(f"models of one name cannot be told apart in a picture; got {', '.join(names)}")
    return found
