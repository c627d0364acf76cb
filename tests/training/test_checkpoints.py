"""A checkpoint appears whole or not at all, and a failure never costs the one before."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from seqloom.errors import RunError, UserError
from seqloom.models import CLASSIFIERS, LANGUAGE_MODELS, TRANSLATORS
from seqloom.models.encoder_decoder import EncoderDecoder, TransformerTranslatorSettings
from seqloom.settings import validated
from seqloom.training import checkpoints
from seqloom.training.checkpoints import (
    Checkpoint,
    average_weights,
    check_fits,
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
    save_checkpoint(tmp_path, 13, model, optimizer, {"step": 13})
    (found,) = checkpoints_in(tmp_path)
    assert found == Checkpoint(13, tmp_path / "checkpoints" / "step-00000013")
    weights, optimizer, values = load_checkpoint(found)
    assert weights.keys() == {"table.weight", "output.bias"}  # a tied weight once
    assert all((weight == 2.5).all() for weight in weights.values())
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


# -- buffers ---------------------------------------------------------------------------------------------------------


class Normed(nn.Module):
    """A model that learns statistics of its data beside its weights, and holds a table that is made anew."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("table", torch.arange(5.0), persistent=False)


def normed(seed: int, batches: int) -> Normed:
    torch.manual_seed(seed)
    model = Normed()
    for _ in range(batches):
        model.norm(3 + 2 * torch.randn(7, 2))
    return model.eval()


def test_statistics_are_saved_and_restored(tmp_path: Path) -> None:
    """What a batch norm has seen is as much a part of the model as its weights."""
    model, inputs = normed(1, batches=11), torch.randn(5, 2)
    expected = model.norm(inputs)
    saved = {"norm.weight", "norm.bias", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}

    save_checkpoint(tmp_path, 3, model, {}, {})
    weights, _, _ = load_checkpoint(checkpoints_in(tmp_path)[0])
    assert weights.keys() == saved  # not the table, which is made anew
    other = normed(2, batches=2)
    assert not torch.allclose(other.norm(inputs), expected)
    put_weights(other, weights)
    assert torch.equal(other.norm(inputs), expected)
    assert int(other.norm.num_batches_tracked) == 11

    save_weights(tmp_path / "best", model)
    assert load_tensors(tmp_path / "best").keys() == saved
    del weights["norm.running_mean"]
    with pytest.raises(UserError, match=r"norm\.running_mean is missing"):
        put_weights(other, weights)


def test_statistics_are_copied_and_averaged_but_not_counts(tmp_path: Path) -> None:
    model = normed(1, batches=4)
    kept = model_tensors(model)
    folders = []
    for step in (1, 2):
        folders.append(save_checkpoint(tmp_path, step, model, {}, {}))
        model.norm.running_mean += 1
        model.norm.num_batches_tracked += 5
    assert int(kept["norm.num_batches_tracked"]) == 4
    mean = average_weights(folders)
    torch.testing.assert_close(mean["norm.running_mean"], kept["norm.running_mean"] + 0.5)
    assert int(mean["norm.num_batches_tracked"]) == 9  # of the newest
    assert mean["norm.num_batches_tracked"].dtype == torch.int64
    put_weights(normed(3, batches=1), mean)


# -- settings that describe something else ---------------------------------------------------------------------------

SMALL: dict[str, dict[str, Any]] = {
    "recurrent": dict(kind="recurrent_translator", embedding_size=6, hidden_size=8),
    "transformer": dict(
        kind="transformer_translator", size=8, num_heads=2, feed_forward_size=8, encoder_layers=1, decoder_layers=2
    ),
    "language": dict(kind="recurrent_lm", size=6, hidden_size=8),
    "causal": dict(kind="transformer_lm", size=8, num_heads=2, feed_forward_size=8, num_layers=1),
    "classifier": dict(kind="classifier", encoder=dict(kind="recurrent", embedding_size=6, hidden_size=8)),
}
TABLES = TRANSLATORS | LANGUAGE_MODELS | CLASSIFIERS
BEYOND = 10**30


def small(about: dict[str, Any]) -> nn.Module:
    settings_kind, model_kind = TABLES[about["kind"]]
    settings: Any = validated(settings_kind, about)
    if about["kind"] in CLASSIFIERS:
        return model_kind(settings, num_symbols=11, num_labels=3)
    if about["kind"] in LANGUAGE_MODELS:
        return model_kind(settings, num_symbols=11)
    return model_kind(settings, source_symbols=11, target_symbols=11)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_settings_that_fit_their_file(name: str) -> None:
    check_fits(lambda: small(SMALL[name]), model_tensors(small(SMALL[name])), "m")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("recurrent", dict(hidden_size=10**9)),
        ("recurrent", dict(hidden_size=BEYOND)),
        ("recurrent", dict(embedding_size=10**12)),
        ("recurrent", dict(encoder_layers=10**9)),
        ("recurrent", dict(decoder_layers=2)),
        ("transformer", dict(decoder_layers=10**9)),
        ("transformer", dict(size=2 * 10**9, num_heads=10**9, positions="alibi")),
        ("transformer", dict(feed_forward_size=BEYOND)),
        ("transformer", dict(positions="learned", max_positions=100_000)),
        ("language", dict(num_layers=10**9)),
        ("causal", dict(feed_forward_size=10**15)),
        ("classifier", dict(encoder=dict(kind="embeddings", size=10**15))),
        ("classifier", dict(encoder=dict(kind="transformer", num_layers=10**9))),
    ],
)
def test_settings_that_do_not_fit_cost_nothing(name: str, more: dict[str, Any]) -> None:
    weights = model_tensors(small(SMALL[name]))
    with pytest.raises(UserError, match=r"models/a does not fit its settings: "):
        check_fits(lambda: small(SMALL[name] | more), weights, "models/a")
    small(SMALL[name])  # nothing is left behind


def test_a_model_may_be_built_beside() -> None:
    """What another thread builds is not counted, and is built with tensors of its own."""
    weights = model_tensors(small(SMALL["recurrent"]))
    built: list[EncoderDecoder] = []

    def build() -> nn.Module:
        deep = TransformerTranslatorSettings(size=8, num_heads=2, encoder_layers=9, decoder_layers=9)
        thread = threading.Thread(
            target=lambda: built.append(EncoderDecoder(deep, source_symbols=11, target_symbols=11))
        )
        thread.start()
        thread.join()
        return small(SMALL["recurrent"])

    check_fits(build, weights, "models/a")
    assert {weight.device.type for weight in built[0].parameters()} == {"cpu"}


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
