"""`seqloom look`: see what a model does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from seqloom.folders import name_of

ViewName = Literal["attention", "contexts", "gates", "gradients", "heads", "lengths", "neighbours", "pca", "projection"]
VIEWS = {
    "attention": "which source words each target word was made from; every head of a Transformer",
    "contexts": "one word in several texts: how alike a language model's vectors of it are, layer by layer",
    "gates": "what a recurrent layer's gates did at each step",
    "gradients": "how far back the loss of a language model reaches, for one or several models",
    "heads": "what each head of a Transformer looks at, and how much the model needs it",
    "lengths": "quality against sentence length, for one or several models",
    "neighbours": "the words nearest to some words, of word vectors",
    "pca": "word pairs that differ in the same way, such as countries and capitals, of word vectors",
    "projection": "words as points in a plane, by PCA or t-SNE, of word vectors",
}
OPTIONS = {
    "attention": ("target", "all-heads", "site", "layer", "head"),
    "contexts": ("layer",),
    "gates": ("target", "side", "layer", "direction"),
    "gradients": ("compare", "data", "test", "steps", "count", "layer", "untrained"),
    "heads": ("data", "test", "sentences"),
    "lengths": ("compare", "data", "test"),
    "neighbours": ("count",),
    "pca": ("data", "most"),
    "projection": ("method", "most", "colours"),
}
"""What each view takes besides --save."""
TEXTS = {
    "attention": "one text in quotes",
    "contexts": "a word, and texts that it stands in",
    "gates": "one text in quotes",
    "gradients": "one text in quotes",
    "neighbours": "words",
    "pca": "the name of a section of an analogy file, or a part of it",
    "projection": "words to be named in the picture",
}
"""What the texts are, for the views that take any."""

SENTENCES = 100


def look(
    model: Path,
    view: ViewName,
    /,
    *texts: str,
    save: Path | None = None,
    target: str | None = None,
    all_heads: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    site: Literal["encoder", "decoder", "cross", "all"] | None = None,
    layer: int | None = None,
    head: int | None = None,
    side: Literal["encoder", "decoder"] | None = None,
    direction: Literal["forward", "backward"] | None = None,
    data: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    test: str | None = None,
    sentences: int | None = None,
    compare: Annotated[tuple[Path, ...], Parameter(negative="", show_default=False)] = (),
    count: int | None = None,
    method: Literal["pca", "tsne"] | None = None,
    most: int | None = None,
    colours: Literal["groups", "frequency"] | None = None,
    steps: int | None = None,
    untrained: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> None:
    """Look inside a model: on the terminal, or drawn into a file.

    seqloom look runs/demo attention "the green witch arrived" --save alignment.svg

    seqloom look runs/wikipedia-skipgram neighbours king paris

    seqloom look runs/wikipedia-elmo contexts stick "he broke the stick" "they stick to the plan"

    Parameters
    ----------
    model
        A model folder or a run folder; for word vectors also a file of word2vec, GloVe or fastText.
    view
        attention: who looks at whom in one sentence. contexts: the vectors of one word in several texts, from a
        language model. gates: gate activations over time. gradients: how far back the loss of a language model reaches.
        heads: what each head does over many sentences. lengths: quality against length. Of word vectors, neighbours:
        the nearest words. pca: pairs of words and the step from one to the other. projection: words in a plane.
    texts
        attention, gates: the text to answer while being watched. contexts: a word, then texts that it stands in.
        gradients: a text, every symbol of which is asked for (default: symbols of the run's validation data).
        neighbours: words. pca: a section of an analogy file, such as countries. projection: words to be named; without
        any, frequent ones are.
    save
        Draw into this file: .svg, .png or .pdf.
    target
        attention, gates: watch the model while it is led along this answer instead of its own.
    all_heads
        attention: every head of a Transformer by itself.
    site
        attention: heads of the encoder, of the decoder among its own words, or across from decoder to source (cross).
    layer
        attention: the mean of a layer's heads, from 0 (site: cross). contexts: whose vectors are drawn as points, 0 for
        those without context (the last). gates: which layer (0). gradients: which layer (all; the last, of several
        models).
    head
        attention: one head of that layer, from 0.
    side
        gates: of the encoder (default) or the decoder.
    direction
        gates: which direction of a bidirectional layer (forward).
    data
        gradients, heads, lengths: data as in `seqloom evaluate`; default: of the run's recipe, its first test data for
        lengths, its validation data for the others.
    test
        gradients, heads, lengths: name of a test corpus of the recipe, or `all` of them together.
    sentences
        heads: how many to measure (100).
    compare
        gradients, lengths: further models to draw into the same plot; may be repeated.
    count
        neighbours: how many of each word (10). gradients: at how many places of the text (256).
    method
        projection: pca (default) or tsne, which shows groups and takes its time.
    most
        projection: how many of the most frequent words are drawn. pca: how many pairs (25).
    colours
        projection: by groups of like words (default) or by frequency.
    steps
        gradients: how far back to look (50).
    untrained
        gradients: also of the same networks as they began, before training.
    """
    from seqloom.cli import look_words as words
    from seqloom.cli.output import note

    given = {
        "target": target,
        "all-heads": all_heads,
        "site": site,
        "layer": layer,
        "head": head,
        "side": side,
        "direction": direction,
        "data": data,
        "test": test,
        "sentences": sentences,
        "compare": compare,
        "count": count,
        "method": method,
        "most": most,
        "colours": colours,
        "steps": steps,
        "untrained": untrained,
    }
    _check(
        view, texts, {name for name, value in given.items() if value is not None and value is not False and value != ()}
    )
    if save is not None:  # before anything that takes time
        from seqloom.inspection.draw import checked_path

        checked_path(save)
    if view == "neighbours":
        shown = words.neighbours(model, texts, count, save)
    elif view == "pca":
        shown = words.pca(model, texts, data, most, save)
    elif view == "projection":
        shown = words.projection(model, texts, method or "pca", most, colours or "groups", save)
    elif view == "lengths":
        shown = _lengths([model, *compare], data, test, save)
    elif view == "gradients":
        shown = _gradients([model, *compare], texts, data, test, steps, count, layer, untrained, save)
    elif view == "heads":
        shown = _heads(model, data, test, SENTENCES if sentences is None else sentences, save)
    elif view == "contexts":
        shown = _contexts(model, texts, layer, save)
    elif view == "attention":
        shown = _attention(model, texts, target, save, all_heads, site, layer, head)
    else:
        shown = _gates(model, texts, target, save, side, layer or 0, direction or "forward")
    if save is None:
        print(shown)
    else:
        note(f"drawn into {save}")


def _check(view: ViewName, texts: tuple[str, ...], given: set[str]) -> None:
    """An option that does nothing for this view is a mistake."""
    from seqloom.errors import UserError

    if texts and view not in TEXTS:
        raise UserError(f"look {view} takes data (--data, --test), not a text")
    for name in sorted(given - set(OPTIONS[view])):
        views = [f"look {other}" for other, takes in OPTIONS.items() if name in takes]
        others = " and ".join(filter(None, [", ".join(views[:-1]), views[-1]]))
        takes = ", ".join(f"--{option}" for option in OPTIONS[view])
        raise UserError(f"--{name} is for {others}; look {view} takes --save, {takes}")


def _contexts(model: Path, words: tuple[str, ...], layer: int | None, save: Path | None) -> str:
    from seqloom.cli.output import note, use_colour
    from seqloom.errors import UserError
    from seqloom.inspection.contexts import draw_contexts
    from seqloom.language import LanguageModel
    from seqloom.tasks.contextual import word_in_contexts

    if len(words) < 3:
        raise UserError(
            'look contexts takes a word and at least two texts: look MODEL contexts stick "he broke the stick" '
            '"they stick to the plan"'
        )
    word, texts = words[0], words[1:]
    loaded = LanguageModel.load(model)
    layers = word_in_contexts(loaded.task, loaded.model, word, texts, note)
    return draw_contexts(word, texts, layers, save, layer=layer, colour=use_colour(), title=name_of(model))


def _trace(model: Path, view: str, texts: tuple[str, ...], target: str | None) -> Any:
    from seqloom.cli.output import read_texts
    from seqloom.errors import UserError
    from seqloom.folders import find_model, task_of
    from seqloom.language import LanguageModel
    from seqloom.predictor import Predictor

    lines = read_texts(texts, None)
    if len(lines) != 1:
        raise UserError(f"look {view} takes one text in quotes; got {len(lines)}")
    if task_of(find_model(model)) == "model_language":
        if target is not None:
            raise UserError("--target is for models that answer; a language model is led along the text itself")
        return LanguageModel.load(model).trace(lines[0])
    return Predictor.load(model).trace(lines[0], target)


def _attention(
    model: Path,
    texts: tuple[str, ...],
    target: str | None,
    save: Path | None,
    all_heads: bool,
    site: str | None,
    layer: int | None,
    head: int | None,
) -> str:
    from seqloom.cli.output import use_colour
    from seqloom.errors import UserError
    from seqloom.inspection.attention import draw_all_heads, draw_attention, draw_head
    from seqloom.inspection.heads import sites_of

    apart = all_heads or site == "all" or (site is not None and layer is None)
    if head is not None and (apart or layer is None):
        raise UserError("--head picks one head of one layer; say which: --site cross --layer 0 --head 0")
    trace = _trace(model, "attention", texts, target)
    if layer is None and "decoder.attention" not in trace and "decoder.0.self" in trace:
        apart = True  # a language model: there is no source to be aligned with
    if apart:
        return draw_all_heads(trace, save, site=None if site == "all" else site, layer=layer, colour=use_colour())
    if layer is not None:
        return draw_head(trace, save, site=site or _only(sites_of(trace)), layer=layer, head=head, colour=use_colour())
    return draw_attention(trace, save, colour=use_colour())


def _gates(
    model: Path,
    texts: tuple[str, ...],
    target: str | None,
    save: Path | None,
    side: str | None,
    layer: int,
    direction: str,
) -> str:
    from seqloom.cli.output import use_colour
    from seqloom.inspection.gates import draw_gates

    trace = _trace(model, "gates", texts, target)
    if side is None:  # a language model has no encoder
        side = "encoder" if any(name.startswith("encoder") for name in trace.names()) else "decoder"
    return draw_gates(trace, save, side=side, layer=layer, direction=direction, colour=use_colour())


def _gradients(
    models: list[Path],
    texts: tuple[str, ...],
    data: tuple[str, ...],
    test: str | None,
    steps: int | None,
    count: int | None,
    layer: int | None,
    untrained: bool,
    save: Path | None,
) -> str:
    from seqloom.errors import UserError
    from seqloom.inspection.gradients import Gradients, draw_gradients
    from seqloom.language import LanguageModel
    from seqloom.tasks.gradients import POSITIONS, STEPS, asked_of_corpus, asked_of_text, measure_gradients
    from seqloom.tasks.guessing import refuse_guessing
    from seqloom.training.progress import Progress

    steps, count = STEPS if steps is None else steps, POSITIONS if count is None else count
    if not 1 <= steps <= 10_000 or count < 1:
        raise UserError(f"--steps must be 1 to 10,000 and --count at least 1; got {steps} and {count}")
    if len(texts) > 1 or (texts and (data or test)):
        raise UserError("look gradients takes one text in quotes, or data (--data, --test)")
    found, fresh = list[Gradients](), list[Gradients]()
    for path in models:
        loaded = LanguageModel.load(path)
        refuse_guessing(loaded.model, "tell how far back its loss reaches")
        if texts:
            asked, sample = asked_of_text(loaded.task, texts[0]), "every symbol of the text"
        else:
            ((name, corpus),) = _texts(path, data, test).items()
            asked = asked_of_corpus(loaded.task, corpus, loaded.batching, loaded.only_last, count)
            sample = f"{len(asked):,} places in {name}"
        both = [(found, loaded.model), *([(fresh, _before_training(path, loaded))] if untrained else [])]
        for kept, model in both:
            with Progress(f"measuring {name_of(path)}") as bar:
                kept.append(
                    measure_gradients(
                        model,
                        asked,
                        steps=steps,
                        name=name_of(path),
                        sample=sample,
                        progress=lambda share, bar=bar: bar.update(share, ""),  # type: ignore[misc]
                    )
                )
    return draw_gradients(found, save, layer=layer, beside=("before training", fresh) if untrained else None)


def _before_training(path: Path, loaded: Any) -> Any:
    """The network as the run began it: the same settings and the same seed."""
    import torch

    from seqloom.errors import UserError
    from seqloom.folders import find_model
    from seqloom.recipe import load_recipe

    recipe = find_model(path).parent / "recipe.yaml"
    if not recipe.is_file():
        raise UserError(f"{path}: a model folder does not know how it began; give its run folder, or no --untrained")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(load_recipe(recipe).seed)
        return loaded.task.build(loaded.model.settings)


def _texts(model: Path, data: tuple[str, ...], test: str | None) -> dict[str, Any]:
    """One text by its name: what --data or --test says, else the validation text of the run's recipe."""
    from seqloom.corpus.plain import PlainTextSettings, describe
    from seqloom.errors import UserError
    from seqloom.settings import validated

    if len(data) > 1 or test == "all":
        raise UserError("look gradients takes one text at a time")
    if data and test is None:
        text = validated(PlainTextSettings, {"text": data[0]}, "--data")
    else:
        (text,) = _corpora(model, data, test).values()
    return {describe(text): text}


def _only(sites: list[str]) -> str:
    """Where to look when nobody said: across to the source, or at the only place there is."""
    return sites[0] if len(sites) == 1 else "cross"


def _heads(model: Path, data: tuple[str, ...], test: str | None, sentences: int, save: Path | None) -> str:
    from seqloom.cli.output import use_colour
    from seqloom.corpus.readers import read_pairs
    from seqloom.errors import UserError
    from seqloom.inspection.heads import draw_heads
    from seqloom.predictor import Predictor
    from seqloom.tasks.translate import sample_pairs
    from seqloom.training.progress import Progress

    if sentences < 1:
        raise UserError(f"--sentences must be at least 1; got {sentences}")
    predictor = Predictor.load(model)
    corpora = _corpora(model, data, test)
    pairs = sample_pairs([pair for corpus in corpora.values() for pair in read_pairs(corpus)], sentences)
    if not pairs:
        raise UserError("there is no sentence to measure heads on; the corpus is empty")
    with Progress("measuring heads") as progress:
        measures = predictor.head_measures(pairs, lambda share: progress.update(share, f"{len(pairs)} sentences"))
    sample = f"{len(pairs)} sentence{'s' if len(pairs) > 1 else ''} of {' and '.join(corpora)}"
    return draw_heads(measures, save, sample=sample, title=f"attention heads of {name_of(model)}", colour=use_colour())


def _corpora(model: Path, data: tuple[str, ...], test: str | None) -> dict[str, Any]:
    """Name -> corpus: what --data or --test says, else the validation corpus of the run's recipe."""
    from seqloom.cli.evaluate import chosen_corpora
    from seqloom.errors import UserError
    from seqloom.predictor import find_model
    from seqloom.recipe import load_recipe

    if data or test:
        return chosen_corpora(model, data, test)
    recipe = find_model(model).parent / "recipe.yaml"
    if not recipe.is_file():
        raise UserError(f"{model}: a model folder has no data of its own; give --data FILE")
    return {"valid": load_recipe(recipe).data.valid}


def _lengths(models: list[Path], data: tuple[str, ...], test: str | None, save: Path | None) -> str:
    from seqloom.cli.evaluate import chosen_corpora
    from seqloom.corpus.readers import read_pairs
    from seqloom.inspection.lengths import draw_lengths
    from seqloom.predictor import Predictor

    corpora = chosen_corpora(models[0], data, test)
    pairs = [pair for corpus in corpora.values() for pair in read_pairs(corpus)]
    series = {}
    for path in models:
        report, _ = Predictor.load(path).evaluate(pairs, "+".join(corpora))
        series[name_of(path)] = report.buckets
    return draw_lengths(series, save)
