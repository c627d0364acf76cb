"""A run from beginning to end, and every way it can be interrupted: nothing is lost, nothing comes out different."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from conftest import tiny_recipe
from seqloom.errors import RunError, UserError
from seqloom.experiment import train
from seqloom.folders import FORMAT
from seqloom.tasks.supervised import ExampleWork
from seqloom.tasks.translate import Translation
from seqloom.training.checkpoints import average_weights, checkpoints_in, load_tensors
from seqloom.training.journal import read_journal


def weights_of(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


class Crash(Exception):
    pass


def crash_after(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """The loss of the given call dies, as a machine might."""
    original, count = ExampleWork.loss, 0

    def loss(self: ExampleWork, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == calls:
            raise Crash
        return original(self, *arguments)

    monkeypatch.setattr(ExampleWork, "loss", loss)


def test_run_folder_has_everything(tiny_run: Path) -> None:
    assert {p.name for p in (tiny_run / "model").iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.source.json",
        "tokenizer.target.json",
    }
    assert yaml.safe_load((tiny_run / "recipe.yaml").read_text())["training"]["steps"] == 24
    events = list(read_journal(tiny_run / "journal.jsonl"))
    validations = [e for e in events if e["event"] == "validation"]
    assert [e["step"] for e in validations] == [8, 16, 24]
    assert all({"loss", "perplexity", "bleu", "samples", "seconds"} <= e.keys() for e in validations)
    assert validations[-1]["loss"] < validations[0]["loss"]
    assert not list(tiny_run.rglob(".*")), "nothing half-written is left"


def test_journal_reports_training(tmp_path: Path) -> None:
    train(tiny_recipe(log_every=5, steps=10), tmp_path / "run")
    lines = [e for e in read_journal(tmp_path / "run" / "journal.jsonl") if e["event"] == "train"]
    assert [e["step"] for e in lines] == [5, 10]
    assert all(e["gradient_norm"] > 0 and e["tokens_per_second"] > 0 and e["learning_rate"] == 1e-3 for e in lines)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_crashed_run_resumes_to_the_same_bits(
    seed: int, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dies at random calls, twice, mid-epoch, with dropout and accumulation on; the end is bit-identical."""
    calls = random.Random(seed)
    run = tmp_path / "run"
    for attempt in range(2):
        with monkeypatch.context() as patch:
            crash_after(patch, calls.randint(2, 24))  # a run has 48 calls and more
            with pytest.raises(Crash):
                train(tiny_recipe(), run, resume=attempt > 0)
    train(run, resume=True)
    assert weights_of(run) == weights_of(tiny_run)
    steps = [e["step"] for e in read_journal(run / "journal.jsonl") if e["event"] == "validation"]
    assert steps == [8, 16, 24], "no step is told twice"


TRANSFORMER = {
    "kind": "transformer_translator",
    "size": 12,
    "num_heads": 3,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "feed_forward_size": 14,
    "dropout": 0.3,
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
}


def test_a_crashed_transformer_with_moving_average_resumes_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = {**tiny_recipe(average=1, moving_average=0.9), "model": TRANSFORMER}
    train(recipe, tmp_path / "whole")
    run = tmp_path / "run"
    for attempt, calls in enumerate((17, 9)):
        with monkeypatch.context() as patch:
            crash_after(patch, calls)
            with pytest.raises(Crash):
                train(recipe, run, resume=attempt > 0)
    train(run, resume=True)
    assert weights_of(run) == weights_of(tmp_path / "whole")
    last = load_tensors(checkpoints_in(run)[-1].folder / "model.safetensors")
    kept = load_tensors(run / "model" / "model.safetensors")
    assert any(not torch.equal(kept[name], last[name]) for name in kept), "the average is kept, not the last weights"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "seqloom", *arguments]


def start(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(command(*arguments), cwd=tmp_path, stderr=subprocess.PIPE, text=True)


def wait_for(condition: Any, process: subprocess.Popen[str], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)


@pytest.mark.slow
def test_kill_9_loses_nothing(tmp_path: Path) -> None:
    recipe = tiny_recipe(steps=60, checkpoint_every=4, validate_every=20)
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    train(recipe, tmp_path / "whole")
    run, delays = tmp_path / "run", random.Random(5)
    killed = 0
    for attempt in range(3):
        arguments = ("train", "r.yaml", "--run", "run") if attempt == 0 else ("train", "run", "--resume")
        before = len(checkpoints_in(run)) and checkpoints_in(run)[-1].step
        process = start(tmp_path, *arguments)
        wait_for(lambda before=before: checkpoints_in(run) and checkpoints_in(run)[-1].step > before, process)
        time.sleep(delays.random() * 0.2)
        process.kill()
        killed += process.wait() == -signal.SIGKILL
    assert killed, "at least one run was really killed"
    if not (run / "model").is_dir():
        assert subprocess.run(command("train", "run", "--resume"), cwd=tmp_path, capture_output=True).returncode == 0
    assert weights_of(run) == weights_of(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupts_save_and_say_how_to_go_on(number: signal.Signals, tmp_path: Path) -> None:
    recipe = tiny_recipe(steps=400, checkpoint_every=200, validate_every=200)
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    process = start(tmp_path, "train", "r.yaml", "--run", "run")
    wait_for(lambda: (tmp_path / "run" / "journal.jsonl").is_file(), process)
    time.sleep(0.3)
    process.send_signal(number)
    assert process.stderr is not None
    said = process.stderr.read()
    assert process.wait() == 128 + number
    assert "seqloom train run --resume" in said
    assert "Traceback" not in said
    saved = checkpoints_in(tmp_path / "run")
    assert len(saved) == 1
    assert 0 < saved[0].step < 400


def test_an_interrupt_does_not_change_the_average(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint an interrupt adds at an odd step must not enter the mean of the last ones."""
    from seqloom.errors import Stopped

    original, count = ExampleWork.loss, 0

    def loss(self: ExampleWork, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 42:  # step 21 of 24
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(ExampleWork, "loss", loss)
        with pytest.raises(Stopped):
            train(tiny_recipe(), tmp_path / "run")
    train(tmp_path / "run", resume=True)
    assert weights_of(tmp_path / "run") == weights_of(tiny_run)


def test_numbers_that_explode_are_reported_and_the_checkpoint_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, count = ExampleWork.loss, 0

    def loss(self: ExampleWork, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        found = original(self, *arguments)
        return found._replace(loss=found.loss * float("nan")) if count > 40 else found  # 2 batches of 2 shards a step

    monkeypatch.setattr(ExampleWork, "loss", loss)
    with pytest.raises(RunError, match=r"step 11: .*the last good checkpoint is step 6 .*learning_rate"):
        train(tiny_recipe(validate_every=100), tmp_path / "run")
    assert [c.step for c in checkpoints_in(tmp_path / "run")] == [6]


def test_an_earlier_run_is_never_overwritten_unasked(tiny_run: Path) -> None:
    before = weights_of(tiny_run)
    with pytest.raises(UserError, match="finished run; --resume --more-steps N trains it further, --restart throws"):
        train(tiny_recipe(), tiny_run)
    assert weights_of(tiny_run) == before


def test_restart_begins_again_with_the_same_result(tiny_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(tiny_recipe(steps=2), run)
    train(tiny_recipe(), run, restart=True)
    assert weights_of(run) == weights_of(tiny_run)


def test_resume_needs_a_run_and_takes_no_overrides(tiny_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run to resume"):
        train(tiny_recipe(), tmp_path / "none", resume=True)
    with pytest.raises(UserError, match="--set and --resume"):
        train(tiny_run, resume=True, overrides=["seed=2"])


def test_early_stopping_and_best_weights(tmp_path: Path) -> None:
    """With a rate far too high after the first steps the loss rises: the run stops, and keeps the best weights."""
    recipe = tiny_recipe(steps=200, learning_rate=0.5, validate_every=4, patience=3, average=1, clip_norm=None)
    model = train(recipe, tmp_path / "run")
    validations = [e for e in read_journal(tmp_path / "run" / "journal.jsonl") if e["event"] == "validation"]
    assert validations[-1]["step"] < 200
    losses = [e["loss"] for e in validations]
    assert losses.index(min(losses)) == len(losses) - 4
    work = model.task.work(model.recipe())
    assert work.validate(model.network).metrics["loss"] == pytest.approx(min(losses), abs=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "sgd", "momentum": 0.9, "learning_rate": 0.1, "schedule": "plateau"},
        {"optimizer": "adamw", "weight_decay": 0.01, "schedule": "inverse_square_root", "warmup_steps": 3},
        {"schedule": "cosine", "warmup_steps": 2, "label_smoothing": 0.1, "scheduled_sampling": 0.5},
        {"plain": True, "metric": "bleu", "epochs": 1, "steps": None},
        {"metric": "aer", "average": 1},
        {"metric": "chrf", "validate_every": 3, "patience": 2},
    ],
)
def test_every_way_to_train_runs_and_resumes(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tiny_recipe(**{"steps": 14, "checkpoint_every": 4, "validate_every": 7, **changes})
    train(recipe, tmp_path / "whole")
    with monkeypatch.context() as patch:
        crash_after(patch, 13)
        with pytest.raises(Crash):
            train(recipe, tmp_path / "run")
    train(tmp_path / "run", resume=True)
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "whole")


def test_config_json_is_plain(tiny_run: Path) -> None:
    config = json.loads((tiny_run / "model" / "config.json").read_text())
    assert config["model"]["cell"] == "gru"
    assert config["format"] == FORMAT


def test_the_mean_of_checkpoints_is_judged_as_the_model_will_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Translation.translate
    methods: list[str] = []

    def translate(self: Translation, model: Any, texts: Any, settings: Any, *others: Any) -> Any:
        methods.append(settings.method)
        return original(self, model, texts, settings, *others)

    monkeypatch.setattr(Translation, "translate", translate)
    recipe = tiny_recipe(average=2, validation_sentences=4, metric="bleu") | {"decoding": {"method": "beam"}}
    train(recipe, tmp_path / "run")
    assert methods[-2:] == ["beam", "beam"], "the best weights and the mean, each once"
    assert set(methods[:-2]) == {"greedy"}
    [event] = [e for e in read_journal(tmp_path / "run" / "journal.jsonl") if e["event"] == "average"]
    assert event["chosen"] == (event["bleu"] > event["best_step"]["bleu"])
    found = checkpoints_in(tmp_path / "run")[-2:]
    kept = load_tensors(tmp_path / "run" / "checkpoints" / "best.safetensors")
    expected = average_weights([c.folder for c in found]) if event["chosen"] else kept
    loaded = load_tensors(tmp_path / "run" / "model" / "model.safetensors")
    assert all(torch.equal(loaded[name], expected[name]) for name in loaded)
