"""`seqloom predict`: answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from seqloom.cli.answering import Question, answer, named_options
from seqloom.cli.options import File, Overrides
from seqloom.cli.output import Format


def predict(
    model: Path,
    /,
    *inputs: str,
    input_file: Annotated[Path | None, Parameter(name="--input", metavar="FILE")] = None,
    output: File | None = None,
    format: Format = "text",
    method: Literal["greedy", "beam", "sample"] | None = None,
    beam_size: int | None = None,
    n_best: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    engine: Literal["auto", "torch", "ctranslate2"] = "auto",
    overrides: Overrides = (),
) -> None:
    """Answer inputs with a trained model.

    Inputs come from the arguments, from --input FILE (one a line), or from standard input (-). An input is what the
    model learned to read: a text, or a word for word vectors.

    Parameters
    ----------
    model
        A model folder, a run folder, or a folder that 'seqloom export' wrote; a file of word vectors.
    inputs
        What to answer, each in quotes.
    input_file
        File with one input a line, may be .gz or .xz.
    output
        File to write to instead of standard output.
    format
        text: one answer a line. json: one object a line with all that is known of the answer, such as its score.
    method
        How to search; default: as the model's recipe says.
    beam_size
        Width of the beam.
    n_best
        How many answers to give for each input: as text, a block of score and answer lines for each.
    temperature
        Sample; below 1 is careful, above 1 adventurous.
    top_k
        Sample among the k likeliest symbols.
    top_p
        Sample among the likeliest symbols that sum to p.
    seed
        Of sampling.
    engine
        What computes: auto takes CTranslate2 for Transformers where it is at hand and gives the same answers.
    overrides
        Any other option of the model, such as --set length_penalty=0.6.
    """
    from seqloom.settings import apply_overrides

    named = named_options(
        method=method,
        beam_size=beam_size,
        n_best=n_best,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    answer(Question(model, inputs, input_file, output, format, engine, apply_overrides(named, overrides)))
