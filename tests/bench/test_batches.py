"""Every trainer reads the same batches: what is written down is what seqloom itself would train on."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.data import BatchFile, padding_share, write_batches
from bench.peers.common import tensors

from conftest import tiny_recipe
from seqloom.batches.samplers import Position
from seqloom.recipe import load_recipe
from seqloom.tasks import find_task


@pytest.fixture(scope="module")
def work() -> Any:
    recipe = load_recipe(tiny_recipe())
    task: Any = find_task(recipe.task).learn(recipe, print)
    return task.work(recipe)


def test_the_file_holds_the_batches_of_the_loop(work: Any, tmp_path: Path) -> None:
    num_batches = round(work.batches_per_epoch()) + 3  # on into the second epoch
    write_batches(tmp_path / "batches.npz", work, num_batches)
    file = BatchFile(tmp_path / "batches.npz")
    assert len(file) == num_batches
    for found, (_, ours) in zip(file, islice(work.batches(Position()), num_batches), strict=True):
        theirs = tensors(found)
        source, target = ours.source, ours.target
        both = (source.ids, source.lengths, target.inputs, target.outputs, target.lengths)
        assert all(one.equal(other) for one, other in zip(theirs[:-1], both, strict=True))
        assert theirs.num_tokens == ours.num_tokens


def test_validation_is_the_same_too(work: Any, tmp_path: Path) -> None:
    write_batches(tmp_path / "batches.npz", work, 1)
    file = BatchFile(tmp_path / "batches.npz", "valid")
    for found, indices in zip(file, work.valid_batches, strict=True):
        assert tensors(found).target_out.equal(work.valid.batch(indices).target.outputs)


def test_padding_share(work: Any, tmp_path: Path) -> None:
    write_batches(tmp_path / "batches.npz", work, 4)
    file = BatchFile(tmp_path / "batches.npz")
    padded = [file[index].target_out for index in range(4)]
    share = sum((one == 0).sum() for one in padded) / sum(one.size for one in padded)
    assert np.isclose(padding_share(file, range(4)), share)
