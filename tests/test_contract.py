"""One contract for every model of every task: it trains, travels, answers, is measured, resumes, refuses.

A new task or model is a line in `RECIPES`; without one the first test here fails.
"""

from __future__ import annotations

import copy
import html
import json
import math
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqloom.corpus.plain import PlainTextSettings, read_lines
from seqloom.corpus.readers import CorpusSettings, read_pairs
from seqloom.errors import UserError
from seqloom.evaluation.figures import METRICS, Report
from seqloom.experiment import train
from seqloom.inspection.trace import Trace
from seqloom.model import Model, load
from seqloom.models.encoder_decoder import DECODERS
from seqloom.models.encoders import ENCODERS
from seqloom.models.ngram_lm import NGramLanguageModel
from seqloom.models.word_reader import CHARACTERS
from seqloom.recipe import load_recipe
from seqloom.tasks import TASKS, find_task
from seqloom.tasks.base import Task
from seqloom.text.counts import words_of
from seqloom.vectors.table import WordVectors

# -- what is trained --------------------------------------------------------------------------------------------------

STEPS = {"steps": 4, "validate_every": 2, "checkpoint_every": 2, "samples": 1, "learning_rate": 1e-2}
ON_PAIRS = {**STEPS, "batch_tokens": 120, "validation_sentences": 2}
ON_TEXT = {**STEPS, "rows": 3, "length": 6, "batch_tokens": 120}
WORDS = {"tokenizer": "word", "vocabulary_size": None}
APART = {**WORDS, "joint": False}
PAIRS = {
    "train": {"grammar": "en-es", "split": "train", "size": 120},
    "valid": {"grammar": "en-es", "split": "valid", "size": 8},
    "test": {"grammar": "en-es", "split": "test", "size": 6},
}
TEXT = {
    name: {"text": f"grammar:en/{name}", "limit": limit} for name, limit in (("train", 120), ("valid", 8), ("test", 6))
}
LABELLED = {
    name: {"file": f"$DATA/{name}.txt", "format": "labelled"} for name in ("train", "valid", "test")
}  # written by `data`
SERIES = {name: {"series": f"$DATA/{name}.jsonl"} for name in ("train", "valid", "test")}
RECORDING = {
    name: {"series": "$DATA/recording.csv", "time": "hour", "rows": rows}
    for name, rows in (("train", [0, 60]), ("valid", [60, 75]), ("test", [75, 90]))
}

TAGGED = {name: {"file": f"$DATA/{name}.conll"} for name in ("train", "valid", "test")}  # the same

TRANSFORMER = {"size": 8, "num_heads": 2, "feed_forward_size": 12, "dropout": 0.2}
RECURRENT = {"cell": "gru", "embedding_size": 6, "hidden_size": 8, "dropout": 0.2}
EACH_ENCODER: dict[str, dict[str, Any]] = {
    "convolution": {"kind": "convolution", "size": 6, "kernel_size": 3, "num_layers": 1, "dropout": 0.2},
    "embeddings": {"kind": "embeddings", "size": 6, "dropout": 0.2},
    "recurrent": {"kind": "recurrent", **RECURRENT},
    "text_convolution": {"kind": "text_convolution", "embedding_size": 6, "widths": [1, 2], "filters": 5},
    "transformer": {"kind": "transformer", "num_layers": 1, **TRANSFORMER},
}
EACH_DECODER: dict[str, dict[str, Any]] = {
    "state": {"kind": "recurrent", "looks": "state", **RECURRENT},
    "context": {"kind": "recurrent", "looks": "context", **RECURRENT, "cell": "lstm"},
    "luong": {"kind": "recurrent", **RECURRENT},
    "bahdanau": {"kind": "recurrent", "order": "bahdanau", "attention": "additive", **RECURRENT},
    "input feeding": {"kind": "recurrent", "input_feeding": True, **RECURRENT},
    "transformer": {"kind": "transformer", "num_layers": 1, **TRANSFORMER},
}


def translator(model: dict[str, Any]) -> dict[str, Any]:
    return {"task": "translate", "data": PAIRS, "text": APART, "model": model, "training": ON_PAIRS}


def classifier(encoder: dict[str, Any], **model: Any) -> dict[str, Any]:
    model = {"kind": "classifier", "encoder": encoder, **model}
    return {"task": "classify", "data": LABELLED, "text": WORDS, "model": model, "training": ON_PAIRS}


def tagger(encoder: dict[str, Any], tags: str = "data", label: str | None = None, **model: Any) -> dict[str, Any]:
    model = {"kind": "tagger", "encoder": encoder, **model}
    data = {name: {**corpus, "label": label} for name, corpus in TAGGED.items()}
    return {"task": "tag", "data": data, "tags": {"scheme": tags}, "model": model, "training": ON_PAIRS}


def of_series(task: str, key: str, model: dict[str, Any], **corpus: Any) -> dict[str, Any]:
    data = {name: {**one, "target": key, **corpus} for name, one in SERIES.items()}
    return {"task": task, "data": data, "model": model, "training": ON_PAIRS}


def forecaster(model: dict[str, Any], **forecast: Any) -> dict[str, Any]:
    return {
        "task": "forecast",
        "data": RECORDING,
        "forecast": {"history": 8, "horizon": 3, **forecast},
        "model": model,
        "training": {**STEPS, "batch_windows": 5},
    }


def language(task: str, model: dict[str, Any], **training: Any) -> dict[str, Any]:
    return {"task": task, "data": TEXT, "text": WORDS, "model": model, "training": {**ON_TEXT, **training}}


def vectors(model: dict[str, Any], **training: Any) -> dict[str, Any]:
    data = {"train": TEXT["train"], "test": {"judged": "$DATA/judged.tsv", "analogies": "$DATA/analogies.txt"}}
    training = {"epochs": 1, "deterministic": True, **training}
    return {
        "task": "embed",
        "data": data,
        "text": {"min_count": 2},
        "model": {"size": 4, **model},
        "training": training,
    }


RECIPES: dict[str, dict[str, Any]] = {
    **{
        f"{encoder} to {decoder}": translator(
            {"kind": "encoder_decoder", "encoder": EACH_ENCODER[encoder], "decoder": EACH_DECODER[decoder]}
        )
        for encoder in EACH_ENCODER
        for decoder in EACH_DECODER
    },
    "recurrent_translator": translator({"kind": "recurrent_translator", **RECURRENT}),
    "transformer_translator": translator(
        {"kind": "transformer_translator", "encoder_layers": 1, "decoder_layers": 1, **TRANSFORMER}
    ),
    **{f"classifier of {encoder}": classifier(EACH_ENCODER[encoder]) for encoder in EACH_ENCODER},
    **{
        f"classifier, {how}": classifier(EACH_ENCODER["recurrent"], pooling=how)
        for how in ("attention", "last", "max", "sum")
    },
    **{
        f"classifier of series, {encoder}": of_series(
            "classify", "label", {"kind": "classifier", "encoder": EACH_ENCODER[encoder], "noise": 0.1, "dropout": 0.1}
        )
        for encoder in EACH_ENCODER
    },
    **{
        f"step_tagger of {encoder}": of_series(
            "tag_steps",
            "tags",
            {"kind": "step_tagger", "encoder": EACH_ENCODER[encoder], "noise": 0.1},
            label_of="each",
        )
        for encoder in ("convolution", "recurrent")
    },
    "regressor of series": of_series(
        "regress", "numbers", {"kind": "regressor", "encoder": EACH_ENCODER["recurrent"], "pooling": "last"}
    ),
    "regressor of texts": {
        "task": "regress",
        "data": {name: {"file": f"$DATA/{name}.tsv"} for name in ("train", "valid", "test")},
        "text": WORDS,
        "model": {"kind": "regressor", "encoder": EACH_ENCODER["transformer"]},
        "training": ON_PAIRS,
    },
    "dlinear": forecaster({"kind": "dlinear", "moving_average": 3}, quantiles=[0.1, 0.5, 0.9]),
    "linear_forecaster": forecaster({"kind": "linear_forecaster", "each_channel": True, "normalisation": "last"}),
    "recurrent forecaster": forecaster(
        {"kind": "encoder_forecaster", "encoder": EACH_ENCODER["recurrent"], "pooling": "last", "steps": "recursive"}
    ),
    "transformer forecaster": forecaster(
        {
            "kind": "encoder_forecaster",
            "encoder": EACH_ENCODER["transformer"],
            "channels": "apart",
            "patch": 4,
            "patch_stride": 2,
            "pooling": "all",
            "dropout": 0.1,
        },
        quantiles=[0.25, 0.5],
    ),
    **{f"tagger of {encoder}": tagger(EACH_ENCODER[encoder], "bioes") for encoder in EACH_ENCODER},
    "tagger with labels": tagger(EACH_ENCODER["transformer"], label="kind"),
    "tagger of turns": tagger(EACH_ENCODER["recurrent"], turns={**EACH_ENCODER["embeddings"]}),
    "tagger, softmax": tagger(EACH_ENCODER["recurrent"], output="softmax", word_dropout=0.2),
    **{
        f"tagger, letters by {kind}": tagger(EACH_ENCODER["recurrent"], characters={"kind": kind, "size": 2})
        for kind in CHARACTERS
    },
    "hierarchical_classifier": {
        **classifier({}),
        "model": {
            "kind": "hierarchical_classifier",
            "embedding_size": 6,
            "word_size": 4,
            "sentence_size": 6,
            "sentences": {"longest": 4},
        },
    },
    "classifier of sets": {**classifier(EACH_ENCODER["embeddings"]), "labels_separator": ","},
    "classifier of ngrams": classifier(
        {**EACH_ENCODER["embeddings"], "word_ngrams": 2, "buckets": 50, "subwords": {"buckets": 40}}
    ),
    **{
        f"classifier, {how}": classifier(EACH_ENCODER["recurrent"], pooling=how)
        for how in ("attention", "last", "max", "sum")
    },
    "feed_forward_lm": language(
        "model_language", {"kind": "feed_forward_lm", "size": 5, "hidden_size": 6, "window": 3}
    ),
    "ngram_lm": {"task": "model_language", "data": TEXT, "text": WORDS, "model": {"kind": "ngram_lm", "order": 3}},
    "recurrent_lm": language("model_language", {"kind": "recurrent_lm", "size": 6, "hidden_size": 7, "dropout": 0.2}),
    "transformer_lm": language(
        "model_language", {"kind": "transformer_lm", "num_layers": 1, "context": 8, **TRANSFORMER}, batching="windows"
    ),
    "masked_lm": language(
        "model_masked_language", {"kind": "masked_lm", "num_layers": 1, "context": 20, **TRANSFORMER}
    ),
    "bidirectional_lm": language(
        "model_bidirectional_language", {"kind": "bidirectional_lm", "size": 6, "num_layers": 1, "dropout": 0.2}
    ),
    "skipgram": vectors({"kind": "skipgram"}),
    "fasttext": vectors({"kind": "skipgram", "subwords": {"buckets": 50}}),
    "cbow": vectors({"kind": "cbow"}),
    "glove": vectors({"kind": "glove"}),
    "ppmi": vectors({"kind": "ppmi"}),
}
TEXTS = ["the green witch arrived", "a cat", "", "the dogs of the witch did not sleep"]
WAVES = [[[math.sin(step), step / (length - 1)] for step in range(length)] for length in (9, 12, 8)]
VERBS = ("predict", "evaluate", "trace", "generate", "score")


def test_every_model_of_every_task_is_here() -> None:
    found = {(recipe["task"], recipe["model"]["kind"]) for recipe in RECIPES.values()}
    assert found == {(task, kind) for task in TASKS for kind in find_task(task).models}


def test_every_encoder_and_every_decoder_is_here() -> None:
    assert EACH_ENCODER.keys() == ENCODERS.keys()
    assert {decoder["kind"] for decoder in EACH_DECODER.values()} == DECODERS.keys()
    for settings in (*EACH_ENCODER.values(), *EACH_DECODER.values()):
        assert settings["kind"] in ENCODERS | DECODERS


@pytest.mark.parametrize("name", TASKS)
def test_a_task_declares_what_others_must_know_of_it(name: str) -> None:
    task = find_task(name)
    assert issubclass(task, Task)
    assert task.name == name
    assert task.about
    assert task.kind
    assert task.metrics, "models of every task can be compared"
    assert set(task.drawn) <= METRICS.keys()
    assert task.verbs <= set(VERBS)
    assert task.tests in ("first", "all")
    assert task.per_symbol <= METRICS.keys()
    for field in ("task", "data", "text", "model", "training"):
        assert field in task.Recipe.model_fields


# -- its run ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of the grammar: affirmed or denied, or with a tag for each word; words judged by nobody."""
    folder = tmp_path_factory.mktemp("data")
    for name, corpus in PAIRS.items():
        lines = [
            f"{'__label__denied' if ' not ' in pair.source else '__label__affirmed'} {pair.source}\n"
            for pair in read_pairs(CorpusSettings(**corpus))
        ]
        (folder / f"{name}.txt").write_text("".join(lines))
        sentences = [pair.source.split() for pair in read_pairs(CorpusSettings(**corpus))]
        (folder / f"{name}.conll").write_text("\n".join(map(in_columns, sentences)))
    assert len({line.split()[0] for line in (folder / "train.txt").read_text().splitlines()}) == 2
    write_series(folder)
    words = Counter(word for line in read_lines(PlainTextSettings(**TEXT["train"])) for word in words_of(line))
    a, b, c, d = (word for word, _ in words.most_common(4))
    (folder / "judged.tsv").write_text(f"{a}\t{b}\t3\n{a}\t{c}\t7\n{d}\t{c}\t1\nnowhere\t{b}\t5\n")
    (folder / "analogies.txt").write_text(f": any\n{a} {b} {c} {d}\n{a} {c} nowhere {d}\n")
    return folder


def in_columns(words: list[str]) -> str:
    """An article and what follows it are a span; a word a line with its tag."""
    tags = ["O"] * len(words)
    for place, word in enumerate(words[:-1]):
        if word in ("the", "a"):
            tags[place : place + 2] = ["B-thing", "I-thing"]
    kind = "# kind = denied\n" if "not" in words else "# kind = affirmed\n"
    return kind + "".join(f"{word} {tag}\n" for word, tag in zip(words, tags, strict=True))


def write_series(folder: Path) -> None:
    """Series that rise or fall, with a label, a label for each step, and two numbers; a recording; texts' lengths."""
    random = np.random.default_rng(3)
    for name, many in (("train", 24), ("valid", 5), ("test", 4)):
        lines, texts = [], []
        for number in range(many):
            rises, length = number % 2, int(random.integers(4, 9))
            steps = [[(1 if rises else -1) * step + float(random.normal()), 0.5 * step] for step in range(length)]
            tags = ["late" if step > 2 else "early" for step in range(length)]
            numbers = [length, 2 * rises]
            line = {"series": steps, "label": "up" if rises else "down", "tags": tags, "numbers": numbers}
            lines.append(json.dumps(line) + "\n")
            texts.append(f"{'word ' * length}end\t{length}\n")
        (folder / f"{name}.jsonl").write_text("".join(lines))
        (folder / f"{name}.tsv").write_text("".join(texts))
    rows = [f"{hour},{math.sin(hour / 2) + 0.01 * hour:.4f},{math.cos(hour / 2):.4f}\n" for hour in range(90)]
    (folder / "recording.csv").write_text("hour,a,b\n" + "".join(rows))


def recipe_of(name: str, data: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(RECIPES[name]).replace("$DATA", str(data)))
    return values


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Finished runs by the name of their recipe, each trained when it is first asked for."""
    folder = tmp_path_factory.mktemp("contract")

    class Runs(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            train(recipe_of(name, data), folder / name)
            self[name] = folder / name
            return self[name]

    return Runs()


@pytest.fixture(params=RECIPES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(name: str, runs: Mapping[str, Path]) -> Path:
    return runs[name]


@pytest.fixture
def model(run: Path) -> Model:
    return load(run)


def given(model: Model) -> list[Any]:
    """Words that have a vector, series, or texts."""
    if model.task.is_input(TEXTS):  # turns of a conversation
        return [TEXTS[:2], [TEXTS[1]], "", [*TEXTS[3:], *TEXTS[:1]]]
    if isinstance(model.network, WordVectors):
        return list(model.network.words[:3])
    return TEXTS if getattr(getattr(model.task, "source", None), "is_text", True) else WAVES


# -- the contract -----------------------------------------------------------------------------------------------------


def test_its_folder_is_complete_and_executes_nothing(run: Path, model: Model) -> None:
    config = json.loads((run / "model" / "config.json").read_text())
    assert config["task"] == model.task.name
    assert isinstance(config["engines"], list)
    kind = config["model"]["kind"]
    card = (run / "model" / "README.md").read_text()
    assert f"| model | {kind}, {model.size()} |" in card
    assert model.task.about in card
    assert not list(run.rglob(".*")), "nothing half-written is left"
    for path in (run / "model").iterdir():
        assert path.suffix in (".json", ".safetensors", ".md", ".txt", ".tsv"), path
        start = path.read_bytes()[:9]
        if path.suffix == ".safetensors" and start[8:] == b"{":
            continue  # it begins with the length of its header, which may be any number
        assert not start.startswith(b"\x80"), f"{path} may be a pickle"
        assert start != b"PK", f"{path} may be a zip file, such as torch.save writes"
    moved = Path(shutil.copytree(run / "model", run.parent / f"moved {run.name}"))
    assert load(moved).size() == model.size()
    assert model.size() in repr(load(moved))
    assert load(moved).recipe() is None


def test_it_knows_its_run(name: str, model: Model, data: Path) -> None:
    recipe = model.recipe()
    assert recipe == load_recipe(recipe_of(name, data))
    assert model.name == name
    assert sum(model.task.amounts(model.network).values()) > 0
    steps = model.task.next_steps(Path("m"), model.network)
    assert steps
    assert all(step.startswith("seqloom ") and " m" in step for step in steps)
    for corpus in recipe.data.corpora().values():
        assert model.task.describe(corpus)
        assert re.fullmatch("[0-9a-f]{32,}", model.task.fingerprint(corpus))


def test_answers_together_are_answers_one_by_one(model: Model) -> None:
    if not model.can("predict"):
        pytest.skip("refused, see below")
    done: list[int] = []
    together = model.predict(given(model), done.append)
    assert done[-1] == len(together) == len(given(model))
    assert done == sorted(done)
    for text, answer in zip(given(model), together, strict=True):
        alone = model(text)
        assert answer.source == alone.source == text
        assert answer.text == alone.text
        assert answer.score == pytest.approx(alone.score, abs=1e-4)
        one, other = (json.loads(json.dumps(found.to_dict())) for found in (answer, alone))
        assert one.keys() == other.keys()
        assert not [other for other in answer.alternatives if other.score > answer.score + 1e-6]


def test_it_is_measured(model: Model) -> None:
    for name, corpus in model.corpora().items():
        shares: list[float] = []
        report = model.evaluate(
            corpus, name=f"<b>{name}", progress=lambda share, figures, shares=shares: shares.append(share)
        )
        assert isinstance(report, Report)
        assert shares == sorted(shares)
        assert all(0.0 <= share <= 1.0 for share in shares)
        assert report.figures
        assert report.figures.keys() & {metric.name for metric in model.task.metrics}
        assert report.figures.keys() <= METRICS.keys()
        assert all(math.isfinite(figure) for figure in report.figures.values())
        found = json.loads(json.dumps(report.to_dict(), allow_nan=False))
        assert {key: found[key] for key in report.figures} == pytest.approx(report.figures)
        assert report.name in report.render()
        page = report._repr_html_()
        assert "<b>" not in page
        assert html.escape(report.name) in page
        assert isinstance(report.answers, list)
        again = model.evaluate(corpus, name=name)
        assert again.figures == report.figures, "the same model on the same data"
        assert again.coverage == report.coverage


class Crash(Exception):
    pass


def test_a_crashed_run_goes_on_to_the_same_bits(
    name: str, run: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the checkpoint of step 2, with dropout; what is counted or has no steps is the same when made again."""
    from seqloom.training.loop import Learner

    values, original = recipe_of(name, data), Learner.update

    def update(self: Learner, batches: Any, step: int, rate: float, notes: Any = ()) -> Any:
        if step == 3:
            raise Crash
        return original(self, batches, step, rate, notes)

    if "steps" in values.get("training", {}):
        with monkeypatch.context() as patch:
            patch.setattr(Learner, "update", update)
            with pytest.raises(Crash):
                train(values, tmp_path / name)
        with pytest.raises(UserError, match="no model yet; finish it with"):
            load(tmp_path / name)
        train(tmp_path / name, resume=True)
    else:
        train(values, tmp_path / name)
    weights = list((run / "model").glob("*.safetensors"))
    assert weights
    for path in (run / "model").iterdir():
        if path.name != "README.md":
            assert (tmp_path / name / "model" / path.name).read_bytes() == path.read_bytes(), path.name


def test_it_shows_what_it_did_or_says_why_not(model: Model) -> None:
    if not model.can("trace"):
        pytest.skip("refused, see below")
    if isinstance(model.network, NGramLanguageModel):
        with pytest.raises(UserError, match="n-grams have neither gates nor heads"):
            model.trace(given(model)[0])
        return
    trace = model.trace(given(model)[0])
    assert isinstance(trace, Trace)
    for name in trace.names():
        array = trace[name]
        assert np.isfinite(array.values).all(), name
        for axis, label in enumerate(array.axes):
            if label in array.labels:
                assert len(array.labels[label]) == array.values.shape[axis], f"{name}: {label}"
        if name.endswith(("attention", ".self", ".cross")):
            assert array.values.min() >= 0, name
            np.testing.assert_allclose(array.values.sum(-1), 1.0, atol=1e-5, err_msg=name)
    assert model.task.name != "translate" or ("decoder.attention" in trace.names()) == model.network.attends
    assert trace.to_dict()


def test_what_it_cannot_do_is_refused_in_one_sentence(model: Model) -> None:
    asked: dict[str, Any] = {
        "predict": lambda: model("a cat"),
        "evaluate": lambda: model.evaluate(next(iter(model.corpora().values()))),
        "trace": lambda: model.trace("a cat"),
        "generate": lambda: model.generate("a cat"),
        "score": lambda: model.score(["a cat"]),
    }
    assert set(asked) == set(VERBS)
    for verb, ask in asked.items():
        if not model.can(verb):
            with pytest.raises(UserError) as caught:
                ask()
            assert str(caught.value) == str(model.task.refusal(verb, model.folder))
            assert str(model.folder) in str(caught.value)
            assert "\n" not in str(caught.value)


def test_options_that_it_does_not_have_are_refused(model: Model) -> None:
    ask = model if model.can("predict") else model.evaluate
    what: Any = given(model)[0] if model.can("predict") else next(iter(model.corpora().values()))
    with pytest.raises(UserError, match=r"beem_size is not a setting|takes no options when it answers; got beem_size"):
        ask(what, beem_size=3)
    with pytest.raises(UserError, match="takes no 'lowercased'; leave it out"):
        model.evaluate(next(iter(model.corpora().values())), how={"lowercased": True})


def test_it_generates_and_scores_where_it_can(model: Model) -> None:
    if model.can("generate"):
        one, again = (model.generate("the", count=2, seed=4, max_length=5) for _ in range(2))
        assert one == again
        assert all(text.text.startswith("the") and len(text.tokens) <= 6 for text in one)
        json.dumps([text.to_dict() for text in one])
    if model.can("score"):
        together = model.score(TEXTS)
        for line, scored in zip(TEXTS, together, strict=True):
            [alone] = model.score([line])
            assert scored.log_probability == pytest.approx(alone.log_probability, rel=1e-4)
            assert scored.log_probability < 0


def test_it_runs_on_another_engine_or_says_why_not(model: Model, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    from seqloom.export.ctranslate2 import export

    engines = model.task.engines(model.network)
    assert engines == model.config["engines"]
    if "ctranslate2" not in engines:
        with pytest.raises(UserError) as caught:
            export(model, tmp_path / "exported", verify=False)
        assert "CTranslate2" in str(caught.value)
        assert "\n" not in str(caught.value)
        return
    export(model, tmp_path / "exported", verify=False)
    exported = load(tmp_path / "exported")
    for ours, theirs in zip(model.predict(given(model)), exported.predict(given(model)), strict=True):
        assert ours.text == theirs.text
        assert ours.score == pytest.approx(theirs.score, abs=1e-3)


def test_it_begins_as_its_run_began(name: str, model: Model) -> None:
    if not hasattr(model.network, "parameters"):
        with pytest.raises(UserError, match="before training"):
            model.fresh()
        return
    fresh, again = model.fresh(), model.fresh()
    ours, first, second = (dict(network.named_parameters()) for network in (model.network, fresh, again))
    assert ours.keys() == first.keys() == second.keys()
    assert all(bool((first[key] == second[key]).all()) for key in first)
    assert any(bool((first[key] != ours[key]).any()) for key in first), "it has learned"


# -- folders that are damaged or forged -------------------------------------------------------------------------------


def test_a_damaged_or_missing_file_is_named(run: Path, tmp_path: Path) -> None:
    for path in sorted((run / "model").iterdir()):
        if path.suffix == ".md":
            continue
        folder = Path(shutil.copytree(run / "model", tmp_path / path.name))
        damaged = folder / path.name
        for content in (path.read_bytes()[: path.stat().st_size // 2], b"\x00\xff\x80", b"", None):
            damaged.unlink(missing_ok=True)
            if content is not None:
                damaged.write_bytes(content)
            with pytest.raises(UserError) as caught:
                load(folder)
            assert path.name in str(caught.value) or content is None, f"{path.name}: {caught.value}"


def numbers_in(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where whole numbers are in nested settings."""
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in items:
        if isinstance(value, int) and not isinstance(value, bool):
            yield (*path, key)
        yield from numbers_in(value, (*path, key))


def refusal_of(folder: Path) -> str | None:
    """Why a model folder is not loaded; any other error is a bug."""
    try:
        load(folder)
    except UserError as error:
        return str(error)
    return None


def memory() -> int:
    """The most bytes that this process had at once, so far."""
    import resource

    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_sizes_that_no_file_has_are_refused_at_once(run: Path, tmp_path: Path) -> None:
    """A stranger's settings may name terabytes; a number that is no size, such as a context, may well be large."""
    folder = Path(shutil.copytree(run / "model", tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    load(folder)
    before, began, refused = memory(), time.monotonic(), 0
    places = list(numbers_in(config["model"]))
    for place in places:
        for number in (16_000, 2**20 * 3, 10**12, 10**30):
            forged = copy.deepcopy(config)
            section = forged["model"]
            for key in place[:-1]:
                section = section[key]
            section[place[-1]] = number
            (folder / "config.json").write_text(json.dumps(forged))
            refusal = refusal_of(folder)
            assert refusal is None or str(folder) in refusal
            refused += refusal is not None
    assert refused or not places
    assert memory() - before < 100 * 2**20
    assert time.monotonic() - began < 2.0 * max(1, len(places))


def test_a_large_number_that_is_no_size_is_loaded(runs: Mapping[str, Path], tmp_path: Path) -> None:
    """How far back a model without a table of positions may look is no weight's width."""
    folder = Path(shutil.copytree(runs["transformer_lm"] / "model", tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    config["model"]["context"] = 16_000
    (folder / "config.json").write_text(json.dumps(config))
    assert load(folder).score(["a cat"])[0].log_probability < 0
