"""The command line: one verb a file, imported when it is used."""

from __future__ import annotations

import os
import sys

from cyclopts import App, CycloptsError

import seqloom
from seqloom.errors import SeqloomError

VERBS = {
    "demo": ("seqloom.cli.demo:demo", "Train the embedded example, translate, show the alignment."),
    "train": ("seqloom.cli.train:train", "Train a model from a recipe."),
    "predict": ("seqloom.cli.predict:predict", "Answer texts with a trained model."),
    "evaluate": ("seqloom.cli.evaluate:evaluate", "Measure a model on test data."),
    "look": ("seqloom.cli.look:look", "Look inside a model: attention, gates, quality by length."),
    "data": ("seqloom.cli.data:app", "Look after data: 'data check' finds problems with file and line."),
    "list": ("seqloom.cli.listing:list_choices", "Show what there is to choose from: recipes, cells, attention …"),
}


def build_app() -> App:
    app = App(
        name="seqloom",
        help="Train, evaluate, look inside and serve sequence models.\n\nFirst steps: seqloom demo",
        version=seqloom.__version__,
    )
    for name, (place, about) in VERBS.items():
        app.command(place, name=name, help=about)
    return app


def main() -> None:
    """Run a command; a user's mistake is one clear message and exit code 2, never a traceback."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    app = build_app()
    if arguments[:1] == ["predict"]:  # a lone '-' means standard input, as everywhere; cyclopts takes it for an option
        arguments = ["--input=-" if argument == "-" else argument for argument in arguments]
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_none")
    except CycloptsError as error:
        return _fail(f"{error}\nTry 'seqloom --help' or 'seqloom VERB --help'.", 2)
    except SeqloomError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    return 0


def _fail(message: str, code: int) -> int:
    print(f"seqloom: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
