"""Answering with an exported model: the same answers as the original's in every search, and torch stays out."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import seqloom
from seqloom.cli.main import run
from seqloom.corpus.examples import Pair
from seqloom.decoding.sampling import keep_likely
from seqloom.decoding.settings import DecodingSettings
from seqloom.errors import UserError
from seqloom.export.ctranslate2 import export
from seqloom.export.engine import MISSING, Engine
from seqloom.export.search import BUDGETS, SHARES
from seqloom.export.translator import ExportedTranslation, open_exported
from seqloom.machine import num_cores
from seqloom.model import Model, load
from seqloom.tasks.translate import Translation
from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID

SENTENCES = [
    "the green witch arrived",
    "the dogs did not sleep",
    "",
    "a cat",
    "my old uncle saw the red house where the dog that we found slept",
    "the witch sings",
    "   ",
    "zebras and quaggas",
    "she did not buy the book",
]


@pytest.fixture(scope="module")
def folder(tiny_transformer_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(load(tiny_transformer_run), tmp_path_factory.mktemp("exported") / "model", sentences=10)[0]


def opened(folder: Path, num_workers: int = 1) -> Model:
    return Model(*open_exported(folder, num_workers))


def found_by(model: Model, texts: list[str], options: Any) -> list[Any]:
    """The answers as symbols, in order."""
    found = dict(model.task.translate(model.network, texts, options))
    return [found[index] for index in range(len(texts))]


@pytest.fixture(scope="module")
def exported(folder: Path) -> Model:
    return opened(folder, num_workers=2)


@pytest.fixture(scope="module")
def original(tiny_transformer_run: Path) -> Model:
    return load(tiny_transformer_run)


# Several beginnings may end in the last step, so that more than beam_size have ended. CTranslate2 hands over the
# beam_size best by its own normalisation, and the one that ours ranks first can be missing among them: answers of three
# and seven symbols to a question of five, as this hardly trained model gives, are ranked very differently by the two.
differs = pytest.mark.xfail(reason="more than beam_size ended, and the two engines keep other ones", strict=False)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "greedy"},
        {"method": "greedy", "unknown": "keep"},
        {"method": "greedy", "unknown": "forbid"},
        {"method": "greedy", "max_ratio": 0.1, "unknown": "forbid"},
        {"beam_size": 1},
        {},
        {"beam_size": 3, "length_penalty": 0.0},
        pytest.param({"beam_size": 4, "length_penalty": 2.0}, marks=differs),
        pytest.param({"unknown": "forbid"}, marks=differs),
        pytest.param({"coverage_penalty": 0.3}, marks=differs),
        {"early_stop": False},
        {"early_stop": False, "length_penalty": 0.0, "n_best": 3},
        {"batch_tokens": 1},
    ],
    ids=lambda values: " ".join(f"{key}={value}" for key, value in values.items()) or "default",
)
def test_every_search_answers_as_the_original(options: dict[str, Any], original: Model, exported: Model) -> None:
    counted: list[int] = []
    theirs, ours = exported.predict(SENTENCES, counted.append, **options), original.predict(SENTENCES, **options)
    assert counted[-1] == len(SENTENCES)
    for one, other in zip(theirs, ours, strict=True):
        assert (one.source, one.text, one.tokens, one.finished) == (
            other.source,
            other.text,
            other.tokens,
            other.finished,
        )
        assert [a.text for a in one.alternatives] == [a.text for a in other.alternatives]
        if options.get("unknown") != "forbid":
            assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-4)
        elif not one.finished:
            continue  # CTranslate2 gives the log_probs of a known answer before UNK is left out
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)


def test_the_answers_above_show_what_they_should(original: Model) -> None:
    """The comparison proves nothing about cases that do not happen."""
    answers = original.predict(SENTENCES)
    assert any("<unk>" in answer.tokens for answer in answers)
    assert all("<unk>" not in answer.text for answer in answers)
    assert len({answer.text for answer in answers}) >= 6
    assert not all(a.finished for a in original.predict(SENTENCES, method="greedy", max_ratio=0.1, unknown="forbid"))


def test_a_beam_that_was_cut_is_asked_again_while_the_rest_is_worked_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["the", "dogs", "that", "we", "found", "did", "not", "see", "my", "old", "green", "uncle"]
    texts = [" ".join(words[first:last]) for first in range(6) for last in range(first + 1, len(words) + 1)]
    tight = {"beam_size": 3, "max_length": 6, "batch_tokens": 20, "unknown": "keep"}
    fresh = opened(folder)
    alone = [fresh(text, **tight) for text in texts]
    asked: list[tuple[int, ...]] = []
    submit = type(fresh.network).submit
    monkeypatch.setattr(
        type(fresh.network),
        "submit",
        lambda self, sources, **options: asked.extend(map(tuple, sources)) or submit(self, sources, **options),
    )
    together = fresh.predict(texts, **tight)
    assert [(a.text, a.finished) for a in together] == [(a.text, a.finished) for a in alone]
    seen = set(map(tuple, fresh.network.source.encode_many(texts)))
    again = [place for place, source in enumerate(asked) if source in asked[:place]]
    assert {asked[place] for place in again} < set(asked) == seen, "some, not all"
    assert again[0] < max(asked.index(source) for source in seen), (
        "before all others have been asked for the first time"
    )


def test_sums_of_beams_that_were_cut_are_found_while_the_rest_is_worked_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fresh = opened(folder)
    tight = {"beam_size": 3, "max_length": 6, "batch_tokens": 20, "unknown": "keep"}
    texts = [text for text in SENTENCES if text.strip()] * 5
    alone = [fresh(text, **tight) for text in texts]
    for name in ("submit", "submit_scores"):
        real = getattr(Engine, name)
        monkeypatch.setattr(
            Engine, name, lambda *given, real=real, name=name, **more: events.append(name) or real(*given, **more)
        )
    together = fresh.predict(texts, **tight)
    assert [(a.text, a.finished) for a in together] == [(a.text, a.finished) for a in alone]
    assert [a.score for a in together] == pytest.approx([a.score for a in alone], abs=1e-4)
    assert 0 < events.index("submit_scores") < len(events) - events[::-1].index("submit") - 1


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_answers_are_made_into_text_while_the_engine_works_on_others(
    folder: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fresh = opened(folder)
    submit, shown = type(fresh.network).submit, ExportedTranslation.shown
    monkeypatch.setattr(
        type(fresh.network), "submit", lambda *given, **options: events.append("ask") or submit(*given, **options)
    )
    monkeypatch.setattr(ExportedTranslation, "shown", lambda *given: events.append("show") or shown(*given))
    texts = [text for text in SENTENCES if text.strip()] * 10
    fresh.predict(texts, method=method, batch_tokens=20, unknown="keep")
    assert events.count("show") == len(texts)
    last = len(events) - events[::-1].index("ask")
    assert events[:last].count("show") > events[last:].count("show") > 0


def test_texts_are_cut_a_window_at_a_time_while_the_engine_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answers in any window, each text in its place; the second is cut after the first has been asked."""
    fresh = opened(folder)
    fresh.task.positions = None  # nobody has to look at all texts first
    texts = [
        f"{text} {who}".strip() if text.strip() else text for text in SENTENCES for who in ("", "the dog", "sings")
    ]
    whole = [fresh(text).text for text in texts]
    events: list[str] = []
    submit, cut = type(fresh.network).submit, type(fresh.network.source).encode_many
    monkeypatch.setattr("seqloom.export.search.WINDOW", 7)
    monkeypatch.setattr(
        type(fresh.network), "submit", lambda *given, **options: events.append("ask") or submit(*given, **options)
    )
    monkeypatch.setattr(
        type(fresh.network.source), "encode_many", lambda own, some: events.append(f"cut {len(some)}") or cut(own, some)
    )
    counted: list[int] = []
    answers = fresh.predict(texts, counted.append, method="beam", batch_tokens=30)
    assert [answer.text for answer in answers] == whole
    assert [answer.source for answer in answers] == texts
    assert [event for event in events if event != "ask"] == ["cut 7", "cut 7", "cut 7", "cut 6"]
    assert events[:2] == ["cut 7", "ask"]
    assert counted == sorted(counted)
    assert counted[-1] == len(texts)


@pytest.mark.parametrize("compute", ["float32", "int8"])
@pytest.mark.parametrize(("method", "beam_size"), [("greedy", 5), ("beam", 3)])
def test_batches_fill_their_budget_and_shrink_towards_the_end(
    folder: Path, compute: str, method: str, beam_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each hypothesis of a beam takes its part of the budget; no batch is a large part of a worker's share."""
    fresh = opened(folder, num_workers=2)
    sizes: list[int] = []
    submit = type(fresh.network).submit

    def counted(engine: Any, sources: list[list[int]], **options: Any) -> list[Any]:
        sizes.append(max(map(len, sources), default=0) * len(sources) + len(sources))
        return submit(engine, sources, **options)

    monkeypatch.setattr(type(fresh.network), "submit", counted)
    monkeypatch.setattr("seqloom.export.search.WINDOW", 10**6)
    texts = ["the green witch arrived"] * 6000
    fresh.predict(texts, method=method, beam_size=beam_size, unknown="keep", precision=compute, batch_tokens=10**6)
    least, most = (symbols // (beam_size if method == "beam" else 1) for symbols in BUDGETS[compute])
    one = len(fresh.network.source.encode(texts[0])) + 1
    assert max(sizes) <= most
    assert max(sizes) > most - one
    assert all(size > least - one for size in sizes[:-1]), "the very last holds what is left"
    assert sizes == sorted(sizes, reverse=True)
    for place, size in enumerate(sizes):
        assert size <= max(least, sum(sizes[place:]) // (SHARES * 2))


def test_greedy_search_finds_out_how_likely_an_answer_is_when_that_is_asked(
    exported: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[int] = []
    log_probs = Engine.log_probs
    monkeypatch.setattr(
        Engine, "log_probs", lambda self, *asked: scored.append(len(asked[0])) or log_probs(self, *asked)
    )
    answers = exported.predict(SENTENCES, method="greedy")
    assert not scored
    summed = found_by(exported, SENTENCES, exported.options.overridden({"method": "greedy"}))
    for answer, (found,) in zip(answers, summed, strict=True):
        assert answer.log_probability == answer.score == pytest.approx(found.log_probability, abs=1e-4)
    assert [count for count in scored if count] == [len([text for text in SENTENCES if text.strip()])], "all at once"


def test_it_is_measured_on_lists(original: Model, exported: Model) -> None:
    sources, targets = ["the dog slept", "a cat"], ["el perro durmió", "un gato"]
    assert (
        exported.evaluate(sources, targets).figures
        == original.evaluate(list(zip(sources, targets, strict=True))).figures
    )
    with pytest.raises(UserError, match="num_beams is called beam_size here"):
        exported("a cat", num_beams=2)
    with pytest.raises(UserError, match="keeps its tokenizers to itself"):
        _ = exported.tokenizer


def test_a_text_of_which_it_knows_nothing_gets_the_same_warning(original: Model, exported: Model) -> None:
    ours, theirs = original("ZYX QUUX"), exported("ZYX QUUX")
    assert ours.warnings == theirs.warnings == ["the model knows none of the words 'ZYX', 'QUUX'"]
    assert exported("the dog slept").warnings == []


def test_an_export_computes_with_eight_bits_where_that_is_asked(folder: Path, exported: Model, original: Model) -> None:
    fresh = opened(folder)
    rounded = fresh.predict(SENTENCES, precision="int8")
    exact = exported.predict(SENTENCES)
    assert (fresh.network.compute, fresh.network.int8.compute) == ("float32", "int8")
    assert [a.score for a in rounded] != [a.score for a in exact]
    assert [a.score for a in rounded] == pytest.approx([a.score for a in exact], abs=0.5)
    assert [a.score for a in original.predict(SENTENCES, precision="int8")] == pytest.approx(
        [a.score for a in exact], abs=0.5
    )


def test_log_probabilities_of_answers_in_eight_bits_are_computed_in_eight_bits_too(folder: Path) -> None:
    fresh = opened(folder)
    greedy = DecodingSettings(method="greedy", precision="int8")
    summed = found_by(fresh, SENTENCES, greedy)  # the search itself adds up
    answers = fresh.predict(SENTENCES, method="greedy", precision="int8")  # asked for afterwards
    exact = fresh.predict(SENTENCES, method="greedy")
    sums = [rivals[0].log_probability for rivals in summed]
    assert [a.log_probability for a in answers] == pytest.approx(sums, abs=1e-4)
    assert [a.log_probability for a in exact] != pytest.approx(sums, abs=1e-4)


def test_n_best_is_ranked_and_widens_the_beam(original: Model, exported: Model) -> None:
    one, other = (model("the dogs did not sleep", n_best=7) for model in (exported, original))
    scores = [one.score, *(a.score for a in one.alternatives)]
    assert len(scores) == 7
    assert scores == sorted(scores, reverse=True)
    assert one.text == other.text
    same = {tuple(a.tokens) for a in one.alternatives} & {tuple(a.tokens) for a in other.alternatives}
    assert len(same) >= 5, "CTranslate2 keeps beam_size of what ended, we keep all: the last may differ"


def test_a_model_may_give_more_answers_than_its_beam_is_wide(folder: Path) -> None:
    fresh = opened(folder)
    fresh.options = DecodingSettings(beam_size=2, n_best=4)
    assert len(fresh("the dogs did not sleep").alternatives) == 3


def test_sampling_follows_its_seed(exported: Model) -> None:
    draw = lambda seed: [a.text for a in exported.predict(SENTENCES, method="sample", seed=seed)]  # noqa: E731
    assert draw(3) == draw(3)
    assert len({tuple(draw(seed)) for seed in range(4)}) == 4
    answer = exported("the dogs did not sleep", method="sample", n_best=4)
    assert len(answer.alternatives) == 3
    assert answer.score == pytest.approx(sum(answer.token_log_probabilities), abs=1e-4)
    greedy = exported.predict(SENTENCES, method="greedy")
    assert [a.text for a in exported.predict(SENTENCES, method="sample", top_k=1)] == [a.text for a in greedy]


@pytest.mark.parametrize("settings", [(1.0, 0, 1.0), (0.6, 0, 1.0), (1.3, 5, 1.0), (1.2, 0, 0.7)])
def test_sampling_draws_from_our_distribution(
    settings: tuple[float, int, float], original: Model, exported: Model
) -> None:
    temperature, top_k, top_p = settings
    text = "the witch sings"
    state = original.network.start(original.task.source.batch([text]))
    with torch.inference_mode():
        features, _, _ = original.network.advance(torch.tensor([BOS_ID]), state)
        logits = original.network.output(features)
        logits[:, [PAD_ID, BOS_ID]] = float("-inf")
        expected = keep_likely(logits.log_softmax(-1), temperature, top_k, top_p).exp()[0]
    chosen = exported.options.overridden(
        {"method": "sample", "temperature": temperature, "top_k": top_k, "top_p": top_p, "max_length": 3, "n_best": 3}
    )
    found = found_by(exported, [text] * 400, chosen)
    counts = Counter((one.tokens or [EOS_ID])[0] for rivals in found for one in rivals)
    assert all(expected[token] > 0 for token in counts)
    away = sum(abs(counts[token] / 1200 - float(share)) for token, share in enumerate(expected)) / 2
    assert away < 0.09


def test_evaluate(original: Model, exported: Model) -> None:
    pairs = [Pair("the dog slept", "el perro durmió", tags=("short",)), Pair("a cat", "un gato"), Pair("", "nada")]
    shares: list[float] = []
    ours, theirs = (
        original.evaluate(pairs, name="tiny"),
        exported.evaluate(pairs, name="tiny", progress=lambda share, _: shares.append(share)),
    )
    assert theirs.answers == ours.answers == [answer.text for answer in exported.predict([p.source for p in pairs])]
    assert theirs.to_dict() == ours.to_dict()
    assert theirs.to_dict()["by_phenomenon"]["short"]["count"] == 1
    assert shares[-1] == 1.0


def test_evaluation_options_reach_the_counting(exported: Model) -> None:
    said = exported("the dog slept").text
    pairs = [Pair("the dog slept", said.upper())]
    assert exported.evaluate(pairs).figures["exact_match"] == (100.0 if said == said.upper() else 0.0)
    assert exported.evaluate(pairs, how={"lowercase": True}).figures["exact_match"] == 100.0


def test_a_report_has_the_metrics_that_the_recipe_names(
    tiny_transformer_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Path(shutil.copytree(tiny_transformer_run / "model", tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    config["metrics"] = ["word_error_rate", "exact_match"]
    (model / "config.json").write_text(json.dumps(config))
    original = load(model)
    exported = load(export(original, verify=False)[0])
    pairs = [Pair("the dog slept", "el perro durmió"), Pair("a cat", "un gato")]
    ours, theirs = original.evaluate(pairs), exported.evaluate(pairs)
    assert list(theirs.figures) == ["word_error_rate", "exact_match"]
    assert theirs.figures == ours.figures
    assert [metric.name for metric in exported.task.metrics] == ["word_error_rate", "exact_match"]


def test_python_opens_either_kind(folder: Path, tiny_transformer_run: Path) -> None:
    model, original = seqloom.load(folder), seqloom.load(tiny_transformer_run)
    assert isinstance(model.task, ExportedTranslation)
    assert isinstance(model.network, Engine)
    assert isinstance(original.task, Translation)
    assert model.size() == original.size()
    assert model.task.amounts(model.network) == original.task.amounts(original.network)
    answer = model("the green witch arrived", method="greedy")
    with pytest.raises(UserError, match="cannot be looked into; ask the model folder"):
        answer.trace  # noqa: B018
    for verb, ask in (("trace", lambda: model.trace("a", "b")), ("generate", model.generate)):
        with pytest.raises(
            UserError, match=f"a model exported to CTranslate2, which cannot {verb}; ask the model folder"
        ):
            ask()


def test_it_has_what_is_asked_of_a_task(exported: Model) -> None:
    """Whoever has a `Model` need not know on what it runs."""
    for name in ("name", "kind", "verbs", "tests", "report_options", "metrics"):
        assert type(getattr(exported.task, name)) is type(getattr(Translation, name)), name
    assert exported.task.name == Translation.name
    assert exported.task.verbs < Translation.verbs
    assert exported.task.report_options == Translation.report_options
    assert exported.task.Options is Translation.Options
    for name in ("corpora", "describe", "size", "amounts", "engines", "predict", "evaluate", "baselines", "trace"):
        ours, theirs = (inspect.signature(getattr(kind, name)) for kind in (ExportedTranslation, Translation))
        assert len(ours.parameters) == len(theirs.parameters), name


def test_texts_beyond_the_positions_are_refused_before_anything_is_done(exported: Model) -> None:
    assert exported("dog " * 1000, method="greedy", max_length=5)
    with pytest.raises(UserError, match="text 2 has 1,024 symbols; the exported model has positions for 1,023"):
        exported.predict(["a cat", "dog " * 1024])
    with pytest.raises(UserError, match=r"decoding\.max_length"):
        exported.predict(["a cat"], max_length=1025)


def test_torch_stays_out(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.tsv").write_text("the green witch arrived\tllegó la bruja verde\na cat\tun gato\n")
    code = f"""
import sys
from seqloom.cli.main import run
assert run(["predict", {str(folder)!r}, "the green witch arrived", "--format", "json"]) == 0
assert run(["predict", {str(folder)!r}, "zebras", "--n-best", "2", "--temperature", "1.2"]) == 0
assert run(["evaluate", {str(folder)!r}, "--data", {str(tmp_path / "in.tsv")!r}, "--format", "json"]) == 0
assert "ctranslate2._ext" in sys.modules
assert "torch" not in sys.modules, "torch was imported"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert json.loads(first)["text"]
    assert json.loads(last)["count"] == 2


def test_workers_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = num_cores()
    assert cores >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert num_cores() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "1000")
    assert num_cores() == cores


# -- folders that are not what they should be ------------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int) -> str:
    capsys.readouterr()
    assert run([str(a) for a in arguments]) == code
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return found.err


def test_other_verbs_say_what_the_folder_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, instead in (
        (("train", folder), "training starts from a recipe"),
        (("data", "check", folder), "training starts from a recipe"),
        (("export", folder, "--to", "ctranslate2"), "this needs the model folder"),
    ):
        err = printed(capsys, *arguments, code=2)
        assert "a model exported to CTranslate2, for 'predict' and 'evaluate' only" in err
        assert instead in err
    assert "a model exported to CTranslate2" in printed(capsys, "look", folder, "attention", "a cat", code=2)
    err = printed(capsys, "evaluate", folder, code=2)
    assert "no data of its own; give --data FILE" in err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 1}, "this seqloom reads export format 2; it has 1; export it again"),
        ({"compute": None}, "not the description of an exported model"),
        ({"positions": "many"}, "not the description of an exported model"),
        ({"symbols": {"source": 5, "target": 5}}, "the tokenizers are not those it was exported with"),
        ({"decoding": {"beam": 5}}, "beam is not a setting (did you mean 'beam_size'?)"),
        ({"compute": "int3"}, "CTranslate2 cannot load this model"),
    ],
)
def test_damaged_descriptions(
    change: dict[str, Any], message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = Path(shutil.copytree(folder, tmp_path / "damaged"))
    about = json.loads((damaged / "seqloom.json").read_text())
    (damaged / "seqloom.json").write_text(json.dumps(about | change))
    assert message in printed(capsys, "predict", damaged, "a cat", code=2)


def test_damaged_files(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = Path(shutil.copytree(folder, tmp_path / "damaged"))
    weights = (damaged / "model.bin").read_bytes()
    (damaged / "model.bin").write_bytes(weights[: len(weights) // 2])
    assert "CTranslate2 cannot load this model" in printed(capsys, "predict", damaged, "a cat", code=2)
    (damaged / "model.bin").unlink()
    assert "CTranslate2 cannot load this model" in printed(capsys, "predict", damaged, "a cat", code=2)
    (damaged / "seqloom.json").write_text("[1]")
    assert "export format 2" in printed(capsys, "predict", damaged, "a cat", code=2)


def test_a_missing_package_gets_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert MISSING in printed(capsys, "predict", folder, "a cat", code=2)
