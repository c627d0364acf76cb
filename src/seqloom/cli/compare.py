"""`seqloom compare`: several models on the same data, in one table and one plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from seqloom.cli.contestants import Chosen, Contestant
    from seqloom.evaluation.comparison import Comparison, Entry, Metric, Training


def compare(
    *runs: str,
    test: str | None = None,
    data: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    save: Path | None = None,
    format: Literal["text", "markdown", "json"] = "text",
    train: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> None:
    """Compare models on the same data: quality, size, time, pace, and how each of them learned.

    They are measured on the validation data of their recipes, since comparing is choosing, and what was chosen by a
    test set can no longer be tested on it. Word vectors are measured on the files of their recipes.

    seqloom compare runs/demo runs/demo-transformer --save curves.svg

    Parameters
    ----------
    runs
        Run folders, also unfinished ones, which show what their journal says; recipes, for their runs in runs/NAME.
    test
        Measure on this test corpus of the recipes instead; word vectors: only on this file.
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
    from seqloom.cli.output import emit, note
    from seqloom.errors import UserError

    if not runs:
        raise UserError("nothing to compare: give run folders or recipes")
    if data and test is not None:
        raise UserError("--test names a corpus of the recipes; it does not go together with --data")
    if save is not None:  # before anything that takes time
        from seqloom.inspection.page import checked_path

        checked_path(save)
    contestants = find_contestants(runs, train)
    task = common_task(contestants)
    if save is not None and task == "embed":
        raise UserError("--save draws learning curves, and word vectors have none: nothing judges them in training")
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
        print(comparison.render())
    if format == "text" or save is not None:
        curves = _curves(comparison, contestants, chosen, save)
        if save is not None:
            note(f"drawn into {save}")
        elif curves:
            print("\n" + curves)


def _train(recipe: str, folder: Path) -> None:
    from seqloom.cli.output import note
    from seqloom.cli.stopping import run_to_the_end
    from seqloom.experiment import train

    note(f"training {recipe} into {folder}")
    run_to_the_end(lambda: train(recipe, folder), folder)


# ---------------------------------------------------------------------------------------------------------------------
# How good


@dataclass(frozen=True)
class Measured:
    """What a finished model reached. `coverage` is by metric what must be equal for figures to be comparable."""

    figures: dict[str, float]
    metrics: tuple[Metric, ...]
    coverage: dict[str, Any]
    ngrams: int | None = None
    parameters: int | None = None


def _compared(task: str, contestants: Sequence[Contestant], chosen: Chosen) -> Comparison:
    from seqloom.evaluation.comparison import METRICS_OF, Comparison, Entry

    found: list[tuple[Contestant, Training, Measured | None]] = []
    for number, one in enumerate(contestants, 1):
        title = f"{one.name} ({number} of {len(contestants)})"
        measured = _MEASURES[task](one.model, chosen.corpus, title) if one.finished else None
        found.append((one, _training(one, measured), measured))
    known = [measured.metrics for _, _, measured in found if measured is not None]
    metrics = known[0] if known else METRICS_OF.get(task, ())
    entries = []
    for one, training, measured in found:
        figures = measured.figures if measured is not None else {}
        if measured is None and chosen.is_validation:
            decides = getattr(one.recipe.training, "metric", "loss")
            best = training.best(decides)
            figures = {metric.name: best[metric.name] for metric in metrics if metric.name in best}
        entries.append(Entry(one.name, str(one.place), _kind(one), figures, training, one.finished))
    kept = tuple(metric for metric in metrics if any(metric.name in entry.figures for entry in entries))
    coverage = {one.name: measured.coverage for one, _, measured in found if measured is not None}
    agreement = ["ρ: Spearman's rank correlation with what people say."] if task == "embed" else []
    notes = [*agreement, *_coverage_notes(coverage), *_unfinished_notes(task, entries, chosen)]
    return Comparison(task, chosen.told, kept, tuple(entries), tuple(notes))


def _training(one: Contestant, measured: Measured | None) -> Training:
    """What the journal says, and what only the model can tell."""
    from seqloom.evaluation.comparison import training_from
    from seqloom.training.journal import read_journal

    journal = one.place / "journal.jsonl"
    training = training_from(read_journal(journal) if one.recipe is not None and journal.is_file() else ())
    if measured is not None and training.parameters is None:
        training = replace(training, parameters=measured.parameters)
    if measured is not None and training.ngrams is None:
        training = replace(training, ngrams=measured.ngrams)
    return training


def _kind(one: Contestant) -> str:
    from seqloom.files import read_json

    if one.recipe is not None:
        return str(one.recipe.model.kind)
    return str(read_json(one.model / "config.json")["model"].get("kind", "unknown"))


def _translations(model: Path, corpus: Any, title: str) -> Measured:
    from seqloom.cli.output import note
    from seqloom.corpus.readers import read_pairs
    from seqloom.evaluation.comparison import METRICS_OF
    from seqloom.export.door import choose
    from seqloom.training.progress import Progress

    pairs = list(read_pairs(corpus))
    aligned = any(pair.alignment is not None for pair in pairs)
    chosen = choose(model, "auto", [pair.source for pair in pairs], aligns=aligned)
    if chosen.why and not chosen.why.startswith("answering on torch"):
        note(f"{title}: {chosen.why.split(';')[0]}")
    with Progress(f"translating with {title}") as bar:
        report, _ = chosen.model.evaluate(
            pairs, title, lambda done: bar.update(done / max(1, len(pairs)), f"{done:,} of {len(pairs):,}")
        )
    metrics = METRICS_OF["translate"]
    figures = {metric.name: report.scores[metric.name] for metric in metrics if metric.name in report.scores}
    return Measured(figures, metrics, {}, parameters=_count_parameters(model / "model.safetensors"))


def _texts(model: Path, corpus: Any, title: str) -> Measured:
    from seqloom.evaluation.comparison import METRICS_OF
    from seqloom.export.door import load
    from seqloom.training.progress import Progress

    loaded: Any = load(model)
    with Progress(f"reading with {title}") as bar:
        report = loaded.evaluate(corpus, title, lambda share: bar.update(share, ""))
    metrics = METRICS_OF["model_language"]
    figures = {metric.name: getattr(report, metric.name) for metric in metrics}
    ngrams = getattr(getattr(loaded, "model", None), "num_ngrams", None)
    count = None if ngrams is None else sum(ngrams())
    weights = model / "model.safetensors"
    parameters = _count_parameters(weights) if count is None and weights.is_file() else None
    return Measured(figures, metrics, {"unknown words": report.unknown}, ngrams=count, parameters=parameters)


def _vectors(model: Path, files: Mapping[str, str], title: str) -> Measured:
    from seqloom.corpus.lines import expand_path
    from seqloom.evaluation.comparison import Metric
    from seqloom.evaluation.words import TITLES, AnalogyReport, evaluate_file
    from seqloom.training.progress import Progress
    from seqloom.vectors.table import WordVectors

    vectors = WordVectors.load(model)
    figures: dict[str, float] = {}
    metrics: list[Metric] = []
    coverage: dict[str, Any] = {}
    with Progress(f"asking {title}") as bar:
        for number, (name, path) in enumerate(files.items()):
            bar.update(number / len(files), name)
            report = evaluate_file(vectors, expand_path(path))
            if isinstance(report, AnalogyReport):
                coverage[f"questions of {name}"] = report.all.asked
                scores: dict[str, float | None] = {method: report.all.accuracy(method) for method in report.methods}
                metrics += [Metric(f"{name}.{key}", f"{name} {TITLES[key]}", "higher", 2) for key in report.methods]
            else:
                coverage[f"pairs of {name}"] = report.compared
                scores = {"spearman": report.spearman}
                metrics.append(Metric(f"{name}.spearman", f"{name} ρ", "higher", 4))
            figures |= {f"{name}.{key}": score for key, score in scores.items() if score is not None}
    pieces = 0 if vectors.buckets is None else len(vectors.buckets)
    return Measured(figures, tuple(metrics), coverage, parameters=(len(vectors) + pieces) * vectors.size)


_MEASURES: dict[str, Any] = {"translate": _translations, "model_language": _texts, "embed": _vectors}


def _count_parameters(path: Path) -> int:
    """From the head of the file alone; tied weights are kept once."""
    import math

    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118


def _coverage_notes(coverage: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Figures over different questions, or with different words unknown, are not to be compared: say so."""
    for what in {key: None for found in coverage.values() for key in found}:
        counts = {name: found[what] for name, found in coverage.items() if what in found}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} {count:,}" for name, count in counts.items())
            yield f"Compare with care, the models do not know the same words: {what}: {listed}."


def _unfinished_notes(task: str, entries: Sequence[Entry], chosen: Chosen) -> Iterable[str]:
    if all(entry.finished for entry in entries):
        return
    if not chosen.is_validation:
        yield "Unfinished: there is no model to measure yet."
        return
    how = " (there, a part of the sentences is translated greedily)" if task == "translate" else ""
    yield f"Unfinished: the best validation so far, from the journal{how}; it does not count for the best."


# ---------------------------------------------------------------------------------------------------------------------
# The plot


def _curves(comparison: Comparison, contestants: Sequence[Contestant], chosen: Chosen, save: Path | None) -> str:
    """The learning curves drawn into a file, or as text; "" where there is none to show as text."""
    from seqloom.errors import UserError
    from seqloom.evaluation.comparison import METRICS_OF
    from seqloom.evaluation.report import TITLES
    from seqloom.inspection.curves import Curve, draw_curves

    wanted = [getattr(one.recipe.training, "metric", None) for one in contestants if one.recipe is not None]
    metric = comparison.drawn(wanted)
    if metric is None:
        if save is None:
            return ""
        raise UserError("there is no learning curve to draw: no journal holds a validation")
    curves = []
    for entry in comparison.entries:
        learned, final = entry.training.curve(metric), entry.figures.get(metric)
        if entry.training.steps is None:  # counted, not fitted: one figure, at no time
            learned = []
            final = entry.training.best(metric).get(metric, final)
        curves.append(Curve(entry.name if entry.finished else f"{entry.name} (unfinished)", learned, final))
    known = {found.name: found for found in METRICS_OF[comparison.task]}
    title = known[metric].title if metric in known else TITLES.get(metric, metric)
    sampled = ", where a part of the sentences is translated greedily" if comparison.task == "translate" else ""
    caption = f"Lines: validations during training{sampled}. Figures behind the names: {comparison.data}."
    return draw_curves(
        curves,
        save,
        measured=title,
        title=f"{title} of {len(curves)} models while they were trained" if len(curves) > 1 else title,
        caption=caption,
        logarithmic=metric == "perplexity",
        decimals=known[metric].decimals if metric in known else 3,
    )
