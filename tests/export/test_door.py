"""Which engine answers: the same answers on each, CTranslate2 only from these very weights, torch when it cannot."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seqloom.cli.main import run
from seqloom.corpus.readers import CorpusSettings, read_pairs
from seqloom.decoding.known import KnownDecoding
from seqloom.errors import UserError
from seqloom.export.checked import checksum
from seqloom.export.ctranslate2 import export
from seqloom.export.door import MANY, choose
from seqloom.export.translator import ExportedTranslator
from seqloom.folders import fingerprint
from seqloom.predictor import Predictor

TEXTS = [pair.source for pair in read_pairs(CorpusSettings(grammar="en-es", split="valid", size=MANY))]


@pytest.fixture(scope="module")
def finished(tiny_transformer_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of our own, with an export beside the model."""
    copy = Path(shutil.copytree(tiny_transformer_run, tmp_path_factory.mktemp("door") / "run"))
    export(copy, verify=False, decoding={"beam_size": 2})
    return copy


@pytest.fixture
def bare(tiny_transformer_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder with nothing beside it and an empty cache."""
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(tiny_transformer_run / "model", tmp_path / "model"))


def test_an_export_beside_the_model_answers_as_the_model_would(finished: Path) -> None:
    quick, slow = choose(finished), choose(finished, "torch")
    assert isinstance(quick.model, ExportedTranslator)
    assert isinstance(slow.model, Predictor)
    assert str(finished / "ctranslate2") in str(quick.why)
    assert slow.why is None
    assert quick.model.decoding == slow.model.decoding  # not those the export was given
    texts = TEXTS[:20]
    assert [a.text for a in quick.model.predict(texts)] == [a.text for a in slow.model.predict(texts)]


def test_other_weights_make_an_export_stale(finished: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(finished, tmp_path / "run"))
    assert isinstance(choose(changed).model, ExportedTranslator)
    config = json.loads((changed / "model" / "config.json").read_text())
    config["decoding"]["beam_size"] = 3
    (changed / "model" / "config.json").write_text(json.dumps(config))
    found = choose(changed)
    assert isinstance(found.model, Predictor)
    assert found.model.decoding.beam_size == 3


def test_rounded_weights_are_not_the_same_model(bare: Path) -> None:
    export(bare, bare.with_name("model-ctranslate2"), compute="int8", verify=False)
    assert isinstance(choose(bare).model, Predictor)


def test_many_texts_are_worth_an_export_in_the_cache(bare: Path) -> None:
    few, many = choose(bare, texts=TEXTS[: MANY - 1]), choose(bare, texts=TEXTS)
    assert isinstance(few.model, Predictor)
    assert isinstance(many.model, ExportedTranslator)
    place = bare.parent / "cache" / "engines" / fingerprint(bare)
    assert many.model.engine.folder == place
    assert isinstance(choose(bare).model, ExportedTranslator)  # now it is there
    (place / "model.bin").write_bytes(b"damaged")
    assert isinstance(choose(bare, texts=TEXTS).model, Predictor)


@pytest.mark.parametrize(
    ("decoding", "texts", "aligns", "reason"),
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
    decoding: dict[str, object], texts: list[str], aligns: bool, reason: str, finished: Path
) -> None:
    found = choose(finished, "auto", texts, decoding, aligns=aligns)
    assert isinstance(found.model, Predictor)
    assert str(found.why).startswith("answering on torch")
    assert reason in str(found.why)


def test_insisting_says_what_is_in_the_way(finished: Path, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="CTranslate2 runs Transformers; this is a recurrent_translator"):
        choose(tiny_run, "ctranslate2")
    with pytest.raises(UserError, match="early_stop"):
        choose(finished, "ctranslate2", decoding={"beam_size": 1, "early_stop": False})
    with pytest.raises(UserError, match="torch needs the folder it was made from"):
        choose(finished / "ctranslate2", "torch")
    assert isinstance(choose(tiny_run).model, Predictor)
    monkeypatch.setattr("seqloom.export.door.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install"):
        choose(finished, "ctranslate2")
    assert isinstance(choose(finished).model, Predictor)


def test_the_command_line(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_text("the green witch arrived\na cat\n")
    said = {}
    for engine in ("auto", "torch", "ctranslate2"):
        assert run(["predict", str(finished), "--input", str(tmp_path / "in.txt"), "--engine", engine]) == 0
        said[engine] = capsys.readouterr()
    assert said["auto"].out == said["torch"].out == said["ctranslate2"].out
    assert "answering on CTranslate2" in said["auto"].err
    assert "answering on" not in said["torch"].err + said["ctranslate2"].err
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
    export(copy, verify=False)
    (tmp_path / "in.txt").write_text("the green witch arrived\n")
    line = ["predict", str(copy), "--input", str(tmp_path / "in.txt")]
    assert not (HEAVY | SLOW - {"numpy"}) & imported(line)  # it says UNK
    quick = choose(copy)
    assert isinstance(quick.model.decoding, KnownDecoding)
    assert vars(quick.model.decoding) == choose(copy, "torch").model.decoding.model_dump()
