"""More steps for a finished run: exact, recorded, and nothing lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import tiny_recipe
from seqloom.cli.main import run
from seqloom.errors import UserError
from seqloom.experiment import train


def recipe_of(**training: Any) -> dict[str, Any]:
    return tiny_recipe(**{"steps": 8, "validate_every": 4, "checkpoint_every": 4, "average": 1} | training)


def checkpoint(folder: Path, step: int) -> bytes:
    return (folder / "checkpoints" / f"step-{step:08d}" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("schedule", ["constant", "inverse_square_root", "plateau"])
def test_it_ends_where_a_longer_run_ends(schedule: str, tmp_path: Path) -> None:
    rate = {"schedule": schedule, "warmup_steps": 3 if schedule == "inverse_square_root" else 0}
    train(recipe_of(steps=16, **rate), tmp_path / "long")
    short = tmp_path / "short"
    train(recipe_of(steps=8, **rate), short)
    first, model = checkpoint(short, 8), (short / "model" / "model.safetensors").read_bytes()
    before = [json.loads(line) for line in (short / "journal.jsonl").read_text().splitlines()]
    train(short, resume=True, more_steps=8)
    assert checkpoint(short, 16) == checkpoint(tmp_path / "long", 16)
    assert (short / "model-8" / "model.safetensors").read_bytes() == model
    after = [json.loads(line) for line in (short / "journal.jsonl").read_text().splitlines()]
    kept = [event for event in before if event["event"] != "average"]
    assert after[: len(kept)] == kept, "the journal of the first part is as it was"
    extended = after[len(kept)]
    assert {key: extended[key] for key in ("event", "step", "steps", "schedule")} == {
        "event": "extend",
        "step": 8,
        "steps": 16,
        "schedule": schedule,
    }
    assert yaml.safe_load((short / "recipe.yaml").read_text())["training"]["steps"] == 16
    assert len(first) == len(checkpoint(short, 16))


def test_an_extension_that_is_interrupted_is_resumed(tmp_path: Path, tiny_run: Path) -> None:
    from seqloom.extending import extend

    cut = tmp_path / "cut"
    shutil.copytree(tiny_run, cut)
    said = extend(cut, 6)
    assert "going on from step 24 to 30" in said
    assert f"kept in {cut / 'model-24'}" in said
    assert not (cut / "model").exists()
    train(cut, resume=True)
    assert (cut / "model" / "config.json").is_file()
    assert json.loads((cut / "checkpoints" / "step-00000030" / "state.json").read_text())["finished"]


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"schedule": "cosine"}, "it rises, then falls again"),
        ({"schedule": "cosine", "decay_steps": 5}, "at its lowest"),
    ],
)
def test_what_becomes_of_a_cosine_is_said(
    training: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(recipe_of(steps=4, **training), tmp_path / "run")
    assert run(["train", str(tmp_path / "run"), "--resume", "--more-steps", "4"]) == 0
    assert said in capsys.readouterr().err


def test_what_cannot_be_extended(tiny_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must be 1 or more; got 0"):
        train(tiny_run, resume=True, more_steps=0)
    with pytest.raises(UserError, match="--resume --more-steps N"):
        train(tiny_run, more_steps=3)
    cut = tmp_path / "cut"
    shutil.copytree(tiny_run, cut)
    shutil.rmtree(cut / "model")
    with pytest.raises(UserError, match=r"not finished; 'seqloom train .*cut --resume' finishes it first"):
        train(cut, resume=True, more_steps=3)
    (cut / "model").mkdir()
    (cut / "model" / "config.json").write_text("{}")
    shutil.rmtree(cut / "checkpoints")
    with pytest.raises(UserError, match="was not fitted step by step"):
        train(cut, resume=True, more_steps=3)
    with pytest.raises(UserError, match="--more-steps N trains a finished run further"):
        train(tiny_run, resume=True, overrides=["training.steps=99"])
