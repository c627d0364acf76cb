"""`seqloom data check`: the data doctor, before step 1."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from seqloom.cli.output import Format

app = App(name="data", help="Look after data.")


@app.command
def check(
    recipe: str,
    /,
    *,
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)] = (),
    format: Format = "text",
    most: int = 5,
    max_length: int = 200,
    max_ratio: float = 4.0,
) -> None:
    """Find problems in a recipe's data, with file and line.

    Line counts, empty and overlong lines, bad UTF-8, duplicates, train/test leakage, length ratios, unknown words.
    Ends with exit code 2 when something would stop training.

    Parameters
    ----------
    recipe
        Path of a YAML file or name of a shipped recipe.
    overrides
        Change a setting of the recipe first, such as --set data.train.limit=1000.
    format
        text: a report. json: one object.
    most
        How many cases of each kind to show.
    max_length
        Lines with more words are overlong.
    max_ratio
        Pairs whose lengths differ by a larger factor are outliers.
    """
    from seqloom.cli.output import note
    from seqloom.corpus.doctor import examine, render, to_json
    from seqloom.errors import UserError
    from seqloom.recipe import load_recipe
    from seqloom.tasks.translate import Translation

    loaded = load_recipe(recipe, overrides)
    corpora = loaded.data.corpora()
    try:
        note("learning the vocabulary to count unknown words …")
        task = Translation.learn(loaded.data.train, loaded.text)
        sides = {"source": task.source, "target": task.target}
        unknown = lambda side, texts: sides[side].unknown_rate(texts)  # noqa: E731
    except UserError:
        note("… which is not possible: the training data cannot be read (see below)")
        unknown = None
    report = examine(corpora, max_length=max_length, max_ratio=max_ratio, unknown_rate=unknown, most=most)
    print(to_json(report) if format == "json" else render(report).rstrip())
    if not report.ok:
        raise SystemExit(2)
