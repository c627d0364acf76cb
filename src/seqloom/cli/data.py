"""`seqloom data check`: the data doctor, before step 1."""

from __future__ import annotations

from cyclopts import App

from seqloom.cli.options import Overrides
from seqloom.cli.output import Format

app = App(name="data", help="Look after data.", group_parameters="Options")


@app.command(usage="Usage: seqloom data check RECIPE [OPTIONS]")
def check(
    recipe: str,
    /,
    *,
    overrides: Overrides = (),
    format: Format = "text",
    most: int = 5,
    max_length: int = 200,
    max_ratio: float = 4.0,
) -> None:
    """Find problems in a recipe's data, with file and line.

    Examples: line counts, empty and overlong lines, bad UTF-8, duplicates, train/test leakage, length ratios, unknown
    words. Running text: its size, unknown symbols, lines that are in the training text too. Ends with exit code 2 when
    something would stop training.

    Parameters
    ----------
    recipe
        Path of a YAML file or name of a shipped recipe.
    overrides
        Change a setting of the recipe first, such as --set data.train.limit=1000.
    format
        text: a report. json: one object.
    most
        Examples: how many cases of each kind to show.
    max_length
        Examples: lines with more words are overlong.
    max_ratio
        Examples: pairs whose lengths differ by a larger factor are outliers.
    """
    from seqloom.cli.output import emit, note
    from seqloom.recipe import load_recipe
    from seqloom.tasks import find_task

    loaded = load_recipe(recipe, overrides)
    found = find_task(loaded.task).examine(loaded, note, most=most, max_length=max_length, max_ratio=max_ratio)
    if format == "json":
        emit(found.values)
    else:
        print(found.text)
    if not found.ok:
        raise SystemExit(2)
