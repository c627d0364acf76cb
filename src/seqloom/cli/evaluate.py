"""`seqloom evaluate`: how good a model is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from seqloom.cli.output import Format


def evaluate(
    model: Path,
    /,
    *,
    data: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    test: str | None = None,
    format: Format = "text",
    output: Path | None = None,
    lowercase: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    tokenized: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    engine: Literal["auto", "torch", "ctranslate2"] = "auto",
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)] = (),
) -> None:
    """Measure a model on test data: BLEU, chrF, TER, exact match, by length, by phenomenon, alignment error.

    Without --data the test corpora of the run's recipe are used: the first one, or the one --test names. Word vectors
    are measured on files of analogies and of word pairs: on all of the recipe's, or those that --data names. Language
    models are measured on running text: perplexity a word and bits a character.

    Parameters
    ----------
    model
        A run folder, or a model folder or a folder that 'seqloom export' wrote, with --data.
    data
        Either --data pairs.tsv (or .csv, .jsonl), or --data test.en --data test.de (line by line), or
        --data grammar:en-es/test. Word vectors: one file or several. Language models: a text file or a folder.
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
        A decoding setting, such as --set beam_size=1.
    """
    from seqloom.cli.output import emit, note, output_to
    from seqloom.corpus.readers import read_pairs
    from seqloom.errors import UserError
    from seqloom.evaluation.metrics import looks_tokenized
    from seqloom.export.door import choose
    from seqloom.folders import find_model, is_arpa, is_exported, task_of
    from seqloom.settings import apply_overrides
    from seqloom.training.progress import Progress

    if is_arpa(model) and not data:
        raise UserError(f"{model}: n-grams have no test data of their own; give --data FILE")
    if not is_arpa(model) and not is_exported(model) and task_of(find_model(model)) == "embed":
        if output or lowercase or tokenized or overrides or engine != "auto":
            raise UserError("word vectors are measured with --data, --test and --format only")
        _evaluate_vectors(model, data, test, format)
        return
    if is_arpa(model) or (not is_exported(model) and task_of(find_model(model)) == "model_language"):
        if output or lowercase or tokenized or overrides or engine != "auto":
            raise UserError("language models are measured with --data, --test and --format only")
        _evaluate_language(model, data, test, format)
        return
    corpora = chosen_corpora(model, data, test)
    decoding = apply_overrides({}, overrides)
    read = {name: list(read_pairs(corpus)) for name, corpus in corpora.items()}
    everything = [pair for pairs in read.values() for pair in pairs]
    aligned = any(pair.alignment is not None for pair in everything)
    chosen = choose(model, engine, [pair.source for pair in everything], decoding, aligns=aligned)
    predictor = chosen.model
    if chosen.why:
        note(chosen.why)
    options = {"lowercase": lowercase, "tokenized": tokenized}
    with output_to(output) as out:
        for index, (name, pairs) in enumerate(read.items()):
            if not tokenized and looks_tokenized([pair.target for pair in pairs]):
                note(f"{name}: the references look tokenised already; --tokenized counts their tokens as they are")
            with Progress(f"evaluating {name}") as progress:

                def tell(done: int, total: int = len(pairs), bar: Progress = progress) -> None:
                    bar.update(done / total, f"{done:,} of {total:,}")

                report, answers = predictor.evaluate(pairs, name, tell, options, **decoding)
            if format == "json":
                emit(report.to_dict())
            else:
                print(("\n" if index else "") + report.render())
            if output is not None:
                out.writelines(answer + "\n" for answer in answers)


def _evaluate_vectors(model: Path, data: tuple[str, ...], test: str | None, format: Format) -> None:
    """Word vectors on every file that --data, --test or the recipe names."""
    from seqloom.cli.output import emit
    from seqloom.corpus.lines import expand_path
    from seqloom.errors import UserError, one_of
    from seqloom.evaluation.words import evaluate_file
    from seqloom.folders import find_model
    from seqloom.recipe import load_recipe
    from seqloom.vectors.table import WordVectors

    folder = find_model(model)
    files = list(data)
    if not files:
        recipe = folder.parent / "recipe.yaml"
        named = load_recipe(recipe).data.test if recipe.is_file() else {}
        if not named:
            raise UserError(f"{model}: there is no file to measure it on; give --data FILE (analogies or word pairs)")
        if test not in (None, "all", *named):
            raise UserError(one_of("--test", test, [*named, "all"]))
        files = [path for name, path in named.items() if test in (None, "all", name)]
    elif test is not None:
        raise UserError("--test names a file of the recipe; it does not go together with --data")
    vectors = WordVectors.load(folder)
    for index, path in enumerate(map(expand_path, files)):
        report = evaluate_file(vectors, path)
        if format == "json":
            emit({"file": Path(path).name, **report.to_dict()})
        else:
            print(("\n" if index else "") + report.render(), flush=True)


def _evaluate_language(model: Path, data: tuple[str, ...], test: str | None, format: Format) -> None:
    """A language model on the texts that --data, --test or the recipe names."""
    from seqloom.cli.output import emit
    from seqloom.corpus.plain import PlainTextSettings
    from seqloom.language import LanguageModel
    from seqloom.settings import validated
    from seqloom.training.progress import Progress

    if data and test is None:
        texts = {Path(path).name: validated(PlainTextSettings, {"text": path}, "--data") for path in data}
    else:
        texts = chosen_corpora(model, data, test)
    loaded = LanguageModel.load(model)
    for index, (name, text) in enumerate(texts.items()):
        with Progress(f"reading {name}") as bar:
            report = loaded.evaluate(text, name, lambda share, bar=bar: bar.update(share, ""))  # type: ignore[misc]
        if format == "json":
            emit(report.to_dict())
        else:
            print(("\n" if index else "") + report.render(), flush=True)


def chosen_corpora(model: Path, data: tuple[str, ...], test: str | None) -> dict[str, Any]:
    """Name -> corpus: what --data says, else the test corpora of the run's recipe."""
    from seqloom.errors import UserError, one_of
    from seqloom.folders import find_model, is_exported

    if data:
        if test is not None:
            raise UserError("--test names a corpus of the recipe; it does not go together with --data")
        return {"data": corpus_from(data)}
    run = (model.expanduser().resolve() if is_exported(model) else find_model(model)).parent
    if not (run / "recipe.yaml").is_file():
        raise UserError(f"{model}: a model folder has no test data of its own; give --data FILE")
    from seqloom.recipe import load_recipe  # knows every model, and with them torch

    recipe = load_recipe(run / "recipe.yaml")
    corpora = recipe.data.test or {"valid": recipe.data.valid}
    if test == "all":
        return dict(corpora)
    if test is not None and test not in corpora:
        raise UserError(one_of("--test", test, [*corpora, "all"]))
    name = test or next(iter(corpora))
    return {name: corpora[name]}


def corpus_from(data: tuple[str, ...]) -> Any:
    """`grammar:en-es/test`, one file with columns, or two parallel files -> a corpus."""
    from seqloom.corpus.readers import CorpusSettings
    from seqloom.errors import UserError
    from seqloom.settings import validated

    if len(data) == 1 and data[0].startswith("grammar:"):
        direction, _, split = data[0].removeprefix("grammar:").partition("/")
        return validated(CorpusSettings, {"grammar": direction, "split": split or "test"}, "--data")
    if len(data) == 1:
        return validated(CorpusSettings, {"file": data[0]}, "--data")
    if len(data) == 2:
        return validated(CorpusSettings, {"source": data[0], "target": data[1]}, "--data")
    raise UserError(f"--data takes one file with columns or two parallel files; got {len(data)}")
