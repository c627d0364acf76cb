"""An experiment from beginning to end: prepare -> build and fit -> save (`Model.evaluate` measures it)."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import seqloom
from seqloom.corpus.lines import expand_path
from seqloom.errors import UserError
from seqloom.extending import extend
from seqloom.files import write_atomically
from seqloom.folders import FORMAT
from seqloom.model import Model
from seqloom.recipe import load_recipe, recipe_text
from seqloom.tasks import find_task
from seqloom.tasks.base import Fitted, Recipe, Task
from seqloom.training.progress import duration, say


def train(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    run: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    resume: bool = False,
    restart: bool = False,
    more_steps: int | None = None,
) -> Model:
    """Train what the recipe describes and return the finished model, ready to answer.

    Args:
        recipe: path of a YAML file, name of a shipped recipe, mapping, or a run folder to resume.
        run: folder of the run (default: runs/NAME of the recipe).
        overrides: settings to change, such as "training.steps=100".
        resume: go on from the last checkpoint of the run.
        restart: throw away what the run folder holds and begin again.
        more_steps: with `resume`: train a finished run for so many steps more.
    """
    if resume and overrides:
        raise UserError(
            "a resumed run follows its own recipe; --set and --resume do not go together (--more-steps N trains a "
            "finished run further)"
        )
    if more_steps is not None and not resume:
        raise UserError("--more-steps is for a finished run: --resume --more-steps N")
    run = run_folder(recipe, run)
    ranks = _launched()
    leads, talk = ranks is None or ranks.rank == 0, say
    if more_steps is not None and leads:
        say(extend(run, more_steps))
    elif resume and (run / "model" / "config.json").is_file() and more_steps is None:
        return Model.load(run)
    if leads:
        recipe = _recipe_of_run(run, recipe, overrides, resume, restart)

        # prepare
        say(f"preparing {find_task(recipe.task).describe(recipe.data.train)}")
        task = _learned(recipe, run / "text", resume)
        if ranks is not None:
            ranks.wait()
    else:
        ranks.wait()  # for what all start from
        recipe, talk = load_recipe(run / "recipe.yaml"), _silence
        task = find_task(recipe.task).kept(run / "text")

    # build and fit
    fitted = task.fit(recipe, run, resume=resume, ranks=ranks, say=talk)

    # save
    if leads:
        save_model(run / "model", recipe, task, fitted)
    if ranks is not None:
        ranks.wait()  # nobody looks for the model too soon
    talk(f"trained in {duration(fitted.seconds)}; {fitted.size}")
    return Model.load(run)


def rehearse(
    recipe: str | Path | Mapping[str, Any] | Recipe, overrides: Sequence[str] = ()
) -> tuple[str, dict[str, str]]:
    """The whole recipe as YAML, and what its training would take, in words by name; no run is written."""
    parsed = load_recipe(recipe, overrides)
    kind = find_task(parsed.task)
    say(f"preparing {kind.describe(parsed.data.train)}")
    return recipe_text(parsed), kind.learn(parsed, say).rehearse(parsed, say)


def _launched() -> Any:
    """The processes that a launcher such as torchrun started, if one did."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return None
    from seqloom.training.distributed import launched  # with torch, which word vectors do without

    return launched()


def _silence(text: str) -> None:
    """One of the processes that train together talks; this is another."""


def _learned(recipe: Recipe, folder: Path, resume: bool) -> Task:
    """What the task knows of the data before step 1; learned once a run."""
    kind = find_task(recipe.task)
    if resume and folder.is_dir():
        return kind.kept(folder)
    task = kind.begin(recipe, say)
    task.keep(folder)
    return task


def run_folder(recipe: Any, run: str | Path | None) -> Path:
    """Where a run lives: as told; a run folder given as the recipe; else runs/NAME."""
    if run is not None:
        return Path(run)
    if isinstance(recipe, str | Path) and (Path(recipe) / "recipe.yaml").is_file():
        return Path(recipe)
    name = Path(recipe).stem if isinstance(recipe, str | Path) else "unnamed"
    return Path("runs") / name


def _recipe_of_run(run: Path, recipe: Any, overrides: Sequence[str], resume: bool, restart: bool) -> Recipe:
    """The recipe to follow, and the run folder made ready for it; an earlier run is never overwritten unasked."""
    kept = run / "recipe.yaml"
    if resume:
        if not kept.is_file():
            raise UserError(f"{run}: there is no run to resume here")
        return load_recipe(kept)
    parsed = load_recipe(recipe, overrides)
    finished = (run / "model" / "config.json").is_file()
    begun = sorted((run / "checkpoints").glob("*"))
    if (finished or begun) and not restart:
        steps = [int(path.name.removeprefix("step-")) for path in begun if path.name.startswith("step-")]
        unfinished = "an unfinished run" + (f", at step {steps[-1]:,}" if steps else "")
        what = "a finished run" if finished else unfinished
        go_on = "--resume --more-steps N trains it further, " if finished else "--resume goes on with it, "
        raise UserError(f"{run}: holds {what}; {go_on}--restart throws it away, --run DIR uses another folder")
    _check_start(run, parsed)
    _clear(run)
    write_atomically(kept, recipe_text(parsed))
    return parsed


def _check_start(run: Path, recipe: Recipe) -> None:
    """Whether the model that a recipe starts from fits, and is still there when the run's folder is cleared."""
    start = getattr(recipe, "start_from", None)
    place = None if start is None else Path(expand_path(start)).resolve()
    if place is not None and run.resolve() in (place, place.parent):
        raise UserError(f"start_from: {start} is this run itself; --run DIR uses another folder")
    find_task(recipe.task).check_start(recipe)


def _clear(run: Path) -> None:
    for name in ("checkpoints", "model", "text"):
        shutil.rmtree(run / name, ignore_errors=True)
    (run / "journal.jsonl").unlink(missing_ok=True)


def save_model(folder: Path, recipe: Recipe, task: Task, fitted: Fitted) -> None:
    """The model folder of a finished run."""
    config = {
        "format": FORMAT,
        "seqloom": seqloom.__version__,
        "task": recipe.task,
        "model": recipe.model.model_dump(mode="json"),
        "options": recipe.options().model_dump(mode="json"),
        "engines": task.engines(fitted.model),
    }
    task.write(fitted.model, folder, config, model_card(recipe, task, fitted))


def model_card(recipe: Recipe, task: Task, fitted: Fitted) -> str:
    """What a stranger should know before using the model."""
    rows = {
        "task": f"{recipe.task}: {task.about}",
        "model": f"{recipe.model.kind}, {fitted.size}",
        **({"started from": start} if (start := getattr(recipe, "start_from", None)) else {}),
        "trained on": task.describe(recipe.data.train),
        **fitted.card,
        "vocabulary": task.vocabulary(),
        "made with": f"seqloom {seqloom.__version__}, {time.strftime('%Y-%m-%d')}",
    }
    table = "\n".join(f"| {name} | {text} |" for name, text in rows.items())
    return f"""# {recipe.description or "A seqloom model"}

| | |
|---|---|
{table}

It has learned from the data above, its prejudices included, and nothing else: expect it to fail on other kinds of text.

```
{task.next_steps(Path("."), fitted.model)[0]}
```
"""
