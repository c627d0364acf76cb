"""The command line: one verb a file, imported when it is used."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

import seqloom
from seqloom.errors import SeqloomError

VERBS = {
    "demo": ("seqloom.cli.demo:demo", "Train the embedded example, translate, show the alignment."),
    "train": ("seqloom.cli.train:train", "Train a model from a recipe."),
    "predict": ("seqloom.cli.predict:predict", "Answer texts with a trained model."),
    "evaluate": ("seqloom.cli.evaluate:evaluate", "Measure a model on test data."),
    "generate": ("seqloom.cli.generate:generate", "Let a language model go on with a text."),
    "score": ("seqloom.cli.score:score", "Show how likely a language model finds each line of a text."),
    "compare": ("seqloom.cli.compare:compare", "Put several models on the same data into one table and one plot."),
    "look": ("seqloom.cli.look:app", "Look inside a model: attention, heads, gates, quality by length."),
    "embed": ("seqloom.cli.embed:app", "Word vectors: neighbours, analogies, similarity, conversion."),
    "export": ("seqloom.cli.export:export", "Write a model for another engine, and verify it."),
    "data": ("seqloom.cli.data:app", "Look after data: 'data check' finds problems with file and line."),
    "list": ("seqloom.cli.listing:list_choices", "Show what there is to choose from, or count a model's parameters."),
}


HELP = "Train, evaluate and look inside sequence models."


def build_app(verb: str | None = None) -> Any:
    """The parser; only the verb that is asked for is imported, and gives its own --help."""
    from cyclopts import App

    app = App(name="seqloom", help=HELP, version=seqloom.__version__)
    for name, (place, about) in VERBS.items():
        app.command(place, name=name, help=None if name == verb else about)
    return app


def overview() -> str:
    """What `seqloom --help` shows; written by hand because it is read most and should be instant."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {about}" for name, (_, about) in VERBS.items())
    return (
        f"Usage: seqloom VERB …\n\n{HELP}\n\n{verbs}\n\n"
        "'seqloom VERB --help' explains a verb, 'seqloom --version' shows the version. First steps: seqloom demo"
    )


def main() -> None:
    """Run a command; a user's mistake is one clear message and exit code 2, never a traceback."""
    if sys.argv[1:2] == ["predict"]:  # what it makes lives until it ends: little use in looking for cycles
        gc.set_threshold(100_000)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if arguments[-1] == "-" and arguments[0] == "score":  # standard input is what it reads without a file
        arguments = arguments[:-1]
    if arguments[-1] == "-" and arguments[0] == "predict":  # standard input, as everywhere; cyclopts sees an option
        arguments = [*arguments[:-1], "--input=-"]
    try:
        _execute(arguments)
    except SeqloomError as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:  # a full disk, a file that went away: the system's own words are clear
        if isinstance(error, BrokenPipeError):  # the reader of our output has gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except _wrong_arguments() as error:
        return _fail(f"{error}\nTry 'seqloom --help' or 'seqloom VERB --help'.", 2)
    return 0


def _execute(arguments: list[str]) -> None:
    """Do what is asked for; a plain `predict` is so common that it does not wait for the parser."""
    if arguments[0] == "predict":
        from seqloom.cli.answering import answer, plain_question

        question = plain_question(arguments[1:])
        if question is not None:
            answer(question)
            return
    app = build_app(arguments[0])
    app(arguments, exit_on_error=False, print_error=False, result_action="return_none")


def _wrong_arguments() -> type[Exception]:
    """What the parser raises; looked up when something was raised."""
    from cyclopts import CycloptsError

    return CycloptsError


def _fail(message: str, code: int) -> int:
    print(f"seqloom: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
