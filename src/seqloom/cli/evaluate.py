"""`seqloom evaluate`: how good a model is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqloom.cli.options import DataFiles, File, Flag, Overrides
from seqloom.cli.output import Format
from seqloom.errors import UserError

if TYPE_CHECKING:
    from seqloom.model import Model

EngineName = Literal["auto", "torch", "ctranslate2"]


def evaluate(
    model: Path,
    /,
    *,
    data: DataFiles = (),
    test: str | None = None,
    format: Format = "text",
    output: File | None = None,
    lowercase: Flag = False,
    tokenized: Flag = False,
    engine: EngineName = "auto",
    overrides: Overrides = (),
) -> None:
    """Measure a model on test data.

    What is measured depends on the model's task ('seqloom list tasks' names its metrics); where the task knows simple
    methods, what they reach on the same data stands beside.

    Without --data the test corpora of the run's recipe are used: the one --test names, else the first one, for word
    vectors all of them.

    Parameters
    ----------
    model
        A run folder; or, with --data, a model folder, a folder that 'seqloom export' wrote, an ARPA file, a file of
        word vectors.
    data
        Examples: --data pairs.tsv (or .csv, .jsonl), or --data test.en --data test.de (line by line), or --data
        grammar:en-es/test. Language models: text files or folders. Word vectors: files of analogies or of word pairs.
    test
        Name of a test corpus of the recipe, or `all`.
    format
        text: a report. json: one object a corpus.
    output
        File for the model's answers, a line each.
    lowercase
        Ignore case.
    tokenized
        The texts are tokenised already: count the tokens as they are.
    engine
        What computes: auto takes CTranslate2 for Transformers where it is at hand and gives the same answers, but torch
        where alignments are measured.
    overrides
        An option of the model, such as --set beam_size=1.
    """
    from seqloom.cli.output import emit, note, output_to, width
    from seqloom.evaluation.metrics import looks_tokenized
    from seqloom.layout import hanging
    from seqloom.settings import apply_overrides
    from seqloom.training.progress import Progress

    described = without_weights(model)
    described.require("evaluate")
    taken = described.task.report_options
    given = {"lowercase": lowercase, "tokenized": tokenized, "output": output is not None, "engine": engine != "auto"}
    given["decoding"] = bool(overrides)
    refuse([OPTIONS[name] for name, is_given in given.items() if is_given and name not in taken], described)
    corpora = described.corpora(data, test)
    options = apply_overrides({}, overrides)
    how = {name: True for name in ("lowercase", "tokenized") if given[name]}
    read_data = {name: described.task.read(corpus) for name, corpus in corpora.items()}
    loaded, why = opened(described, read_data, engine, options)
    if why:
        note(why)
    with output_to(output) as out:
        for index, (name, corpus) in enumerate(read_data.items()):
            if "tokenized" in taken and not tokenized and looks_tokenized([pair.target for pair in corpus]):
                note(f"{name}: the references look tokenised already; --tokenized counts their tokens as they are")
            with Progress(f"evaluating {name}") as bar:
                report = loaded.evaluate(corpus, name=name, progress=bar.update, how=how, baselines=True, **options)
            if format == "json":
                emit({"data": described.task.describe(corpora[name]), **report.to_dict()})
            else:
                print(("\n" if index else "") + hanging(report.render(), width()), flush=True)
            if output is not None:
                out.writelines(answer + "\n" for answer in report.answers)


OPTIONS = {
    "lowercase": "--lowercase",
    "tokenized": "--tokenized",
    "decoding": "--set",
    "output": "--output",
    "engine": "--engine",
}
"""The name of a report option on the command line."""


def refuse(options: list[str], model: Model) -> None:
    """Somebody who gives an option expects something of it: one without any effect is an error."""
    if options:
        raise UserError(f"{model.folder}: evaluate takes no {' and no '.join(options)} for {model.task.kind}")


def without_weights(path: str | Path) -> Model:
    """The model at a path as far as its folder describes it: what it can do, and what it is measured on.

    What is no folder of ours is opened as a whole.
    """
    from seqloom.folders import find_model, is_exported, read_config
    from seqloom.model import Model, load
    from seqloom.tasks import find_task

    if is_exported(path) or Path(path).expanduser().is_file():
        return load(path)
    folder = find_model(path)
    config = read_config(folder)
    return Model(folder, find_task(config.get("task"), f"{folder}/config.json"), None, None, config)


def opened(
    described: Model, data: Mapping[str, Any], engine: EngineName = "auto", options: Mapping[str, Any] | None = None
) -> tuple[Model, str | None]:
    """The model on the engine that suits the data, and why it is that one where there was a choice."""
    from seqloom.export.engines import choose

    if described.network is not None and engine == "auto":
        return described, None
    pairs = [pair for examples in data.values() if isinstance(examples, list) for pair in examples]
    aligned = any(getattr(pair, "alignment", None) is not None for pair in pairs)
    return choose(described.folder, engine, [pair.source for pair in pairs], options, aligns=aligned)
