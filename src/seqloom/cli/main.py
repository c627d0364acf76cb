"""The command line: one verb a file, imported when it is used."""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import Any, NamedTuple

import seqloom
from seqloom.cli.output import TALK, talk_help, talk_of, talking, width
from seqloom.errors import SeqloomError, UserError
from seqloom.layout import described, hanging
from seqloom.training.progress import alert, detail, duration


class Verb(NamedTuple):
    """Where a verb is, how it is called, and what it does in one line."""

    place: str
    usage: str
    about: str


VERBS = {
    "demo": Verb("demo:demo", "[OPTIONS]", "Train the embedded example, translate, show the alignment."),
    "train": Verb("train:train", "RECIPE [OPTIONS]", "Train a model from a recipe."),
    "runs": Verb("runs:runs", "[FOLDER] [OPTIONS]", "Show all runs: how far each one is, and how to go on."),
    "predict": Verb("predict:predict", "MODEL [TEXT… | -] [OPTIONS]", "Answer texts with a trained model."),
    "evaluate": Verb("evaluate:evaluate", "MODEL [OPTIONS]", "Measure a model on test data."),
    "generate": Verb("generate:generate", "MODEL [OPTIONS]", "Let a language model go on with a text."),
    "score": Verb(
        "score:score", "MODEL [FILE | -] [OPTIONS]", "Show how likely a language model finds each line of a text."
    ),
    "compare": Verb(
        "compare:compare", "RUN… [OPTIONS]", "Put several models on the same data into one table and one plot."
    ),
    "look": Verb(
        "look:app", "MODEL VIEW [INPUT…] [OPTIONS]", "Look inside a model: attention, heads, gates, quality by length."
    ),
    "embed": Verb("embed:app", "COMMAND …", "Word vectors: neighbours, analogies, similarity, conversion."),
    "export": Verb("export:export", "MODEL --to ENGINE [OPTIONS]", "Write a model for another engine, and verify it."),
    "data": Verb("data:app", "COMMAND …", "Look after data: 'data check' finds problems with file and line."),
    "list": Verb(
        "listing:list_choices",
        "[TABLE] [MODEL | RECIPE] [OPTIONS]",
        "Show what there is to choose from, or count a model's parameters.",
    ),
    "completion": Verb(
        "completion:completion", "bash | zsh | fish", "Print a script that lets the shell complete what you type."
    ),
}

HELP = "Train, evaluate and look inside sequence models."


def build_app(verb: str | None = None) -> Any:
    """The parser; only the verb that is asked for is imported, and gives its own --help."""
    from cyclopts import App

    app = App(
        name="seqloom",
        help=HELP,
        version=seqloom.__version__,
        version_flags=["--version", "-V"],
        group_parameters="Options",
        suppress_keyboard_interrupt=False,  # it would end without a word
    )
    for name, (place, usage, about) in VERBS.items():
        own = {} if name == verb else {"help": about}
        if not place.endswith(":app"):
            own |= {"usage": f"Usage: seqloom {name} {usage}", "help_epilogue": talk_help()}
        app.command(f"seqloom.cli.{place}", name=name, **own)
    return app


def overview() -> str:
    """What `seqloom --help` shows; written by hand because it is read most and should be instant."""
    ends = (
        "'seqloom VERB --help' explains a verb, 'seqloom --version' shows the version. First steps: seqloom demo",
        f"Every verb takes {', '.join(TALK)}, too.",
    )
    verbs = described({name: verb.about for name, verb in VERBS.items()}, width(), indent="  ")
    return "\n\n".join(["Usage: seqloom VERB …", HELP, verbs, *(hanging(text, width()) for text in ends)])


def main() -> None:
    """Run a command; a user's mistake is one clear message and exit code 2, never a traceback."""
    if sys.argv[1:2] == ["predict"]:  # what it makes lives until it ends: little use in looking for cycles
        gc.set_threshold(100_000)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """-> the exit code."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        arguments, talk = talk_of(arguments)
        with talking(talk):
            began = time.monotonic()
            code = _run(arguments)
            detail(f"seqloom {seqloom.__version__}: {duration(time.monotonic() - began)}, exit code {code}")
            return code
    except UserError as error:  # of what steers the talking
        return _fail(str(error), error.exit_code)


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(seqloom.__version__)
        return 0
    try:
        _execute(reading_standard_input(arguments))
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


def reading_standard_input(arguments: list[str]) -> list[str]:
    """`-` is standard input wherever it stands; the parser would take it for an option."""
    if arguments[0] == "look":  # reads its own arguments
        return arguments
    end = arguments.index("--") if "--" in arguments else len(arguments)
    result = list[str]()
    for word in arguments[:end]:
        before = result[-1] if result else ""
        if word != "-":
            result.append(word)
        elif before.startswith("--") and "=" not in before:  # the value of an option
            result[-1] = f"{before}=-"
        elif arguments[0] == "predict":
            result.append("--input=-")
        elif arguments[0] != "score":  # which reads it where no file is given
            result.append(word)
    return result + arguments[end:]


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
    alert(f"seqloom: {message}")
    return code


if __name__ == "__main__":
    main()
