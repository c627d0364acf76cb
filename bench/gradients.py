"""Gradients through time, and how far back each cell learns to remember.

    python -m bench.gradients [--quick] [--cells elman,gru,lstm] [--write] [--runs runs/gradients]

Trains the recipes of `recipes/gradients` (a finished run is not trained again) and draws how far back their losses
reach, before and after training, into docs/images/gradients.svg. Then recall-at-distance: for every cell the longest
lag at which it recalls a key (99 % of the validation lines), within a fixed number of updates, at the best of a few
learning rates; trained on lines of that lag, on lines of all lags up to it, and with gates that start with memories of
that length. Prints two tables and one JSON object.

Every training that has ended is kept in the folder of the runs: started again, the bench goes on where it was stopped.
After a change of the code, begin with another folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bench.machine import describe_machine
from bench.report import section, table, write_section
from seqloom.corpus.plain import PlainTextSettings
from seqloom.errors import RunError
from seqloom.experiment import train
from seqloom.files import write_atomically
from seqloom.inspection.gradients import Gradients, draw_gradients, factor_a_step
from seqloom.model import Model
from seqloom.recipe import load_recipe
from seqloom.tasks import find_task
from seqloom.training.journal import read_journal
from seqloom.training.loop import Validation, fit

IMAGE = Path(__file__).resolve().parents[1] / "docs" / "images" / "gradients.svg"
RECIPES = ("elman", "elman-large", "elman-large-unclipped", "gru", "lstm")
DRAWN = ("elman", "elman-large", "gru", "lstm")
AT_THE_START = "recall:50/valid"  # longer lines than those of training: what no weight has learned needs no right lag

CELLS = ("elman", "gru", "lstm", "lstm_peephole", "lstm_coupled")
MIXED = ("elman", "gru", "lstm")  # also trained on lines of all lags up to the one that is asked for
STARTED = ("gru", "lstm")  # also with gates that start with memories of up to the lag (model.remember)
LAGS = (2, 5, 7, 10, 20, 35, 50, 100)
RATES = (0.003, 0.001, 0.01)  # the likeliest first: the first that learns ends the search
UPDATES, ROWS = 2000, 64
LEARNED = 99.0
GIVE_UP = 2  # lags in a row that are not learned


# -- the recipes ------------------------------------------------------------------------------------------------------


def measured(name: str, runs: Path, quick: bool) -> tuple[dict[str, Any], Gradients, Gradients]:
    """Train one recipe, unless done: its figures, and its gradients before and after."""
    run = runs / name
    if not (run / "model" / "config.json").is_file():
        overrides = ["training.steps=40", "training.validate_every=20"] if quick else []
        train(f"gradients/{name}", run, overrides=overrides, resume=(run / "recipe.yaml").is_file())
    model = Model.load(run)
    recipe: Any = model.recipe()
    how: dict[str, Any] = {"steps": 60, "count": 32 if quick else 256, "name": name}
    before = model.task.gradients(model.fresh(), None, PlainTextSettings(text=AT_THE_START, limit=500), **how)
    after = model.task.gradients(model.network, None, recipe.data.valid, **how)
    events = list(read_journal(run / "journal.jsonl"))
    norms = [event["gradient_norm"] for event in events if event["event"] == "train"]
    report = model.evaluate(recipe.data.valid, name="valid")
    found = {
        "accuracy": round(report.figures["accuracy"], 1),
        "text": recipe.data.train.text,
        "clip_norm": recipe.training.clip_norm,
        "largest_gradient": max(norms, default=None),
        "a_step_before": _factors(before),
        "a_step_after": _factors(after),
        "radius_before": round(max(matrix.radius for matrix in before.matrices), 2),
        "radius_after": round(max(matrix.radius for matrix in after.matrices), 2),
        "seconds": round([e["seconds"] for e in events if e["event"] == "validation"][-1], 1),
    }
    return found, before, after


def _factors(found: Gradients) -> dict[str, float]:
    return {name: round(factor_a_step(norms), 3) for name, norms in found.own().items()}


def recipe_rows(results: dict[str, dict[str, Any]]) -> str:
    def factors(of: dict[str, float]) -> str:
        return " / ".join(f"{value:.3f}" for value in of.values())

    return table(
        ["recipe", "text", "clipped at", "accuracy", "× a step, before", "after", "radius, before", "after"],
        [
            [
                name,
                row["text"].removesuffix("/train"),
                "–" if row["clip_norm"] is None else f"{row['clip_norm']:g}",
                f"{row['accuracy']:.1f} %",
                factors(row["a_step_before"]),
                factors(row["a_step_after"]),
                f"{row['radius_before']:.2f}",
                f"{row['radius_after']:.2f}",
            ]
            for name, row in results.items()
        ],
    )


# -- recall at distance -----------------------------------------------------------------------------------------------


class Learned(Exception):
    """The lag is learned; there is no need to go on."""


class UntilLearned:
    """A task's work, which ends as soon as the key is recalled."""

    def __init__(self, work: Any) -> None:
        self.work, self.best = work, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.work, name)

    def validate(self, model: Any, *, final: bool = False) -> Validation:
        found: Validation = self.work.validate(model, final=final)
        self.best = max(self.best, found.metrics["accuracy"])
        if found.metrics["accuracy"] >= LEARNED:
            raise Learned
        return found


class Kind(NamedTuple):
    """What is asked how far it remembers."""

    cell: str
    mixed: bool = False
    started: bool = False

    def __str__(self) -> str:
        mixed = ", lines of all lags up to it" if self.mixed else ""
        return self.cell + mixed + (", gates started for it" if self.started else "")

    def text(self, lag: int) -> str:
        return f"recall:1-{lag}" if self.mixed else f"recall:{lag}"


def tried(kind: Kind, lag: int, rate: float, updates: int) -> dict[str, Any]:
    """One training: the best accuracy on lines of this lag, and how long it took."""
    recipe = load_recipe(
        "gradients/elman",
        [
            f"model.cell={kind.cell}",
            f"model.remember={max(3, lag + 2) if kind.started else 'null'}",
            f"data.train.text={kind.text(lag)}/train",
            f"data.valid.text=recall:{lag}/valid",
            f"training.batch_tokens={ROWS * (lag + 4)}",
            f"training.learning_rate={rate}",
            f"training.steps={updates}",
        ],
    )
    torch.set_num_threads(1)
    task: Any = find_task(recipe.task).learn(recipe, lambda text: None)
    plain, model = task.prepare(recipe)
    work, began = UntilLearned(plain), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            fit(model, work, recipe.training, Path(folder), seed=recipe.seed)
        except Learned:
            pass
        except RunError as error:  # numbers that left the finite range
            print(f"{kind}: lag {lag}, rate {rate}: {error}", file=sys.stderr)
    return {"rate": rate, "accuracy": round(work.best, 1), "seconds": round(time.perf_counter() - began, 1)}


class Attempts:
    """Trainings by what they were, in a file, so that none is made twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else {}

    def __call__(self, kind: Kind, lag: int, rate: float, updates: int) -> dict[str, Any]:
        name = f"{kind}: {lag}, rate {rate}, {updates} updates"
        if name not in self.known:
            self.known[name] = tried(kind, lag, rate, updates)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, json.dumps(self.known, indent=1))
        print(f"== {name}: {self.known[name]}", file=sys.stderr, flush=True)
        return self.known[name]


def reach(kind: Kind, lags: Sequence[int], rates: Sequence[float], updates: int, attempts: Attempts) -> dict[str, Any]:
    """Lag -> the first training that learned it, or the best one; and the longest lag that was learned."""
    found: dict[int, dict[str, Any]] = {}
    for lag in lags:
        for rate in rates:
            attempt = attempts(kind, lag, rate, updates)
            if lag not in found or attempt["accuracy"] > found[lag]["accuracy"]:
                found[lag] = attempt
            if attempt["accuracy"] >= LEARNED:
                break
        if len(found) >= GIVE_UP and all(row["accuracy"] < LEARNED for row in list(found.values())[-GIVE_UP:]):
            break
    learned = [lag for lag, row in found.items() if row["accuracy"] >= LEARNED]
    return {"longest": max(learned, default=0), "lags": found}


def reach_rows(results: dict[str, dict[str, Any]], lags: Sequence[int]) -> str:
    def shown(row: dict[str, Any] | None) -> str:
        return (
            ""
            if row is None
            else f"**{row['accuracy']:.0f}**"
            if row["accuracy"] >= LEARNED
            else f"{row['accuracy']:.0f}"
        )

    rows = [
        [name, str(row["longest"]), *(shown(row["lags"].get(lag)) for lag in lags)] for name, row in results.items()
    ]
    return table(["cell", "longest lag learned", *(f"{lag}" for lag in lags)], rows)


ABOUT_RECIPES = (
    "A step back multiplies the gradient by that much, in the median of all steps: of the hidden state, and of the "
    "memory cell where there is one. Radius: the largest spectral radius of a matrix from state to state."
)


def _about_reach(rates: Sequence[float], updates: int) -> str:
    return (
        f"Accuracy in percent on lines of each lag, after at most {updates:,} updates of {ROWS} lines, 64 units, Adam "
        f"at the best of {', '.join(map(str, rates))}; after {GIVE_UP} lags in a row that are not learned, no longer "
        "one is tried:"
    )


# -- both -------------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="few steps, cells and lags: checks the bench, not the cells"
    )
    parser.add_argument("--cells", help=f"whose memory is measured (default: {','.join(CELLS)}; quick: elman,lstm)")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/results.md")
    parser.add_argument("--runs", type=Path, default=Path("runs/gradients"))
    parser.add_argument("--image", type=Path, default=IMAGE)
    options = parser.parse_args()
    quick, runs = options.quick, options.runs / "quick" if options.quick else options.runs
    results, before, after = {}, {}, {}
    for name in RECIPES:
        print(f"== {name}", file=sys.stderr, flush=True)
        results[name], before[name], after[name] = measured(name, runs, quick)
    lags = (2, 5) if quick else LAGS
    cells = (options.cells or ("elman,lstm" if quick else ",".join(CELLS))).split(",")
    if unknown := sorted(set(cells) - set(CELLS)):
        parser.error(f"--cells: {unknown[0]} is none of {', '.join(CELLS)}")
    kinds = [Kind(cell) for cell in cells]
    kinds += [Kind(cell, started=True) for cell in cells if cell in STARTED]
    kinds += [Kind(cell, mixed=True) for cell in cells if cell in MIXED and not quick]
    kept = runs / "attempts.json"
    if quick:
        kept.unlink(missing_ok=True)  # what checks the bench must run
    reached, attempts = {}, Attempts(kept)
    for kind in kinds:
        rates, updates = (RATES[:1], 60) if quick else (RATES, UPDATES)
        reached[str(kind)] = reach(kind, lags, rates, updates, attempts)
    body = "\n\n".join([recipe_rows(results), ABOUT_RECIPES, _about_reach(rates, updates), reach_rows(reached, lags)])
    print(body)
    if not quick:
        options.image.parent.mkdir(parents=True, exist_ok=True)
    draw_gradients(
        [after[name] for name in DRAWN],
        options.image if not quick else runs / "gradients.svg",
        title="How far back a loss reaches",
        beside=("before training", [before[name] for name in DRAWN]),
    )
    if options.write:
        write_section("gradients", section("Gradients through time", describe_machine(), body))
    print(json.dumps({"bench": "gradients", "quick": quick, "recipes": results, "recall_at_distance": reached}))


if __name__ == "__main__":
    main()
