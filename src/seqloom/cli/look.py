"""`seqloom look`: see what a model does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

ViewName = Literal["attention", "gates", "lengths"]
VIEWS = {
    "attention": "which source words each target word was made from",
    "gates": "what a recurrent layer's gates did at each step",
    "lengths": "quality against sentence length, for one or several models",
}


def look(
    model: Path,
    view: ViewName,
    /,
    *texts: str,
    target: str | None = None,
    save: Path | None = None,
    side: Literal["encoder", "decoder"] = "encoder",
    layer: int = 0,
    direction: Literal["forward", "backward"] = "forward",
    compare: Annotated[tuple[Path, ...], Parameter(negative="", show_default=False)] = (),
    data: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    test: str | None = None,
) -> None:
    """Look inside a model: on the terminal, or drawn into a file.

    seqloom look runs/demo attention "the green witch arrived" --save alignment.svg

    Parameters
    ----------
    model
        A model folder or a run folder.
    view
        attention: the alignment matrix. gates: gate activations over time. lengths: quality against length.
    texts
        The text to answer while being watched (attention, gates).
    target
        Watch the model while it is led along this answer instead of its own.
    save
        Draw into this file: .svg, .png or .pdf.
    side
        gates: of the encoder or the decoder.
    layer
        gates: which layer, from 0.
    direction
        gates: which direction of a bidirectional layer.
    compare
        lengths: further models to draw into the same plot; may be repeated.
    data
        lengths: test data, as in `seqloom evaluate`; default: that of the run's recipe.
    test
        lengths: name of a test corpus of the recipe, or `all` of them together.
    """
    from seqloom.cli.output import note, read_texts, use_colour
    from seqloom.errors import UserError
    from seqloom.predictor import Predictor

    if view == "lengths":
        if texts or target:
            raise UserError("look lengths takes test data (--data, --test), not a text")
        shown = _lengths([model, *compare], data, test, save)
    else:
        if compare or data or test:
            raise UserError(f"--compare, --data and --test are for look lengths; look {view} takes one text")
        lines = read_texts(texts, None)
        if len(lines) != 1:
            raise UserError(f"look {view} takes one text in quotes; got {len(lines)}")
        predictor = Predictor.load(model)
        trace = predictor.trace(lines[0], target)
        if view == "attention":
            from seqloom.inspection.attention import draw_attention

            shown = draw_attention(trace, save, colour=use_colour())
        else:
            from seqloom.inspection.gates import draw_gates

            shown = draw_gates(trace, save, side=side, layer=layer, direction=direction, colour=use_colour())
    if save is None:
        print(shown)
    else:
        note(f"drawn into {save}")


def _lengths(models: list[Path], data: tuple[str, ...], test: str | None, save: Path | None) -> object:
    from seqloom.cli.evaluate import chosen_corpora
    from seqloom.corpus.readers import read_pairs
    from seqloom.inspection.lengths import draw_lengths
    from seqloom.predictor import Predictor

    corpora = chosen_corpora(models[0], data, test)
    pairs = [pair for corpus in corpora.values() for pair in read_pairs(corpus)]
    series = {}
    for path in models:
        report, _ = Predictor.load(path).evaluate(pairs, "+".join(corpora))
        series[path.name if path.name != "model" else path.parent.name] = report.buckets
    return draw_lengths(series, save)
