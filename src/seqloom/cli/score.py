"""`seqloom score`: how likely a language model finds each line of a text."""

from __future__ import annotations

from pathlib import Path

from seqloom.cli.options import File
from seqloom.cli.output import Format


def score(
    model: Path,
    file: Path | None = None,
    /,
    *,
    output: File | None = None,
    format: Format = "text",
) -> None:
    """Log probability and perplexity of every line.

    Each line is read by itself. As text, a line has three columns: its log probability (natural, the end of the line
    included), its perplexity a word, and the line.

    Parameters
    ----------
    model
        A model folder or a run folder of a language model.
    file
        Text, a sentence a line, may be .gz or .xz; - or nothing for standard input.
    output
        File to write to instead of standard output.
    format
        text: three columns. json: one object a line, with a log probability for every symbol.
    """
    import json

    from seqloom.cli.output import output_to, read_texts
    from seqloom.errors import UserError
    from seqloom.model import load
    from seqloom.training.progress import Progress

    lines = read_texts((), Path("-") if file is None else file)
    if not lines:
        raise UserError("there is no line to score: the text is empty")
    loaded = load(model)
    loaded.require("score")
    with Progress("scoring") as bar:
        found = loaded.score(lines, lambda done: bar.update(done / len(lines), f"{done:,} of {len(lines):,}"))
    with output_to(output) as out:
        for one in found:
            if format == "json":
                out.write(json.dumps(one.to_dict(), ensure_ascii=False) + "\n")
            else:
                out.write(f"{one.log_probability:.4f}\t{one.perplexity:.2f}\t{one.text}\n")
