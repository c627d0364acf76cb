"""`seqloom look`: see what a model does. Each view brings its own options, which become those of the command line."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from seqloom.cli.output import Format, talk_help, width
from seqloom.errors import UserError, did_you_mean
from seqloom.inspection.view import View
from seqloom.inspection.views import VIEWS, check_inputs, find_view, options_of, show, views_of
from seqloom.layout import described, hanging

USAGE = "seqloom look MODEL VIEW [INPUT …] [--save FILE] [--format json] [--checkpoint best|STEP] [options]"
SHARED: dict[str, tuple[Any, Parameter, Any]] = {
    "save": (
        Path | None,
        Parameter(
            help="draw into this file: .svg, .png, .pdf or .html (default: the terminal)",
            metavar="FILE",
            show_default=False,
        ),
        None,
    ),
    "checkpoint": (
        str | None,
        Parameter(
            help="look at a run, also an unfinished one, with the weights of a checkpoint: best, or a number of steps",
            metavar="best|STEP",
            show_default=False,
        ),
        None,
    ),
    "format": (Format, Parameter(help="json: the numbers of the view with their labels, as one object"), "text"),
}
"""What every view takes: type, help, default."""

Ask = Callable[[tuple[str, ...], dict[str, Any], dict[str, Any]], None]
"""Takes inputs, shared options, and options of the view."""

app = App(name="look", help_flags=[], version_flags=[], end_of_options_delimiter="")


@app.default
def look(*tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]) -> None:
    """Look inside a model: on the terminal, or drawn into a file."""
    places, options = parsed(tokens)
    named = [tokens[place] for place in places[:2]]
    if "help" in options or not tokens:
        name = next((token for token in reversed(named) if token in VIEWS), None)
        print(_overview()) if name is None else command(VIEWS[name], _nothing).help_print([])
        return
    if not named or (named[0] in VIEWS and not Path(named[0]).exists()):
        raise UserError(f"look takes a model before the view: {USAGE}")
    if len(named) == 1:
        print(_views_of(named[0]))
        return
    model, view = named[0], find_view(named[1])
    _check_options(view, options)
    rest = [token for place, token in enumerate(tokens) if place not in places[:2]]
    if "-" in rest:  # cyclopts takes it for an option
        rest.remove("-")
        rest += [*([] if "--" in rest else ["--"]), *_read_texts()]

    def run(inputs: tuple[str, ...], shared: dict[str, Any], values: dict[str, Any]) -> None:
        _look(model, view, list(inputs), values, **shared)

    command(view, run)(rest, exit_on_error=False, print_error=False, result_action="return_none")


def _look(
    model: str,
    view: View,
    inputs: list[str],
    values: dict[str, Any],
    *,
    save: Path | None,
    checkpoint: str | None,
    format: Format,
) -> None:
    from seqloom.cli.output import emit, note, use_colour
    from seqloom.model import Model
    from seqloom.training.progress import Progress

    if save is not None:  # before anything that takes time
        from seqloom.inspection.page import checked_path

        checked_path(save)
    if view.least and not inputs and not sys.stdin.isatty():
        inputs = _read_texts()
    check_inputs(view, inputs)
    options_of(view, values)
    loaded = Model.load(model) if checkpoint is None else Model.at_checkpoint(model, checkpoint)
    with ExitStack() as stack:
        bars: list[Progress] = []  # none for what takes no time

        def progress(share: float, figures: str) -> None:
            if not bars:
                bars.append(stack.enter_context(Progress(f"look {view.name}")))
            bars[0].update(share, figures)

        picture = show(loaded, view.name, inputs, values, progress)
    for line in picture.notes:
        note(line)
    if format == "json":
        emit(picture.to_dict())
    elif save is None:
        print(picture.to_text(colour=use_colour()))
    if save is not None:
        picture.save(save)
        note(f"drawn into {save}")


def _read_texts() -> list[str]:
    from seqloom.cli.output import read_texts

    return read_texts((), Path("-"))


def _nothing(inputs: tuple[str, ...], shared: dict[str, Any], values: dict[str, Any]) -> None:
    """What is done where only help is wanted."""


# -- settings as options ----------------------------------------------------------------------------------------------


def command(view: View, run: Ask) -> App:
    """A view as a command that takes its inputs, what all views take, and the fields of its `Options`."""
    parameters = [inspect.Parameter("inputs", inspect.Parameter.VAR_POSITIONAL)]
    annotations: dict[str, Any] = {
        "inputs": Annotated[str, Parameter(help=view.inputs, show=view.inputs is not None)],
    }
    for name, (kind, about, default) in SHARED.items():
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
        annotations[name] = Annotated[kind, about]
    for name, field in view.Options.model_fields.items():
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default))
        shown = field.default not in (None, False, ())
        how = Parameter(help=field.description, negative="", show_default=shown)
        annotations[name] = Annotated[field.annotation, how]

    def called(*inputs: str, **values: Any) -> None:
        shared = {name: values.pop(name, default) for name, (_, _, default) in SHARED.items()}
        run(inputs, shared, values)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = annotations
    called.__doc__ = None
    inputs = "" if view.inputs is None else "INPUT… " if view.least else "[INPUT…] "
    example = " ".join(["seqloom look MODEL", view.name, view.example]).rstrip()
    made = App(
        name=f"look MODEL {view.name}",
        help=f"{_sentence(view)}\n\n{example}",
        help_format="plaintext",
        suppress_keyboard_interrupt=False,
        group_parameters="Options",
        help_flags=[],
        version_flags=[],
        usage=f"Usage: seqloom look MODEL {view.name} {inputs}[OPTIONS]",
    )
    made.default(called)
    return made


def _sentence(view: View) -> str:
    return f"{view.about[0].upper()}{view.about[1:]}."


def _options(view: View) -> list[str]:
    return [*SHARED, *(name.replace("_", "-") for name in view.Options.model_fields)]


def _takes_value(option: str) -> bool:
    fields = [view.Options.model_fields.get(option.replace("-", "_")) for view in VIEWS.values()]
    return option in SHARED or any(field is not None and field.annotation is not bool for field in fields)


def parsed(tokens: Sequence[str]) -> tuple[list[int], list[str]]:
    """Where the tokens stand that belong to no option, and the names of the options."""
    places, options = list[int](), list[str]()
    numbered: Iterator[tuple[int, str]] = enumerate(tokens)
    for place, token in numbered:
        if token == "--":
            places += [later for later, _ in numbered]
        elif token == "-h":
            options.append("help")
        elif token.startswith("--"):
            option, has_value, _ = token.removeprefix("--").partition("=")
            options.append(option)
            if not has_value and _takes_value(option):
                next(numbered, None)
        else:
            places.append(place)
    return places, options


def _check_options(view: View, given: Sequence[str]) -> None:
    """An option of another view is a mistake of its own."""
    own = _options(view)
    takes = ", ".join(f"--{option}" for option in own)
    for option in given:
        if option in own:
            continue
        elsewhere = [f"look {name}" for name, other in VIEWS.items() if option in _options(other)]
        if elsewhere:
            listed = " and ".join(filter(None, [", ".join(elsewhere[:-1]), elsewhere[-1]]))
            raise UserError(f"--{option} is for {listed}; look {view.name} takes {takes}")
        raise UserError(f"look {view.name} has no option --{option}{did_you_mean(option, own)}; it takes {takes}")


# -- help -------------------------------------------------------------------------------------------------------------


def _listed(names: Sequence[str]) -> str:
    return described({name: VIEWS[name].about for name in names}, width(), indent="  ")


def _overview() -> str:
    text = (
        f"Usage: {USAGE}\n\nLook inside a model: on the terminal, or drawn into a file.\n\n{_listed(list(VIEWS))}\n\n"
        "MODEL is a model folder or a run folder, or a file of word vectors. A text may also be piped in.\n"
        "'seqloom look VIEW --help' shows the options of a view, 'seqloom look MODEL' the views of a model.\n\n"
        f'seqloom look runs/demo attention "the green witch arrived" --save alignment.svg\n\n{talk_help()}'
    )
    return hanging(text, width())


def _views_of(path: str) -> str:
    """The views that a model has."""
    from seqloom.model import load

    model = load(path)
    names = views_of(model)
    return f"{model.name} is {model.task.kind}. Its views:\n\n{_listed(names)}" if names else f"{path}: it has no views"
