"""What a newcomer meets when something goes wrong: one sentence that says where and what to do, and the exit code."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import tiny_recipe
from seqloom.cli.main import run


def failed(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 2) -> str:
    capsys.readouterr()
    assert run([str(a) for a in arguments]) == code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert not out
    return err


@pytest.mark.parametrize("verb", [["predict", "--input"], ["evaluate", "--data"]])
@pytest.mark.parametrize(
    ("content", "message"), [(None, "there is no such file"), (b"ok\n\xff\n", "not UTF-8"), (b"", "empty")]
)
def test_files_that_cannot_be_read(
    verb: list[str], content: bytes | None, message: str, tiny_run: Path, tmp_path: Path, capsys: Any
) -> None:
    file = tmp_path / "text.tsv"
    if content is not None:
        file.write_bytes(content)
    if verb[0] == "predict" and content == b"":
        assert run(["predict", str(tiny_run), "--input", str(file)]) == 0, "no question has no answer"
        assert capsys.readouterr().out == ""
        return
    err = failed(capsys, verb[0], tiny_run, *verb[1:], file)
    assert "text.tsv" in err
    assert message in err or "expected 2 columns" in err


def test_a_wrong_number_of_columns(tiny_run: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "p.tsv").write_text("a\tb\nthe dog\n")
    assert "p.tsv:2: expected 2 columns, found 1" in failed(capsys, "evaluate", tiny_run, "--data", tmp_path / "p.tsv")


def test_a_typo_in_a_recipe(tmp_path: Path, capsys: Any) -> None:
    values = tiny_recipe()
    values["training"]["lerning_rate"] = 1
    values["model"]["cell"] = "gro"
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(values))
    err = failed(capsys, "train", tmp_path / "r.yaml", "--run", tmp_path / "run")
    assert "2 problems" in err
    assert "(did you mean 'learning_rate'?)" in err
    assert "(did you mean 'gru'?)" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("what", ["train", "predict"])
def test_a_full_disk(what: str, tiny_run: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    """The system says so at the first byte that is written to the disk."""
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(tiny_recipe(steps=2, validate_every=2)))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("seqloom.files.os.fsync", full)
    commands = {
        "train": ["train", tmp_path / "r.yaml", "--run", tmp_path / "run"],
        "predict": ["predict", tiny_run, "the dog", "--output", tmp_path / "out.txt"],
    }
    err = failed(capsys, *commands[what], code=1)
    assert "No space left on device" in err
    assert "cannot write" in err
    assert not (tmp_path / "out.txt").exists()


LONG = {
    "train": ["train", "demo", "--run", "run"],
    "demo": ["demo", "--run", "run"],
    "evaluate": ["evaluate", "RUN", "--data", "grammar:en-es/train"],
    "compare": ["compare", "RUN", "--data", "grammar:en-es/train"],
    "predict": ["predict", "RUN", "--input", "many.txt"],
    "look": ["look", "RUN", "lengths", "--data", "grammar:en-es/train"],
}


@pytest.mark.slow
@pytest.mark.parametrize("verb", LONG)
def test_ctrl_c(verb: str, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("the dog that slept did not see the green witch and the cats\n" * 50_000)
    words = [str(tiny_run) if word == "RUN" else word for word in LONG[verb]]
    process = subprocess.Popen(
        [sys.executable, "-m", "seqloom", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    journal, until = tmp_path / "run" / "journal.jsonl", time.monotonic() + 60
    if verb in ("train", "demo"):
        while not journal.is_file() and time.monotonic() < until and process.poll() is None:
            time.sleep(0.1)
        time.sleep(1)
    else:
        time.sleep(5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    if verb in ("train", "demo"):
        assert "a checkpoint is saved. Go on with:\n  seqloom train run --resume" in err
    else:
        assert err.rstrip().endswith("seqloom: interrupted")
