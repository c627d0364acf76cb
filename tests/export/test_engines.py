"""Which engine answers: the same answers on each, CTranslate2 only from these very weights, torch when it cannot."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import seqloom
from seqloom.cli.main import run
from seqloom.corpus.readers import CorpusSettings, read_pairs
from seqloom.decoding.known import KnownDecoding
from seqloom.errors import UserError
from seqloom.export.checked import checksum
from seqloom.export.ctranslate2 import export
from seqloom.export.engine import Engine
from seqloom.export.engines import MANY, choose
from seqloom.folders import fingerprint
from seqloom.model import Model, load
from seqloom.models.encoder_decoder import EncoderDecoder

TEXTS = [pair.source for pair in read_pairs(CorpusSettings(grammar="en-es", split="valid", size=MANY))]


@pytest.fixture(scope="module")
def finished(tiny_transformer_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of our own, with an export beside the model."""
    copy = Path(shutil.copytree(tiny_transformer_run, tmp_path_factory.mktemp("engines") / "run"))
    export(load(copy), verify=False, decoding={"beam_size": 2})
    return copy


@pytest.fixture
def bare(tiny_transformer_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder with nothing beside it and an empty cache."""
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(tiny_transformer_run / "model", tmp_path / "model"))


def on_torch(model: Model) -> bool:
    assert isinstance(model.network, EncoderDecoder | Engine)
    return isinstance(model.network, EncoderDecoder)


def test_an_export_beside_the_model_answers_as_the_model_would(finished: Path) -> None:
    quick, slow = choose(finished), choose(finished, "torch")
    assert not on_torch(quick.model)
    assert on_torch(slow.model)
    assert str(finished / "ctranslate2") in str(quick.why)
    assert slow.why is None
    assert quick.model.options == slow.model.options  # not those the export was given
    assert quick.model.folder == slow.model.folder
    assert quick.model.name == slow.model.name == "run"
    assert quick.model.corpora() == slow.model.corpora()
    texts = TEXTS[:20]
    assert [a.text for a in quick.model.predict(texts)] == [a.text for a in slow.model.predict(texts)]


def test_other_weights_make_an_export_stale(finished: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(finished, tmp_path / "run"))
    assert not on_torch(choose(changed).model)
    config = json.loads((changed / "model" / "config.json").read_text())
    config["options"]["beam_size"] = 3
    (changed / "model" / "config.json").write_text(json.dumps(config))
    found = choose(changed)
    assert on_torch(found.model)
    assert found.model.options.beam_size == 3


def test_rounded_weights_are_not_the_same_model(bare: Path) -> None:
    export(load(bare), bare.with_name("model-ctranslate2"), compute="int8", verify=False)
    assert on_torch(choose(bare).model)


def test_many_texts_are_worth_an_export_in_the_cache(bare: Path) -> None:
    few, many = choose(bare, texts=TEXTS[: MANY - 1]), choose(bare, texts=TEXTS)
    assert on_torch(few.model)
    assert not on_torch(many.model)
    place = bare.parent / "cache" / "engines" / fingerprint(bare)
    assert many.model.network.folder == place
    assert not on_torch(choose(bare).model)  # now it is there
    (place / "model.bin").write_bytes(b"damaged")
    assert on_torch(choose(bare, texts=TEXTS).model)


@pytest.mark.parametrize(
    ("options", "texts", "aligns", "reason"),
    [
        ({"max_length": 1}, [], False, "max_length"),
        ({"max_length": 2000}, [], False, "positions for"),
        ({"beam_size": 1, "early_stop": False}, [], False, "early_stop"),
        ({"method": "sample"}, [], False, "method: sample gives other answers on CTranslate2"),
        ({"n_best": 3}, [], False, "n_best: 3 gives other answers on CTranslate2"),
        ({}, ["a cat", "dog " * 1100], False, "text 2 has"),
        ({}, [], True, "alignments"),
    ],
)
def test_auto_takes_torch_where_ctranslate2_cannot(
    options: dict[str, object], texts: list[str], aligns: bool, reason: str, finished: Path
) -> None:
    found = choose(finished, "auto", texts, options, aligns=aligns)
    assert on_torch(found.model)
    assert str(found.why).startswith("answering on torch")
    assert reason in str(found.why)


def test_insisting_says_what_is_in_the_way(finished: Path, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="CTranslate2 cannot run this recurrent_translator; leave --engine out"):
        choose(tiny_run, "ctranslate2")
    with pytest.raises(UserError, match="early_stop"):
        choose(finished, "ctranslate2", options={"beam_size": 1, "early_stop": False})
    with pytest.raises(UserError, match="torch needs the folder it was made from"):
        choose(finished / "ctranslate2", "torch")
    assert on_torch(choose(tiny_run).model)
    assert choose(tiny_run, texts=TEXTS).why is None, "there was no choice"
    monkeypatch.setattr("seqloom.export.engines.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install"):
        choose(finished, "ctranslate2")
    assert on_torch(choose(finished).model)


@pytest.mark.parametrize("offered", [5, None, {}, "ctranslate2", ["other"], []])
def test_only_a_list_of_engines_is_believed(offered: object, bare: Path) -> None:
    config = json.loads((bare / "config.json").read_text())
    (bare / "config.json").write_text(json.dumps(config | {"engines": offered}))
    assert on_torch(choose(bare, texts=TEXTS).model)
    with pytest.raises(UserError, match="CTranslate2 cannot run this transformer_translator"):
        choose(bare, "ctranslate2")


def test_what_has_one_engine_is_opened_on_it(tmp_path: Path) -> None:
    """N-grams, in a file of another program and in a model folder of ours."""
    (tmp_path / "text.txt").write_text("the green witch arrived\nthe cat slept\n" * 20)
    recipe = {
        "task": "model_language",
        "data": {side: {"text": str(tmp_path / "text.txt")} for side in ("train", "valid")},
        "text": {"tokenizer": "word", "vocabulary_size": None},
        "model": {"kind": "ngram_lm", "order": 2},
    }
    run_folder = tmp_path / "run"
    seqloom.train(recipe, run_folder)
    assert run(["export", str(run_folder), "--to", "arpa"]) == 0
    for path in (run_folder, run_folder / "model", run_folder / "model.arpa"):
        found = choose(path)
        assert found.why is None
        assert found.model.can("score")
        assert choose(path, "torch").model.task.name == found.model.task.name
        with pytest.raises(UserError, match="CTranslate2"):
            choose(path, "ctranslate2")
        with pytest.raises(UserError, match=r"cannot predict; ask 'seqloom generate"):
            found.model.predict(["the"])
        assert run(["predict", str(path), "the"]) == 2
    with pytest.raises(UserError, match="there is no such model"):
        choose(tmp_path / "nothing.arpa")


def test_the_command_line(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_text("the green witch arrived\na cat\n")
    printed = {}
    for engine in ("auto", "torch", "ctranslate2"):
        assert run(["predict", str(finished), "--input", str(tmp_path / "in.txt"), "--engine", engine]) == 0
        printed[engine] = capsys.readouterr()
    assert printed["auto"].out == printed["torch"].out == printed["ctranslate2"].out
    assert "answering on CTranslate2" in printed["auto"].err
    assert "answering on" not in printed["torch"].err + printed["ctranslate2"].err
    assert run(["predict", str(finished), "a cat"]) == 0
    assert "answering on" not in capsys.readouterr().err
    assert run(["evaluate", str(finished), "--engine", "torch", "--format", "json"]) == 0
    assert "aer" in json.loads(capsys.readouterr().out)


def imported(arguments: list[str]) -> set[str]:
    """What is loaded when a command is done."""
    code = f"""
import sys
from seqloom.cli.main import run
assert run({arguments!r}) == 0
print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    return set(done.stderr.splitlines()[-1].split())


HEAVY = {"torch", "sacrebleu", "matplotlib", "safetensors", "yaml", "seqloom.corpus.readers", "seqloom.batches.shards"}
SLOW = {"numpy", "pydantic", "cyclopts", "rich", "asyncio", "dataclasses", "ctranslate2"}


def test_one_sentence_imports_little(finished: Path, tmp_path: Path) -> None:
    """Start-up is what one sentence costs: only what was changed since it was written is worth loading pydantic."""
    folder = Path(shutil.copytree(finished / "ctranslate2", tmp_path / "exported"))
    about = json.loads((folder / "seqloom.json").read_text())
    about["decoding"]["unknown"] = "forbid"  # this model would say UNK, whose attention is an array
    (folder / "seqloom.json").write_text(json.dumps(about))
    line = ["predict", str(folder), "the green witch arrived"]
    found = imported(line)
    assert not (HEAVY | SLOW - {"pydantic", "dataclasses", "asyncio"}) & found
    assert "pydantic" in found
    about["checksum"] = checksum(folder, about["decoding"], about["text"])
    (folder / "seqloom.json").write_text(json.dumps(about))
    assert not (HEAVY | SLOW) & imported(line)
    assert {"cyclopts", "pydantic"} <= imported([*line, "--n-best", "1"])


def test_a_run_with_an_export_of_its_own_starts_as_soon(tiny_transformer_run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tiny_transformer_run, tmp_path / "run"))
    export(load(copy), verify=False)
    (tmp_path / "in.txt").write_text("the green witch arrived\n")
    line = ["predict", str(copy), "--input", str(tmp_path / "in.txt")]
    assert not (HEAVY | SLOW - {"numpy"}) & imported(line)  # it says UNK
    quick = choose(copy)
    assert isinstance(quick.model.options, KnownDecoding)
    assert vars(quick.model.options) == choose(copy, "torch").model.options.model_dump()
