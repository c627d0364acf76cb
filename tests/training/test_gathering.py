"""Several processes train one model: as one would, to the same bits after a crash, and nobody is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from conftest import tiny_recipe
from seqloom.errors import RunError, UserError
from seqloom.experiment import train
from seqloom.tasks.supervised import ExampleWork
from seqloom.training import gathering, team
from seqloom.training.checkpoints import load_tensors
from seqloom.training.gathering import _decided, _planned_seconds
from seqloom.training.journal import read_journal
from seqloom.training.settings import TrainingSettings


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_tensors(run / "model" / "model.safetensors")


def same(run: Path, other: Path) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights_of(run).values(), weights_of(other).values(), strict=True))


def followers(folder: Path) -> list[int]:
    """Processes that follow the leader of a run in this folder; other tests have theirs."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            follows = b"seqloom.follower" in command and bytes(folder.resolve()) in command
            if follows and "Z" not in (process / "stat").read_text():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def without_chance(**training: Any) -> dict[str, Any]:
    recipe = tiny_recipe(**training)
    recipe["model"]["dropout"] = 0.0
    return recipe


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(tmp_path: Path) -> None:
    """Without dropout, only the order of sums differs; batches of one row, too, where one of them has nothing to do."""
    for name, small in (("many", {}), ("few", {"batch_tokens": 12, "accumulate": 1, "max_length": 12})):
        one, two = tmp_path / f"{name}-1", tmp_path / f"{name}-2"
        train(without_chance(processes=1, **small), one)
        train(without_chance(processes=2, **small), two)
        for (key, expected), found in zip(weights_of(one).items(), weights_of(two).values(), strict=True):
            torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-4, msg=key)
        losses = [[e["loss"] for e in read_journal(run / "journal.jsonl") if "loss" in e] for run in (one, two)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.slow
def test_shared_memory_and_sockets_give_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two numbers the order does not matter; the file that is shared is gone while they train."""
    opened, shelf = [], team.Shelf

    def open_shelf(path: Path, size: int, count: int) -> team.Shelf:
        opened.append(path)
        return shelf(path, size, count)

    monkeypatch.setattr(team, "Shelf", open_shelf)
    monkeypatch.setattr(open_shelf, "num_bytes", shelf.num_bytes, raising=False)
    train(tiny_recipe(processes=2), tmp_path / "memory")
    assert len(opened) == (team.shared_folder() is not None)
    assert not any(path.exists() for path in opened)
    monkeypatch.setattr(team, "shared_folder", lambda: None)
    train(tiny_recipe(processes=2), tmp_path / "sockets")
    assert len(opened) <= 1
    assert same(tmp_path / "memory", tmp_path / "sockets")


@pytest.mark.slow
def test_a_crashed_team_resumes_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tiny_recipe(processes=2, threads=None, moving_average=0.9, average=1)
    train(recipe, tmp_path / "whole")
    original, count = ExampleWork.loss, 0

    def loss(self: ExampleWork, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 40:
            raise MemoryError
        return original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(ExampleWork, "loss", loss)
        with pytest.raises(MemoryError):
            train(recipe, tmp_path / "run")
    assert not followers(tmp_path)
    train(tmp_path / "run", resume=True)
    assert same(tmp_path / "run", tmp_path / "whole")
    assert not followers(tmp_path)


def transformer_recipe(**training: Any) -> dict[str, Any]:
    sizes = {"size": 16, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feed_forward_size": 24}
    return {**tiny_recipe(**training), "model": {"kind": "transformer_translator", **sizes, "dropout": 0.3}}


@pytest.mark.slow
@pytest.mark.parametrize("recipe_of", [tiny_recipe, transformer_recipe])
@pytest.mark.parametrize(
    "more",
    [{}, {"precision": "bfloat16"}, {"candidates": 30}, {"scheduled_sampling": 0.5}, {"consistency": 1.0}],
    ids=lambda more: next(iter(more), "usual"),
)
def test_threads_and_processes_give_the_same_bits(recipe_of: Any, more: dict[str, Any], tmp_path: Path) -> None:
    """Each has its part of every batch and its own random numbers, whatever it is."""
    train(recipe_of(processes=2, **more), tmp_path / "processes")
    train(recipe_of(workers=2, **more), tmp_path / "threads")
    assert same(tmp_path / "processes", tmp_path / "threads")
    found = next(iter(read_journal(tmp_path / "threads" / "journal.jsonl")))
    assert (found["processes"], found["workers"]) == (1, 2)


@pytest.mark.slow
def test_threads_of_processes_give_the_same_bits(tmp_path: Path) -> None:
    """Two processes of two threads divide a batch as one process of four threads does, but sums are taken in pairs."""
    train(without_chance(processes=2, workers=2), tmp_path / "both")
    train(without_chance(workers=4), tmp_path / "threads")
    for (key, expected), found in zip(
        weights_of(tmp_path / "threads").items(), weights_of(tmp_path / "both").values(), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-4, msg=key)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_crashed_threads_resume_to_the_same_bits(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever thread fails: its error is raised, and no other is left."""
    recipe = tiny_recipe(workers=2, moving_average=0.9, average=1, precision="bfloat16")
    train(recipe, tmp_path / "whole")
    original, count = ExampleWork.loss, 0

    def loss(self: ExampleWork, *arguments: Any) -> Any:
        nonlocal count
        if threading.current_thread().name.startswith("worker") == bool(number):
            count += 1
            if count == 20:
                raise MemoryError
        return original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(ExampleWork, "loss", loss)
        with pytest.raises(MemoryError):
            train(recipe, tmp_path / "run")
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("worker")]
    train(tmp_path / "run", resume=True)
    assert same(tmp_path / "run", tmp_path / "whole")


def test_threads_are_refused_what_torch_draws_for_all_of_them(tmp_path: Path) -> None:
    recipe = transformer_recipe(workers=2)
    recipe["model"]["attention_dropout"] = 0.1
    with pytest.raises(UserError, match=r"training.workers: .* use training.processes instead"):
        train(recipe, tmp_path / "run")


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "seqloom", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(condition: Any, seconds: float = 90) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(condition())


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("killed", ["leader", "follower"])
def test_nobody_goes_on_alone(killed: str, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(tiny_recipe(processes=2, steps=100_000, validate_every=50_000)))
    process = start(tmp_path, "train", "r.yaml", "--run", "run")
    assert wait_for(lambda: any((tmp_path / "run" / "checkpoints").glob("step-*")))
    (follower,) = followers(tmp_path)
    if killed == "leader":
        process.kill()
        process.wait()
        assert wait_for(lambda: not followers(tmp_path), 20)
    else:
        os.kill(follower, signal.SIGKILL)
        assert process.stderr is not None
        log = process.stderr.read()
        assert process.wait() != 0
        assert "one of the processes that train together has ended" in log
        assert "Traceback" not in log


def test_a_follower_that_cannot_start_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.exit('this machine is full')")
    with pytest.raises(RunError, match=r"one of the processes that train together has ended: .*this machine is full"):
        train(tiny_recipe(processes=2), tmp_path / "run")


@pytest.mark.slow
def test_a_launcher_starts_the_processes(tmp_path: Path) -> None:
    """As on two machines that share a folder: each has its rank, and the address of the first."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(tiny_recipe()))
    where = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    both = [start(tmp_path, "train", "r.yaml", "--run", "run", RANK=str(rank), **where) for rank in (0, 1)]
    logs = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], logs
    train(tiny_recipe(processes=2), tmp_path / "alone")
    assert same(tmp_path / "run", tmp_path / "alone")


def test_half_a_launcher_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with pytest.raises(UserError, match=r"MASTER_ADDR, MASTER_PORT is not set .* unset WORLD_SIZE to train alone"):
        train(tiny_recipe(), tmp_path / "run")


# -- how many --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_faster_is_measured_once_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(gathering, "WORTH_MEASURING", 0.0)
    monkeypatch.setattr(gathering, "num_cores", lambda: 2)
    recipe = tiny_recipe(threads=None)
    train(recipe, tmp_path / "first")
    assert "a step takes" in capsys.readouterr().err
    (kept,) = (tmp_path / "cache" / "paces").iterdir()
    found = json.loads(kept.read_text())
    assert len(found["seconds"]) == 2
    started = next(iter(read_journal(tmp_path / "first" / "journal.jsonl")))
    assert (started["processes"], started["workers"]) == (1, found["workers"])
    kept.write_text(json.dumps({"processes": 1, "workers": 3 - found["workers"]}))  # the other one, next time
    train(recipe, tmp_path / "second")
    assert "a step takes" not in capsys.readouterr().err
    assert next(iter(read_journal(tmp_path / "second" / "journal.jsonl")))["workers"] == 3 - found["workers"]


def test_what_is_not_measured(tmp_path: Path) -> None:
    def settings(**given: Any) -> TrainingSettings:
        return TrainingSettings(steps=10, **given)

    assert _decided(settings(processes=3), tmp_path, cores=2) == (3, 1)
    assert _decided(settings(workers=3), tmp_path, cores=2) == (1, 3)
    assert _decided(settings(threads=2), tmp_path, cores=2) == (1, 1)
    assert _decided(settings(), tmp_path, cores=1) == (1, 1)
    assert _decided(settings(), tmp_path, cores=2) is None


def test_planned_time_by_hand(tmp_path: Path) -> None:
    class Work:
        def batches_per_epoch(self) -> float:
            return 50.0

    assert _planned_seconds(TrainingSettings(steps=100), Work(), 0.5) == 50.0
    assert _planned_seconds(TrainingSettings(steps=100, minutes=0.5), Work(), 0.5) == 30.0
    assert _planned_seconds(TrainingSettings(epochs=4, accumulate=2), Work(), 0.5) == 50.0
