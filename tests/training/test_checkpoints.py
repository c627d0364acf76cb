"""A checkpoint appears whole or not at all, and a failure never costs the one before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from seqloom.errors import RunError, UserError
from seqloom.training import checkpoints
from seqloom.training.checkpoints import (
    Checkpoint,
    average_weights,
    checkpoints_in,
    load_checkpoint,
    load_tensors,
    model_tensors,
    prune_checkpoints,
    put_weights,
    save_checkpoint,
    save_tensors,
    save_weights,
    scheduled,
)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 2)
        self.output = nn.Linear(2, 3)
        self.output.weight = self.table.weight


def filled(value: float) -> Tied:
    model = Tied()
    for weight in model.parameters():
        nn.init.constant_(weight, value)
    return model


def save(run: Path, step: int, value: float = 1.0) -> Path:
    return save_checkpoint(
        run, step, filled(value), {"exp_avg/table.weight": torch.full((3, 2), value)}, {"step": step}
    )


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    model, optimizer = filled(2.5), {"exp_avg/table.weight": torch.ones(3, 2)}
    torch.manual_seed(61)
    state = torch.get_rng_state()
    save_checkpoint(tmp_path, 13, model, optimizer, {"step": 13})
    (found,) = checkpoints_in(tmp_path)
    assert found == Checkpoint(13, tmp_path / "checkpoints" / "step-00000013")
    weights, optimizer, values = load_checkpoint(found)
    assert weights.keys() == {"table.weight", "output.bias"}  # a tied weight once
    assert all((weight == 2.5).all() for weight in weights.values())
    assert torch.equal(optimizer.pop("random"), state)
    assert optimizer.keys() == {"exp_avg/table.weight"}
    assert values == {"step": 13}


def test_in_order_and_only_the_complete(tmp_path: Path) -> None:
    assert checkpoints_in(tmp_path) == []
    for step in (100, 20, 3):
        save(tmp_path, step)
    for other in ("best", "step-12", ".step-00000099.abc", "step-00000098.old"):
        (tmp_path / "checkpoints" / other).mkdir()
    assert [checkpoint.step for checkpoint in checkpoints_in(tmp_path)] == [3, 20, 100]


@pytest.mark.parametrize("failing_call", [1, 2])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", [7, 11])
def test_a_failure_while_writing_leaves_the_older_one_and_no_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_call: int, error: BaseException, step: int
) -> None:
    """Both for a new step and for one that is written over."""
    save(tmp_path, 7, 1.5)
    calls: list[int] = []

    def failing(tensors: Any, path: Path) -> None:
        calls.append(1)
        if len(calls) == failing_call:
            path.write_bytes(b"half")
            raise error
        save_file(tensors, path)

    monkeypatch.setattr(checkpoints, "save_file", failing)
    with pytest.raises(RunError if isinstance(error, OSError) else KeyboardInterrupt) as caught:
        save(tmp_path, step, 9.0)
    if isinstance(error, OSError):
        assert "cannot write" in str(caught.value)
        assert "No space left on device" in str(caught.value)
    assert names(tmp_path) == ["step-00000007"]
    weights, _, _ = load_checkpoint(checkpoints_in(tmp_path)[0])
    assert (weights["table.weight"] == 1.5).all()


def test_a_failure_while_moving_leaves_the_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_weights(tmp_path / "best", filled(1.0))

    def failing(source: Any, target: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("seqloom.files.os.replace", failing)
    with pytest.raises(RunError, match="Input/output error"):
        save_weights(tmp_path / "best", filled(2.0))
    assert (load_tensors(tmp_path / "best")["output.bias"] == 1.0).all()
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_weights_are_replaced_in_one_move(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        save_weights(tmp_path / "best", filled(value))
    assert (load_tensors(tmp_path / "best")["output.bias"] == 2.0).all()
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_scheduled_by_hand() -> None:
    found = [Checkpoint(step, Path(str(step))) for step in (10, 17, 20, 30, 33)]
    assert [c.step for c in scheduled(found, 10)] == [10, 20, 30, 33]
    assert [c.step for c in scheduled(found[:4], 10)] == [10, 20, 30]
    assert scheduled([], 10) == []


def test_prune_keeps_what_it_says(tmp_path: Path) -> None:
    for step in (10, 17, 20, 30, 33):
        save(tmp_path, step)
    prune_checkpoints(tmp_path, keep=3, every=10)
    assert [c.step for c in checkpoints_in(tmp_path)] == [20, 30, 33]
    for checkpoint in checkpoints_in(tmp_path):
        assert (checkpoint.folder / "model.safetensors").is_file()
        assert (checkpoint.folder / "optimizer.safetensors").is_file() == (checkpoint.step == 33)
    load_checkpoint(checkpoints_in(tmp_path)[-1])
    save(tmp_path, 40)
    prune_checkpoints(tmp_path, keep=2, every=10)
    assert [c.step for c in checkpoints_in(tmp_path)] == [30, 40]  # 33 came from an interrupt


def test_the_mean_by_hand(tmp_path: Path) -> None:
    folders = [save(tmp_path, step, value) for step, value in ((1, 1.0), (2, 2.0), (3, 6.0))]
    mean = average_weights(folders)
    assert mean.keys() == {"table.weight", "output.bias"}
    for weight in mean.values():
        assert weight.dtype == torch.float32
        assert (weight == 3.0).all()
    assert (average_weights(folders[:1])["output.bias"] == 1.0).all()


def test_the_mean_is_summed_in_double_precision(tmp_path: Path) -> None:
    folders = []
    for step, value in enumerate((2.0**24, 1.0, 1.0, -(2.0**24))):  # in single precision the ones are lost
        folders.append(save(tmp_path, step, value))
    assert (average_weights(folders)["output.bias"] == 0.5).all()


def test_put_weights_names_what_does_not_fit() -> None:
    weights = model_tensors(filled(1.0))
    weights["output.bias"] = torch.zeros(5)
    weights["extra.weight"] = torch.zeros(1)
    del weights["table.weight"]
    model = filled(3.0)
    with pytest.raises(UserError) as caught:
        put_weights(model, weights, "models/a")
    assert str(caught.value) == (
        "models/a does not fit its settings: extra.weight is unknown; output.bias is (5,), expected (3,); "
        "table.weight is missing"
    )
    assert (model.output.bias == 3.0).all()  # nothing was copied


def test_put_weights_keeps_ties() -> None:
    model = filled(3.0)
    put_weights(model, model_tensors(filled(5.0)))
    assert model.output.weight is model.table.weight
    assert (model.output.weight == 5.0).all()


def test_model_tensors_are_copies() -> None:
    model = filled(1.0)
    kept = model_tensors(model)
    model.table.weight.data.fill_(2.0)
    assert (kept["table.weight"] == 1.0).all()


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.safetensors: there is no such file"):
        load_tensors(tmp_path / "absent.safetensors")
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"not tensors at all")
    with pytest.raises(UserError, match=r"bad\.safetensors: damaged or not a safetensors file"):
        load_tensors(bad)
    save_tensors(bad, {"a": torch.zeros(11)})
    bad.write_bytes(bad.read_bytes()[:-5])
    with pytest.raises(UserError, match="damaged"):
        load_tensors(bad)
    with pytest.raises(RunError, match="cannot write"):
        save_tensors(tmp_path / "no such folder" / "x.safetensors", {"a": torch.zeros(1)})
