"""What `seqloom predict` does once it knows what is wanted; and command lines so plain that they need no parser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from seqloom.cli.output import Format, note, output_to, read_texts
from seqloom.export.engines import EngineName, choose
from seqloom.training.progress import Progress

MOST_WARNINGS = 10


class Question(NamedTuple):
    """What is wanted of `seqloom predict`."""

    model: Path
    inputs: tuple[str, ...]
    input_file: Path | None
    output: Path | None
    format: Format
    engine: EngineName
    options: dict[str, Any]  # those that are to be others than the model's own


def named_options(**named: Any) -> dict[str, Any]:
    """What the options of the command line name; some say by themselves what the method is."""
    options = {name: value for name, value in named.items() if value is not None}
    if {"temperature", "top_k", "top_p", "seed"} & options.keys():
        options.setdefault("method", "sample")
    if "beam_size" in options:
        options.setdefault("method", "beam")
    return options


def answer(question: Question) -> None:
    """Read, answer, write."""
    lines = read_texts(question.inputs, question.input_file)
    chosen = choose(question.model, question.engine, lines, question.options)
    if chosen.why and question.input_file is not None:
        note(chosen.why)
    inputs = chosen.model.task.inputs(lines)
    with Progress("answering") as progress:
        many = len(inputs) > 100
        report = (lambda done: progress.update(done / len(inputs), f"{done:,} of {len(inputs):,}")) if many else None
        answers = chosen.model.predict(inputs, report, **question.options)
    with output_to(question.output) as out:
        for index, one in enumerate(answers):
            if question.format == "json":
                out.write(json.dumps(one.to_dict(), ensure_ascii=False) + "\n")
            elif one.alternatives:
                out.write("\n" if index else "")
                for rival in (one, *one.alternatives):
                    out.write(f"{rival.score:.4f}\t{rival.text}\n")
            else:
                out.write(one.text + "\n")
        out.flush()
    warned = [(number, text) for number, one in enumerate(answers, 1) for text in one.warnings]
    for number, text in warned[:MOST_WARNINGS]:
        note(f"warning: input {number}: {text}" if len(answers) > 1 else f"warning: {text}")
    if len(warned) > MOST_WARNINGS:
        note(f"… and {len(warned) - MOST_WARNINGS:,} more warnings; --format json has them all")


# -- plain command lines ----------------------------------------------------------------------------------------------

# What is plain: these options, with any value or one of these.
_VALUES: dict[str, tuple[str, ...] | None] = {
    "--input": None,
    "--output": None,
    "--format": ("text", "json"),
    "--method": ("greedy", "beam", "sample"),
    "--beam-size": None,
    "--engine": ("auto", "torch", "ctranslate2"),
}


def plain_question(arguments: Sequence[str]) -> Question | None:
    """What the arguments of `predict` ask for if that is beyond doubt: `MODEL [INPUT …] [--option value …]`, each
    option once and of the commonest ones. None: ask the parser, which takes longer to load than many texts to answer.
    """
    first = next((place for place, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    inputs, options = arguments[:first], arguments[first:]
    names, values = options[::2], options[1::2]
    if not inputs or not all(arguments) or len(names) != len(values) or len(set(names)) != len(names):
        return None
    for name, value in zip(names, values, strict=True):
        if name not in _VALUES or value.startswith("-") or value not in (_VALUES[name] or (value,)):
            return None
    given = dict(zip(names, values, strict=True))
    beam = given.get("--beam-size")
    if beam is not None and not (beam.isascii() and beam.isdecimal() and len(beam) < 9 and beam[0] != "0"):
        return None
    return Question(
        model=Path(inputs[0]),
        inputs=tuple(inputs[1:]),
        input_file=Path(given["--input"]) if "--input" in given else None,
        output=Path(given["--output"]) if "--output" in given else None,
        format=cast(Format, given.get("--format", "text")),
        engine=cast(EngineName, given.get("--engine", "auto")),
        options=named_options(method=given.get("--method"), beam_size=None if beam is None else int(beam)),
    )
