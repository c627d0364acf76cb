"""The same numbers, whoever computes: threads, processes, and whoever goes on after a kill, end in the same weights."""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conftest import tiny_recipe
from seqloom.errors import UserError
from seqloom.experiment import train
from seqloom.parallel import one_thread_each, side_by_side, spread
from seqloom.tasks.supervised import ExampleWork
from seqloom.training.checkpoints import checkpoints_in
from seqloom.training.distributed import Ranks
from seqloom.training.journal import read_journal
from seqloom.training.settings import FittingSettings, RunningTextTrainingSettings, TrainingSettings
from seqloom.training.workers import add_gradients, branches_within, halves, tree_sum


def weights_of(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def transformer_recipe(**training: Any) -> dict[str, Any]:
    sizes = {"size": 16, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feed_forward_size": 24}
    recipe = tiny_recipe(**training)
    return {**recipe, "model": {"kind": "transformer_translator", **sizes, "dropout": 0.3, "word_dropout": 0.1}}


def dropping_recipe(**training: Any) -> dict[str, Any]:
    """Attention weights are dropped: torch would draw from one generator for all threads."""
    recipe = transformer_recipe(**training)
    recipe["model"]["attention_dropout"] = 0.2
    return recipe


def hashed_recipe(**training: Any) -> dict[str, Any]:
    """Tables with sparse gradients."""
    encoder = {"kind": "embeddings", "size": 12, "word_ngrams": 2, "buckets": 40, "dropout": 0.3}
    decoder = {"kind": "recurrent", "cell": "gru", "embedding_size": 8, "hidden_size": 12}
    recipe = tiny_recipe(**training)
    return {**recipe, "model": {"kind": "encoder_decoder", "encoder": encoder, "decoder": decoder}}


def stream_recipe(**training: Any) -> dict[str, Any]:
    """Rows that go on from batch to batch."""
    text = {name: {"text": f"grammar:en/{name}", "limit": limit} for name, limit in (("train", 150), ("valid", 20))}
    common = {"steps": 20, "rows": 5, "length": 6, "accumulate": 2, "validate_every": 10, "checkpoint_every": 4}
    return {
        "task": "model_language",
        "data": text,
        "text": {"tokenizer": "word", "vocabulary_size": None},
        "model": {"kind": "recurrent_lm", "size": 6, "hidden_size": 7, "dropout": 0.2},
        "training": {**common, "samples": 0, **training},
    }


def masked_recipe(**training: Any) -> dict[str, Any]:
    """Which symbols are hidden is drawn too."""
    sizes = {"size": 8, "num_layers": 1, "num_heads": 2, "feed_forward_size": 12, "context": 30}
    recipe = stream_recipe(batching="sentences", **training)
    return {**recipe, "task": "model_masked_language", "model": {"kind": "masked_lm", **sizes}}


HOW = {
    "usual": (tiny_recipe, {}),
    "transformer": (transformer_recipe, {}),
    "drops attention": (dropping_recipe, {}),
    "bfloat16": (transformer_recipe, {"precision": "bfloat16"}),
    "candidates": (tiny_recipe, {"candidates": 30}),
    "scheduled sampling": (tiny_recipe, {"scheduled_sampling": 0.5}),
    "R-Drop": (transformer_recipe, {"consistency": 1.0}),
    "moving average": (tiny_recipe, {"moving_average": 0.9, "average": 1}),
    "plain": (transformer_recipe, {"plain": True}),
    "muon": (transformer_recipe, {"optimizer": "muon"}),
    "few rows": (tiny_recipe, {"batch_tokens": 12, "accumulate": 1, "max_length": 12}),
    "hashed n-grams": (hashed_recipe, {}),
    "stream": (stream_recipe, {}),
    "masked": (masked_recipe, {}),
}


# -- threads of one process -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", HOW)
def test_threads_change_no_bit(name: str, tmp_path: Path) -> None:
    recipe_of, more = HOW[name]
    for workers in (1, 2, 3):
        train(recipe_of(workers=workers, shards=4, **more), tmp_path / str(workers))
    found = next(iter(read_journal(tmp_path / "3" / "journal.jsonl")))
    assert (found["shards"], found["workers"], found["ranks"]) == (4, 3, 1)
    assert weights_of(tmp_path / "1") == weights_of(tmp_path / "2") == weights_of(tmp_path / "3")
    journals = [[e.get("loss") for e in read_journal(tmp_path / str(workers) / "journal.jsonl")] for workers in (1, 3)]
    assert journals[0] == journals[1]


@pytest.mark.slow
def test_the_number_of_shards_does(tmp_path: Path) -> None:
    """Otherwise the tests above could not fail."""
    for shards in (2, 4):
        train(tiny_recipe(shards=shards), tmp_path / str(shards))
    assert weights_of(tmp_path / "2") != weights_of(tmp_path / "4")


@pytest.mark.slow
@pytest.mark.parametrize("own", [True, False])
def test_a_thread_that_fails_ends_all_and_the_run_resumes_to_the_same_bits(
    own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever thread fails: its error is raised, no thread is left, and another number of threads may go on."""
    recipe = tiny_recipe(workers=2, moving_average=0.9, average=1, precision="bfloat16")
    train(recipe, tmp_path / "whole")
    original, count = ExampleWork.loss, 0

    def loss(self: ExampleWork, *arguments: Any) -> Any:
        nonlocal count
        if threading.current_thread().name.startswith("worker") != own:
            count += 1
            if count == 20:
                raise MemoryError
        return original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(ExampleWork, "loss", loss)
        with pytest.raises(MemoryError):
            train(recipe, tmp_path / "run")
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("worker")]
    kept = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    kept["training"]["workers"] = 1
    (tmp_path / "run" / "recipe.yaml").write_text(yaml.safe_dump(kept))
    train(tmp_path / "run", resume=True)
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "whole")


# -- processes ---------------------------------------------------------------------------------------------------------


def newest(run: Path) -> int:
    return checkpoints_in(run)[-1].step if checkpoints_in(run) else 0


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "seqloom", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def launch(folder: Path, size: int, *arguments: str) -> list[subprocess.Popen[str]]:
    """As torchrun does: each process has its rank and the address of the first."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
    where["MASTER_PORT"] = str(port)
    return [start(folder, *arguments, RANK=str(rank), **where) for rank in range(size)]


def finished(processes: Sequence[subprocess.Popen[str]]) -> list[str]:
    logs = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), logs
    return logs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["usual", "R-Drop", "stream", "few rows", "hashed n-grams"])
@pytest.mark.parametrize("size", [2, 3])
def test_processes_change_no_bit(name: str, size: int, tmp_path: Path) -> None:
    """Three ranks of four shards: one has two branches of the tree, or another share than the others."""
    recipe_of, more = HOW[name]
    recipe = recipe_of(shards=4, **more)
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    first, *others = finished(launch(tmp_path, size, "train", "r.yaml", "--run", "run"))
    assert "trained in" in first
    assert not any(others), "one of them talks"
    train(recipe, tmp_path / "alone")
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "alone")
    assert next(iter(read_journal(tmp_path / "run" / "journal.jsonl")))["ranks"] == size


def wait_for(condition: Any, seconds: float = 90) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(condition())


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_nobody_goes_on_alone_and_one_may_finish_what_two_began(killed: int, tmp_path: Path) -> None:
    recipe = stream_recipe(shards=2, steps=600, validate_every=300, checkpoint_every=20)
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    both = launch(tmp_path, 2, "train", "r.yaml", "--run", "run")
    assert wait_for(lambda: checkpoints_in(tmp_path / "run"))
    both[killed].kill()
    log = both[1 - killed].communicate(timeout=60)[1]
    assert both[1 - killed].returncode == 1
    assert "another of the processes that train together has ended" in log
    assert "Traceback" not in log
    both[killed].wait()
    train(tmp_path / "run", resume=True)
    train(recipe, tmp_path / "whole")
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "whole")


@pytest.mark.slow
def test_a_stop_is_heard_by_all(tmp_path: Path) -> None:
    """One of them is asked to stop: all end at the same step, and a checkpoint is there."""
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(stream_recipe(shards=2, steps=100_000, validate_every=50_000)))
    both = launch(tmp_path, 2, "train", "r.yaml", "--run", "run")
    assert wait_for(lambda: checkpoints_in(tmp_path / "run"))
    both[1].send_signal(signal.SIGTERM)
    logs = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [143, 143], logs
    last = list(read_journal(tmp_path / "run" / "journal.jsonl"))[-1]
    assert last["event"] == "stop"
    assert checkpoints_in(tmp_path / "run")[-1].step == last["step"]


def test_half_a_launcher_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with pytest.raises(UserError, match=r"MASTER_ADDR, MASTER_PORT is not set .* unset WORLD_SIZE to train alone"):
        train(tiny_recipe(), tmp_path / "run")


@pytest.mark.slow
def test_killed_at_random_under_random_ways_of_computing(tmp_path: Path) -> None:
    """One process, threads, two processes: whoever goes on, the end has the bits of the run nobody disturbed."""
    chance = random.Random(5)
    recipe = stream_recipe(shards=4, steps=240, checkpoint_every=10, validate_every=120)
    train(recipe, tmp_path / "whole")
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    run, kills = tmp_path / "run", 0

    def moved(before: int, process: subprocess.Popen[str]) -> bool:
        return newest(run) != before or process.poll() is not None

    for attempt in itertools.count():
        go_on = ["train", "run", "--resume"] if attempt and checkpoints_in(run) else ["train", "r.yaml", "--run", "run"]
        go_on += ["--restart"] if "--resume" not in go_on and attempt else []
        size = chance.choice([1, 2])
        processes = launch(tmp_path, size, *go_on) if size > 1 else [start(tmp_path, *go_on)]
        before = newest(run)
        if kills < 3:
            wait_for(partial(moved, before, processes[0]), 60)
            time.sleep(chance.random() * 0.3)
            for process in processes:
                process.kill()
        codes = [process.wait() for process in processes]
        for process in processes:
            process.communicate()
        kills += codes[0] == -signal.SIGKILL
        if codes[0] == 0:
            break
        assert attempt < 12, codes
    assert kills, "at least one run was really killed"
    assert weights_of(run) == weights_of(tmp_path / "whole")


# -- the tree ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 9))
def test_ranks_own_every_shard_once_and_their_branches_make_the_tree(shards: int, size: int) -> None:
    ranks = Ranks()
    ranks.size = size
    own = [ranks.owned(shards, rank) for rank in range(size)]
    assert [shard for some in own for shard in some] == list(range(shards))
    found = {branch: [branch] for some in own for branch in branches_within(some, 0, shards)}
    whole = tree_sum(found, lambda one, other: one + other, 0, shards)
    assert [low for low, _ in whole] == [0, *(high for _, high in whole[:-1])]
    assert whole[-1][1] == shards


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20), st.integers(1, 6))
def test_a_sum_along_the_tree_does_not_depend_on_who_has_which_leaves(numbers: list[float], size: int) -> None:
    add = lambda one, other: [one[0] + other[0]]  # noqa: E731
    count = len(numbers)
    leaves = {(at, at + 1): [torch.tensor(number)] for at, number in enumerate(numbers)}
    ranks = Ranks()
    ranks.size = size
    branches = [b for rank in range(size) for b in branches_within(ranks.owned(count, rank), 0, count)]
    sums = {branch: tree_sum(leaves, add, *branch) for branch in branches}
    assert torch.equal(tree_sum(sums, add, 0, count)[0], tree_sum(leaves, add, 0, count)[0])


def test_a_tree_by_hand() -> None:
    """((1 + 2) + 3) of single numbers would be another sum: 2**-24 is lost beside 1, but not beside itself."""
    tiny = 2.0**-24
    leaves = {(at, at + 1): [torch.tensor(value)] for at, value in enumerate([1.0, 0.0, tiny, tiny])}
    (found,) = tree_sum(leaves, add_gradients, 0, 4)
    assert found is not None
    assert float(found) == 1.0 + 2 * tiny
    assert halves(0, 5) == ((0, 2), (2, 5))
    assert branches_within(range(1, 5), 0, 8) == [(1, 2), (2, 4), (4, 5)]


def test_a_weight_without_a_part_in_a_shard_has_the_gradient_of_the_others() -> None:
    one, other = torch.tensor([1.0]), torch.tensor([2.0])
    assert add_gradients([None, one], [other, None]) == [other, one]
    assert add_gradients([None], [None]) == [None]


# -- shared out -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
def test_what_is_shared_out_comes_back_in_order_computed_by_one_thread_each(workers: int) -> None:
    def compute(number: int) -> list[int]:
        time.sleep(0.01 * (number % 3))
        return [number, torch.get_num_threads()]

    with one_thread_each(workers):
        assert spread(compute, range(7)) == [[number, 1] for number in range(7)]
        assert sorted(side_by_side(compute, range(4))) == [[number, 1] for number in range(4)]


def test_ranks_share_work_out() -> None:
    class Two(Ranks):
        size = 2

        def gather(self, values: list[Any]) -> list[list[Any]]:
            assert values == [0, 4, 16], "of every second item"
            return [values, [1, 9]]

    with one_thread_each(1, Two()):
        assert spread(lambda number: number**2, range(5)) == [0, 1, 4, 9, 16]


# -- how many shards ---------------------------------------------------------------------------------------------------


def test_the_recipe_alone_decides_how_many_shards_there_are() -> None:
    sizes = {64: 2, 4096: 2, 8191: 2, 8192: 4, 16_384: 8, 100_000: 16}
    assert {size: TrainingSettings(steps=1, batch_tokens=size).num_shards for size in sizes} == sizes
    assert TrainingSettings(steps=1, batch_tokens=64, shards=5).num_shards == 5
    assert RunningTextTrainingSettings(steps=1, rows=64, length=256).num_shards == 8
    assert RunningTextTrainingSettings(steps=1, rows=3, length=9000).num_shards == 3
    assert RunningTextTrainingSettings(steps=1, batching="sentences", batch_tokens=8192).num_shards == 4
    assert FittingSettings(steps=1).num_shards == 2
