"""`seqloom runs` reads what a run left behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from seqloom.cli.main import run


@pytest.fixture
def several(tiny_run: Path, tmp_path: Path) -> Path:
    """A finished run, one that was interrupted, one that runs, one that never began, and folders that are no runs."""
    folder = tmp_path / "runs"
    shutil.copytree(tiny_run, folder / "done")
    for name in ("cut", "deep/er/now"):
        shutil.copytree(tiny_run, folder / name)
        shutil.rmtree(folder / name / "model")
    journal = folder / "cut" / "journal.jsonl"
    journal.write_text(journal.read_text() + '{"event": "stop", "time": 5, "step": 20, "signal": "SIGINT"}\n{"half')
    (folder / "never").mkdir()
    shutil.copy(tiny_run / "recipe.yaml", folder / "never")
    (folder / "other").mkdir()
    hour = time.time() - 3700
    for path in folder.rglob("*"):
        os.utime(path, (hour, hour))
    os.utime(folder / "deep/er/now/journal.jsonl")
    return folder


def found(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    assert run(["runs", str(folder), "--format", "json"]) == 0
    return {one["name"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}


def test_every_state(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = found(several, capsys)
    assert {name: one["state"] for name, one in shown.items()} == {
        "deep/er/now": "running",
        "done": "finished",
        "cut": "interrupted",
        "never": "failed before step 1",
    }
    assert next(iter(shown)) == "deep/er/now", "newest first"
    assert shown["done"]["next"] is None
    assert shown["cut"]["next"] == f"seqloom train {several / 'cut'} --resume"
    assert (shown["cut"]["steps"], shown["cut"]["of_steps"]) == (20, 24)
    assert (shown["never"]["steps"], shown["never"]["score"]) == (None, None)
    bleu = [json.loads(line).get("bleu") for line in (several / "done/journal.jsonl").read_text().splitlines()]
    assert shown["done"]["metric"] == "bleu"
    assert shown["done"]["score"] == max(figure for figure in bleu if figure is not None)
    assert 3600 < shown["done"]["seconds_ago"] < 4000


def test_the_table(several: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run(["runs", str(several)]) == 0
    out = capsys.readouterr().out
    assert "20 of 24" in out
    assert "recurrent_translator" in out
    assert f"Go on with:\n  seqloom train {several / 'cut'} --resume\n" in out
    for columns in (60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert run(["runs", str(several)]) == 0
        table = capsys.readouterr().out.split("\n\n")[0]
        assert max(map(len, table.splitlines())) <= columns
        assert "interrupted" in table


def test_the_command_that_it_shows_goes_on(several: Path, tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("cut", "never"):
        command = found(several, capsys)[name]["next"].split()
        assert run(command[1:]) == 0
        ours, theirs = (folder / "model" / "model.safetensors" for folder in (several / name, tiny_run))
        assert ours.read_bytes() == theirs.read_bytes()
    assert {one["state"] for one in found(several, capsys).values()} == {"finished", "running"}


def test_one_run_no_run_and_no_folder(several: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(found(several / "done", capsys)) == ["done"]
    assert run(["runs", str(several / "other")]) == 0
    assert "there is no run here" in capsys.readouterr().err
    assert run(["runs", str(tmp_path / "none")]) == 2
    assert "there is no such folder; a first run: seqloom demo" in capsys.readouterr().err


def test_damaged_files_are_no_accident(several: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (several / "done" / "recipe.yaml").write_text("a: [")
    (several / "cut" / "recipe.yaml").write_text("task: 7\nmodel: 3\ntraining: {steps: many}\n")
    (several / "cut" / "journal.jsonl").write_text('[1]\n"x"\n{"event": "validation", "bleu": true, "time": "?"}\n')
    shown = found(several, capsys)
    assert shown["done"]["task"] is None
    assert shown["cut"]["score"] is None
    assert run(["runs", str(several)]) == 0


def test_it_loads_no_torch(several: Path) -> None:
    code = (
        "import sys; from seqloom.cli.main import run; assert run(['runs', sys.argv[1]]) == 0;"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(several)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
