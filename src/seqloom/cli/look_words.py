"""The views of `seqloom look` that show word vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def neighbours(model: Path, words: tuple[str, ...], count: int | None, save: Path | None) -> str:
    from seqloom.cli.output import note, use_colour
    from seqloom.folders import name_of
    from seqloom.inspection.neighbours import draw_neighbours
    from seqloom.vectors.opening import open_vectors

    vectors = open_vectors(model, told=note)
    return draw_neighbours(
        vectors, words, save, count=10 if count is None else count, colour=use_colour(), title=name_of(model)
    )


def pca(model: Path, sections: tuple[str, ...], data: tuple[str, ...], most: int | None, save: Path | None) -> str:
    from seqloom.cli.output import note, use_colour
    from seqloom.errors import UserError
    from seqloom.evaluation.word_files import read_questions
    from seqloom.inspection.offsets import MOST_PAIRS, draw_offsets, find_section, pairs_of
    from seqloom.vectors.opening import open_vectors

    if len(sections) != 1 or len(data) > 1:
        raise UserError("look pca takes the name of one section of one analogy file, such as: look MODEL pca countries")
    questions = read_questions(Path(data[0]) if data else _analogies_of(model))
    section = find_section(questions, sections[0])
    vectors = open_vectors(model, told=note)
    return draw_offsets(
        vectors,
        pairs_of(questions[section]),
        save,
        title=section,
        most=MOST_PAIRS if most is None else most,
        colour=use_colour(),
    )


def _analogies_of(model: Path) -> Path:
    """The file of analogies that the run's recipe is measured on."""
    from seqloom.corpus.lines import expand_path
    from seqloom.errors import UserError
    from seqloom.evaluation.word_files import asks_analogies
    from seqloom.folders import find_model
    from seqloom.recipe import load_recipe

    recipe = find_model(model).parent / "recipe.yaml" if model.is_dir() else None
    if recipe is not None and recipe.is_file():
        for path in map(expand_path, load_recipe(recipe).data.test.values()):
            if asks_analogies(path):
                return Path(path)
    raise UserError(f"{model}: no analogy file is known for it; give --data FILE, in the format of questions-words.txt")


def projection(
    model: Path, words: tuple[str, ...], method: Any, most: int | None, colours: Any, save: Path | None
) -> str:
    from seqloom.cli.output import note, use_colour
    from seqloom.inspection.projection import MOST_WORDS, draw_projection
    from seqloom.training.progress import Progress
    from seqloom.vectors.opening import open_vectors

    vectors = open_vectors(model, told=note)
    with Progress("placing words") as progress:
        return draw_projection(
            vectors,
            save,
            method=method,
            words=words or None,
            most=MOST_WORDS if most is None else most,
            colours=colours,
            colour=use_colour(),
            tell=progress.update,
        )
