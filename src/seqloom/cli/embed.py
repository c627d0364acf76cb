"""`seqloom embed`: train word vectors, compare words, convert and measure vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from seqloom.cli.options import Number
from seqloom.cli.output import Format
from seqloom.cli.train import train

app = App(
    name="embed", help="Train word vectors, compare words, convert and measure vectors.", group_parameters="Options"
)
app.command(train, usage="Usage: seqloom embed train RECIPE [OPTIONS]")


@app.command(usage="Usage: seqloom embed neighbours MODEL WORD… [OPTIONS]")
def neighbours(model: Path, /, *words: str, count: int = 10, limit: Number = None, format: Format = "text") -> None:
    """Show the words whose vectors are most similar to a word's.

    Parameters
    ----------
    model
        A model or run folder of task embed, or a file of word2vec, GloVe or fastText vectors.
    words
        One or more words. Unknown words are made of their pieces where the vectors have any.
    count
        How many neighbours.
    limit
        Read only the first so many words of a file.
    format
        text: a line a neighbour. json: one object a word.
    """
    from seqloom.cli.output import emit, strong
    from seqloom.errors import UserError

    if not words:
        raise UserError("name at least one word, such as: seqloom embed neighbours MODEL king")
    vectors = _open(model, limit)
    for index, word in enumerate(words):
        spelled = vectors.spelled(word)
        found = vectors.neighbours(spelled, count)
        if format == "json":
            emit({"word": word, "known": spelled in vectors, "neighbours": _listed(found)})
            continue
        if len(words) > 1:
            print(("\n" if index else "") + strong(word))
        _print(found)


@app.command(usage="Usage: seqloom embed analogy MODEL A B C [OPTIONS]")
def analogy(
    model: Path,
    a: str,
    b: str,
    c: str,
    /,
    *,
    method: Literal["add", "multiply"] = "add",
    count: int = 5,
    limit: Number = None,
    format: Format = "text",
) -> None:
    """A is to B as C is to what?

    Parameters
    ----------
    model
        A model or run folder of task embed, or a file of word2vec, GloVe or fastText vectors.
    a
        As man in: man is to woman as king is to queen.
    b
        As woman.
    c
        As king.
    method
        add: nearest to b - a + c (3CosAdd). multiply: no single similarity outweighs the others (3CosMul).
    count
        How many answers.
    limit
        Read only the first so many words of a file.
    format
        text: a line an answer. json: one object.
    """
    from seqloom.cli.output import emit

    vectors = _open(model, limit)
    found = vectors.analogy(*map(vectors.spelled, (a, b, c)), count, method)
    if format == "json":
        emit({"a": a, "b": b, "c": c, "method": method, "answers": _listed(found)})
    else:
        _print(found)


@app.command(usage="Usage: seqloom embed similarity MODEL A B [OPTIONS]")
def similarity(model: Path, a: str, b: str, /, *, limit: Number = None, format: Format = "text") -> None:
    """Show how similar two words are: the cosine of their vectors, from -1 to 1.

    Parameters
    ----------
    model
        A model or run folder of task embed, or a file of word2vec, GloVe or fastText vectors.
    a
        A word.
    b
        Another word.
    limit
        Read only the first so many words of a file.
    format
        text: the number. json: one object.
    """
    from seqloom.cli.output import emit

    vectors = _open(model, limit)
    found = vectors.similarity(*map(vectors.spelled, (a, b)))
    if format == "json":
        emit({"a": a, "b": b, "similarity": found})
    else:
        print(f"{found:.4f}")


@app.command(usage="Usage: seqloom embed convert MODEL FILE --to KIND [OPTIONS]")
def convert(
    model: Path,
    file: Path,
    /,
    *,
    to: Literal["word2vec", "word2vec-binary", "glove", "fasttext"],
    limit: Number = None,
    format: Format = "text",
) -> None:
    """Write vectors to a file that word2vec, gensim, GloVe or fastText read.

    Parameters
    ----------
    model
        A model or run folder of task embed, or a file of word2vec, GloVe or fastText vectors.
    file
        The file to write; one that exists is replaced.
    to
        word2vec: text with a header line. word2vec-binary: smaller. glove: text without a header. fasttext: .vec, the
        same text as word2vec's.
    limit
        Only the first so many words.
    format
        text: a sentence. json: one object.
    """
    from seqloom.cli.output import emit, note
    from seqloom.vectors.formats import write_vectors

    vectors = _open(model, limit)
    if limit is not None and len(vectors) > limit:  # a folder is read whole
        vectors = vectors.most_frequent(limit)
    if vectors.subwords is not None:
        note(f"{to} files hold words only: the vectors of word pieces are left out, and with them unknown words")
    write_vectors(vectors, file, to)
    if format == "json":
        emit({"file": str(file), "to": to, "words": len(vectors), "size": vectors.size})
    else:
        print(f"{file}: {len(vectors):,} words, {vectors.size} numbers each ({to})")


@app.command(usage="Usage: seqloom embed evaluate MODEL FILE… [OPTIONS]")
def evaluate(
    model: Path,
    /,
    *files: Path,
    method: Annotated[tuple[Literal["add", "multiply"], ...], Parameter(negative="")] = ("add", "multiply"),
    most_frequent: Number = None,
    limit: Number = None,
    format: Format = "text",
) -> None:
    """Measure vectors on files of analogies or of word pairs that people judged.

    Parameters
    ----------
    model
        A model or run folder of task embed, or a file of word2vec, GloVe or fastText vectors.
    files
        Analogies: Google's format or a table with the columns word1, word2, word3, target. Pairs: tables with two words
        and a score. The kind of each file is seen from its content.
    method
        How analogies are solved: add (3CosAdd), multiply (3CosMul); both when absent.
    most_frequent
        Analogies: only the first so many words are asked about, and may be answers.
    limit
        Read only the first so many words of a file of vectors.
    format
        text: a report a file. json: one object a file.
    """
    from seqloom.cli.output import emit
    from seqloom.errors import UserError
    from seqloom.evaluation.words import evaluate_file

    if not files:
        raise UserError("name at least one file of analogies or word pairs")
    if most_frequent is not None and most_frequent < 1:
        raise UserError(f"--most-frequent must be at least 1; got {most_frequent}")
    vectors = _open(model, limit)
    for index, file in enumerate(files):
        report = evaluate_file(vectors, file, method, most_frequent)
        if format == "json":
            emit({"file": str(file), **report.to_dict()})
        else:
            print(("\n" if index else "") + report.render(), flush=True)


def _open(model: Path, limit: int | None) -> Any:
    from seqloom.cli.output import note
    from seqloom.vectors.opening import open_vectors

    return open_vectors(model, limit=limit, told=note)


def _listed(found: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"word": word, "similarity": similarity} for word, similarity in found]


def _print(found: Sequence[Any]) -> None:
    for word, similarity in found:
        print(f"{similarity:7.4f}  {word}")
