"""An experiment from beginning to end: prepare -> build -> fit -> save (`Predictor.evaluate` measures it)."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import seqloom
from seqloom.corpus.plain import PlainTextSettings
from seqloom.corpus.plain import describe as describe_plain
from seqloom.corpus.readers import describe
from seqloom.errors import UserError
from seqloom.files import folder_written_aside, write_atomically
from seqloom.folders import FORMAT, task_of
from seqloom.follower import follow_run
from seqloom.gathering import gathered, launched, prepared
from seqloom.language import LanguageModel
from seqloom.predictor import Predictor
from seqloom.recipe import FittedRecipe, LanguageRecipe, NGramRecipe, Recipe, load_recipe, recipe_text
from seqloom.tasks import TASKS
from seqloom.tasks.contextual import READERS
from seqloom.tasks.count_ngrams import train_ngrams
from seqloom.tasks.embed import train_vectors
from seqloom.training.checkpoints import checkpoints_in, model_tensors, save_tensors
from seqloom.training.loop import Progressed, fit
from seqloom.training.memory import peak_memory
from seqloom.training.progress import duration, say
from seqloom.vectors.table import WordVectors

Trained = Predictor | WordVectors | LanguageModel


def train(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    run: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    resume: bool = False,
    restart: bool = False,
) -> Trained:
    """Train what the recipe describes and return the finished model, ready to answer.

    Args:
        recipe: path of a YAML file, name of a shipped recipe, mapping, or a run folder to resume.
        run: folder of the run (default: runs/NAME of the recipe).
        overrides: settings to change, such as "training.steps=100".
        resume: go on from the last checkpoint of the run.
        restart: throw away what the run folder holds and begin again.
    """
    run, outside = run_folder(recipe, run), launched()
    finished = (run / "model" / "config.json").is_file()
    if outside is not None and outside.rank and not (resume and finished):
        outside.wait()  # for the leader to have written what all start from
        follow_run(run, lambda: outside)
        outside.wait()  # and the model
        return _load(run)
    recipe = _recipe_of_run(run, recipe, overrides, resume, restart)
    if resume and finished:
        return _load(run)
    if recipe.task == "embed":
        return train_vectors(recipe, run, resume=resume)
    assert isinstance(recipe, FittedRecipe | NGramRecipe)
    task_kind = TASKS[recipe.task][0]

    # prepare
    say(f"preparing {_name(recipe.data.train)}")
    if resume and (run / "text").is_dir():
        task = task_kind.load(run / "text")
    else:
        task = task_kind.learn(recipe.data.train, recipe.text, recipe.model)
        with folder_written_aside(run / "text") as folder:
            task.save(folder)
    if isinstance(recipe, NGramRecipe):
        train_ngrams(recipe, run, task)
        return _load(run)
    work, model = prepared(recipe, task, say)
    write_atomically(run / "data.json", json.dumps(work.summary(), indent=2))
    say(work.told())

    # fit
    if outside is not None:
        outside.wait()
    with gathered(recipe, model, work, run, outside) as (team, workers):
        done = fit(model, work, recipe.training, run, resume=resume, team=team, workers=workers, seed=recipe.seed)

    # save
    save_model(run / "model", recipe, task, model, done)
    if outside is not None:
        outside.wait()  # nobody looks for the model too soon
    say(f"trained in {duration(done.seconds)}{_memory(done)}")
    return _load(run)


def _load(run: Path) -> Trained:
    """The finished model of a run."""
    task = task_of(run / "model")
    if task == "embed":
        return WordVectors.load(run / "model")
    return LanguageModel.load(run) if task == "model_language" else Predictor.load(run)


_USES = {
    "translate": 'seqloom predict . "some text"',
    "model_language": 'seqloom generate . --prompt "some text"',
}


def _use(recipe: Recipe) -> str:
    if recipe.model.kind in READERS:
        return 'seqloom look . contexts WORD "a text with the word" "another text with it"'
    return _USES[recipe.task]


def _name(corpus: Any) -> str:
    return describe_plain(corpus) if isinstance(corpus, PlainTextSettings) else describe(corpus)


def _memory(done: Progressed) -> str:
    peak = peak_memory()
    each = f" in each of {done.processes} processes" if done.processes > 1 else ""
    return f", {peak / 2**30:.2f} GB of memory at the most{each}" if peak else ""


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
        if overrides:
            raise UserError("a resumed run follows its own recipe; --set and --resume do not go together")
        return load_recipe(kept)
    parsed = load_recipe(recipe, overrides)
    finished, found = (run / "model" / "config.json").is_file(), checkpoints_in(run)
    begun = any((run / "checkpoints").glob("*"))
    if (finished or begun) and not restart:
        unfinished = "an unfinished run" + (f", at step {found[-1].step:,}" if found else "")
        what = "a finished run" if finished else unfinished
        go_on = "" if finished else "--resume goes on with it, "
        raise UserError(f"{run}: holds {what}; {go_on}--restart throws it away, --run DIR uses another folder")
    _clear(run)
    write_atomically(kept, recipe_text(parsed))
    return parsed


def _clear(run: Path) -> None:
    for name in ("checkpoints", "model", "text"):
        shutil.rmtree(run / name, ignore_errors=True)
    (run / "journal.jsonl").unlink(missing_ok=True)


def save_model(folder: Path, recipe: FittedRecipe, task: Any, model: torch.nn.Module, done: Progressed) -> None:
    """The model folder: all that turns raw text into an answer, and nothing that executes."""
    config = {
        "format": FORMAT,
        "seqloom": seqloom.__version__,
        "task": recipe.task,
        "model": recipe.model.model_dump(mode="json"),
        "decoding": recipe.decoding.model_dump(mode="json"),
        "symbols": task.symbols(),
    }
    if isinstance(recipe, LanguageRecipe):
        config |= {"batching": recipe.training.batching, "predict": recipe.training.predict}
    with folder_written_aside(folder) as aside:
        task.save(aside)
        save_tensors(aside / "model.safetensors", model_tensors(model))
        (aside / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
        (aside / "README.md").write_text(model_card(recipe, task, model, done), encoding="utf-8")


def model_card(recipe: Recipe, task: Any, model: torch.nn.Module, done: Progressed) -> str:
    """What a stranger should know before using the model."""
    parameters = sum(weight.numel() for weight in model.parameters())
    which = f"mean of the last {done.averaged} checkpoints" if done.averaged else f"weights of step {done.best_step:,}"
    best = "" if done.best is None else f"{recipe.training.metric} {done.best:.4g} on {_name(recipe.data.valid)}"
    return f"""# {recipe.description or "A seqloom model"}

| | |
|---|---|
| task | {recipe.task} |
| model | {recipe.model.kind}, {parameters:,} parameters |
| trained on | {_name(recipe.data.train)} |
| training | {done.step:,} steps, {done.seconds / 60:.1f} minutes, {which} |
| validation | {best} |
| vocabulary | {task.describe_vocabulary()} ({recipe.text.tokenizer}) |
| made with | seqloom {seqloom.__version__}, {time.strftime("%Y-%m-%d")} |

It has learned from the data above and nothing else: expect it to fail on other kinds of text.

```
{_use(recipe)}
```
"""
