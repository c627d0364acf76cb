"""`seqloom compare`: several models on the same data, in one table and one plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqloom.cli.options import DataFiles, File, Flag

if TYPE_CHECKING:
    from seqloom.cli.contestants import Chosen, Contestant
    from seqloom.evaluation.comparison import Comparison, Entry, Training
    from seqloom.evaluation.figures import Metric
    from seqloom.evaluation.significance import Rescore
    from seqloom.tasks.base import Task


def compare(
    *runs: str,
    test: str | None = None,
    data: DataFiles = (),
    save: File | None = None,
    format: Literal["text", "markdown", "json"] = "text",
    train: Flag = False,
) -> None:
    """Compare models on the same data: quality, size, time, pace, and how each of them learned.

    They are measured on the validation data of their recipes, since comparing is choosing, and what was chosen by a
    test set can no longer be tested on it. Models without validation data, such as word vectors, are measured on all
    test data of their recipes.

    seqloom compare runs/demo runs/demo-transformer --save curves.svg

    Parameters
    ----------
    runs
        Run folders, also unfinished ones, which show what their journal holds; recipes, for their runs in runs/NAME.
    test
        Measure only on this test corpus of the recipes.
    data
        Measure on this data instead, given as for 'seqloom evaluate'.
    save
        Draw the learning curves into this file: .svg, .png or .pdf.
    format
        text: a table, and the curves below it. markdown: a table for a page. json: one object.
    train
        Train the recipes that have no run yet.
    """
    from seqloom.cli.contestants import choose_data, common_task, find_contestants
    from seqloom.cli.output import emit, note, width
    from seqloom.errors import UserError
    from seqloom.layout import hanging

    if not runs:
        raise UserError("nothing to compare: give run folders or recipes")
    if data and test is not None:
        raise UserError("--test names a corpus of the recipes; it does not go together with --data")
    if save is not None:  # before anything that takes time
        from seqloom.inspection.page import checked_path

        checked_path(save)
    contestants = find_contestants(runs, train)
    task = common_task(contestants)
    if save is not None and not task.drawn:
        raise UserError(f"--save draws learning curves, and task {task.name} has none: nothing judges it in training")
    chosen = choose_data(task, contestants, data, test)
    for one in contestants:
        if one.to_train is not None:
            _train(one.to_train, one.place)
    comparison = _compared(task, contestants, chosen)
    if format == "json":
        emit(comparison.to_dict())
    elif format == "markdown":
        print(comparison.markdown())
    else:
        print(comparison.render(width()))
    if format == "text" or save is not None:
        curves = _curves(comparison, contestants, save)
        if save is not None:
            note(f"drawn into {save}")
        elif curves:
            print("\n" + hanging(curves, width()))


def _train(recipe: str, folder: Path) -> None:
    from seqloom.cli.output import note
    from seqloom.cli.stopping import run_to_the_end
    from seqloom.experiment import train

    note(f"training {recipe} into {folder}")
    run_to_the_end(lambda: train(recipe, folder), folder)


# ---------------------------------------------------------------------------------------------------------------------
# How good


NOTES = {"spearman": "ρ: Spearman's rank correlation with what people say."}  # by metric


@dataclass(frozen=True)
class Measured:
    """What a finished model reached. `coverage` is what must be equal for figures to be comparable."""

    figures: dict[str, float]
    metrics: tuple[Metric, ...]
    coverage: dict[str, Any]
    amounts: dict[str, int]
    rescore: dict[str, tuple[Rescore, int]]  # by metric, and of how many examples


def _compared(task: type[Task], contestants: Sequence[Contestant], chosen: Chosen) -> Comparison:
    from seqloom.evaluation.comparison import Comparison, Entry

    data = {name: task.read(corpus) for name, corpus in chosen.corpora.items()}
    found: list[tuple[Contestant, Training, Measured | None]] = []
    for number, one in enumerate(contestants, 1):
        measured = _measured(one, data, f"{one.name} ({number} of {len(contestants)})") if one.finished else None
        found.append((one, _training(one, measured), measured))
    entries = []
    for one, training, measured in found:
        figures = measured.figures if measured is not None else {}
        if measured is None and chosen.is_validation:
            best = training.best(getattr(one.recipe.training, "metric", "loss"))
            figures = {metric.name: best[metric.name] for metric in one.task.metrics if metric.name in best}
        entries.append(Entry(one.name, str(one.place), one.kind, figures, training, one.finished))
    own = [metric for one in contestants for metric in one.task.metrics]
    measured_by = [metric for *_, measured in found if measured is not None for metric in measured.metrics]
    known = {name for entry in entries for name in entry.figures}
    metrics = {metric: None for metric in (*own, *measured_by) if metric.name in known}
    coverage = {one.name: measured.coverage for one, _, measured in found if measured is not None}
    legend = [note for name, note in NOTES.items() if any(metric.name.split(".")[-1] == name for metric in metrics)]
    cut = " and ".join(metric.title for metric in metrics if metric.name in task.per_symbol)
    if cut and len(entries) > 1:
        legend.append(f"Compare {cut} only between models that cut the text into the same symbols.")
    notes = [*legend, *_coverage_notes(coverage), *_unfinished_notes(entries, chosen)]
    return Comparison(
        task.name,
        chosen.description,
        tuple(metrics),
        tuple(entries),
        tuple(notes),
        task.drawn,
        task.per_symbol,
        _tested(metrics, {one.name: measured for one, _, measured in found if measured is not None}),
    )


def _tested(metrics: Iterable[Metric], measured: Mapping[str, Measured]) -> dict[str, dict[str, float]]:
    """By metric, whether each model's distance from the best may be chance, where examples can be drawn anew."""
    from seqloom.evaluation.significance import against_the_best

    tested = {}
    for metric in metrics:
        figures = {name: one.figures[metric.name] for name, one in measured.items() if metric.name in one.figures}
        able = {name: one.rescore[metric.name] for name, one in measured.items() if metric.name in one.rescore}
        if len({count for _, count in able.values()}) == 1:
            count = next(count for _, count in able.values())
            again = {name: rescore for name, (rescore, _) in able.items()}
            tested[metric.name] = against_the_best(metric, figures, again, count)
    return {name: found for name, found in tested.items() if found}


def _training(one: Contestant, measured: Measured | None) -> Training:
    """What the journal holds, and what only the model knows."""
    from seqloom.evaluation.comparison import training_from
    from seqloom.training.journal import read_journal

    journal = one.place / "journal.jsonl"
    training = training_from(read_journal(journal) if one.recipe is not None and journal.is_file() else ())
    amounts: dict[str, Any] = {} if measured is None else measured.amounts
    return replace(training, **{name: n for name, n in amounts.items() if getattr(training, name) is None})


def _measured(one: Contestant, data: Mapping[str, Any], title: str) -> Measured:
    """A model on all data; a figure is named after its data too, where there are several."""
    from seqloom.cli.evaluate import opened, without_weights
    from seqloom.cli.output import note
    from seqloom.training.progress import Progress

    model, why = opened(without_weights(one.model), data)
    if why and not why.startswith("answering on torch"):
        note(f"{title}: {why.split(';')[0]}")
    figures: dict[str, float] = {}
    metrics: list[Metric] = []
    coverage: dict[str, Any] = {}
    rescore: dict[str, tuple[Rescore, int]] = {}
    with Progress(f"measuring {title}") as bar:
        for number, (name, corpus) in enumerate(data.items()):

            def heard(share: float, text: str, done: int = number) -> None:
                bar.update((done + share) / len(data), text)

            report = model.evaluate(corpus, name=name, progress=heard)
            many = len(data) > 1
            for metric in one.task.metrics:
                if metric.name in report.figures:
                    own = replace(metric, name=f"{name}.{metric.name}", title=f"{name} {metric.title}")
                    metrics.append(own if many else metric)
                    figures[metrics[-1].name] = report.figures[metric.name]
                    again = report.rescore(metric.name)
                    if again is not None:
                        rescore[metrics[-1].name] = again, len(report.answers)
            coverage |= {f"{what} of {name}" if many else what: count for what, count in report.coverage.items()}
    return Measured(figures, tuple(metrics), coverage, model.task.amounts(model.network), rescore)


def _coverage_notes(coverage: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Figures over different questions, or with different words unknown, are not to be compared: say so."""
    for what in {key: None for found in coverage.values() for key in found}:
        counts = {name: found[what] for name, found in coverage.items() if what in found}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} {count:,}" for name, count in counts.items())
            yield f"Compare with care, the models do not know the same words: {what}: {listed}."


def _unfinished_notes(entries: Sequence[Entry], chosen: Chosen) -> Iterable[str]:
    if all(entry.finished for entry in entries):
        return
    if not chosen.is_validation:
        yield "Unfinished: there is no model to measure yet."
        return
    yield (
        "Unfinished: the best validation so far, from the journal, which may use a part of the data and a simpler "
        "search; it does not count for the best."
    )


# ---------------------------------------------------------------------------------------------------------------------
# The plot

WIDE = 120  # characters, where no terminal says how many there are


def _curves(comparison: Comparison, contestants: Sequence[Contestant], save: Path | None) -> str:
    """The learning curves drawn into a file, or as text; "" where there is none to show as text."""
    from seqloom.cli.output import width
    from seqloom.errors import UserError
    from seqloom.evaluation.figures import METRICS
    from seqloom.inspection.curves import COLUMNS, Curve, draw_curves
    from seqloom.layout import shortened

    wanted = [getattr(one.recipe.training, "metric", None) for one in contestants if one.recipe is not None]
    followed = comparison.followed(wanted)
    if followed is None:
        if save is None:
            return ""
        raise UserError("there is no learning curve to draw: no journal holds a validation")
    curves, most = [], width() or WIDE
    for entry in comparison.entries:
        learned, final = entry.training.curve(followed), entry.figures.get(followed)
        if entry.training.steps is None:  # counted, not fitted: one figure, at no time
            learned = []
            final = entry.training.best(followed).get(followed, final)
        name = entry.name if entry.finished else f"{entry.name} (unfinished)"
        curves.append(Curve(name if save is not None else shortened(name, most // 3), learned, final))
    metric = METRICS[followed]
    beside = max(len(curve.name) for curve in curves) + len(metric.show(max((c.final or 0.0) for c in curves))) + 4
    return draw_curves(
        curves,
        save,
        measured=metric.title,
        title=f"{metric.title} of {len(curves)} models while they were trained" if len(curves) > 1 else metric.title,
        caption="Lines: validations during training, which may use a part of the data and a simpler search. Figures "
        f"behind the names: {comparison.data}.",
        logarithmic=followed.endswith("perplexity"),
        decimals=metric.decimals,
        columns=max(8, min(COLUMNS, most - beside)),
    )
