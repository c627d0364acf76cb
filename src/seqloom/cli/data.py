"""`seqloom data check`: the data doctor, before step 1."""

from __future__ import annotations

from typing import Annotated, Any

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
    from seqloom.cli.output import emit, note
    from seqloom.corpus.doctor import examine, render, to_json
    from seqloom.errors import UserError
    from seqloom.recipe import load_recipe
    from seqloom.tasks.translate import Translation

    loaded = load_recipe(recipe, overrides)
    if loaded.task == "embed":
        found = _examine_text(loaded)
        emit(found) if format == "json" else print(_rendered(found))
        return
    if loaded.task == "model_language":
        found = _examine_language(loaded)
        emit(found) if format == "json" else print("\n\n".join(map(_rendered, found["texts"])))
        return
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


def _examine_text(recipe: Any) -> dict[str, Any]:
    """Running text: how many lines, words and different words there are, and how many get a vector.

    A file that cannot be read, or a line that is no UTF-8, stops it with file and line.
    """
    from collections import Counter

    from seqloom.corpus.plain import describe, read_lines
    from seqloom.text.counts import words_of
    from seqloom.training.progress import Progress

    s, table, lines, empty = recipe.text, Counter[str](), 0, 0
    with Progress("reading") as bar:
        for line in read_lines(recipe.data.train):
            words = words_of(line, s.split, s.lowercase)
            lines, empty = lines + 1, empty + (not words)
            table.update(words)
            if lines % 10_000 == 0:
                bar.update(None, f"{lines:,} lines")
    kept = [number for number in table.values() if number >= s.min_count]
    total = table.total()
    return {
        "text": describe(recipe.data.train),
        "lines": lines,
        "lines_without_words": empty,
        "words": total,
        "different_words": len(table),
        "words_with_a_vector": min(len(kept), s.max_words or len(kept)),
        "share_of_text_kept": round(sum(kept) / total, 4) if total else 0.0,
    }


def _examine_language(recipe: Any) -> dict[str, Any]:
    """Each text of a language model: how large it is, what of it the vocabulary knows, what training has seen of it."""
    from seqloom.cli.output import note
    from seqloom.corpus.plain import describe, read_lines
    from seqloom.evaluation.language import TextSize
    from seqloom.tasks.model_language import Language

    note("learning the vocabulary to count unknown symbols …")
    data, task = recipe.data, Language.learn(recipe.data.train, recipe.text)
    seen = {hash(line) for line in read_lines(data.train) if len(line.split()) > 4}
    texts = []
    for name, text in {"train": data.train, "valid": data.valid, **data.test}.items():
        size = TextSize.of(read_lines(text))
        unknown, symbols = task.tokenizer.unknown_rate(task.texts(text))
        found: dict[str, Any] = {
            "text": f"{name}: {describe(text)}",
            "lines": size.lines,
            "lines_without_words": sum(not line.split() for line in read_lines(text)),
            "words": size.words - size.lines,
            "characters": size.characters,
            "symbols": symbols,
            "unknown_symbols": unknown,
        }
        if name != "train":
            found["lines_also_in_train"] = sum(hash(line) in seen for line in read_lines(text))
        texts.append(found)
    return {"vocabulary": len(task.tokenizer), "texts": texts}


def _rendered(found: dict[str, Any]) -> str:
    width = max(map(len, found))
    rows = [f"{name.replace('_', ' '):<{width}}  {value:,}" for name, value in found.items() if name != "text"]
    return "\n".join([found["text"], *rows])
