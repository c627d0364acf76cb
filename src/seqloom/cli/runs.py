"""`seqloom runs`: which runs there are, how far each one is, and how to go on. Reads journals and recipes, no model."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.cli.output import Format
from seqloom.errors import UserError

DEPTH = 3  # folders below the one that is asked for
LATELY = 60.0  # seconds since the journal grew, in which a run counts as running
PAUSES = 3.0  # and so many times the longest pause between its last lines
SPARE = ("model", "age", "task", "steps")


class Run(NamedTuple):
    """What its folder tells of a run; None is what is not known."""

    folder: str
    name: str
    task: str | None
    model: str | None
    state: str
    steps: int | None
    of_steps: int | None
    metric: str | None
    score: float | None
    seconds_ago: float
    next: str | None


def runs(folder: Path = Path("runs"), /, *, format: Format = "text") -> None:
    """Show the runs below a folder: task, model, state, steps, score, age, and how to go on.

    The states: finished (it has a model); running (its journal grew lately); interrupted (it can go on); failed before
    step 1 (its data or its recipe stopped it). The score is the best validation so far, by the first metric of the task
    that the journal holds.

    Parameters
    ----------
    folder
        Where to look, also in the folders in it; or one run.
    format
        text: a table, newest first. json: one object a line.
    """
    from seqloom.cli.output import emit, note, width

    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder; a first run: seqloom demo")
    found = sorted((read_run(path, folder) for path in run_folders(folder)), key=lambda run: run.seconds_ago)
    if format == "json":
        for run in found:
            emit(run._asdict())
        return
    if not found:
        note(f"{folder}: there is no run here; a first one: seqloom demo")
        return
    print(render(found, width()))


def run_folders(folder: Path) -> Iterator[Path]:
    """Every run at or below a folder; what is inside of a run is not looked at."""
    for place, inside, files in os.walk(folder):
        path = Path(place)
        if "recipe.yaml" in files:
            yield path
            inside.clear()
        elif len(path.relative_to(folder).parts) >= DEPTH:
            inside.clear()
        inside.sort()


def read_run(run: Path, below: Path = Path()) -> Run:
    """What the recipe and the journal of a run tell."""
    from seqloom.evaluation.comparison import training_from
    from seqloom.settings import read_yaml
    from seqloom.training.journal import read_journal

    try:
        recipe = read_yaml(run / "recipe.yaml")
    except UserError:
        recipe = {}
    journal = run / "journal.jsonl"
    events = [event for event in read_journal(journal) if isinstance(event, Mapping)] if journal.is_file() else []
    ago = time.time() - max(path.stat().st_mtime for path in (run / "recipe.yaml", journal) if path.is_file())
    state = _state(run, events, ago)
    training = training_from(events)
    metric = next((name for name in _metrics(recipe.get("task")) if training.best(name)), None)
    limit = _section(recipe, "training").get("steps")
    name = str(run.relative_to(below)) if run != below else run.name
    return Run(
        folder=str(run),
        name=name,
        task=_word(recipe.get("task")),
        model=_word(_section(recipe, "model").get("kind")),
        state=state,
        steps=training.steps,
        of_steps=limit if isinstance(limit, int) else None,
        metric=metric,
        score=None if metric is None else training.best(metric)[metric],
        seconds_ago=round(ago, 1),
        next=None if state in ("finished", "running") else f"seqloom train {run} --resume",
    )


def _section(recipe: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = recipe.get(name)
    return found if isinstance(found, Mapping) else {}


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _state(run: Path, events: Sequence[Mapping[str, Any]], ago: float) -> str:
    if (run / "model" / "config.json").is_file():
        return "finished"
    times = [event["time"] for event in events if isinstance(event.get("time"), int | float)]
    pauses = [later - earlier for earlier, later in zip(times[-5:], times[-4:], strict=False)]
    stopped = bool(events) and events[-1].get("event") == "stop"
    if not stopped and ago < max([LATELY, *(PAUSES * pause for pause in pauses)]):
        return "running"
    return "interrupted" if events else "failed before step 1"


def _metrics(task: Any) -> list[str]:
    """What models of a task are compared by, the most telling first."""
    from seqloom.cli.stated import attribute
    from seqloom.tasks import TASKS

    if not isinstance(task, str) or task not in TASKS:
        return []
    module, _, kind = TASKS[task].partition(":")
    return attribute(module, kind, "metrics")


def render(found: Sequence[Run], most: int | None) -> str:
    """A table, and below it the commands that go on."""
    from seqloom.layout import hanging, table

    rows = [["name", "task", "model", "state", "steps", "score", "age"]]
    rows += [
        [run.name, run.task or "?", run.model or "?", run.state, _steps(run), _score(run), _age(run.seconds_ago)]
        for run in found
    ]
    commands = [run.next for run in found if run.next is not None]
    go_on = ["\n".join(["Go on with:", *(f"  {command}" for command in commands)])] if commands else []
    return "\n\n".join(["\n".join(table(rows, left=4, width=most, spare=SPARE)), *(hanging(t, most) for t in go_on)])


def _steps(run: Run) -> str:
    if run.steps is None:
        return "–"
    whole = run.of_steps is not None and run.state != "finished"
    return f"{run.steps:,} of {run.of_steps:,}" if whole else f"{run.steps:,}"


def _score(run: Run) -> str:
    from seqloom.evaluation.figures import METRICS

    if run.metric is None or run.score is None:
        return "–"
    return f"{METRICS[run.metric].title} {METRICS[run.metric].show(run.score)}"


def _age(seconds: float) -> str:
    """90 -> '1 min'."""
    for name, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return f"{max(0, int(seconds))} s"
