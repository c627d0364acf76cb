"""The documentation says what the code does: settings with their defaults, names, links, snippets, commands."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from seqloom.cli.main import VERBS
from seqloom.corpus.doctor import CHECKS
from seqloom.corpus.readers import CorpusSettings
from seqloom.corpus.series import SeriesSettings
from seqloom.corpus.series_doctor import CHECKS as SERIES_CHECKS
from seqloom.inspection.views import VIEWS
from seqloom.models.classifier import ClassifierSettings
from seqloom.recipe import recipe_from, shipped_recipes
from seqloom.settings import ModelSettings, parse_yaml
from seqloom.tasks import TASKS, find_task
from seqloom.tasks.base import Recipe

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")))
}
RECIPES = PAGES["docs/recipes.md"]

LAYERS = "Transformer layers"
# Where docs/recipes.md documents each settings class; what several share comes first, what is a class's own last.
PLACES = {
    "PairDataSettings": ["Examples"],
    "CorpusSettings": ["Examples"],
    "TaggedDataSettings": ["Examples"],
    "TaggedCorpusSettings": ["Examples"],
    "AnyDataSettings": ["Examples"],
    "SeriesDataSettings": ["Series"],
    "SeriesSettings": ["Series"],
    "SeriesSourceSettings": ["The section `series`"],
    "ForecastSettings": ["`forecast`"],
    "TextDataSettings": ["Running text"],
    "PlainTextSettings": ["Running text"],
    "TextSettings": ["`text`"],
    "PairTextSettings": ["`text`"],
    "EncoderDecoderSettings": ["`encoder_decoder`"],
    "RecurrentEncoderSettings": ["The `recurrent` encoder"],
    "TransformerEncoderSettings": [LAYERS, "The `transformer` encoder"],
    "ConvolutionEncoderSettings": ["The `convolution` encoder"],
    "TextConvolutionEncoderSettings": ["The `text_convolution` encoder"],
    "EmbeddingEncoderSettings": ["The `embeddings` encoder"],
    "RecurrentDecoderSettings": ["The `recurrent` decoder"],
    "TransformerDecoderSettings": [LAYERS, "The `transformer` decoder"],
    "RecurrentTranslatorSettings": ["`recurrent_translator`"],
    "TransformerTranslatorSettings": [LAYERS, "`transformer_translator`"],
    "ClassifierSettings": ["`classifier`"],
    "TaggerSettings": ["`tagger`"],
    "ConvolutionalLettersSettings": ["`cnn` letters"],
    "RecurrentLettersSettings": ["`lstm` letters"],
    "WholeWordsSettings": ["`text` of `tag`"],
    "TagSettings": ["`tags`"],
    "TaggingTrainingSettings": ["All networks", "Of examples", "Of `tag`"],
    "StepTaggerSettings": ["`step_tagger`"],
    "RegressorSettings": ["`regressor`"],
    "LinearForecasterSettings": ["`linear_forecaster` and `dlinear`"],
    "DLinearSettings": ["`linear_forecaster` and `dlinear`"],
    "EncoderForecasterSettings": ["`encoder_forecaster`"],
    "HierarchicalClassifierSettings": ["`hierarchical_classifier`"],
    "SentenceSettings": ["Sentences of a document"],
    "NGramSettings": ["`ngram_lm`"],
    "FeedForwardLanguageModelSettings": ["`feed_forward_lm`"],
    "RecurrentLanguageModelSettings": ["`recurrent_lm`"],
    "TransformerLanguageModelSettings": [LAYERS, "`transformer_lm`"],
    "MaskedLanguageModelSettings": [LAYERS, "`masked_lm`"],
    "BidirectionalLanguageModelSettings": ["`bidirectional_lm`"],
    "CharacterSettings": ["`characters` of a `bidirectional_lm`"],
    "PretrainedSettings": ["`pretrained`"],
    "TextVectorsSettings": ["`pretrained`"],
    "ContextualSettings": ["`contextual`"],
    "TrainingSettings": ["All networks", "Of examples", "Of `translate`"],
    "ClassificationTrainingSettings": ["All networks", "Of examples", "Of `classify`"],
    "RegressionTrainingSettings": ["All networks", "Of examples", "Of `regress`"],
    "StepTrainingSettings": ["All networks", "Of examples", "Of `tag_steps`"],
    "ForecastTrainingSettings": ["All networks", "Of `forecast`"],
    "LanguageTrainingSettings": ["All networks", "Of running text", "Of `model_language`"],
    "MaskedTrainingSettings": ["All networks", "Of running text", "Of `model_masked_language`"],
    "BidirectionalTrainingSettings": ["All networks", "Of running text", "Of `model_bidirectional_language`"],
    "DecodingSettings": ["`decoding`"],
    "VectorDataSettings": ["Words to vectors: task `embed`"],
    "WordsSettings": ["Words to vectors: task `embed`"],
    "Word2VecSettings": ["`skipgram` and `cbow`"],
    "SubwordSettings": ["`skipgram` and `cbow`"],
    "GloveSettings": ["`glove`"],
    "PpmiSettings": ["`ppmi`"],
    "VectorTrainingSettings": ["Training vectors"],
    "NeighbourSettings": ["Words to vectors: task `embed`"],
}


# -- settings --------------------------------------------------------------------------------------------------------


def settings_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The settings classes that a field may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from settings_in(part)


def reachable(kind: type[BaseModel], found: dict[type[BaseModel], None]) -> None:
    """A settings class and all that its fields may hold."""
    if kind not in found:
        found[kind] = None
        for field in kind.model_fields.values():
            for part in settings_in(field.annotation):
                reachable(part, found)


def all_settings() -> list[type[BaseModel]]:
    """Every class that a recipe of any task is made of."""
    found: dict[type[BaseModel], None] = {}
    for task in map(find_task, TASKS):
        for kind in (task.Recipe, task.Options, *(settings for settings, _ in task.models.values())):
            reachable(kind, found)
    return [kind for kind in found if kind.model_fields and kind is not ModelSettings]


def section(page: str, heading: str) -> str:
    """The text from a heading to the next one of its level or above."""
    lines = page.splitlines()
    starts = [number for number, line in enumerate(lines) if re.fullmatch(r"#+ " + re.escape(heading), line)]
    assert len(starts) == 1, f"docs/recipes.md: {len(starts)} headings {heading!r}"
    level = lines[starts[0]].index(" ")
    for end in range(starts[0] + 1, len(lines)):
        found = re.match(r"#+ ", lines[end])
        if found and len(found[0]) - 1 <= level:
            return "\n".join(lines[starts[0] : end])
    return "\n".join(lines[starts[0] :])


def rows(text: str) -> dict[str, tuple[str, str]]:
    """Setting -> default and meaning, of every table of settings in a text."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if len(cells) == 3 and re.fullmatch(r"(`[a-z_.]+`(, )?)+", cells[0]):
            for name in re.findall(r"`([a-z_.]+)`", cells[0]):
                found[name.rpartition(".")[2]] = (cells[1], cells[2])
    return found


def choices_of(annotation: Any) -> set[str]:
    """The words that a field takes."""
    if get_origin(annotation) is Literal:
        return {choice for choice in get_args(annotation) if isinstance(choice, str)}
    return set().union(*map(choices_of, get_args(annotation)))


def problems_with(kind: type[BaseModel], page: str = RECIPES) -> list[str]:
    """What the page does not say of a settings class, or says wrongly."""
    headings = ["The top level"] if issubclass(kind, Recipe) else PLACES[kind.__name__]
    texts = [section(page, heading) for heading in headings]
    documented: dict[str, tuple[str, str]] = {}
    for text in texts:
        documented |= rows(text)
    problems = []
    for name, field in kind.model_fields.items():
        where = f"{kind.__name__}.{name} in {' / '.join(headings)}"
        unnamed = {choice for choice in choices_of(field.annotation) if not any(f"`{choice}`" in t for t in texts)}
        if unnamed:
            problems.append(f"{where}: {', '.join(sorted(unnamed))} not named")
        if name == "kind":  # it is in the heading or the text
            continue
        if name not in documented:
            problems.append(f"{where}: no row")
            continue
        shown = parse_yaml(documented[name][0].strip("`"), where)
        default = json.loads(json.dumps(field.default)) if isinstance(field.default, tuple) else field.default
        plain = isinstance(default, bool | int | float | str) and default != ""
        if (plain or isinstance(shown, list)) and shown != default:
            problems.append(f"{where}: the default is {default!r}; shown is {shown!r}")
        if default is None and isinstance(shown, bool | int | float):
            problems.append(f"{where}: there is no default; shown is {shown!r}")
    return problems


@pytest.mark.parametrize("kind", all_settings(), ids=lambda kind: kind.__name__)
def test_every_setting_is_documented_with_its_default_and_its_choices(kind: type[BaseModel]) -> None:
    assert problems_with(kind) == []


def test_a_wrong_default_a_missing_row_and_a_missing_choice_are_found() -> None:
    text = section(RECIPES, "`classifier`")
    lines = [line for line in text.splitlines() if not line.startswith("| `pretrained`")]
    worse = "\n".join(lines).replace("| `mean` |", "| `sum` |").replace("`max`", "")
    found = "\n".join(problems_with(ClassifierSettings, RECIPES.replace(text, worse)))
    assert "pretrained in `classifier`: no row" in found
    assert "the default is 'mean'; shown is 'sum'" in found
    assert "max not named" in found


# -- names -----------------------------------------------------------------------------------------------------------


def test_every_task_and_every_view_is_named() -> None:
    everything = "\n".join(PAGES.values())
    assert [name for name in (*TASKS, *VIEWS) if f"`{name}`" not in everything] == []


def test_every_task_has_a_row_in_the_readme() -> None:
    assert [name for name in TASKS if not re.search(rf"^\| .*`{name}`", PAGES["README.md"], re.MULTILINE)] == []


def test_every_check_of_the_data_doctor_has_a_row_with_its_severity() -> None:
    assert [
        name for name, (severity, _) in CHECKS.items() if f"\n| {name} | {severity} |" not in PAGES["docs/data.md"]
    ] == []
    rows = PAGES["docs/data.md"]
    assert [name for name, severity in SERIES_CHECKS.items() if f"\n| {name} | {severity} |" not in rows] == []


def test_every_shipped_recipe_is_named_where_recipes_are_documented() -> None:
    def is_named(name: str) -> bool:
        whole = section(RECIPES, "Shipped recipes")
        folder, _, _ = name.rpartition("/")
        return f"`{name}`" in whole or bool(folder and f"`{folder}/…`" in whole)

    assert [name for name in shipped_recipes() if not is_named(name)] == []


# -- links -----------------------------------------------------------------------------------------------------------


def without_code(page: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE))


def anchors(page: str) -> set[str]:
    """What GitHub calls the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(PAGES[name])):
        if re.match(r"[a-z]+:", target):  # elsewhere in the world
            continue
        file, _, anchor = target.partition("#")
        path = ((ROOT / name).parent / file).resolve() if file else (ROOT / name)
        page = PAGES.get(str(path.relative_to(ROOT)), "") if path.is_relative_to(ROOT) else ""
        if not path.exists() or (anchor and anchor not in anchors(page)):
            broken.append(target)
    assert broken == []


def test_every_picture_is_shown_somewhere() -> None:
    shown = {target for page in PAGES.values() for target in re.findall(r"images/([\w.-]+)", page)}
    assert {path.name for path in (ROOT / "docs" / "images").iterdir()} - shown == set()


# -- snippets --------------------------------------------------------------------------------------------------------


def blocks(language: str) -> list[tuple[str, str]]:
    """(page, text) of every block of code of a language; the empty one is that of commands and what they print."""
    return [
        (name, text)
        for name, page in PAGES.items()
        for kind, text in re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
        if kind == language
    ]


@pytest.mark.parametrize(("name", "code"), blocks("python"))
def test_python_snippets_compile_and_import_what_there_is(name: str, code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("seqloom"):
            module = importlib.import_module(str(node.module))
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == [], name


@pytest.mark.parametrize(("name", "text"), blocks("yaml"))
def test_yaml_snippets_are_what_a_recipe_takes(name: str, text: str) -> None:
    values = parse_yaml(text, name)
    assert isinstance(values, Mapping), name
    if set(values) <= {"train", "valid", "test"}:
        for corpus in values.values():
            (SeriesSettings if "series" in corpus else CorpusSettings).model_validate(corpus)
    if {"data", "model"} <= set(values) and "extends" not in values:
        recipe_from(values, name)


def commands() -> Iterator[tuple[str, list[str]]]:
    """(page, words) of every command line that calls seqloom."""
    for name, text in blocks(""):
        for line in text.replace("\\\n", " ").splitlines():
            found = re.match(r"(?:\$ )?(?:\.venv/bin/)?seqloom (.*)", line.strip())
            if found:
                first = re.split(r"\s#\s|\s{2,}|&&|[|;…\[]", found[1])[0]
                yield name, shlex.split(first, posix=True)


def test_commands_name_verbs_views_and_recipes_that_exist() -> None:
    wrong = []
    for name, words in commands():
        if not words or words[0].startswith("-") or words[0] == "VERB":
            continue
        options = [number for number, word in enumerate(words) if word.startswith("--")]
        plain = words[: options[0]] if options else words
        if plain[0] not in VERBS:
            wrong.append(f"{name}: seqloom {plain[0]}")
        elif plain[0] == "look" and len(plain) > 2 and plain[2] not in (*VIEWS, "VIEW"):
            wrong.append(f"{name}: look {plain[2]}")
        elif plain[0] == "train" and len(plain) > 1:
            recipe = plain[1]
            free = recipe.isupper() or recipe.endswith((".yaml", "$p")) or recipe.startswith("runs/")
            if not free and recipe not in shipped_recipes():
                wrong.append(f"{name}: train {recipe}")
    assert wrong == []


def test_there_are_snippets_and_commands_to_check() -> None:
    assert len(blocks("python")) > 3
    assert len(blocks("yaml")) > 10
    assert len(list(commands())) > 50
