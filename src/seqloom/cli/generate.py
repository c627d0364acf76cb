"""`seqloom generate`: let a language model go on with a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from seqloom.cli.options import File, Flag, Overrides
from seqloom.cli.output import Format


def generate(
    model: Path,
    /,
    *,
    prompt: str = "",
    count: int = 1,
    method: Literal["sample", "greedy", "beam"] | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    beam_size: int | None = None,
    repetition_penalty: float | None = None,
    max_length: int | None = None,
    seed: int | None = None,
    unknown: Flag = False,
    output: File | None = None,
    format: Format = "text",
    overrides: Overrides = (),
) -> None:
    """Let a language model go on with a text, until it comes to an end or to a limit.

    On a terminal the text appears while it is made.

    seqloom generate runs/shakespeare-char --prompt "ROMEO:" --temperature 0.8 --max-length 500

    Parameters
    ----------
    model
        A model folder or a run folder.
    prompt
        How the text begins; without it the model begins by itself.
    count
        How many texts.
    method
        sample: draw each symbol by its probability (default). greedy: the likeliest symbol. beam: the likeliest text.
    temperature
        Below 1 is careful, above 1 adventurous.
    top_k
        Sample among the k likeliest symbols.
    top_p
        Sample among the likeliest symbols that sum to p.
    beam_size
        Width of the beam.
    repetition_penalty
        Above 1: symbols that are in the text already become less likely.
    max_length
        The most symbols to add.
    seed
        Of sampling: the same seed gives the same text.
    unknown
        Let the model generate the symbol of unknown words.
    output
        File to write to instead of standard output.
    format
        text: the texts. json: one object a text, with a log probability for every symbol.
    overrides
        Any other decoding setting, such as --set length_penalty=0.6.
    """
    import json
    import sys

    from seqloom.cli.output import output_to
    from seqloom.errors import UserError
    from seqloom.model import load
    from seqloom.settings import apply_overrides

    if count < 1:
        raise UserError(f"--count must be at least 1; got {count}")
    named = {
        "method": method,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "beam_size": beam_size,
        "repetition_penalty": repetition_penalty,
        "max_length": max_length,
        "seed": seed,
        "unknown": "keep" if unknown else None,
    }
    decoding: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if beam_size is not None:
        decoding.setdefault("method", "beam")
    decoding = apply_overrides(decoding, overrides)
    loaded = load(model)
    loaded.require("generate")
    chosen = loaded.options.overridden(decoding).method
    if chosen == "greedy" and count > 1:
        raise UserError("greedy knows one text only; --count needs --method sample or beam")
    live = format == "text" and output is None and chosen != "beam" and count == 1 and sys.stdout.isatty()
    if live:

        def write(text: str) -> None:
            sys.stdout.write(text)
            sys.stdout.flush()

        loaded.generate(prompt, callback=loaded.task.streamed(prompt, write), **decoding)
        print()
        return
    texts = loaded.generate(prompt, count=count, **decoding)
    with output_to(output) as out:
        for index, one in enumerate(texts):
            if format == "json":
                out.write(json.dumps(one.to_dict(), ensure_ascii=False) + "\n")
            else:
                apart = "\n" if index and "\n" in one.text else ""  # texts of several lines need a line between them
                out.write(f"{apart}{one.text}\n")
